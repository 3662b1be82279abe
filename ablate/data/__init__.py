"""Corpora of named text fields: reading, filtering, tokenizing, preparing once, and batching.

`prepare.prepare` gives a `corpus.Corpus`; `batches`, `contexts` and `masking` make its batches, and
are the only modules that need torch. From text to batches: resolve_sources, sources (readers, hub),
builder (filters, tokenizer, encoding), corpus.
"""
