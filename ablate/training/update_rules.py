"""The update of parameters by their gradients: one class for each optimizer, and a table of them.

Adam, AdamW and SGD are torch's public functions (torch.optim.adam.adam and so on) with its fused
kernels: the same bits as the classes. The classes themselves are not made, because that loads
torch's compiler and sympy: 1.9 s and 73 MB of every worker with torch 2.13, against 0.01 s and 2 MB
(benchmarks/LOG.md, 2026-11-22, optimizers). Muon has no public function, so it is the class, and
pays that price.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from ablate.config import RowConfig
from ablate.config.training import DECOUPLED

State = dict[str, Tensor]  # of one parameter, by kind: `exp_avg`, `momentum_buffer` ...

# Coefficients and steps of the Newton-Schulz iteration (Jordan et al., 2024)
QUINTIC = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 5
UPDATE_SIZE = 0.2  # root mean square of Muon's updates, that of AdamW's (Liu et al., 2025)
NORMUON_BETA2, NORMUON_EPS = 0.95, 1e-10  # of a row's mean square: decay, added to root


class UpdateRule:
    """An update rule; its state of each parameter goes into checkpoints.

    moments: kinds of state that are as large as the parameter.
    counts: kinds that are one number.
    """

    moments: ClassVar[tuple[str, ...]] = ()
    counts: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: RowConfig) -> None:
        self.betas = (config.adam_beta1, config.adam_beta2)
        self.eps = config.adam_eps
        self.momentum = config.momentum_used

    def new_state(self, parameter: Tensor) -> State:
        """The state of a parameter before its first gradient: zeros."""
        state = {kind: torch.zeros_like(parameter) for kind in self.moments}
        for kind in self.counts:
            # A tensor, as the fused kernel requires, and on the device of the parameter.
            state[kind] = torch.zeros((), device=parameter.device)
        return state

    def step(
        self, parameters: Sequence[Tensor], states: Sequence[State], rate: float, decay: float
    ) -> None:
        """Change parameters with gradients, and their states, in place.

        Args:
            parameters: each with a gradient.
            states: of each parameter.
            rate: learning rate.
            decay: weight decay.
        """
        for parameter, gradient, state in zip(
            parameters, _gradients(parameters), states, strict=True
        ):
            self.change(parameter, gradient, state, rate, decay)

    def change(self, x: Tensor, gradient: Tensor, state: State, rate: float, decay: float) -> None:
        """The same for one parameter x, of a rule without a kernel for all at once."""
        raise NotImplementedError


class Adam(UpdateRule):
    """Adam (section 5.3; Kingma and Ba, 2015)."""

    moments = ("exp_avg", "exp_avg_sq")
    counts = ("step",)
    function: Callable[..., None] = staticmethod(adam)

    def step(
        self, parameters: Sequence[Tensor], states: Sequence[State], rate: float, decay: float
    ) -> None:
        """One call of the fused kernel for all."""
        self.function(
            list(parameters),
            _gradients(parameters),
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],  # maxima, for amsgrad
            [state["step"] for state in states],
            fused=True,
            amsgrad=False,
            beta1=self.betas[0],
            beta2=self.betas[1],
            lr=rate,
            weight_decay=decay,
            eps=self.eps,
            maximize=False,
        )


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019)."""

    function = staticmethod(adamw)


class SGD(UpdateRule):
    """Stochastic gradient descent, with or without momentum."""

    def new_state(self, parameter: Tensor) -> State:
        """The momentum. Zeros give the first step that torch gives without a buffer."""
        return {"momentum_buffer": torch.zeros_like(parameter)} if self.momentum else {}

    def step(
        self, parameters: Sequence[Tensor], states: Sequence[State], rate: float, decay: float
    ) -> None:
        """One call of the fused kernel for all."""
        sgd(
            list(parameters),
            _gradients(parameters),
            [state.get("momentum_buffer") for state in states],
            fused=True,
            weight_decay=decay,
            momentum=self.momentum,
            lr=rate,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )


