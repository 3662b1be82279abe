"""Scores: perplexity on the dev side, BLEU on the test side."""
