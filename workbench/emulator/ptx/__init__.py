"""Parses PTX text, and has the table of its instructions."""
