"""Corpora: read, checked, tokenized, prepared once, and served as batches."""

from ablate.data.batches import Batch, BatchOrder, eval_batches
from ablate.data.corpus import Corpus, Statistics
from ablate.data.prepare import prepare, prepared_statistics

__all__ = ["Batch", "BatchOrder", "Corpus", "Statistics", "eval_batches", "prepare", "prepared_statistics"]
