"""The shared Transformer core, one mechanism a file.

Shapes everywhere: B sentences in the batch, S source tokens, T target tokens, K hypotheses a
sentence, h heads of queries, g heads of keys and values, d_k and d_v head sizes, V vocabulary.
"""

from ablate.model.build import build
from ablate.model.cache import Cache
from ablate.model.transformer import Transformer

__all__ = ["Cache", "Transformer", "build"]
