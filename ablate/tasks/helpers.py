"""Functions for tasks of one's own: batches of text pairs, decoding, scores with resampled test
sets. They load torch.

Import this module inside a task's methods: the module of a task is loaded to read studies, which
needs no torch.
"""

from ablate.data.batches import PairBatch, collate, pad
from ablate.decoding import translate
from ablate.metrics.resampling import measure

__all__ = ["PairBatch", "collate", "measure", "pad", "translate"]
