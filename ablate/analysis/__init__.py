"""What the heads of a trained run do: what they look at in a sentence, and what each is worth.

heads.py        where the heads are
weights.py      every head's weights for a sentence and its translation
measures.py     what a head's weights come to, in a few numbers
maps.py         both in a terminal
importance.py   the change in loss when a head is masked
worth.py        the same in a terminal
drawing.py      weights and importance as figures, on a sheet.py, in the files that figures.py writes
forms.py        weights, measures and importance for scripts
"""
