"""A mixture of experts in the place of one feed-forward network (Shazeer et al., 2017)."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from ablate.config import ModelConfig
from ablate.model.layers import Linear, ParameterKinds, optional, zeros


class MixtureOfExperts(nn.Module):
    """Sends each token to some of its experts, and adds up what they put out. No token is dropped.

    Attributes:
        balance_loss: n_experts times the sum over experts of the share of choices that fell on it
            and its mean weight in the softmax (Fedus et al., 2022, eq. 4), weighted, padding
            included; the sum over the passes since it was read. A perfect balance gives the weight
            itself for each pass. With a bias of the choice it is 0, and its gradient lowers the
            bias of experts that are chosen often.
    """

    parameter_kinds: ClassVar[ParameterKinds] = {"choice_bias": "bias"}

    def __init__(
        self, config: ModelConfig, make_expert: Callable[[], nn.Module], init: torch.Generator
    ) -> None:
        """Make the experts, which are feed-forward networks, then the router."""
        super().__init__()
        assert config.n_experts is not None
        self.experts = nn.ModuleList(make_expert() for _ in range(config.n_experts))
        self.shared = nn.ModuleList(make_expert() for _ in range(config.shared_experts))
        self.router = Linear(config.d_model, config.n_experts, init, bias=config.router_bias)
        is_gated = config.shared_expert_gate and config.shared_experts > 0
        self.shared_gate = optional(is_gated, Linear, config.d_model, 1, init, bias=False)
        self.chosen = config.experts_per_token
        self.weighting = config.expert_weights
        self.balance = config.expert_balance
        self.scale = config.expert_scale
        is_biased = config.expert_balance_by == "bias"
        self.choice_bias = optional(is_biased, zeros, config.n_experts)
        self.balance_loss: Tensor | float = 0.0

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, d_model) -> (B, T, d_model)."""
        rows = x.flatten(0, -2)  # (n, d_model)
        # A router in bf16 would choose other experts than in decoding.
        with torch.autocast(x.device.type, enabled=False):
            scores = self.router(rows.to(self.router.weight.dtype))  # (n, n_experts)
            weights, chosen = self._choose(scores)  # (n, experts_per_token) both
        # Tokens in the order of their experts: taken once and added once, and not for each expert.
        order = chosen.flatten().argsort(stable=True)
        row = order // self.chosen
        counts = torch.bincount(chosen.flatten(), minlength=len(self.experts)).tolist()
        # Also where no token chose it, so that every parameter has a gradient.
        parts = zip(self.experts, rows[row].split(counts), strict=True)
        made = torch.cat([expert(part) for expert, part in parts])
        weighted = weights.flatten()[order, None] * made
        out = torch.zeros_like(rows, dtype=weights.dtype).index_add(0, row, weighted)
        for expert in self.shared:
            shared = expert(rows)
            if self.shared_gate is not None:
                shared = self.shared_gate(rows).sigmoid() * shared
            out = out + shared
        return out.view(x.shape)

    def _choose(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The weights and the numbers of each token's experts, and the loss of their balance."""
        probabilities = scores.softmax(-1)
        if self.choice_bias is None:
            top, chosen = scores.topk(self.chosen, dim=-1)
        else:
            gates = probabilities
            if self.weighting == "sigmoid":
                gates = scores.sigmoid()
            chosen = (gates + self.choice_bias).topk(self.chosen, dim=-1).indices
            top = scores.gather(1, chosen)
        if self.training and (self.balance or self.choice_bias is not None):
            counts = torch.zeros_like(scores).scatter(1, chosen, 1.0).mean(0) / self.chosen
            unevenness = self._unevenness(counts, probabilities.mean(0))
            # Added, because layers with `loops` pass several times.
            self.balance_loss = self.balance_loss + self.balance * unevenness
        if self.weighting == "softmax":
            weights = probabilities.gather(1, chosen)
        elif self.weighting == "softmax_of_chosen":
            weights = top.softmax(-1)
        else:
            weights = top.sigmoid()
            # Scores below -100 are all 0 to the sigmoid; DeepSeek-V3's constant, else no digit.
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        return self.scale * weights, chosen

    def _unevenness(self, counts: Tensor, probabilities: Tensor) -> Tensor:
        """From the share of choices and the mean weight of each expert, both (n_experts,)."""
        if self.choice_bias is None:
            return (counts * probabilities).sum() * len(counts)
        # No loss, but its gradient: the optimizer moves the bias, and resumes it, as any other.
        without_value = self.choice_bias - self.choice_bias.detach()
        return (without_value * (counts.detach() * len(counts) - 1)).sum()
