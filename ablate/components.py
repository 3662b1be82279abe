"""Public base classes and built-in components for custom components, which docs/components.md
describes.

`import ablate` does not import this module, because it loads torch. Its names keep their meaning
within a major version of ablate. A norm needs no base class from here: it is any torch.nn.Module
constructed with `d_model`.
"""

from ablate.config import ModelConfig
from ablate.model.attention import (
    AttentionMechanism,
    FullAttention,
    LinearAttention,
    LocalAttention,
)
from ablate.model.attention_context import AttentionContext
from ablate.model.feed_forward import GELU, Activation, ReLU, SwiGLU
from ablate.model.layers import Dropout
from ablate.model.norms import LayerNorm, RMSNorm
from ablate.model.positions import (
    AlibiPositions,
    LearnedPositions,
    PositionalEncoding,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
    T5Positions,
)
from ablate.model.residual import Residual
from ablate.model.token_mixer import TokenMixer

__all__ = [
    "GELU",
    "Activation",
    "AlibiPositions",
    "AttentionContext",
    "AttentionMechanism",
    "Dropout",
    "FullAttention",
    "LayerNorm",
    "LearnedPositions",
    "LinearAttention",
    "LocalAttention",
    "ModelConfig",
    "PositionalEncoding",
    "RMSNorm",
    "ReLU",
    "RelativePositions",
    "Residual",
    "RotaryPositions",
    "SinusoidalPositions",
    "SwiGLU",
    "T5Positions",
    "TokenMixer",
]
