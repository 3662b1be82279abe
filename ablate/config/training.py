"""Fields of training (section 5 of the paper)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field, model_validator

from ablate.config.optimizers import OPTIMIZERS, argument_faults, users_of
from ablate.errors import Fault, Invalid
from ablate.fields import (
    NOT_IN_ID,
    SET,
    Aliases,
    Amount,
    Count,
    Facts,
    Part,
    PositiveShare,
    ProperShare,
    Section,
    Share,
    choice,
    only,
)
from ablate.parts.sizes import NETWORK
from ablate.parts.variant import VariantName

MAX_STEPS = 100_000_000
Steps = Annotated[int, Field(ge=1, le=MAX_STEPS)]
Factor = Annotated[float, Field(gt=0.0, le=1e4)]
FactorOrZero = Annotated[float, Field(ge=0.0, le=1e4)]

# Number of target tokens whose logits are in memory at once: few for a CPU's cache, and many to
# occupy a GPU.
LOGIT_CHUNK_TOKENS = {"cpu": 256, "cuda": 4096}

SCHEDULES = ("inverse_sqrt", "constant", "linear", "cosine", "wsd")
# With schedule_free, the weights of training follow from two other sequences.
_CAUTIOUS_DECAY = [
    name
    for name, optimizer in OPTIMIZERS.items()
    if optimizer.is_decoupled and name != "schedule_free"
]


def resolve_precision(precision: str | None, device: str, has_bf16: bool) -> str:
    """The precision that the field `precision` gives on a device: `bf16`, `tf32` or `fp32`."""
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


def ends_in_warmup(c: TrainingConfig) -> bool:
    """Whether training ends before the learning rate reaches its peak."""
    return c.train_steps is not None and c.train_steps <= c.warmup_steps


def _optimizer_facts(field: str) -> Facts:
    """Facts of a field that belongs to the optimizers that read it."""
    return Facts(part=choice("optimizer", *users_of(field)))


UNTIED = choice("tied_embeddings", "none")
DECAY = Part("weight decay", {"weight_decay": (SET,)})
DECAY_FACTS = Facts(part=DECAY)
GROWTH = Part("a growing batch", {"batch_growth": (2, 4, 8, 16, 32, 64)})
AFTER_WARMUP = Part(
    "the steps after the warm-up",
    condition=lambda c: not ends_in_warmup(c),
    condition_fields=("warmup_steps", "train_steps"),
    absent="but there are none",
    remedy="lower warmup_steps, or remove it",
)


class TrainingConfig(Section):
    """Fields of the training recipe and of its budget. The defaults are the values of the paper."""

    train_steps: Annotated[
        Steps | None,
        Facts(column=9, head="steps"),
        Aliases("max_iters", "max_steps"),
    ] = 100_000
    """number of optimizer steps; with epochs or patience, training ends at the first limit that is
    reached"""
    epochs: Count | None = None
    """number of passes over the training data"""
    patience: Count | None = None
    """stop after this number of evaluations without a better dev perplexity, and use the best
    weights"""
    batch_tokens: Annotated[Amount, Aliases("bs", "batch", "batch_size")] = 25_000
    """number of tokens per step, counted on the longer side of each pair (5.1)"""
    batch_growth: Annotated[Literal[1, 2, 4, 8, 16, 32, 64], only(1, 2, 4, 8, 16, 32, 64)] = 1
    """factor by which the batch grows to `batch_tokens`, by doubling at equal intervals (Smith et
    al., 2018); 1: all batches have this size"""
    batch_growth_fraction: Annotated[PositiveShare, Facts(part=GROWTH)] = 0.5
    """share of the steps with smaller batches"""
    warmup_steps: Steps = 4000
    """number of steps of linear learning-rate warm-up (5.3)"""
    schedule: Annotated[str, VariantName(SCHEDULES, is_function=True), Facts(part=AFTER_WARMUP)] = (
        "inverse_sqrt"
    )
    """learning rate after the warm-up: as in the paper (5.3), constant, or falling to 0 at the end;
    with `wsd`, constant before it falls (warm-up, stable, decay; Hu et al., 2024)"""
    decay_fraction: Annotated[PositiveShare, Facts(part=choice("schedule", "wsd"))] = 0.2
    """share of the steps in which `wsd` falls"""
    final_rate: Annotated[Share, Facts(part=choice("schedule", "linear", "cosine", "wsd"))] = 0.0
    """final learning rate of a falling schedule, as a share of the peak"""
    learning_rate: Annotated[float | None, Aliases("lr")] = Field(None, gt=0.0, le=100.0)
    """peak learning rate; unset: (d_model * warmup_steps)^-0.5, as in the paper"""
    optimizer: Annotated[str, VariantName(tuple(OPTIMIZERS), "torch.optim.NAdam")] = "adam"
    """optimizer (Adam: 5.3), or the import path of any `torch.optim.Optimizer`, such as
    `torch.optim.NAdam`; muon, normuon and soap update the matrices of hidden layers, with AdamW for
    all other parameters"""
    momentum: Annotated[Share | None, _optimizer_facts("momentum")] = None
    """momentum of sgd, muon and normuon; unset: 0.9 in sgd, else 0.95"""
    preconditioning_frequency: Annotated[int, _optimizer_facts("preconditioning_frequency")] = (
        Field(10, ge=1, le=100_000)
    )
    """number of steps after which soap computes again the eigenbasis in which it applies Adam"""
    adam_beta1: Annotated[Share, _optimizer_facts("adam_beta1")] = 0.9
    """decay rate of Adam's first moment (5.3); in lion, of the momentum whose sign is the update;
    in schedule_free, share of the average in the weights of training"""
    adam_beta2: Annotated[Share, _optimizer_facts("adam_beta2")] = 0.98
    """decay rate of Adam's second moment (5.3); in lion, of the momentum that is stored"""
    adam_eps: Annotated[PositiveShare, _optimizer_facts("adam_eps")] = 1e-9
    """epsilon of Adam, added to the denominator (5.3)"""
    weight_decay: Annotated[float, Aliases("wd")] = Field(0.0, ge=0.0, le=10.0)
    """weight decay of matrices, not of gains and biases; in adam and sgd it is added to the
    gradient"""
    embedding_rate: Factor = 1.0
    """learning rate of embeddings (of tokens, learned positions, token types), as a multiple of the
    learning rate of matrices"""
    output_rate: Annotated[Factor, Facts(part=UNTIED)] = 1.0
    """learning rate of an untied output matrix, as a multiple of the learning rate of matrices"""
    vector_rate: Factor = 1.0
    """learning rate of gains, biases and other vectors, as a multiple of the learning rate of
    matrices"""
    feed_forward_rate: Annotated[Factor, Facts(part=NETWORK)] = 1.0
    """learning rate of the matrices of feed-forward networks, as a multiple of the learning rate of
    other matrices"""
    embedding_decay: Annotated[FactorOrZero, DECAY_FACTS] = 1.0
    """weight decay of embeddings, as a multiple of the weight decay of matrices"""
    output_decay: Annotated[FactorOrZero, Facts(part=replace(UNTIED, parents=(DECAY,)))] = 1.0
    """weight decay of an untied output matrix, as a multiple of the weight decay of matrices"""
    vector_decay: Annotated[FactorOrZero, DECAY_FACTS] = 0.0
    """weight decay of gains, biases and other vectors, as a multiple of the weight decay of
    matrices"""
    decay_schedule: Annotated[Literal["constant", "linear", "cosine"], DECAY_FACTS] = "constant"
    """weight decay over the training: constant, or falling to 0"""
    cautious_updates: bool = False
    """whether entries of an update are dropped whose sign disagrees with the gradient (Liang et
    al., 2024)"""
    cautious_decay: Annotated[
        bool, Facts(part=replace(choice("optimizer", *_CAUTIOUS_DECAY), parents=(DECAY,)))
    ] = False
    """whether weight decay shrinks only weights that the update moves towards 0 (Chen et al.,
    2025)"""
    ema_decay: ProperShare | None = None
    """decay of an exponential moving average of the weights, which replaces the weights in
    evaluation, checkpoints and decoding; unset: no average"""
    gradient_clipping: Annotated[
        float | None, Aliases("clip", "grad_clip", "grad_norm", "max_grad_norm")
    ] = Field(None, gt=0.0, le=1e9)
    """maximum norm of the gradient; unset: no clipping"""
    label_smoothing: Annotated[Share, Facts(symbol="eps_ls", column=8)] = 0.1
    """eps_ls: label smoothing over the whole vocabulary (5.4)"""
    loss_term: Annotated[
        str, VariantName(("none",), is_function=True, fields={"z_loss": "z_loss"})
    ] = "none"
    """a user's function of logits and targets, whose value is added to the training loss"""
    precision: Annotated[
        Literal["auto", "bf16", "tf32", "fp32"] | None, Facts(introduced="fp32")
    ] = None
    """precision of matrix products; weights and optimizer state are fp32. auto: bf16 if the device
    has instructions for it, else fp32. Unset: as auto on a GPU, and fp32 on a CPU"""
    deterministic: Annotated[bool, NOT_IN_ID] = False
    """whether sums on a GPU have a fixed order, so that a resumed run equals an uninterrupted run
    to the bit; slower"""
    eval_every: Steps = 1000
    """number of steps between two evaluations on dev"""
    checkpoint_every: Steps = 1000
    """number of steps between two checkpoints"""
    checkpoint_minutes: Annotated[float, NOT_IN_ID] = Field(10.0, gt=0.0, le=100_000.0)
    """minutes after which one more checkpoint is saved, only for resuming; it is not averaged"""
    micro_batch_tokens: Annotated[
        Amount | None,
        NOT_IN_ID,
        Aliases("grad_accum", "grad_accum_steps", "gradient_accumulation_steps"),
    ] = None
    """number of tokens per forward pass; gradients of larger batches are accumulated. Unset: as
    many as the memory allows"""

    @property
    def batch_stages(self) -> list[tuple[int, int, int]]:
        """The stages of a growing batch: the step before the first, the last step, and the number
        of parts into which a full batch is divided. Empty if all batches are full.
        """
        doublings = self.batch_growth.bit_length() - 1
        ends = [0]
        for stage in range(1, doublings + 1):
            share = self.batch_growth_fraction * stage / doublings
            ends.append(round(share * (self.train_steps or 0)))
        counts = [self.batch_growth >> stage for stage in range(doublings)]
        return list(zip(ends, ends[1:], counts, strict=False))

    @property
    def mean_batch_tokens(self) -> float:
        """Mean number of tokens per step over the training."""
        steps = self.train_steps or 1
        return self.batch_tokens * (self.full_batches(steps) / steps)

    def mean_steps(self, steps: float) -> float:
        """Number of steps with a batch of the mean size that read as many tokens as the first
        `steps` steps, which are cheaper while the batch grows.
        """
        return self.full_batches(steps) * self.batch_tokens / self.mean_batch_tokens

    def full_batches(self, steps: float) -> float:
        """Number of full batches with as many tokens as the batches of the first `steps` steps."""
        batches = steps
        for begin, end, count in self.batch_stages:
            batches -= max(0, min(end, steps) - begin) * (1 - 1 / count)
        return batches

    @property
    def smallest_batch(self) -> int:
        """Number of tokens of the first, smallest batches."""
        return self.batch_tokens // self.batch_growth

    def batch_faults(self, what: str, tokens: int, *fields: str) -> Iterator[Fault]:
        """Yield a fault if a sequence is too long for the first batches. `what` names the sequence
        in messages, and its length depends on `fields`.
        """
        if tokens > self.batch_tokens:
            fault = f"{what} does not fit in batch_tokens={self.batch_tokens}"
            remedy = f"set batch_tokens to {tokens} or more"
            if "data.max_length" in fields and self.batch_tokens > 1:
                shorter = self.batch_tokens - 1  # the end of a sequence is a token, too
                remedy = (
                    f"set data.max_length to {shorter} or less, or batch_tokens to {tokens} or more"
                )
            yield Fault(fault, (*fields, "batch_tokens"), remedy=remedy)
        elif tokens > self.smallest_batch:
            largest = 1 << ((self.batch_tokens // tokens).bit_length() - 1)  # a power of 2
            yield Fault(
                f"batch_growth={self.batch_growth} begins with batches of {self.smallest_batch} of "
                f"{self.batch_tokens} tokens, too few for {what}",
                ("batch_growth", "batch_tokens", *fields),
                remedy=f"use at most {largest}",
            )

    @property
    def momentum_used(self) -> float:
        """The momentum of sgd, muon and normuon; 0 with any other optimizer."""
        default = OPTIMIZERS[self.optimizer].momentum or 0.0
        return default if self.momentum is None else self.momentum

    @model_validator(mode="after")
    def _consistent(self) -> TrainingConfig:
        faults = [*self._end_faults(), *self._optimizer_faults()]
        if faults:
            raise Invalid(*faults)
        return self

    def _end_faults(self) -> Iterator[Fault]:
        """Yield the faults of a training without end, and of schedules without a last step."""
        limits = ("train_steps", "epochs", "patience")
        if self.train_steps is None and self.epochs is None and self.patience is None:
            remedy = "set train_steps, epochs or patience"
            yield Fault("training has no end", limits, remedy=remedy)
            return
        for name in ("schedule", "decay_schedule"):
            value = getattr(self, name)
            is_falling = value in ("linear", "cosine", "wsd")
            if is_falling and self.train_steps is None and self.epochs is None:
                yield Fault(
                    f"{name}={value} falls to its end at the last step",
                    (name, *limits),
                    remedy="set train_steps or epochs",
                )
        if self.batch_growth > 1 and (self.train_steps is None or self.epochs is not None):
            yield Fault(
                f"batch_growth={self.batch_growth} needs the number of steps",
                ("batch_growth", *limits),
                remedy="set train_steps, and no epochs",
            )
        elif self.train_steps is not None:
            yield from self._short_stage_faults(self.train_steps)

    def _short_stage_faults(self, steps: int) -> Iterator[Fault]:
        """Yield a fault for a fall of the learning rate, and for a stage of a growing batch, that
        rounding to whole steps leaves without a step.
        """
        begin = round((1 - self.decay_fraction) * steps)
        if self.schedule == "wsd" and begin == steps and not ends_in_warmup(self):
            yield Fault(
                f"decay_fraction={self.decay_fraction:g} of train_steps={steps} is less than a "
                "step, so that schedule=wsd does not fall",
                ("decay_fraction", "train_steps", "schedule"),
                remedy=f"set decay_fraction to {1 / steps:.2g} or more",
            )
        if any(begin == end for begin, end, _ in self.batch_stages):
            yield Fault(
                f"batch_growth={self.batch_growth} within batch_growth_fraction="
                f"{self.batch_growth_fraction:g} of train_steps={steps} leaves no step for a batch "
                "size",
                ("batch_growth", "batch_growth_fraction", "train_steps"),
            )

    def _optimizer_faults(self) -> Iterator[Fault]:
        """Yield the faults of settings that cannot be combined with the optimizer."""
        if self.optimizer == "schedule_free" and self.schedule != "constant":
            yield Fault(
                "optimizer=schedule_free averages the weights instead of lowering the rate",
                ("optimizer", "schedule"),
                remedy="set schedule to constant",
            )
        if self.optimizer == "schedule_free" and self.ema_decay is not None:
            why = "ema_decay with optimizer=schedule_free, which averages already"
            yield Fault(why, ("ema_decay", "optimizer"))
        if self.optimizer == "schedule_free" and self.cautious_updates:
            yield Fault(
                "optimizer=schedule_free computes the weights of training from two other "
                "sequences, which cautious_updates would not change",
                ("cautious_updates", "optimizer"),
            )
        yield from argument_faults(self.optimizer)
        is_cautious = self.cautious_updates or self.cautious_decay
        if is_cautious and not OPTIMIZERS[self.optimizer].can_be_cautious:
            yield Fault(
                "cautious_updates and cautious_decay work only with built-in optimizers, and not "
                f"with {self.optimizer}",
                ("cautious_updates", "cautious_decay", "optimizer"),
            )
        if self.optimizer == "adamw" and self.weight_decay == 0.0:
            yield Fault(
                "optimizer=adamw without weight_decay is adam",
                ("optimizer", "weight_decay"),
                remedy="set weight_decay above 0",
            )
