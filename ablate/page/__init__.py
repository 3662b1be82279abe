"""The report page, and the same figures as files for a paper.

page.py        the page from its templates
html.py        the template environment, and the table as HTML
figures.py     learning curves, differences from base, score against cost
points.py      the data that figures show
labels.py      names beside points
inline_svg.py  figures as SVG elements of the page
summary.py     the outcome in a few sentences
samples.py     items of the test set with their predictions
"""
