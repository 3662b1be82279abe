"""Decoding: beam search for translations and trees, sampling, and filling of masks."""

from ablate.decoding.beam import Hypothesis, beam_search
from ablate.decoding.translate import translate, translate_ids

__all__ = ["Hypothesis", "beam_search", "translate", "translate_ids"]
