"""Significance of differences between rows and base. Numbers in, numbers out; no library."""
