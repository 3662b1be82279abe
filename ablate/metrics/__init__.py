"""Scores of trained models. Their names and signs, which tables need, are in stats/metrics.py."""
