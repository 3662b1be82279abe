"""Corpora: read, checked, tokenized, prepared once, and served as batches. Only batches.py needs torch."""
