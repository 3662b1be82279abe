"""The report page, and the same figures as files for a paper.

page.py     the page from its templates: summary, tables, figures, samples
designs.py  the page's sections on designs, tuning, sizes and speed-up
html.py     the template environment, and the table as HTML
figures.py  learning curves, differences from base, score against cost
points.py   the data that figures show
labels.py   names beside points
"""
