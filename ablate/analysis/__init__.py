"""Attention weights of a trained run for a sentence, and the importance of each head for its loss.

heads.py        the attention layers of a model
weights.py      the weights of every head for a pair of sentences, and their statistics
importance.py   the change in loss when a head is masked
terminal.py     both as text
figures.py      both as figures
formats.py      both as JSON and CSV
"""
