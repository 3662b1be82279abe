"""Columns and legend of the results table.

Markdown, LaTeX and HTML show the table as the paper does: base in full, cells of other rows blank
where they equal base. A terminal shows each row by its label, and as many columns as fit, the most
important ones first. A table is a sequence of sections, each some columns and the legend lines that
explain them; `layouts.py` lists them. The csv file comes from `analysis/frames.py`, and the JSON
file from `analysis/table.py`.
"""

from ablate.config.resolve import SETTINGS
from ablate.report.columns.layouts import by_labels, paper_layout, terminal_layout

__all__ = ["SETTINGS", "by_labels", "paper_layout", "terminal_layout"]
