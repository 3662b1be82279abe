"""Fields of training (section 5 of the paper)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from ablate.config.section import Section

MAX_STEPS = 100_000_000


class TrainingConfig(Section):
    """The recipe and the budget. Defaults are the paper's."""

    train_steps: int | None = Field(
        100_000, ge=1, le=MAX_STEPS, description="optimizer steps; with epochs or patience, whichever ends first"
    )
    epochs: int | None = Field(None, ge=1, le=1_000_000, description="passes over the training side")
    patience: int | None = Field(
        None, ge=1, le=1_000_000, description="evaluations without a better dev perplexity; the best weights are used"
    )
    batch_tokens: int = Field(25_000, ge=1, le=100_000_000, description="tokens a step on the longer side (5.1)")
    warmup_steps: int = Field(4000, ge=1, le=MAX_STEPS, description="steps of linear warm-up of the rate (5.3)")
    label_smoothing: float = Field(0.1, ge=0.0, lt=1.0, description="eps_ls, spread over the whole vocabulary (5.4)")
    precision: Literal["fp32", "bf16"] = Field(
        "fp32", description="arithmetic of the products; weights and optimizer stay fp32"
    )
    eval_every: int = Field(1000, ge=1, le=MAX_STEPS, description="steps between two dev perplexities")
    checkpoint_every: int = Field(1000, ge=1, le=MAX_STEPS, description="steps between two checkpoints")
    checkpoint_minutes: float = Field(
        10.0, gt=0.0, le=100_000.0, description="minutes after which progress is saved in any case"
    )
    micro_batch_tokens: int | None = Field(
        None, ge=1, le=100_000_000, description="tokens at once; a larger batch is accumulated. Unset: what fits"
    )

    @model_validator(mode="after")
    def _has_an_end(self) -> TrainingConfig:
        if self.train_steps is None and self.epochs is None and self.patience is None:
            raise ValueError("training has no end: set train_steps, epochs or patience")
        return self
