"""The configuration of the model: the fields of all its parts (parts/), and its layers.

A field of a layer (`Facts.per_layer`) may hold a pattern instead of a value: a tuple that is
repeated over the layers of each stack. The declared types are without patterns, as in the
configuration of a single layer, which `ModelConfig.layers` yields.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Self

from pydantic import (
    SerializerFunctionWrapHandler,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_serializer,
    field_validator,
    model_validator,
)

from ablate.config.language_data import CausalSettings
from ablate.errors import Fault, Invalid
from ablate.fields import facts_of
from ablate.formatting import plural, setting_text
from ablate.parts import embeddings, feed_forward, initialization, mixers, positions, residual
from ablate.parts.heads import OutputHead
from ablate.parts.initialization import Initialization


class ModelConfig(OutputHead, Initialization, CausalSettings):
    """Sizes of the model and variants of its parts. Defaults are the paper's base model.

    Read a field of a layer from the configuration of a layer; here it may be a pattern.
    """

    @field_validator("*", mode="wrap")
    @classmethod
    def _pattern(cls, value: Any, check: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        is_pattern = facts_of(cls)[str(info.field_name)].per_layer
        if not is_pattern or not isinstance(value, (list, tuple)):
            return check(value)
        if not value:
            raise Invalid("[] is not allowed: a pattern needs a value for each layer")
        return shortest_pattern(tuple(check(entry) for entry in value))

    @field_serializer("*", mode="wrap")
    def _written_pattern(self, value: Any, write: SerializerFunctionWrapHandler) -> Any:
        return value if value.__class__ is tuple else write(value)

    @model_validator(mode="after")
    def _check_compatible(self) -> ModelConfig:
        faults = list(_faults(self))
        if faults:
            raise Invalid(*faults)
        return self

    @property
    def patterns(self) -> dict[str, tuple[Any, ...]]:
        """The fields that alternate over the layers, each with its pattern."""
        # Values are read without pydantic: a plan reads this property fifty times for each row.
        return {
            name: value
            for name, value in self.__dict__.items()
            if value.__class__ is tuple and name in LAYER_FIELDS
        }

    def layers(self, depth: int) -> Iterator[Self]:
        """The configuration of each layer of a stack of this depth; no field of it is a pattern."""
        patterns = self.patterns
        period = min(depth, math.lcm(*map(len, patterns.values())))
        turns: list[Self] = []
        for i in range(period):
            own = {name: values[i % len(values)] for name, values in patterns.items()}
            turns.append(self.model_copy(update=own) if own else self)
        for i in range(depth):
            yield turns[i % period]

    @property
    def all_layers(self) -> list[Self]:
        """The configuration of each layer of the deepest stack. The layers of the other stack have
        the first of these configurations.
        """
        return list(self.layers(max(self.depths)))

    def trained_layers(self) -> Iterator[tuple[Self, bool, int]]:
        """Yield for each layer of all stacks its configuration, whether it is causal, and how often
        it is applied. A head of future tokens is one more layer like the last one.
        """
        for depth, causal in zip(self.depths, (False, True), strict=True):
            for layer in self.layers(depth):
                yield layer, causal, self.loops
        for _ in range(self.future_tokens):
            yield self.last_layer(self.depths[1]), True, 1

    def single_layer(self, **values: Any) -> Self:
        """The configuration with one layer in each stack, and with these values, unchecked."""
        depths = {"n_layers": 1, "encoder_layers": None, "decoder_layers": None}
        return self.model_copy(update={**depths, **values})

    def last_layer(self, depth: int) -> Self:
        """The configuration of the last layer of a stack of this depth."""
        *_, last = self.layers(depth)
        return last

    def has_derived_heads(self, name: str) -> bool:
        """Whether the field `name`, d_k or d_v, is d_model / h in every layer."""
        return all(
            getattr(layer, name) * layer.n_heads == self.d_model for layer in self.all_layers
        )

    def encodings(self, depth: int) -> list[Self]:
        """For each positional encoding of a stack, the first layer with it."""
        first: dict[tuple[Any, ...], Self] = {}
        for layer in self.layers(depth):
            first.setdefault(layer.encoding_key, layer)
        return list(first.values())

    @property
    def has_balanced_experts(self) -> bool:
        """Whether the training loss has a term for the balance of experts."""
        return self.largest_balance > 0

    @property
    def largest_balance(self) -> float:
        """Balance term in the training loss if all tokens are sent to the same experts."""
        layers = self.trained_layers()
        return sum(passes * feed_forward.largest_balance(c) for c, _, passes in layers)

    def positions_needed(self, source: int, target: int) -> int:
        """Number of positions of a pair with begin and end marks: of the longer side, or of both
        sides as one sequence.

        A model without a decoder reads only the source, without marks.
        """
        if not self.has_decoder:
            return source
        return max(source, target) + 1 if self.has_encoder else source + target + 2


LAYER_FIELDS = tuple(name for name, facts in facts_of(ModelConfig).items() if facts.per_layer)


def shortest_pattern(values: tuple[Any, ...]) -> Any:
    """The shortest pattern whose repetition gives these values; if all are equal, the value."""
    if values.count(values[0]) == len(values):
        return values[0]
    for length in range(2, len(values)):
        if len(values) % length == 0 and values == values[:length] * (len(values) // length):
            return values[:length]
    return values


def _faults(c: ModelConfig) -> Iterator[Fault]:
    """Yield the faults of settings of a model that cannot be combined."""
    yield from _pattern_faults(c)
    layers = c.all_layers
    for number, layer in enumerate(layers, 1):
        faults = list(_layer_faults(layer))
        for fault in faults:
            yield fault.about(f"layer {number}") if c.patterns else fault
        if faults:
            break  # faults of further layers are mostly the same
    yield from positions.stack_faults(c.encodings(len(layers)))
    yield from mixers.layer_faults(layers)
    yield from embeddings.first_layer_faults(layers[0])
    yield from embeddings.faults(c)


def _layer_faults(c: ModelConfig) -> Iterator[Fault]:
    yield from positions.faults(c)
    yield from mixers.faults(c)
    yield from feed_forward.faults(c)
    yield from residual.faults(c)
    yield from initialization.faults(c)


def _pattern_faults(c: ModelConfig) -> Iterator[Fault]:
    heads = c.patterns.get("n_heads", ())
    for name, values in c.patterns.items():
        if name in ("d_k", "d_v") and len(values) == len(heads):
            continue  # they mostly follow from the pattern of h
        if len(values) > max(c.depths):
            yield Fault(
                f"has {len(values)} values for {plural(max(c.depths), 'layer')}",
                (name, "n_layers", "encoder_layers", "decoder_layers"),
                subject=name,
                given=f"[{', '.join(map(setting_text, values))}]",
                remedy="to compare values, write them under `each` in a group of rows",
            )