class Lion(UpdateRule):
    """The sign of a momentum (Chen et al., 2023)."""

    moments = ("exp_avg",)

    def change(self, x: Tensor, gradient: Tensor, state: State, rate: float, decay: float) -> None:
        """The sign is that of the momentum with more weight on the newest gradient."""
        sign = state["exp_avg"].lerp(gradient, 1 - self.betas[0]).sign_()
        x.mul_(1 - rate * decay).sub_(sign, alpha=rate)
        state["exp_avg"].lerp_(gradient, 1 - self.betas[1])


class ScheduleFree(UpdateRule):
    """Schedule-free AdamW (Defazio et al., 2024, Algorithm 1).

    The gradient is taken between the average of the weights, which is what is evaluated, and the
    weights `z` that the updates move. Each step counts in the average by its squared rate.
    """

    moments = ("exp_avg_sq",)
    counts = ("step", "weight_sum")

    def new_state(self, parameter: Tensor) -> State:
        """The zeros, and both sequences."""
        sequences = {kind: parameter.detach().clone() for kind in ("z", "average")}
        return {**super().new_state(parameter), **sequences}

    def change(self, x: Tensor, gradient: Tensor, state: State, rate: float, decay: float) -> None:
        """Rates are those of the warm-up and then constant, so the newest is the largest so far."""
        beta1, beta2 = self.betas
        second = state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        size = (second / (1 - beta2 ** state["step"].add_(1))).sqrt_().add_(self.eps)
        state["z"].sub_(gradient / size + decay * x, alpha=rate)
        share = rate**2 / state["weight_sum"].add_(rate**2)
        x.copy_(state["z"].lerp(state["average"].lerp_(state["z"], share), beta1))


class Muon(UpdateRule):
    """torch.optim.Muon, with updates of AdamW's size: one rate serves both (Liu et al., 2025)."""

    moments = ("momentum_buffer",)
    optimizer: torch.optim.Muon | None = None

    def step(
        self, parameters: Sequence[Tensor], states: Sequence[State], rate: float, decay: float
    ) -> None:
        """A step of torch's class, with our states, so that they are saved and loaded by name."""
        if self.optimizer is None:
            self.optimizer = torch.optim.Muon(
                parameters, momentum=self.momentum, adjust_lr_fn="match_rms_adamw"
            )
        self.optimizer.state.update(zip(parameters, states, strict=True))
        # The schedule sets the rate of every step.
        self.optimizer.param_groups[0].update(params=parameters, lr=rate, weight_decay=decay)
        self.optimizer.step()


class NorMuon(UpdateRule):
    """Muon whose updates have rows of about equal size (Li et al., 2025, Algorithm 1)."""

    moments = ("momentum_buffer",)

    def new_state(self, parameter: Tensor) -> State:
        """The zeros, and the mean square of each row."""
        return {**super().new_state(parameter), "row_sq": torch.zeros_like(parameter[:, :1])}

    def change(self, x: Tensor, gradient: Tensor, state: State, rate: float, decay: float) -> None:
        """The update of a matrix has the size of AdamW's."""
        update = orthogonalized(state["momentum_buffer"].lerp_(gradient, 1 - self.momentum))
        of_rows = update.square().mean(1, keepdim=True)
        update.div_(state["row_sq"].lerp_(of_rows, 1 - NORMUON_BETA2).sqrt() + NORMUON_EPS)
        update.mul_(UPDATE_SIZE * update.numel() ** 0.5 / update.norm())
        x.mul_(1 - rate * decay).sub_(update, alpha=rate)


def orthogonalized(matrix: Tensor) -> Tensor:
    """A matrix with the singular vectors of this one, and singular values near 1."""
    a, b, c = QUINTIC
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    x: Tensor = wide / (wide.norm() + 1e-7)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if wide is matrix else x.T.contiguous()


