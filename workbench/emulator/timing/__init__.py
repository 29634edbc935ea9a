"""Models of time: a CTA's timeline, the caches, the roofline."""
