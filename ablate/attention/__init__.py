"""Attention weights of a trained run for a sentence, and the importance of each head for its loss.

weights.py      the attention layers of a model, the weights of every head for an input, and their
statistics importance.py   the change in loss when a head is masked figures.py      both as figures
formats.py      both as text for a terminal, as JSON and as CSV
"""
