"""Matrix times vector, several rows in a CTA."""
