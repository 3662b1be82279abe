"""A row of a study: its configuration, its changes from base, and its choices by tuning runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ablate.config import RowConfig
from ablate.config.identity import decoding_id
from ablate.config.inactive import inactive_fields
from ablate.store.status import NO_DECODING
from ablate.study.choice import AFTER_TUNING, Choice
from ablate.study.matching import Matched


@dataclass(frozen=True)
class Row:
    """A configuration of the study, compared with base.

    label: stable and readable name, such as `A h=1 d_k=512`; `base` for base.
    group: name of the group that makes the row.
    config: resolved configuration.
    evaluated: name of the test set, as in `data.evaluated`; None for a tuning run, which is
        not decoded and is scored by its last evaluation.
    changed: fields that differ from base, with the row's values; empty for base.
    matched: field whose value `match` has chosen; None without `match`.
    choice: choice among the row's candidates; None without candidates.
    decoding_choice: choice of the decoding, the same for all rows except for fields that the row
        sets; None without candidates.
    base: label of the row with which this row is compared; the row's own label if it is a base.
    size: name of the size in a study at several sizes; else empty.
    is_labeled: whether the study writes the label, which then does not show the settings.
    has_parts: whether the label has the names of a design's parts instead of their settings.
    """

    label: str
    group: str
    config: RowConfig
    evaluated: str | None
    changed: dict[str, Any] = field(default_factory=dict)
    matched: Matched | None = None
    choice: Choice | None = None
    base: str = "base"
    size: str = ""
    is_labeled: bool = False
    has_parts: bool = False
    decoding_choice: Choice | None = None

    @cached_property
    def decoding(self) -> str:
        """Id of the row's decoding, from its decoding fields and the test set; NO_DECODING if the
        row is not decoded.
        """
        if self.evaluated is None:
            return NO_DECODING
        test = self.evaluated + AFTER_TUNING if self.awaits_decoding else self.evaluated
        return decoding_id(self.config, test)

    @property
    def is_decoded(self) -> bool:
        """Whether the row is decoded and scored on a test set; False for a tuning run."""
        return self.evaluated is not None

    @property
    def is_base(self) -> bool:
        """Whether the row is a base, with which other rows are compared. Every size has a base."""
        return self.base == self.label

    @property
    def name(self) -> str:
        """The label without the size."""
        return self.label.removeprefix(f"{self.size} ")

    @property
    def own_choice(self) -> Choice | None:
        """The choice if the row has its own tuning runs; else None."""
        return None if self.choice is None or self.choice.by_base else self.choice

    @property
    def awaits_choice(self) -> bool:
        """Whether the row cannot be executed yet, because tuning runs are missing.

        Base is executed before the decoding is chosen, because its predictions choose it.
        """
        return self.awaits_values or (self.awaits_decoding and not self.is_base)

    @property
    def awaits_values(self) -> bool:
        """Whether the trained configuration is not known yet."""
        return self.choice is not None and self.choice.chosen is None

    @property
    def awaits_decoding(self) -> bool:
        """Whether the decoding is not chosen yet."""
        return self.decoding_choice is not None and self.decoding_choice.chosen is None


# The default of max_positions follows from these fields.
_FIELDS_OF_POSITIONS = ("architecture", "context", "positional_encoding")


def changes(config: RowConfig, base: RowConfig) -> dict[str, Any]:
    """The fields that differ from base and have an effect in `config`, with their values there."""
    inactive = {*inactive_fields(config)}
    changed = {}
    # Then a difference in max_positions follows from another change, and is not a change itself.
    if any(getattr(config, name) != getattr(base, name) for name in _FIELDS_OF_POSITIONS):
        inactive.add("max_positions")
    for name, value in config.model_dump().items():
        if value != getattr(base, name) and name not in inactive:
            changed[name] = value
    return changed
