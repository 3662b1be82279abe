"""Corpora: read, checked, tokenized, prepared once, and served as batches."""

from ablate.data.batches import Batch, BatchOrder, eval_batches
from ablate.data.corpus import Corpus
from ablate.data.prepare import prepare

__all__ = ["Batch", "BatchOrder", "Corpus", "eval_batches", "prepare"]
