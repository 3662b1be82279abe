"""The shared Transformer core, one mechanism a file.

Shapes everywhere: B sentences in the batch, S source tokens, T target tokens, K hypotheses a
sentence, h heads, d_k and d_v head sizes, V vocabulary.
"""

from ablate.model.transformer import Memory, Transformer, build

__all__ = ["Memory", "Transformer", "build"]
