"""Columns and legend of the results table, each declared once for all formats.

Markdown, LaTeX and HTML show the table as the paper does: base in full, cells of other rows blank
where they equal base. A terminal shows each row by its label, and as many columns as fit, the most
important ones first. CSV, JSON and frames take the values of the same columns.
"""
