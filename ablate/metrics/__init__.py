"""Scores of trained models: perplexity, sacreBLEU's metrics, bits per byte, masked tokens, labeled
brackets.

ablate/config/metrics.py has the names, signs and digits of the metrics, which tables need without
computing them.
"""
