"""A target of an export: a model of another library, with the settings that it supports and the
conversion of weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ablate.config import ModelConfig, RowConfig
from ablate.data.tokenizer import Tokenizer
from ablate.errors import listed
from ablate.fields import facts_of
from ablate.formatting import setting_text

# (config, name of the target) -> what violates the rule; empty if nothing does.
Rule = Callable[[ModelConfig, str], str]
Change = Callable[[Tensor, ModelConfig], Tensor]
ANY: Any = object()  # in place of the supported values of a field: all are supported


@dataclass(frozen=True)
class TrainedModel:
    """A trained model with everything that an export needs.

    weights: parameters by name, in fp32.
    languages: languages of source and target, or the name of the text of a language model.
    kind: kind of model of the task: `sequence-to-sequence`, `causal` or `masked`
        (`Task.exported_as`).
    """

    config: RowConfig
    weights: Mapping[str, Tensor]
    tokenizer: Tokenizer
    languages: tuple[str, ...]
    kind: str

    def vocabulary(self) -> list[str]:
        """The texts of all tokens, in the order of their ids."""
        return self.tokenizer.pieces(list(range(self.tokenizer.vocab_size)))


@dataclass(frozen=True)
class TensorPart:
    """The conversion of tensors of ablate to a tensor of another library.

    ours: names of ablate's tensors, each with the changes that are applied to it in order. In all
        names, `*` stands for `weight` and `bias`, and `{e}` for the number of an expert.
    join: function that joins the changed tensors; by default concatenation along the first axis.
    biased: whether the other library always has a bias, which is zero if ablate's model has none.
    when: whether a model with this configuration has the tensor in the other library. A tensor is
        also left out if ablate's model lacks the tensors in `ours`.
    """

    ours: tuple[tuple[str, tuple[Change, ...]], ...]
    join: Callable[[Sequence[Tensor], ModelConfig], Tensor] = lambda tensors, c: torch.cat(
        list(tensors)
    )
    biased: bool = False
    when: Callable[[ModelConfig], bool] = lambda c: True


def convert(*ours: str | Change, **facts: Any) -> TensorPart:
    """A conversion of tensors. `ours` has names of ablate's tensors, each followed by the changes
    of that tensor; `facts` are the other fields of `TensorPart`.
    """
    sources: list[tuple[str, tuple[Change, ...]]] = []
    for entry in ours:
        if isinstance(entry, str):
            sources.append((entry, ()))
        else:
            name, changes = sources.pop()
            sources.append((name, (*changes, entry)))
    return TensorPart(tuple(sources), **facts)


Parts = Mapping[str, TensorPart]  # by the name of the other library's tensor


@dataclass(frozen=True, kw_only=True)
class Target:
    """A model of another library.

    A field of the configuration that is neither in `supported` nor declared as exported (`Facts`)
    may only have its default. So a new field is refused until a target supports it.

    name: name of the model in the other library.
    supported: by field, the supported values, or ANY.
    alternating: fields that may have different values in different layers.
    rules: restrictions of sizes and of combinations of fields.
    settings: function that makes the configuration of the other library.
    parts: by name in the other library, the tensors outside of layers.
    layer: by name in the other library, the tensors of a layer.
    stacks: by ablate's name of a stack (`encoder`, `decoder`), the prefix of the names of the
        tensors of layer {i}.
    write: function that writes a model into an empty folder.
    package: name of an optional dependency that `write` imports.
    """

    name: str
    supported: Mapping[str, Any]
    alternating: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    settings: Callable[[ModelConfig], dict[str, Any]]
    parts: Parts
    layer: Parts
    stacks: Mapping[str, str] = field(default_factory=lambda: {"decoder": "model.layers.{i}."})
    write: Callable[[Target, TrainedModel, Path], None]
    package: str | None = None

    def violations(self, config: ModelConfig) -> list[str]:
        """The reasons why a model with this configuration cannot be exported; empty if it can."""
        reasons = []
        patterns = config.patterns
        alternating = [name for name in patterns if name not in self.alternating]
        for name, values in self._supported_values().items():
            if values is ANY or name in alternating:
                continue
            value = getattr(config, name)
            for entry in dict.fromkeys(value if name in patterns else (value,)):
                if entry not in values:
                    allowed = listed(map(setting_text, values))
                    reasons.append(
                        f"{name}={setting_text(entry)}, but {self.name} supports only {allowed}"
                    )
        if alternating:
            values = ", ".join(f"{name}={setting_text(patterns[name])}" for name in alternating)
            return [*reasons, f"{values}, but all layers of {self.name} are alike"]
        for rule in self.rules:
            if violation := rule(config, self.name):
                reasons.append(violation)
        return reasons

    def _supported_values(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, facts in facts_of(ModelConfig).items():
            if not facts.is_exported:
                values[name] = (ModelConfig.model_fields[name].default,)
        return values | dict(self.supported)

    def tensors(self, model: TrainedModel, absent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The weights of a model for the other library, by the names of that library. Each weight
        of the model must be used. `absent` has weights to use if the model has none of that name.
        """
        reader = _Reader({**absent, **model.weights})
        reader.add("", "", self.parts, model.config)
        for stack, depth in zip(("encoder", "decoder"), model.config.depths, strict=True):
            for i, layer in enumerate(model.config.layers(depth) if depth else ()):
                theirs = self.stacks[stack].replace("{i}", str(i))
                reader.add(theirs, f"{stack}.{i}.", self.layer, layer)
        needed = {name for name in model.weights if not name.startswith("future_heads.")}
        unused = needed - reader.used
        assert not unused, f"{self.name} has no place for {sorted(unused)}"
        return reader.tensors


