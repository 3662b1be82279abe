"""Attention weights of a trained run for a sentence, and the importance of each head for its loss.

weights.py      the attention layers of a model, the weights of every head for an input, their means
importance.py   the change in loss when a head is masked
figures.py      both as figures
output.py       both as tables for a terminal, and as JSON
"""
