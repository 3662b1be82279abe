"""Corpora of named text fields: reading, filtering, tokenizing, preparing once, and batching.

`prepare.prepare` gives a `corpus.Corpus`; `batches`, `contexts` and `masking` make its batches, and
are the only modules that need torch. From text to batches: resolve_sources finds the sources,
sources (with readers and hub) read records, preparation (with filters and tokenizer) makes token
ids, corpus opens them.
"""
