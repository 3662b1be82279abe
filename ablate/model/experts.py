"""A mixture of experts (Shazeer et al., 2017) in place of the feed-forward network."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from ablate.config import ModelConfig
from ablate.model.layers import Linear, ParameterKinds, optional, zeros


class Softmax:
    """Rule for expert weights: the softmax of router scores over all experts. It is also the base
    class of the other rules.
    """

    def gates(self, scores: Tensor, probabilities: Tensor) -> Tensor:
        """The values by which experts are chosen if `choice_bias` is added to them: (n, n_experts).

        Args:
            scores: router scores (n, n_experts).
            probabilities: their softmax.
        """
        return probabilities

    def weights(self, scores: Tensor, probabilities: Tensor, chosen: Tensor) -> Tensor:
        """The weights of the chosen experts.

        Args:
            scores: router scores (n, n_experts).
            probabilities: their softmax.
            chosen: indices of the chosen experts (n, experts_per_token).

        Returns:
            (n, experts_per_token).
        """
        return probabilities.gather(1, chosen)


class SoftmaxOfChosen(Softmax):
    """The softmax over the chosen experts only."""

    def weights(self, scores: Tensor, probabilities: Tensor, chosen: Tensor) -> Tensor:
        """(n, experts_per_token)."""
        return scores.gather(1, chosen).softmax(-1)


class NormalizedSigmoid(Softmax):
    """The sigmoid of each score, divided by the sum over the chosen experts (DeepSeek-V3)."""

    def gates(self, scores: Tensor, probabilities: Tensor) -> Tensor:
        """(n, n_experts)."""
        return scores.sigmoid()

    def weights(self, scores: Tensor, probabilities: Tensor, chosen: Tensor) -> Tensor:
        """(n, experts_per_token)."""
        weights = scores.gather(1, chosen).sigmoid()
        # The sum is 0 if all scores are below -100; the constant is DeepSeek-V3's.
        return weights / (weights.sum(-1, keepdim=True) + 1e-20)


WEIGHTINGS = {
    "softmax": Softmax(),
    "softmax_of_chosen": SoftmaxOfChosen(),
    "sigmoid": NormalizedSigmoid(),
}


class MixtureOfExperts(nn.Module):
    """Sends each token to some of the experts, and sums their weighted outputs; drops no token.

    Attributes:
        choice_bias: trained bias (n_experts,) that is added where experts are chosen, but not to
            their weights; None where a term of the loss balances the experts.
        balance_loss: `expert_balance` * n_experts * the sum over experts of (share of choices) *
            (mean probability), padding included (Fedus et al., 2022, eq. 4), summed over the
            forward passes since `Transformer.pop_balance_loss`. A pass with perfect balance adds
            `expert_balance`. With a `choice_bias`, the value is 0, and the gradient lowers the bias
            of experts that are chosen often.
    """

    parameter_kinds: ClassVar[ParameterKinds] = {"choice_bias": "bias"}

    def __init__(
        self, config: ModelConfig, make_expert: Callable[[], nn.Module], init: torch.Generator
    ) -> None:
        """Make the experts, which are feed-forward networks, and then the router."""
        super().__init__()
        assert config.n_experts is not None
        self.experts = nn.ModuleList(make_expert() for _ in range(config.n_experts))
        self.shared = nn.ModuleList(make_expert() for _ in range(config.shared_experts))
        self.router = Linear(config.d_model, config.n_experts, init, bias=config.router_bias)
        is_gated = config.shared_expert_gate and config.shared_experts > 0
        self.shared_gate = optional(is_gated, Linear, config.d_model, 1, init, bias=False)
        self.experts_per_token = config.experts_per_token
        self.weighting = WEIGHTINGS[config.expert_weights]
        self.balance = config.expert_balance
        self.scale = config.expert_scale
        is_biased = config.expert_balance_by == "bias"
        self.choice_bias = optional(is_biased, zeros, config.n_experts)
        self.balance_loss: Tensor | float = 0.0

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, d_model) -> (B, T, d_model)."""
        rows = x.flatten(0, -2)  # (n, d_model)
        # In fp32: with rounding to bf16 in training, training and decoding would choose different
        # experts.
        with torch.autocast(x.device.type, enabled=False):
            scores = self.router(rows.to(self.router.weight.dtype))  # (n, n_experts)
            weights, chosen = self._choose(scores)  # (n, experts_per_token) both
        # Sort by expert, so that tokens are gathered and added once, not once for each expert.
        order = chosen.flatten().argsort(stable=True)
        row = order // self.experts_per_token
        counts = torch.bincount(chosen.flatten(), minlength=len(self.experts)).tolist()
        # Experts run even without tokens, so that every parameter has a gradient.
        outputs = []
        for expert, inputs in zip(self.experts, rows[row].split(counts), strict=True):
            outputs.append(expert(inputs))
        weighted = weights.flatten()[order, None] * torch.cat(outputs)
        out = torch.zeros_like(rows, dtype=weights.dtype).index_add(0, row, weighted)
        for expert in self.shared:
            shared = expert(rows)
            if self.shared_gate is not None:
                shared = self.shared_gate(rows).sigmoid() * shared
            out = out + shared
        return out.view(x.shape)

    def _choose(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Choose experts for each token, and add to the balance loss.

        Args:
            scores: (n, n_experts).

        Returns:
            Weights and indices of the chosen experts, (n, experts_per_token) both.
        """
        probabilities = scores.softmax(-1)
        ranking = scores
        if self.choice_bias is not None:
            ranking = self.weighting.gates(scores, probabilities) + self.choice_bias
        chosen = ranking.topk(self.experts_per_token, dim=-1).indices
        if self.training and (self.balance or self.choice_bias is not None):
            choices = torch.zeros_like(scores).scatter(1, chosen, 1.0).mean(0)
            shares = choices / self.experts_per_token
            unevenness = self._unevenness(shares, probabilities.mean(0))
            # A sum, because a layer may be applied several times (`loops`).
            self.balance_loss = self.balance_loss + self.balance * unevenness
        return self.scale * self.weighting.weights(scores, probabilities, chosen), chosen

    def _unevenness(self, shares: Tensor, probabilities: Tensor) -> Tensor:
        """The balance loss before its weight, a scalar.

        Args:
            shares: share of the choices of each expert (n_experts,).
            probabilities: mean probability of each expert (n_experts,).
        """
        if self.choice_bias is None:
            return (shares * probabilities).sum() * len(shares)
        # The value is 0, but the gradient is not: so the optimizer moves the bias like any other
        # parameter, and checkpoints include its state.
        zero = self.choice_bias - self.choice_bias.detach()
        return (zero * (shares.detach() * len(shares) - 1)).sum()