class _Reader:
    """Converts weights to tensors of another library."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self.weights = weights
        self.tensors: dict[str, Tensor] = {}
        self.used: set[str] = set()

    def add(self, theirs: str, ours: str, parts: Parts, c: ModelConfig) -> None:
        """Convert the tensors of parts; `theirs` and `ours` are prefixes of the names in the other
        library and in ablate.
        """
        for name, part in parts.items():
            if not part.when(c):
                continue
            for e in range(c.n_experts or 0) if "{e}" in name else (0,):
                for suffix in ("weight", "bias") if "*" in name else ("",):
                    tensors = self._changed(ours, part, e, suffix, c)
                    if tensors is not None:
                        self.tensors[theirs + _full_name(name, e, suffix)] = part.join(tensors, c)

    def _changed(
        self, prefix: str, part: TensorPart, e: int, suffix: str, c: ModelConfig
    ) -> list[Tensor] | None:
        """The changed tensors of a part; None if the model lacks one of them."""
        tensors = []
        for name, changes in part.ours:
            ours = prefix + _full_name(name, e, suffix)
            if ours in self.weights:
                tensor = self.weights[ours]
                self.used.add(ours)
            else:
                weight = self.weights.get(prefix + _full_name(name, e, "weight"))
                if weight is None or suffix != "bias" or not part.biased:
                    return None
                tensor = weight.new_zeros(len(weight))
            for change in changes:
                tensor = change(tensor, c)
            tensors.append(tensor)
        return tensors


def _full_name(name: str, e: int, suffix: str) -> str:
    return name.replace("{e}", str(e)).replace("*", suffix)


def equal_head_sizes(c: ModelConfig, name: str) -> str:
    """A rule: the queries and values of a head have the same size."""
    return f"d_k={c.d_k} and d_v={c.d_v}, but {name} needs them equal" if c.d_k != c.d_v else ""


def derived_head_sizes(c: ModelConfig, name: str) -> str:
    """A rule: the size of a head is d_model / h."""
    if c.d_k == c.d_v == c.d_model / c.n_heads:
        return ""
    return f"d_k={c.d_k} and d_v={c.d_v}, but every head of {name} has size d_model / h"


def equal_cross_heads(c: ModelConfig, name: str) -> str:
    """A rule: cross-attention has the number of heads of self-attention."""
    if c.cross_heads == c.n_heads:
        return ""
    problem = f"{name} has as many heads in cross-attention as in self-attention"
    return f"n_cross_heads={c.n_cross_heads}, but {problem}"
