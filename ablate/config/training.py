"""Fields of training (section 5 of the paper)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from ablate.config.fields import NOT_IN_ID, Facts, Section

MAX_STEPS = 100_000_000
MAX_SEEDS = 1000  # of a study

# Target tokens whose logits are in memory at once: few enough for a CPU's cache, and enough to
# occupy a GPU.
LOGIT_CHUNK_TOKENS = {"cpu": 256, "cuda": 4096}

DEFAULT_MOMENTUM = {"sgd": 0.9, "muon": 0.95}


def resolve_precision(precision: str | None, device: str, has_bf16: bool) -> str:
    """The precision that a setting gives on a device: `bf16`, `tf32` or `fp32`.

    Args:
        precision: the setting.
        device: `cpu` or `cuda`.
        has_bf16: whether the device has instructions for bf16 products.
    """
    if device == "cpu" and precision in (None, "tf32"):  # only GPUs have TF32
        return "fp32"
    if precision in (None, "auto"):
        return "bf16" if has_bf16 else "fp32"
    return precision


def precision_note(precision: str | None, device: str, has_bf16: bool) -> str | None:
    """A note on a precision that is slow or without effect on a device; else None."""
    name = "processor" if device == "cpu" else "GPU"
    if precision == "bf16" and not has_bf16:
        return (
            f"precision=bf16: this {name} has no bf16 instructions; products are rounded to bf16 "
            f"at no gain in speed"
        )
    if precision == "tf32" and device == "cpu":
        return "precision=tf32 has an effect on GPUs only; this run is in fp32"
    if precision == "fp32" and device != "cpu" and has_bf16:
        return "precision=fp32: this GPU has bf16, which is several times as fast"
    return None


OF_ADAM = Facts(needs={"optimizer": ("adam", "adamw", "muon")})


class TrainingConfig(Section):
    """The recipe and the budget. Defaults are the paper's."""

    train_steps: Annotated[int | None, Facts(column=9, head="steps", latex="steps")] = Field(
        100_000,
        ge=1,
        le=MAX_STEPS,
        description="number of optimizer steps; with epochs or patience, the first limit reached "
        "counts",
    )
    epochs: int | None = Field(
        None, ge=1, le=1_000_000, description="number of passes over the training data"
    )
    patience: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="stop after this number of evaluations without a better dev perplexity, and "
        "use the best weights",
    )
    batch_tokens: int = Field(
        25_000,
        ge=1,
        le=100_000_000,
        description="tokens per step, counted on the longer side (5.1)",
    )
    warmup_steps: int = Field(
        4000, ge=1, le=MAX_STEPS, description="steps of linear learning-rate warm-up (5.3)"
    )
    schedule: Literal["inverse_sqrt", "constant", "linear", "cosine", "wsd"] = Field(
        "inverse_sqrt",
        description="learning rate after warm-up: as in the paper (5.3), constant, or falling to 0 "
        "at the end, in `wsd` after a plateau (warm-up, stable, decay; Hu et al., 2024)",
    )
    decay_fraction: Annotated[float, Facts(needs={"schedule": ("wsd",)})] = Field(
        0.2, gt=0.0, le=1.0, description="share of the steps in which `wsd` falls"
    )
    final_rate: Annotated[float, Facts(needs={"schedule": ("linear", "cosine", "wsd")})] = Field(
        0.0,
        ge=0.0,
        lt=1.0,
        description="share of the peak that a falling learning rate ends at",
    )
    learning_rate: float | None = Field(
        None,
        gt=0.0,
        le=100.0,
        description="peak learning rate; unset: (d_model * warmup_steps)^-0.5, as in the paper",
    )
    optimizer: Literal["adam", "adamw", "sgd", "muon"] = Field(
        "adam",
        description="Adam (5.3); AdamW (Loshchilov and Hutter, 2019); SGD with momentum; or Muon "
        "for the matrices of hidden layers and AdamW for the other parameters",
    )
    momentum: Annotated[float | None, Facts(needs={"optimizer": ("sgd", "muon")})] = Field(
        None,
        ge=0.0,
        lt=1.0,
        description="momentum of sgd and muon; unset: 0.9 in sgd, 0.95 in muon",
    )
    adam_beta1: Annotated[float, OF_ADAM] = Field(
        0.9, ge=0.0, lt=1.0, description="decay rate of Adam's first moment (5.3)"
    )
    adam_beta2: Annotated[float, OF_ADAM] = Field(
        0.98, ge=0.0, lt=1.0, description="decay rate of Adam's second moment (5.3)"
    )
    adam_eps: Annotated[float, OF_ADAM] = Field(
        1e-9, gt=0.0, le=1.0, description="epsilon of Adam, added to the denominator (5.3)"
    )
    weight_decay: float = Field(
        0.0,
        ge=0.0,
        le=10.0,
        description="weight decay of matrices, not of gains and biases; in adam and sgd it is "
        "added to the gradient",
    )
    gradient_clipping: float | None = Field(
        None, gt=0.0, le=1e9, description="maximum norm of the gradient; unset: no clipping"
    )
    label_smoothing: Annotated[
        float, Facts(symbol="eps_ls", column=8, latex=r"$\epsilon_{ls}$")
    ] = Field(
        0.1, ge=0.0, lt=1.0, description="eps_ls: label smoothing over the whole vocabulary (5.4)"
    )
    precision: Annotated[
        Literal["auto", "bf16", "tf32", "fp32"] | None, Facts(introduced="fp32")
    ] = Field(
        None,
        description="precision of matrix products; weights and optimizer state are fp32. auto: "
        "bf16 where the device has it, else fp32. Unset: as auto on a GPU, and fp32 on a CPU",
    )
    deterministic: Annotated[bool, NOT_IN_ID] = Field(
        False,
        description="sum in a fixed order on a GPU, so that a resumed run has the bits of an "
        "uninterrupted one; slower",
    )
    eval_every: int = Field(
        1000, ge=1, le=MAX_STEPS, description="steps between two evaluations on dev"
    )
    checkpoint_every: int = Field(
        1000, ge=1, le=MAX_STEPS, description="steps between two checkpoints"
    )
    checkpoint_minutes: Annotated[float, NOT_IN_ID] = Field(
        10.0,
        gt=0.0,
        le=100_000.0,
        description="also save a checkpoint after so many minutes, to resume from; averaging does "
        "not use it",
    )
    micro_batch_tokens: Annotated[int | None, NOT_IN_ID] = Field(
        None,
        ge=1,
        le=100_000_000,
        description="tokens per forward pass; larger batches are accumulated. Unset: chosen by "
        "available memory",
    )

    @property
    def momentum_used(self) -> float:
        """The momentum of sgd or muon; 0 with another optimizer."""
        return DEFAULT_MOMENTUM.get(self.optimizer, 0.0) if self.momentum is None else self.momentum

    @model_validator(mode="after")
    def _has_an_end(self) -> TrainingConfig:
        if self.train_steps is None and self.epochs is None and self.patience is None:
            raise ValueError("training has no end: set train_steps, epochs or patience")
        return self

    @model_validator(mode="after")
    def _consistent(self) -> TrainingConfig:
        if (
            self.schedule in ("linear", "cosine", "wsd")
            and self.train_steps is None
            and self.epochs is None
        ):
            raise ValueError(
                f"schedule={self.schedule} falls to its end at the last step: set train_steps or "
                "epochs"
            )
        if self.optimizer == "adamw" and self.weight_decay == 0.0:
            raise ValueError(
                "optimizer=adamw without weight_decay is adam: set weight_decay above 0"
            )
        return self
