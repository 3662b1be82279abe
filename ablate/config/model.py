"""Fields of the Transformer itself (section 3 of the paper)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from ablate.config.section import Section

# Sizes are bounded so that a typing error is refused here and not by the machine's memory.
MAX_SIZE = 65_536


class ModelConfig(Section):
    """The shape of the encoder-decoder. Defaults are the paper's base model."""

    n_layers: int = Field(6, ge=1, le=256, description="N: layers in the encoder, and as many in the decoder")
    d_model: int = Field(512, ge=2, le=MAX_SIZE, description="width of embeddings and of every sub-layer's output")
    d_ff: int = Field(2048, ge=1, le=MAX_SIZE, description="inner width of the feed-forward network (3.3)")
    n_heads: int = Field(8, ge=1, le=1024, description="h: attention heads (3.2.2)")
    d_k: int = Field(ge=1, le=MAX_SIZE, description="query and key size of one head; d_model / h unless set")
    d_v: int = Field(ge=1, le=MAX_SIZE, description="value size of one head; d_model / h unless set")
    dropout: float = Field(0.1, ge=0.0, lt=1.0, description="P_drop on sub-layer outputs and on embedding sums (5.4)")
    positional_encoding: Literal["sinusoidal", "learned", "none"] = Field(
        "sinusoidal", description="what tells the model the order of tokens (3.5; row E of Table 3)"
    )
    max_positions: int = Field(
        1024, ge=8, le=MAX_SIZE, description="longest sequence in tokens; the rows of each learned position table"
    )

    @model_validator(mode="after")
    def _sinusoids_pair(self) -> ModelConfig:
        if self.positional_encoding == "sinusoidal" and self.d_model % 2:
            raise ValueError(f"d_model={self.d_model} is odd, and sinusoidal positions pair a sine with a cosine")
        return self
