"""Fields of training (section 5 of the paper)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from ablate.config.fields import Section

MAX_STEPS = 100_000_000

# Rows whose logits exist at once: on a CPU few enough to stay near the cores, on a GPU enough to fill it.
LOGIT_ROWS = {"cpu": 256, "cuda": 4096}


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
    schedule: Literal["inverse_sqrt", "constant", "linear", "cosine"] = Field(
        "inverse_sqrt", description="of the rate after warm-up: the paper's (5.3), or level, or down to 0 at the end"
    )
    learning_rate: float | None = Field(
        None, gt=0.0, le=100.0, description="peak of the rate; unset: the paper's (d_model * warmup_steps)^-0.5"
    )
    optimizer: Literal["adam", "adamw"] = Field(
        "adam", description="Adam (5.3), or with decoupled weight decay (Loshchilov and Hutter, 2019)"
    )
    adam_beta1: float = Field(0.9, ge=0.0, lt=1.0, description="decay of Adam's first moment (5.3)")
    adam_beta2: float = Field(0.98, ge=0.0, lt=1.0, description="decay of Adam's second moment (5.3)")
    adam_eps: float = Field(1e-9, gt=0.0, le=1.0, description="added to the root of Adam's second moment (5.3)")
    weight_decay: float = Field(
        0.0, ge=0.0, le=10.0, description="of matrices, not of gains and biases: in adam added to the gradient"
    )
    gradient_clipping: float | None = Field(
        None, gt=0.0, le=1e9, description="largest norm of the gradient; unset: not clipped"
    )
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

    @model_validator(mode="after")
    def _consistent(self) -> TrainingConfig:
        if self.schedule in ("linear", "cosine") and self.train_steps is None and self.epochs is None:
            raise ValueError(f"schedule={self.schedule} falls to 0 at the last step: set train_steps or epochs")
        if self.optimizer == "adamw" and self.weight_decay == 0.0:
            raise ValueError("optimizer=adamw without weight_decay is adam: set weight_decay above 0")
        return self
