"""A mixture of experts in the place of one feed-forward network (Shazeer et al., 2017)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ablate.config import ModelConfig
from ablate.model.layers import Linear


class MixtureOfExperts(nn.Module):
    """Sends each token to some of its experts, and adds up what they put out. No token is dropped.

    Attributes:
        balance_loss: n_experts times the sum over experts of the share of choices that fell on it
            and its mean weight in the softmax (Fedus et al., 2022, eq. 4), weighted; of the last
            batch, padding included. A perfect balance gives the weight itself.
    """

    def __init__(
        self, config: ModelConfig, make_expert: Callable[[], nn.Module], init: torch.Generator
    ) -> None:
        """Make the experts, then the router.

        Args:
            config: of the layer.
            make_expert: makes a feed-forward network.
            init: draws the initial weights of the router.
        """
        super().__init__()
        assert config.n_experts is not None
        self.experts = nn.ModuleList(make_expert() for _ in range(config.n_experts))
        self.shared = nn.ModuleList(make_expert() for _ in range(config.shared_experts))
        self.router = Linear(config.d_model, config.n_experts, init, bias=False)
        self.chosen, self.weighting = config.experts_per_token, config.expert_weights
        self.balance = config.expert_balance
        self.balance_loss: Tensor | float = 0.0

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, d_model) -> (B, T, d_model)."""
        rows = x.flatten(0, -2)  # (n, d_model)
        # A router in bf16 would choose other experts than in decoding.
        with torch.autocast(x.device.type, enabled=False):
            scores = self.router(rows.to(self.router.weight.dtype))  # (n, n_experts)
            weights, chosen = self._choose(scores)  # (n, experts_per_token) both
        out = torch.zeros_like(rows, dtype=weights.dtype)
        for number, expert in enumerate(self.experts):
            row, place = (chosen == number).nonzero(as_tuple=True)
            # Also where no token chose it, so that every parameter has a gradient.
            out = out.index_add(0, row, weights[row, place, None] * expert(rows[row]))
        for expert in self.shared:
            out = out + expert(rows)
        return out.view(x.shape)

    def _choose(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The weights and the numbers of each token's experts, and the loss of their balance."""
        probabilities = scores.softmax(-1)
        top, chosen = scores.topk(self.chosen, dim=-1)
        if self.training and self.balance:
            counts = torch.zeros_like(scores).scatter(1, chosen, 1.0).mean(0) / self.chosen
            uneven = (counts * probabilities.mean(0)).sum() * scores.shape[1]
            self.balance_loss = self.balance * uneven
        if self.weighting == "softmax":
            return probabilities.gather(1, chosen), chosen
        if self.weighting == "softmax_of_chosen":
            return top.softmax(-1), chosen
        gates = top.sigmoid()
        return gates / gates.sum(-1, keepdim=True), chosen
