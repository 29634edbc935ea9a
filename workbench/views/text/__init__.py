"""Views as text and HTML: tables, diffs, reports."""
