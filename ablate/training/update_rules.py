"""Update rules: a class for each optimizer of `config/optimizers.py`.

Adam, AdamW and SGD call torch's public functions (torch.optim.adam.adam and so on) with fused
kernels, which give the same bits as torch's classes. Creating one of torch's classes would load
torch's compiler and sympy: 1.9 s and 73 MB in every worker with torch 2.13, against 0.01 s and 2 MB
(benchmarks/LOG.md, 2026-11-22, optimizers). Muon has no public function, so torch's class is used.
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
from ablate.config.optimizers import OPTIMIZERS

State = dict[str, Tensor]  # state of one parameter, by torch's keys such as `exp_avg`

# Coefficients and steps of the Newton-Schulz iteration (Jordan et al., 2024)
QUINTIC = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 5
UPDATE_SIZE = 0.2  # root mean square of Muon's updates, as of AdamW's (Liu et al., 2025)
NORMUON_BETA2 = 0.95  # decay of the mean square of a row
NORMUON_EPS = 1e-10  # added to the root of this mean square


class UpdateRule:
    """Base class of update rules. Checkpoints store the state of each parameter.

    moments: keys of state that have the shape of the parameter.
    counts: keys of state that are single numbers.
    """

    moments: ClassVar[tuple[str, ...]] = ()
    counts: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: RowConfig) -> None:
        self.betas = (config.adam_beta1, config.adam_beta2)
        self.eps = config.adam_eps
        self.momentum = config.momentum_used

    def new_state(self, parameter: Tensor) -> State:
        """The state of a parameter before its first gradient: zeros."""
        state = {key: torch.zeros_like(parameter) for key in self.moments}
        for key in self.counts:
            # The fused kernel requires a tensor on the device of the parameter.
            state[key] = torch.zeros((), device=parameter.device)
        return state

    def step(
        self, parameters: Sequence[Tensor], states: Sequence[State], rate: float, decay: float
    ) -> None:
        """Update parameters with gradients, and their states, in place, with a learning rate and a
        weight decay.
        """
        for parameter, gradient, state in zip(
            parameters, _gradients(parameters), states, strict=True
        ):
            self.change(parameter, gradient, state, rate, decay)

    def change(self, x: Tensor, gradient: Tensor, state: State, rate: float, decay: float) -> None:
        """Update one parameter x and its state in place. Rules with a fused kernel override `step`
        instead.
        """
        raise NotImplementedError


class Adam(UpdateRule):
    """Adam (section 5.3; Kingma and Ba, 2015)."""

    moments = ("exp_avg", "exp_avg_sq")
    counts = ("step",)
    function: Callable[..., None] = staticmethod(adam)

    def step(
        self, parameters: Sequence[Tensor], states: Sequence[State], rate: float, decay: float
    ) -> None:
        """Update all parameters by one call of the fused kernel."""
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
        """Zeros, with which the first step equals torch's step without a buffer."""
        return {"momentum_buffer": torch.zeros_like(parameter)} if self.momentum else {}

    def step(
        self, parameters: Sequence[Tensor], states: Sequence[State], rate: float, decay: float
    ) -> None:
        """Update all parameters by one call of the fused kernel."""
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
    """Lion (Chen et al., 2023), whose update is the sign of the momentum."""

    moments = ("exp_avg",)

    def change(self, x: Tensor, gradient: Tensor, state: State, rate: float, decay: float) -> None:
        """Move by the sign of beta1 * momentum + (1 - beta1) * gradient; beta2 updates the
        momentum.
        """
        sign = state["exp_avg"].lerp(gradient, 1 - self.betas[0]).sign_()
        x.mul_(1 - rate * decay).sub_(sign, alpha=rate)
        state["exp_avg"].lerp_(gradient, 1 - self.betas[1])


class ScheduleFree(UpdateRule):
    """Schedule-free AdamW (Defazio et al., 2024, Algorithm 1).

    There are three sequences of weights. Updates move `z`. The model is evaluated with `average`,
    the average of `z` over the steps, each weighted by its squared learning rate. The gradient is
    computed at an interpolation of `z` and `average`, which is the parameter.
    """

    moments = ("exp_avg_sq",)
    counts = ("step", "weight_sum")

    def new_state(self, parameter: Tensor) -> State:
        """Zeros, and `z` and `average` at the initial weights."""
        sequences = {key: parameter.detach().clone() for key in ("z", "average")}
        return {**super().new_state(parameter), **sequences}

    def change(self, x: Tensor, gradient: Tensor, state: State, rate: float, decay: float) -> None:
        """Update `z`, the average and the parameter.

        The algorithm weights a step by the largest rate so far. This is the current rate, because
        the schedule is constant after the warm-up.
        """
        beta1, beta2 = self.betas
        second = state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        size = (second / (1 - beta2 ** state["step"].add_(1))).sqrt_().add_(self.eps)
        state["z"].sub_(gradient / size + decay * x, alpha=rate)
        share = rate**2 / state["weight_sum"].add_(rate**2)
        x.copy_(state["z"].lerp(state["average"].lerp_(state["z"], share), beta1))


