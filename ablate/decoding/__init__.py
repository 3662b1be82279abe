"""Decoding: batched beam search with a key/value cache."""

from ablate.decoding.beam import Hypothesis, beam_search
from ablate.decoding.translate import translate

__all__ = ["Hypothesis", "beam_search", "translate"]
