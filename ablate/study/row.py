"""A row of a study: a configuration, what it changes of base, and what trials choose for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ablate.config import RowConfig
from ablate.config.identity import decoding_id
from ablate.config.inactive import inactive_fields
from ablate.store.status import NO_DECODING
from ablate.study.choice import UNDECIDED, Choice
from ablate.study.matching import Matched


@dataclass(frozen=True)
class Row:
    """A configuration of the study, compared with base.

    label: stable and readable, such as `A h=1 d_k=512`; `base` for base.
    group: name of the group that makes the row.
    config: the resolved configuration.
    evaluated: name of the test set, as in `data.evaluated`; None for a trial, which is not decoded,
        and scored by its last evaluation.
    changed: the fields that differ from base, with the row's values; empty for base.
    matched: the field that gives the row base's cost; None without `match`.
    choice: among the candidates of the row; None without any.
    decoding_choice: among decodings, the same for all rows but for the fields that the row sets;
        None without candidates.
    base: label of the row that it is compared with; a base's own label.
    size: of a study at several sizes.
    is_labeled: whether the study writes the label, which then does not show the settings.
    has_parts: whether the label has names of a design's parts in the place of their settings.
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
        """Id of the row's decoding, by its fields and the test split; NO_DECODING for none."""
        if not self.is_decoded:
            return NO_DECODING
        undecided = UNDECIDED * self.awaits_decoding
        return decoding_id(self.config, f"{self.evaluated}{undecided}")

    @property
    def is_decoded(self) -> bool:
        """Whether the row is decoded and scored on a test set, and not a trial."""
        return self.evaluated is not None

    @property
    def is_base(self) -> bool:
        """Whether other rows are compared with this row; every size has its base."""
        return self.base == self.label

    @property
    def name(self) -> str:
        """The label without the size."""
        return self.label.removeprefix(f"{self.size} ")

    @property
    def own_choice(self) -> Choice | None:
        """The choice by trials of the row itself."""
        return None if self.choice is None or self.choice.by_base else self.choice

    @property
    def awaits_choice(self) -> bool:
        """Whether the row is not trained yet, because trials are missing."""
        return self.awaits_values or (self.awaits_decoding and not self.is_base)

    @property
    def awaits_values(self) -> bool:
        """Whether the configuration that is trained is not known yet."""
        return self.choice is not None and self.choice.chosen is None

    @property
    def awaits_decoding(self) -> bool:
        """Whether base has not yet shown how to decode."""
        return self.decoding_choice is not None and self.decoding_choice.chosen is None


_SAY_POSITIONS = ("architecture", "context", "positional_encoding")


def changes(config: RowConfig, base: RowConfig) -> dict[str, Any]:
    """The fields that differ from base and have an effect in `config`, with its values."""
    inactive = {*inactive_fields(config)}
    changed = {}
    # The number of learned positions that a study leaves out follows from these.
    if any(getattr(config, name) != getattr(base, name) for name in _SAY_POSITIONS):
        inactive.add("max_positions")
    for name, value in config.model_dump().items():
        if value != getattr(base, name) and name not in inactive:
            changed[name] = value
    return changed
