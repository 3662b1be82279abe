"""Read the sections `sizes` and `rows`: each row is resolved against the base of its size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pydantic import ValidationError

from ablate.config import DecodingConfig, RowConfig
from ablate.config.data import CorpusConfig
from ablate.config.identity import NOT_IDENTITY, fold_vocab_size
from ablate.config.presets import PRESETS
from ablate.config.resolve import SYMBOL_OF, standard_name, unchecked_values
from ablate.errors import Fault, Invalid, Mark, faults_in
from ablate.fields import field_faults
from ablate.stats.designs import Design, FactorialDesign
from ablate.study.choice import Choice
from ablate.study.designs import Part, parts_of_path
from ablate.study.error_list import ErrorList
from ablate.study.matching import Match, Matched, NoMatch, match_row
from ablate.study.overrides import override_mark
from ablate.study.row import Row, changes
from ablate.study.row_notes import (
    EQUAL_TO_BASE,
    REPEATED,
    TRAINED_ALIKE,
    RowNotes,
    is_trained_alike,
)
from ablate.study.row_tuning import CandidateReader
from ablate.study.rows import RowSpec, expand_groups
from ablate.study.settings import Settings, merge, with_causes
from ablate.study.settings_reader import SettingsReader
from ablate.study.study_file import StudyFile
from ablate.study.yaml_nodes import Node, plain_values

# Fields that do not affect the trained weights.
_NOT_TRAINED = {*DecodingConfig.model_fields, *NOT_IDENTITY}


class RowReader:
    """Reads the rows of a study. Errors are reported.

    Attributes:
        written: fields that each row writes, by the row's label and the standard name of the field;
            for a base, all of its fields.
        designs: designs in the order of sizes, then of the file.
        dropped: number of rows that `where` drops.
        notes: notes on settings that are probably not intended.
    """

    def __init__(
        self,
        file: StudyFile,
        settings: SettingsReader,
        data: CorpusConfig | None,
        errors: ErrorList,
    ) -> None:
        self.file = file
        self.settings = settings
        # None if the section `data` has errors: then rows are neither matched nor tuned.
        self.data = data
        self.tune = file.tune
        self.errors = errors
        self.report = errors.report
        self.tuner = None
        if file.tune and data:
            self.tuner = CandidateReader(file.tune, settings, data, self.report)
        self.written: dict[str, Mapping[str, Node]] = {}
        self._decoding: Choice | None = None
        self.designs: list[Design] = []
        self.dropped = 0
        self._size_fields: dict[str, Mark] = {}  # field -> position in the first size that sets it
        self._fields_of_all_sizes: frozenset[str] = frozenset()
        self._base_settings: dict[str, Node] = {}
        self.notes = RowNotes({})

    def read(self, base: dict[str, Node]) -> list[Row]:
        """Read the rows of all sizes, the rows of the first size first and its base at the head.

        Args:
            base: settings of the section `base`, by standard name.
        """
        rows: list[Row] = []
        self._base_settings = base
        self.notes = RowNotes(base)
        for size, settings in self._read_sizes(base).items():
            rows += self._read_size(settings, size)
        for index, row in enumerate(rows):
            if row.is_base:  # the base of a further size shows its changes from the first base
                changed = changes(row.config, rows[0].config)
                rows[index] = replace(row, changed=changed)
        for row in rows:
            self.notes.add_single_evaluation(row, self.written[row.label])
            self.notes.add_layers(row, self.written[row.label])
        self.notes.add_untested_departures(rows)
        return rows

    def check_overridden(self, overrides: Sequence[str]) -> None:
        """Report fields of `--set` and of sizes whose value is overridden in every row."""
        tuned: Set[str] = set()
        if self.tune:
            tuned = self.tune.grid.keys() | self.tune.decoding.keys()
        for name in tuned & self._size_fields.keys():
            mark = self._size_fields[name]
            self.report(mark, _chosen_elsewhere(name, "is chosen by tune at every size"))
        for text in overrides:
            key = text.partition("=")[0].strip().removeprefix("base.")
            name = standard_name(key) or key
            if name in tuned:
                source = "tune chooses it for"
            elif name in self._fields_of_all_sizes:
                source = "sizes set it for"
            else:
                continue
            self.report(
                override_mark(text), Fault(f"has no effect, because {source} every row", (name,))
            )

    def _read_sizes(self, base: dict[str, Node]) -> dict[str, dict[str, Node]]:
        """Base's settings by size; without sizes, base's settings with the key ""."""
        sizes: dict[str, dict[str, Node]] = {}
        first_size: dict[tuple[Any, ...], str] = {}  # trained settings -> the first size with them
        fields_by_size: list[Set[str]] = []
        for name, fields in self.file.sizes.items():
            mark = self.file.node("sizes").value[name][0]
            written = self.settings.read(fields, base)
            sizes[name] = merge(base, written)
            config = self.settings.resolve(sizes[name], mark)
            if config is not None:
                trained = tuple(config.model_dump(exclude=_NOT_TRAINED).items())
                earlier = first_size.setdefault(trained, name)
                if earlier != name:
                    same = f'has the same training settings as size "{earlier}"'
                    self.report(mark, f'size "{name}" {same}')
            for field, node in written.items():
                self._size_fields.setdefault(field, node.mark)
            fields_by_size.append(written.keys() | _preset_fields(written))
        if fields_by_size:
            self._fields_of_all_sizes = frozenset.intersection(*map(frozenset, fields_by_size))
        return sizes or {"": base}

    def _read_size(self, settings: dict[str, Node], size: str) -> Iterable[Row]:
        """Read the rows of one size, base first.

        Args:
            settings: base's settings at this size, by standard name.
            size: name of the size; empty without sizes.
        """
        base = self._base(settings, size)
        rows = {base.label: base}
        path_parts = partial(self._path_parts, settings)
        designs: dict[Design, Mark] = {}
        for spec in expand_groups(self.file.groups(), self.report, path_parts, size):
            if spec.design is not None:
                designs.setdefault(spec.design, spec.mark)
            written = self.settings.by_name(spec.settings)
            for name in (written.keys() | _preset_fields(written)) & self._size_fields.keys():
                mark = written[name if name in written else "preset"].mark
                remedy = "remove it from the row or from sizes"
                self.report(mark, Fault("is set by sizes", (name,), name, remedy=remedy))
            draft = _Draft(spec, _prefix(size) + spec.label, merge(settings, written), written)
            if self._is_dropped(draft):
                self.dropped += 1
                continue
            config, matched = self._configure(draft, base.config)
            if config is None:
                continue
            if draft.label in rows:
                self._compare_with_first(spec, config, rows[draft.label])
            else:
                rows[draft.label] = self._row(draft, config, matched, base)
        self._check_designs(designs, rows)
        self.designs += designs
        return rows.values()

    def _path_parts(self, base: dict[str, Node], way: str, end: Settings) -> list[Part]:
        """The parts in which base and the end of a path differ; empty if the end is not valid,
        which is reported.
        """
        written = self.settings.by_name(end)
        if self.settings.resolve(merge(base, written), end.mark, written=written) is None:
            return []
        if "preset" in written:
            remarks = self.settings.remarks(merge(base, written))
            self.notes.add(f"preset {written['preset'].value}", remarks, end.mark)
        try:
            start, last = self.settings.values(base), plain_values(written)
            return parts_of_path(way, end.mark, start, last, self.settings.configure)
        except ValidationError as error:
            faults = field_faults(error)
        except ValueError as error:
            faults = list(faults_in(error))
        for fault in faults:
            self.report(end.mark, with_causes(fault, base))
        return []

    def _base(self, settings: dict[str, Node], size: str) -> Row:
        label = f"{_prefix(size)}base"
        config = self.settings.configure(self.settings.values(settings))
        self.written[label] = settings
        first = next(iter(settings.values()), None)
        if first is not None:
            self.notes.add(label, self.settings.remarks(settings), first.mark)
        choice = None
        if self.tuner:
            choice = self.tuner.choice(label, settings, {}, config)
            if self.settings.task and self._decoding is None:
                self._decoding = self.tuner.decoding_choice(settings, self.settings.task)
        return Row(
            label, "base", config, self._test_set, choice=choice, base=label, size=size,
            decoding_choice=self._decoding,
        )  # fmt: skip

    def _row(self, draft: _Draft, config: RowConfig, matched: Matched | None, base: Row) -> Row:
        """Make a row from its draft and its valid configuration."""
        spec = draft.spec
        choice: Choice | None = None
        self._check_require(draft, config)
        if self.tuner:
            settings = draft.settings
            if matched is not None:
                settings = {**settings, matched.field: Node(matched.value, spec.mark)}
            if spec.options.is_tuned:
                choice = self.tuner.choice(draft.label, settings, draft.written, config)
            else:
                choice = self.tuner.choice_of_base(settings, draft.written)
            rule = self._rule(spec)
            if rule and matched and choice:
                self.tuner.check_cost(rule, spec, config, choice)
        changed = changes(config, base.config)
        self.written[draft.label] = draft.written
        self.notes.add(draft.label, self.settings.remarks(draft.settings), spec.mark)
        if matched is not None and matched.kind != "flops":
            unread = map(self.settings.unread, (base.config, config))
            self.notes.add(draft.label, unread, spec.mark)
        # A row of a design is not noted, because a design may need a row equal to base. If only one
        # of row and base is tuned, they become different.
        only_one_is_tuned = (choice is None) != (base.choice is None)
        if spec.design is None and not only_one_is_tuned:
            if not changed:
                self.notes.add(draft.label, [EQUAL_TO_BASE], spec.mark)
            elif is_trained_alike(config, changed):
                self.notes.add(draft.label, [TRAINED_ALIKE], spec.mark)
        return Row(
            draft.label,
            _prefix(base.size) + spec.group,
            config,
            self._test_set,
            changed,
            matched,
            choice,
            base=base.label,
            size=base.size,
            is_labeled=bool(spec.options.label),
            has_parts=bool(spec.design and spec.design.settings),
            decoding_choice=self._decoding and self._decoding.without_fields(draft.written.keys()),
        )

    @property
    def _test_set(self) -> str:
        """Name of the evaluated test set."""
        return self.data.evaluated if self.data else ""

    def _rule(self, spec: RowSpec) -> Match | None:
        """The rule of the row's group, or of the study; None without one or for `match: false`."""
        if "match" in spec.options.written:
            return spec.options.match or None
        return self.file.match or None

    def _configure(self, draft: _Draft, base: RowConfig) -> tuple[RowConfig | None, Matched | None]:
        """Resolve a row, with the value that `match` chooses.

        Returns:
            The configuration, and how it was matched or None; (None, None) after an error.
        """
        settings = draft.settings
        written = draft.written
        mark = draft.spec.mark
        rule = self._rule(draft.spec)
        if rule is None or self.data is None or rule.field in written:
            combined = draft.spec.options.way in ("zip", "grid", "factorial")
            config = self.settings.resolve(settings, mark, written=written, combined=combined)
            if rule is not None and rule.field in written:
                chosen = _chosen_elsewhere(rule.field, "is chosen by match")
                self.report(written[rule.field].mark, chosen)
            return config, None
        data = self.data
        n_errors = len(self.errors)
        try:
            matched = match_row(
                rule,
                self.settings.values(settings),
                base,
                lambda config: fold_vocab_size(data, config)[0].vocab_size,
                self.settings.configure,
            )
        except NoMatch as error:
            # If a setting is invalid, report the setting and not the failed match.
            self.settings.resolve(settings, mark, written=written)
            if len(self.errors) == n_errors:
                self._report_row(rule.mark, draft, Fault(str(error), tuple(settings)))
            return None, None
        with_match = {**settings, rule.field: Node(matched.value, rule.mark)}
        return self.settings.resolve(with_match, mark, written={*written, rule.field}), matched

    def _is_dropped(self, draft: _Draft) -> bool:
        """Whether `where` drops the row. Errors in its settings are left to `resolve`."""
        where = draft.spec.options.where
        if where is None:
            return False
        try:
            values = unchecked_values(self.settings.values(draft.settings))
            return not where(_with_symbols(values))
        except Invalid as error:
            for fault in error.faults:
                self._report_row(draft.spec.mark, draft, fault)
        except (TypeError, ZeroDivisionError, IndexError):
            pass  # a value of the wrong type, or an empty pattern
        return False

    def _check_require(self, draft: _Draft, config: RowConfig) -> None:
        """Report a row that violates the condition `require` of its group."""
        require = draft.spec.options.require
        if require is None:
            return
        values = _with_symbols(config.model_dump())
        try:
            if not require(values):
                names = require.fields(values)
                shown = ", ".join(f"{name}={values[name]}" for name in names)
                fields = tuple(standard_name(name) or name for name in names)
                violated = Fault(f"violates require: {require.text} ({shown})", fields)
                self._report_row(draft.spec.mark, draft, violated)
        except Invalid as error:
            for fault in error.faults:
                self._report_row(draft.spec.mark, draft, fault)

    def _report_row(self, mark: Mark, draft: _Draft, fault: Fault) -> None:
        fault = fault.about(f'row "{draft.spec.label}"')
        self.report(mark, with_causes(fault, draft.settings))

    def _compare_with_first(self, spec: RowSpec, config: RowConfig, first: Row) -> None:
        """Report a second row with the label of `first` if it differs from `first`; else note
        it.
        """
        difference = ""
        has_grid = bool(self.tune and self.tune.grid)
        is_tuned = first.own_choice is not None
        if first.config != config:
            difference = "with other settings"
        elif has_grid and is_tuned != spec.options.is_tuned:
            difference = "one tuned and one not"
        elif spec.design is None:
            self.notes.add(first.label, [REPEATED], spec.mark)
        if difference:
            second = f'a second row "{spec.label}", {difference}'
            self.report(spec.mark, Fault(second, remedy="use another group"))

    def _check_designs(self, designs: Mapping[Design, Mark], rows: Mapping[str, Row]) -> None:
        """Report designs in which a part changes nothing, so that two rows are equal.

        Args:
            designs: designs of one size, with their positions.
            rows: rows of that size by label, base first.
        """
        base = next(iter(rows))
        for design, mark in designs.items():
            # The first row with each configuration: comparing all pairs of a thousand rows is slow.
            first: dict[RowConfig, Row] = {}
            for label in _compared_labels(design, base):
                row = rows.get(label)
                if row is None:
                    continue
                same = first.setdefault(row.config, row)
                if same is not row:
                    equal = f'rows "{same.name}" and "{row.name}" have equal settings'
                    fields = (*self.written[same.label], *self.written[row.label])
                    fault = Fault(f"{equal}: a part has no effect", fields)
                    self.report(mark, with_causes(fault, self._base_settings))
                    break