class Muon(UpdateRule):
    """torch.optim.Muon, with updates of the size of AdamW's, so that both rules can use the same
    learning rate (Liu et al., 2025).
    """

    moments = ("momentum_buffer",)
    optimizer: torch.optim.Muon | None = None

    def step(
        self, parameters: Sequence[Tensor], states: Sequence[State], rate: float, decay: float
    ) -> None:
        """Make a step of torch's class with the given states, which checkpoints store by name."""
        if self.optimizer is None:
            self.optimizer = torch.optim.Muon(
                parameters, momentum=self.momentum, adjust_lr_fn="match_rms_adamw"
            )
        self.optimizer.state.update(zip(parameters, states, strict=True))
        self.optimizer.param_groups[0].update(params=parameters, lr=rate, weight_decay=decay)
        self.optimizer.step()


class NorMuon(UpdateRule):
    """Muon with updates whose rows have about equal sizes (Li et al., 2025, Algorithm 1)."""

    moments = ("momentum_buffer",)

    def new_state(self, parameter: Tensor) -> State:
        """Zeros: the momentum, and the mean square of each row."""
        return {**super().new_state(parameter), "row_sq": torch.zeros_like(parameter[:, :1])}

    def change(self, x: Tensor, gradient: Tensor, state: State, rate: float, decay: float) -> None:
        """Divide the rows of Muon's update by their sizes, and scale the update to the size of
        AdamW's updates.
        """
        update = orthogonalized(state["momentum_buffer"].lerp_(gradient, 1 - self.momentum))
        row_squares = update.square().mean(1, keepdim=True)
        update.div_(state["row_sq"].lerp_(row_squares, 1 - NORMUON_BETA2).sqrt() + NORMUON_EPS)
        update.mul_(UPDATE_SIZE * update.numel() ** 0.5 / update.norm())
        x.mul_(1 - rate * decay).sub_(update, alpha=rate)


def orthogonalized(matrix: Tensor) -> Tensor:
    """Orthogonalize a matrix: keep its singular vectors, and set its singular values to about 1."""
    a, b, c = QUINTIC
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    x: Tensor = wide / (wide.norm() + 1e-7)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if wide is matrix else x.T.contiguous()


class SOAP(UpdateRule):
    """Adam in the eigenbasis of Shampoo's preconditioner (Vyas et al., 2024, Algorithm 3).

    As in the authors' code, the moments are corrected for bias as in Adam, and the first gradient
    only initializes the eigenbasis.
    """

    moments = ("exp_avg", "exp_avg_sq")  # the second moment is of the rotated gradient
    counts = ("step",)

    def __init__(self, config: RowConfig) -> None:
        super().__init__(config)
        self.frequency = config.preconditioning_frequency

    def new_state(self, parameter: Tensor) -> State:
        """Zeros: Adam's moments, and for rows and columns the mean outer products of gradients and
        their eigenvectors.
        """
        state = super().new_state(parameter)
        for side, size in zip(("rows", "columns"), parameter.shape, strict=True):
            state[f"products_{side}"] = parameter.new_zeros(size, size)
            state[f"axes_{side}"] = parameter.new_zeros(size, size)
        return state

    def change(self, x: Tensor, gradient: Tensor, state: State, rate: float, decay: float) -> None:
        """Update x in the eigenbasis of earlier gradients, then add the gradient to the
        products.
        """
        steps = int(state["step"])  # number of Adam's steps; the first is at the second gradient
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
        """The update that Adam makes for the rotated gradient, rotated back."""
        beta1, beta2 = self.betas
        rows = state["axes_rows"]
        columns = state["axes_columns"]
        first = rows.T @ state["exp_avg"].lerp_(gradient, 1 - beta1) @ columns
        rotated = rows.T @ gradient @ columns
        second = state["exp_avg_sq"].mul_(beta2).addcmul_(rotated, rotated, value=1 - beta2)
        size = (second / (1 - beta2**steps)).sqrt_().add_(self.eps)
        return rows @ (first / (1 - beta1**steps) / size) @ columns.T


class Cautious(UpdateRule):
    """Masks the update or the weight decay of a rule (Liang et al., 2024; Chen et al., 2025).

    A cautious update changes only the entries whose update and gradient agree in sign, and scales
    their updates up to make up for the entries that stay. Cautious decay shrinks only the entries
    that the update does not enlarge.
    """

    def __init__(self, rule: UpdateRule, config: RowConfig) -> None:
        super().__init__(config)
        self.rule = rule
        self.has_decoupled_decay = OPTIMIZERS[config.optimizer].is_decoupled
        self.masks_update = config.cautious_updates
        self.masks_decay = config.cautious_decay

    def new_state(self, parameter: Tensor) -> State:
        """The state that the rule needs."""
        return self.rule.new_state(parameter)

    def change(self, x: Tensor, gradient: Tensor, state: State, rate: float, decay: float) -> None:
        """Let the rule update x, then mask the difference.

        Parameters are updated one by one, so that memory holds a copy of only one of them.
        """
        weights = x.detach().clone()
        rule_decay = 0.0 if self.has_decoupled_decay else decay
        self.rule.step([x], [state], rate, rule_decay)
        update = weights - x
        if self.masks_update:
            mask = (update * gradient > 0).to(update.dtype)
            update.mul_(mask.div_(mask.mean().clamp_(min=1e-3)))
            x.copy_(weights - update)
        if self.masks_decay:
            weights.mul_(update * weights >= 0)
        if self.has_decoupled_decay and decay:
            x.sub_(weights, alpha=rate * decay)


def _gradients(parameters: Sequence[Tensor]) -> list[Tensor]:
    return [parameter.grad for parameter in parameters if parameter.grad is not None]
