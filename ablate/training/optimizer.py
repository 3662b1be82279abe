"""Adam (section 5.3; Kingma and Ba, 2015), and Adam with decoupled weight decay (Loshchilov and Hutter, 2019).

The update is torch's fused kernel, called without `torch.optim.Adam`: constructing that class imports torch's compiler,
which takes most of a second and about 60 MB in every worker (benchmarks/LOG.md).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ablate.config import RowConfig

KERNELS: dict[str, Any] = {"adam": torch._fused_adam_, "adamw": torch._fused_adamw_}


class Optimizer:
    """The optimizer of one model, whose state goes into checkpoints by the names of parameters."""

    def __init__(self, model: nn.Module, config: RowConfig) -> None:
        self.kernel, self.clip = KERNELS[config.optimizer], config.gradient_clipping
        self.beta1, self.beta2, self.eps = config.adam_beta1, config.adam_beta2, config.adam_eps
        named = dict(model.named_parameters())
        # Weight decay applies to matrices only, not to gains and biases.
        decayed = {name for name, parameter in named.items() if config.weight_decay and parameter.dim() > 1}
        self.groups = [
            ({name: p for name, p in named.items() if name in decayed}, config.weight_decay),
            ({name: p for name, p in named.items() if name not in decayed}, 0.0),
        ]
        self.names = [name for group, _ in self.groups for name in group]
        self.parameters = [named[name] for name in self.names]
        self.moments: dict[str, dict[str, Tensor]] = {}  # by parameter, once it has had a gradient

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Update the parameters that have a gradient, after clipping by the total norm, and clear the gradients."""
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.clip)
        for group, decay in self.groups:
            moved = {name: parameter for name, parameter in group.items() if parameter.grad is not None}
            if moved:
                self._move(moved, rate, decay)
        self.clear()

    def _move(self, moved: dict[str, nn.Parameter], rate: float, decay: float) -> None:
        states = [self.moments.setdefault(name, _start(parameter)) for name, parameter in moved.items()]
        steps = [state["step"] for state in states]
        torch._foreach_add_(steps, 1)
        self.kernel(
            list(moved.values()),
            [parameter.grad for parameter in moved.values()],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],  # max_exp_avg_sqs, which only amsgrad uses
            steps,
            lr=rate,
            beta1=self.beta1,
            beta2=self.beta2,
            weight_decay=decay,
            eps=self.eps,
            amsgrad=False,
            maximize=False,
        )

    def clear(self) -> None:
        """Set all gradients to None."""
        for parameter in self.parameters:
            parameter.grad = None

    def state(self) -> dict[str, Tensor]:
        """Both moments and the step of each parameter, as `kind/name`."""
        return {f"{kind}/{name}": value.cpu() for name, state in self.moments.items() for kind, value in state.items()}

    def load(self, state: dict[str, Tensor]) -> None:
        """Restore what `state` returned."""
        places = {name: parameter.device for name, parameter in zip(self.names, self.parameters, strict=True)}
        self.moments = {}
        for key, value in state.items():
            kind, _, name = key.partition("/")
            self.moments.setdefault(name, {})[kind] = value.to(places[name])


def _start(parameter: nn.Parameter) -> dict[str, Tensor]:
    return {
        "step": torch.zeros((), device=parameter.device),
        "exp_avg": torch.zeros_like(parameter),
        "exp_avg_sq": torch.zeros_like(parameter),
    }
