"""Scores of trained models. stats/metrics.py has their names and signs for tables."""
