"""Scores of trained models: perplexity, sacreBLEU's metrics, bits per byte, masked tokens, labeled brackets."""
