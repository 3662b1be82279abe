"""Read the section `sizes`: the settings of base at each size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from ablate.config import DecodingConfig
from ablate.config.identity import NOT_IDENTITY
from ablate.config.presets import PRESETS
from ablate.config.resolve import standard_name
from ablate.errors import Fault, Mark
from ablate.study.overrides import override_mark
from ablate.study.settings import merge
from ablate.study.settings_reader import SettingsReader
from ablate.study.study_file import StudyFile
from ablate.study.yaml_nodes import Node, Report

# Fields that do not affect the trained weights.
_NOT_TRAINED = {*DecodingConfig.model_fields, *NOT_IDENTITY}


@dataclass(frozen=True)
class Sizes:
    """The sizes of a study.

    base_settings: settings of base at each size, by the name of the size; a study without sizes has
        a single size with an empty name.
    marks: fields that a size sets -> position in the first size that sets the field.
    set_by_all: fields that all sizes set, themselves or by a preset.
    """

    base_settings: Mapping[str, Mapping[str, Node]]
    marks: Mapping[str, Mark] = field(default_factory=dict)
    set_by_all: Set[str] = frozenset()


def read_sizes(
    file: StudyFile, base: Mapping[str, Node], reader: SettingsReader, report: Report
) -> Sizes:
    """Read the sizes. A size with the training settings of an earlier size is reported.

    `base`: settings of the section `base`, by standard name.
    """
    if not file.sizes:
        return Sizes({"": base})
    size_marks = {name: mark for name, mark, _ in file.node("sizes").items()}
    base_settings = {}
    first_size: dict[tuple[Any, ...], str] = {}  # trained settings -> the first size with them
    field_marks: dict[str, Mark] = {}
    fields_by_size = []
    for name, fields in file.sizes.items():
        written = reader.read(fields, base)
        base_settings[name] = merge(base, written)
        config = reader.resolve(base_settings[name], size_marks[name])
        if config is not None:
            trained = tuple(config.model_dump(exclude=_NOT_TRAINED).items())
            earlier = first_size.setdefault(trained, name)
            if earlier != name:
                problem = f'size "{name}" has the same training settings as size "{earlier}"'
                report(size_marks[name], problem)
        for field_name, node in written.items():
            field_marks.setdefault(field_name, node.mark)
        fields_by_size.append(written.keys() | preset_fields(written))
    return Sizes(
        base_settings, field_marks, frozenset.intersection(*map(frozenset, fields_by_size))
    )


def check_overridden(
    file: StudyFile, sizes: Sizes, overrides: Sequence[str], report: Report
) -> None:
    """Report fields of `--set` and of sizes whose value is overridden in every row."""
    tuned: Set[str] = set()
    if file.tune:
        tuned = file.tune.grid.keys() | file.tune.decoding.keys()
    for name in tuned & sizes.marks.keys():
        report(sizes.marks[name], chosen_elsewhere(name, "is chosen by tune at every size"))
    for text in overrides:
        key = text.partition("=")[0].strip().removeprefix("base.")
        name = standard_name(key) or key
        if name in tuned:
            source = "tune chooses it for"
        elif name in sizes.set_by_all:
            source = "sizes set it for"
        else:
            continue
        fault = Fault(f"has no effect, because {source} every row", (name,))
        report(override_mark(text), fault)


def chosen_elsewhere(name: str, problem: str, remedy: str = "remove it") -> Fault:
    """The fault of a field that is written although its value is chosen elsewhere."""
    return Fault(problem, (name,), subject=name, remedy=remedy)


def preset_fields(settings: Mapping[str, Node]) -> Set[str]:
    """The fields that a preset among the settings sets."""
    if "preset" not in settings:
        return frozenset()
    return PRESETS.get(settings["preset"].value, {}).keys()