def _compared_labels(design: Design, base: str) -> list[str]:
    """Labels of the rows that a design compares with each other."""
    if isinstance(design, FactorialDesign):
        return list(design.rows)
    if design.way == "leave-one-out":  # compares the target with each row, and no row with base
        return [design.target, *design.rows]
    return [base, design.target, *design.rows]


def _chosen_elsewhere(field: str, problem: str) -> Fault:
    """The fault of a field that is written although its value is chosen elsewhere."""
    return Fault(problem, (field,), field, remedy="remove it")


@dataclass(frozen=True)
class _Draft:
    """A row before it is resolved.

    spec: the row as its group makes it.
    label: label of the row, with its size.
    settings: settings of base and of the row, by standard name.
    written: settings of the row only, by standard name.
    """

    spec: RowSpec
    label: str
    settings: Mapping[str, Node]
    written: Mapping[str, Node]


def _prefix(size: str) -> str:
    return f"{size} " if size else ""


def _preset_fields(settings: Mapping[str, Node]) -> frozenset[str]:
    """The fields that a preset among the settings sets."""
    if "preset" not in settings:
        return frozenset()
    return frozenset(PRESETS.get(settings["preset"].value, {}))


def _with_symbols(values: dict[str, Any]) -> dict[str, Any]:
    """The values that conditions can read, by standard name and by symbol."""
    return {**values, **{symbol: values[name] for name, symbol in SYMBOL_OF.items()}}
