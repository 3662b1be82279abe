"""Corpora of named text fields: reading, filtering, tokenizing, preparing once, and batching.

`prepare.prepare` gives a `corpus.Corpus`; `batches`, `contexts` and `masking` make its batches, and
are the only modules that need torch. From text to batches: `resolve_sources` locates the text,
`sources` and `text_streams` read it, `prepare_records`, `prepare_stream` and `prepare_items` encode
it, `build` writes the ids, and `corpus` opens them.
"""
