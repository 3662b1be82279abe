"""Functions for users' tasks: batches of text pairs, translation, scores with resampled test sets.

Import this module inside methods only: it imports torch, and studies are read without torch.
"""

from ablate.data.batches import PairBatch, collate, pad
from ablate.decoding import translate
from ablate.metrics.resampling import measure

__all__ = ["PairBatch", "collate", "measure", "pad", "translate"]
