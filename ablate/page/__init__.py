"""The report page, and the same figures as files for a paper.

page.py      the page from its templates: summary, tables, figures, samples
sections.py  the page's sections on designs, choices, sizes and speed-up; the files of all figures
drawings.py  what the page and the files show: differences, learning curves, score against cost
html.py      the template environment, and the table as HTML
figures.py   how figures are drawn
points.py    the data that figures show
"""
