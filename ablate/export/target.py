"""A model of another library: the settings that it supports, and its weights in terms of ours."""

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
from ablate.parts.feed_forward import ACTIVATIONS

# From a configuration and the name of the target: the violation of a rule, empty without one.
Rule = Callable[[ModelConfig, str], str]
Change = Callable[[Tensor, ModelConfig], Tensor]
ANY: Any = object()  # every value of a field
GATED = tuple(name for name, activation in ACTIVATIONS.items() if activation.gated)
UNGATED = tuple(name for name, activation in ACTIVATIONS.items() if not activation.gated)


@dataclass(frozen=True)
class TrainedModel:
    """A trained model.

    languages: of the source and of the target, or the name of the text.
    kind: what runs of its task are exported as (`Task.exported_as`).
    """

    config: RowConfig
    weights: Mapping[str, Tensor]
    tokenizer: Tokenizer
    languages: tuple[str, ...]
    kind: str

    def vocabulary(self) -> list[str]:
        """Return every token piece in the order of ids."""
        return self.tokenizer.pieces(list(range(self.tokenizer.vocab_size)))


@dataclass(frozen=True)
class TensorPart:
    """What a tensor of another library is made of.

    ours: names of our tensors, each with the changes that are applied to it in order, with the
        configuration of the layer. `*` in their name and ours stands for weight and bias, and `{e}`
        for the number of an expert.
    join: makes one tensor of them; by default one after another.
    biased: whether theirs has a bias in every model, which is zeros where ours has none.
    when: whether a model has it; it also has none if ours are missing.
    """

    ours: tuple[tuple[str, tuple[Change, ...]], ...]
    join: Callable[[Sequence[Tensor], ModelConfig], Tensor] = lambda tensors, c: torch.cat(
        list(tensors)
    )
    biased: bool = False
    when: Callable[[ModelConfig], bool] = lambda c: True


def of(*ours: str | Change, **facts: Any) -> TensorPart:
    """A part made of ours: names, each followed by its changes."""
    sources: list[tuple[str, tuple[Change, ...]]] = []
    for entry in ours:
        if isinstance(entry, str):
            sources.append((entry, ()))
        else:
            name, changes = sources.pop()
            sources.append((name, (*changes, entry)))
    return TensorPart(tuple(sources), **facts)


Parts = Mapping[str, TensorPart]  # by the names of the other library


@dataclass(frozen=True, kw_only=True)
class Target:
    """A model of another library.

    A field of the model that is neither in `supported` nor declared as exported (`Facts`) is
    supported at its default only, so that a new field is refused until a target takes it.

    name: of the model in that library.
    supported: for each restricted field, the supported values, or ANY.
    alternating: fields that may have a pattern, of different values in different layers.
    rules: the restrictions that concern sizes or several fields.
    settings: its configuration.
    parts: its tensors outside of layers. layer: those of a layer. stacks: our name of a stack ->
        the beginning of the names of its layer {i} there.
    write: writes a model into an empty folder.
    package: an optional dependency that `write` imports.
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
        """Return every reason why a model of this configuration cannot be exported."""
        reasons = []
        patterns = config.patterns
        alternating = [name for name in patterns if name not in self.alternating]
        for name, values in self._supported_values().items():
            if values is ANY or name in alternating:
                continue
            value = getattr(config, name)
            for entry in dict.fromkeys(value if name in patterns else (value,)):
                if entry not in values:
                    allowed = listed(map(_text, values))
                    reasons.append(
                        f"{name}={_text(entry)}, but {self.name} supports only {allowed}"
                    )
        if alternating:
            values = ", ".join(f"{name}={_text(patterns[name])}" for name in alternating)
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
        """Return the weights under the names of the other library.

        Args:
            model: whose weights are written; each of them is used, which is checked.
            absent: what stands for weights that the model lacks.
        """
        reader = _Reader({**absent, **model.weights})
        reader.add("", "", self.parts, model.config)
        for stack, depth in zip(("encoder", "decoder"), model.config.depths, strict=True):
            for i, layer in enumerate(model.config.layers(depth) if depth else ()):
                theirs = self.stacks[stack].replace("{i}", str(i))
                reader.add(theirs, f"{stack}.{i}.", self.layer, layer)
        needed = {name for name in model.weights if not name.startswith("future_heads.")}
        forgotten = needed - reader.used
        assert not forgotten, f"{self.name} has no place for {sorted(forgotten)}"
        return reader.tensors


class _Reader:
    """Makes tensors of another library from weights."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self.weights = weights
        self.tensors: dict[str, Tensor] = {}
        self.used: set[str] = set()

    def add(self, theirs: str, ours: str, parts: Parts, c: ModelConfig) -> None:
        """Add the tensors of parts whose names begin with these prefixes."""
        for name, part in parts.items():
            if not part.when(c):
                continue
            for e in range(c.n_experts or 0) if "{e}" in name else (0,):
                for kind in ("weight", "bias") if "*" in name else ("",):
                    tensors = self._sources(ours, part, e, kind, c)
                    if tensors is not None:
                        self.tensors[theirs + _filled(name, e, kind)] = part.join(tensors, c)

    def _sources(
        self, prefix: str, part: TensorPart, e: int, kind: str, c: ModelConfig
    ) -> list[Tensor] | None:
        tensors = []
        for name, changes in part.ours:
            ours = prefix + _filled(name, e, kind)
            if ours in self.weights:
                tensor = self.weights[ours]
                self.used.add(ours)
            else:
                weight = self.weights.get(prefix + _filled(name, e, "weight"))
                if weight is None or kind != "bias" or not part.biased:
                    return None
                tensor = weight.new_zeros(len(weight))
            for change in changes:
                tensor = change(tensor, c)
            tensors.append(tensor)
        return tensors


def _filled(name: str, e: int, kind: str) -> str:
    return name.replace("{e}", str(e)).replace("*", kind)


def _text(value: object) -> str:
    return setting_text(value)


def equal_head_sizes(c: ModelConfig, name: str) -> str:
    """A rule: queries and values of a head have one size."""
    return f"d_k={c.d_k} and d_v={c.d_v}, but {name} needs them equal" if c.d_k != c.d_v else ""


def derived_head_sizes(c: ModelConfig, name: str) -> str:
    """A rule: heads share d_model among them."""
    if c.d_k == c.d_v == c.d_model / c.n_heads:
        return ""
    return f"d_k={c.d_k} and d_v={c.d_v}, but every head of {name} has size d_model / h"


def equal_cross_heads(c: ModelConfig, name: str) -> str:
    """A rule: cross-attention has the number of heads of self-attention."""
    if c.cross_heads == c.n_heads:
        return ""
    has = "has as many heads in cross-attention as in self-attention"
    return f"n_cross_heads={c.n_cross_heads}, but {name} {has}"
