"""Attention weights of a trained run for a sentence, and the importance of each head for its loss.

weights.py      the attention layers of a model, the weights of every head for an input
importance.py   the change in loss when a head is masked
figures.py      the weights as a figure
output.py       both as JSON, and importance as a table for a terminal
"""
