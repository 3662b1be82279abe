"""Columns and legend of the results table, each declared once for all formats.

People see each row by its label, which names its changes, and the most important columns first; a
terminal shows as many columns as fit. A table with all rows of the paper looks as in the paper:
base in full, and other rows blank where they equal base. CSV, JSON and frames take the values of
the same columns.
"""
