"""Adam (section 5.3), and Adam with decoupled weight decay."""

from __future__ import annotations

from torch import Tensor, nn
from torch.optim import Adam, AdamW

from ablate.config import RowConfig

OPTIMIZERS: dict[str, type[Adam]] = {"adam": Adam, "adamw": AdamW}


class Optimizer:
    """The optimizer of one model, whose state goes into checkpoints by the names of parameters."""

    def __init__(self, model: nn.Module, config: RowConfig) -> None:
        self.clip = config.gradient_clipping
        named = list(model.named_parameters())
        # Gains and biases are not decayed: they have few numbers, and a scale of their own.
        decayed = [item for item in named if config.weight_decay and item[1].dim() > 1]
        others = [item for item in named if not (config.weight_decay and item[1].dim() > 1)]
        self.names = [name for name, _ in (*decayed, *others)]
        self.parameters = [parameter for _, parameter in (*decayed, *others)]
        groups = [(decayed, config.weight_decay), (others, 0.0)]
        self.adam = OPTIMIZERS[config.optimizer](
            [{"params": [p for _, p in group], "weight_decay": decay} for group, decay in groups if group],
            lr=0.0,
            betas=(config.adam_beta1, config.adam_beta2),
            eps=config.adam_eps,
            fused=True,
        )

    def step(self, rate: float) -> None:
        """Take a step with the gradients that are there, clipped to their largest norm, and clear them."""
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.clip)
        for group in self.adam.param_groups:
            group["lr"] = rate
        self.adam.step()
        self.adam.zero_grad()

    def clear(self) -> None:
        """Forget the gradients that are there."""
        self.adam.zero_grad()

    def state(self) -> dict[str, Tensor]:
        """Both moments and the step of each parameter, as `kind/name`."""
        return {
            f"{kind}/{name}": value.cpu()
            for name, parameter in zip(self.names, self.parameters, strict=True)
            for kind, value in self.adam.state[parameter].items()
        }

    def load(self, state: dict[str, Tensor]) -> None:
        """Go on from a state."""
        by_name: dict[str, dict[str, Tensor]] = {}
        for key, value in state.items():
            kind, _, name = key.partition("/")
            by_name.setdefault(name, {})[kind] = value
        whole = self.adam.state_dict()
        whole["state"] = {i: by_name[name] for i, name in enumerate(self.names) if name in by_name}
        self.adam.load_state_dict(whole)
