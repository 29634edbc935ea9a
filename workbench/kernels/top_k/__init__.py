"""The k largest elements of each row."""
