"""The study file: its sections, their types and their meanings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)

from ablate.config.identity import DEFAULT_TASK
from ablate.config.resolve import standard_name
from ablate.custom.reference import REFERENCE_PATTERN
from ablate.errors import Fault, Invalid, nested_faults, not_allowed, unknown_name
from ablate.fields import value_text
from ablate.study.names import GroupName, SizeName, StudyName, refuse_similar
from ablate.study.rows import WAYS, Group, Groups, MatchOption
from ablate.study.seeds import REMEDIES, Seeds, SeedsSection, seeds_of
from ablate.study.settings import RUN_OPTIONS, Settings, Values, unknown_field
from ablate.study.tuning import Tune
from ablate.study.typed import KEY, Misplaced, Placed, keys_of, mapping_of, union_by_kind
from ablate.tasks import TASKS

MAX_SIZES = 10


def _check_group_names(value: Any) -> Any:
    """Refuse a key such as `each` in place of a group's name."""
    if value is None:
        return {}
    groups = mapping_of(value, "groups by name, such as size: {each: {N: [1, 2]}}")
    for name, group in groups.items():
        if name in WAYS and not (isinstance(group, dict) and group.keys() & {*WAYS}):
            remedy = f"write rows: {{GROUP: {{{name}: ...}}}}"
            fault = Fault(f'"{name}" is a key of a group', remedy=remedy)
            raise Misplaced(fault.nested(name, KEY))
    return value


def _check_data(value: Any) -> Any:
    """Refuse a value that is not a mapping. The fields are read later, by the class of the task."""
    return mapping_of(value, "the corpus and its settings, such as {corpus: toy, vocab_size: 350}")


def _as_names(value: Any) -> Any:
    """A list of names; a name alone is a list of one."""
    if isinstance(value, list):
        return value
    if not isinstance(value, str):
        raise Invalid(not_allowed(value_text(value), "a list of names, such as [bleu]"))
    return [value]


def _refuse_percentage(value: Any) -> Any:
    """Refuse `2%`, since a margin is not a share: it has the unit of the metric."""
    if isinstance(value, str) and value.strip().endswith("%"):
        allowed = "a difference in the metric's own unit, such as 0.5 in BLEU or 0.02 in bits/byte"
        remedy = "for ppl, a margin is a ratio, so 0.02 is 2 %"
        raise Invalid(not_allowed(value_text(value), allowed, remedy))
    return value


Margin = Annotated[float, Field(gt=0), BeforeValidator(_refuse_percentage)]
Metrics = Annotated[
    list[str],
    BeforeValidator(_as_names),
    Field(min_length=1),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "minItems": 1, "uniqueItems": True, "items": {"type": "string"}},
            ]
        }
    ),
]
_TASK = {"anyOf": [{"enum": list(TASKS)}, {"type": "string", "pattern": f"^{REFERENCE_PATTERN}$"}]}


class StudyFile(Placed):
    """A study as its file writes it. `data` and `metrics` are checked by the task."""

    model_config = ConfigDict(json_schema_extra={"required": ["study", "data"]})

    study: StudyName = ""
    """name of the study, and of its folder in the results root"""
    task: Annotated[Any, WithJsonSchema(_TASK)] = DEFAULT_TASK
    """task of the runs; unset: translation; a task of your own as module:Class"""
    data: Annotated[Any, PlainValidator(_check_data), WithJsonSchema({"type": "object"})] = None
    """the corpus, its splits and its tokenizer"""
    base: Values = Field(Settings())
    """the configuration that every row is compared with; unset fields have the paper's values"""
    seeds: SeedsSection = Field([1])
    """every row is trained once with each seed; unset: [1]"""
    metrics: Metrics = Field([])
    """metrics of the predictions; verdicts use the first; unset: the task's, such as [bleu]"""
    judge: Metrics = Field([])
    """metrics of the verdicts, such as [ppl, bleu], each judged at an equal part of the
    significance level; unset: the first of `metrics`"""
    margin: union_by_kind({"a number": Margin, "a mapping": dict[str, Margin]}) = None  # type: ignore[valid-type]
    """margin of equivalence: a row whose difference from base is surely smaller is as good as base;
    a number for the first metric, or a number for each metric"""
    sizes: Annotated[dict[SizeName, Values], refuse_similar("size")] = Field(
        {}, min_length=2, max_length=MAX_SIZES, json_schema_extra={"additionalProperties": False}
    )
    """names of sizes, each with the fields of base that it sets; every row is trained at each"""
    match: MatchOption = Field(False)
    tune: Tune = None  # type: ignore[assignment]
    rows: Annotated[
        dict[GroupName, Groups], refuse_similar("group"), BeforeValidator(_check_group_names)
    ] = Field({}, json_schema_extra={"additionalProperties": False, "type": ["object", "null"]})
    """groups of rows, each made with each, zip, grid, set, factorial, leave-one-out, add-one-in or
    cumulative"""

    @classmethod
    def unknown_key(cls, key: str) -> Fault | str:
        """The fault of a key that is not a section, with its place if it belongs elsewhere."""
        if key in RUN_OPTIONS:
            remedy = f"it is an option of the command line: {RUN_OPTIONS[key]}"
        elif key in REMEDIES:
            remedy = REMEDIES[key]
        elif key in keys_of(Group):
            remedy = f"it is a key of a group of rows: rows: {{GROUP: {{{key}: ...}}}}"
        elif standard_name(key) is not None:
            remedy = f"it is a field of base: base: {{{key}: VALUE}}"
        else:
            unknown = unknown_name("section", key, keys_of(cls))
            field = unknown_field(key).meant
            if unknown.meant or not field:
                return unknown
            remedy = f"did you mean base: {{{field}: VALUE}}?"
        return Fault(f'unknown section "{key[:60]}"', remedy=remedy)

    @model_validator(mode="after")
    def _tune_is_whole(self) -> StudyFile:
        if self.tune:
            faults = list(nested_faults("tune", self.tune.faults(self.all_seeds.base)))
            if faults:
                raise Misplaced(*faults)
        return self

    def groups(self) -> Iterator[tuple[str, Group]]:
        """Yield (name, group) for each group of rows; several groups may have the same name."""
        for name, group in self.rows.items():
            for options in group if isinstance(group, list) else [group]:
                yield name, options

    @property
    def all_seeds(self) -> Seeds:
        """The seeds of rows, of base and of tuning runs."""
        return seeds_of(self.seeds, tuple(self.tune.seeds) if self.tune else ())