class SOAP(UpdateRule):
    """Adam in the axes of Shampoo's preconditioner (Vyas et al., 2024, Algorithm 3).

    As in the authors' code, the moments are corrected as Adam's are, and the first gradient gives
    the axes alone.
    """

    moments = ("exp_avg", "exp_avg_sq")  # the second one of the turned gradient
    counts = ("step",)

    def __init__(self, config: RowConfig) -> None:
        super().__init__(config)
        self.frequency = config.preconditioning_frequency

    def new_state(self, parameter: Tensor) -> State:
        """The zeros; and for the rows and for the columns their mean products and the axes."""
        state = super().new_state(parameter)
        for side, size in zip(("rows", "columns"), parameter.shape, strict=True):
            for kind in ("products", "axes"):
                state[f"{kind}_{side}"] = parameter.new_zeros(size, size)
        return state

    def change(self, x: Tensor, gradient: Tensor, state: State, rate: float, decay: float) -> None:
        """The axes of this step are those of the gradients before it."""
        steps = int(state["step"])  # Adam's, which begin with the second gradient
        if steps:
            update = self._update(gradient, state, steps)
            x.mul_(1 - rate * decay).sub_(update, alpha=rate)
        products = {"rows": gradient @ gradient.T, "columns": gradient.T @ gradient}
        for side, product in products.items():
            mean = state[f"products_{side}"].lerp_(product, 1 - self.betas[1])
            axes = state[f"axes_{side}"]
            if steps == 0:
                axes.copy_(torch.linalg.eigh(mean).eigenvectors)
            elif steps % self.frequency == 0:  # a step of the power iteration (Algorithm 4)
                axes.copy_(torch.linalg.qr(mean @ axes).Q)
        state["step"].add_(1)

    def _update(self, gradient: Tensor, state: State, steps: int) -> Tensor:
        """Adam's update of the turned gradient, turned back."""
        beta1, beta2 = self.betas
        rows = state["axes_rows"]
        columns = state["axes_columns"]
        first = rows.T @ state["exp_avg"].lerp_(gradient, 1 - beta1) @ columns
        turned = rows.T @ gradient @ columns
        second = state["exp_avg_sq"].mul_(beta2).addcmul_(turned, turned, value=1 - beta2)
        size = (second / (1 - beta2**steps)).sqrt_().add_(self.eps)
        return rows @ (first / (1 - beta1**steps) / size) @ columns.T


class Cautious(UpdateRule):
    """A rule of which only some entries move or decay (Liang et al., 2024; Chen et al., 2025)."""

    def __init__(self, rule: UpdateRule, config: RowConfig) -> None:
        super().__init__(config)
        self.rule = rule
        self.decays_apart = config.optimizer in DECOUPLED
        self.updates = config.cautious_updates
        self.decay = config.cautious_decay

    def new_state(self, parameter: Tensor) -> State:
        """That of the rule."""
        return self.rule.new_state(parameter)

    def change(self, x: Tensor, gradient: Tensor, state: State, rate: float, decay: float) -> None:
        """One parameter after another, so that the copy of one is in memory."""
        within, apart = (0.0, decay) if self.decays_apart else (decay, 0.0)
        before = x.detach().clone()
        self.rule.step([x], [state], rate, within)
        update = before - x
        if self.updates:  # only downhill, and further to make up for the entries that stay
            downhill = (update * gradient > 0).to(update.dtype)
            update.mul_(downhill.div_(downhill.mean().clamp_(min=1e-3)))
            x.copy_(before - update)
        if self.decay:  # only towards where the update goes anyway
            before.mul_(update * before >= 0)
        if apart:
            x.sub_(before, alpha=rate * apart)


def _gradients(parameters: Sequence[Tensor]) -> list[Tensor]:
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


RULES: dict[str, Callable[[RowConfig], UpdateRule]] = {
    "adam": Adam,
    "adamw": AdamW,
    "sgd": SGD,
    "lion": Lion,
    "schedule_free": ScheduleFree,
}
# For the matrices of hidden layers; all other parameters then have AdamW.
RULES_OF_MATRICES: dict[str, Callable[[RowConfig], UpdateRule]] = {
    "muon": Muon,
    "normuon": NorMuon,
    "soap": SOAP,
}
