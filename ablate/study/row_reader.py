"""Read the section `rows`: each row is resolved against the base of its size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from pydantic import ValidationError

from ablate.config import RowConfig
from ablate.config.data import CorpusConfig
from ablate.config.identity import fold_vocab_size
from ablate.config.resolve import SYMBOL_OF, standard_name, unchecked_values
from ablate.errors import Fault, Invalid, Mark, faults_in
from ablate.fields import field_faults
from ablate.stats.designs import Design, FactorialDesign
from ablate.study.choice import Choice
from ablate.study.designs import Part, parts_of_path
from ablate.study.error_list import ErrorList
from ablate.study.matching import Match, Matched, NoMatch, match_row
from ablate.study.row import Row, changes
from ablate.study.row_notes import (
    EQUAL_TO_BASE,
    REPEATED,
    TRAINED_ALIKE,
    WITHOUT_ROWS,
    RowNotes,
    is_trained_alike,
)
from ablate.study.row_tuning import CandidateReader
from ablate.study.rows import RowSpec, expand_groups
from ablate.study.settings import Settings, merge, with_causes
from ablate.study.settings_reader import SettingsReader
from ablate.study.sizes import Sizes, chosen_elsewhere, preset_fields
from ablate.study.study_file import StudyFile
from ablate.study.yaml_nodes import Node, plain_values


@dataclass
class RowReader:
    """Reads the rows of a study. Errors are reported. The last four fields are results of `read`.

    base_settings: settings of the section `base`, by standard name.
    data: the section `data`; None if it has errors. Then rows are neither matched nor tuned.
    written: fields that each row writes, by the row's label and the standard name of the field; for
        a base, all of its fields, because it inherits none.
    designs: designs in the order of sizes, then of the file.
    dropped: number of rows that `where` drops.
    notes: notes on settings that are probably not intended.
    """

    file: StudyFile
    base_settings: Mapping[str, Node]
    sizes: Sizes
    reader: SettingsReader
    data: CorpusConfig | None
    errors: ErrorList
    written: dict[str, Mapping[str, Node]] = field(default_factory=dict)
    designs: list[Design] = field(default_factory=list)
    dropped: int = 0
    notes: RowNotes = field(init=False)

    def __post_init__(self) -> None:
        self.notes = RowNotes(self.base_settings)
        self.report = self.errors.report
        self.tuner = None
        if self.file.tune and self.data:
            self.tuner = CandidateReader(self.file.tune, self.reader, self.data, self.report)

    def read(self) -> list[Row]:
        """Read the rows of all sizes, the rows of the first size first and its base at the head."""
        rows: list[Row] = []
        for size, settings in self.sizes.base_settings.items():
            first_base = rows[0].config if rows else None
            rows += self._read_size(settings, size, first_base)
        for row in rows:
            self.notes.add_single_evaluation(row, self.written[row.label])
            self.notes.add_layers(row, self.written[row.label])
        self.notes.add_untested_departures(rows)
        if self.data and self.data.tests_on_dev:
            self.notes.add_selection_on_test(rows, self.written, self.file.tune)
        return rows

    def _read_size(
        self, settings: Mapping[str, Node], size: str, first_base: RowConfig | None
    ) -> Iterable[Row]:
        """Read the rows of one size, base first. `first_base` is base of the first size; None at
        this size.
        """
        base = self._base(settings, size, first_base)
        rows = {base.label: base}
        # The parts of a path are differences from base, so they need base's settings at this size.
        path_parts = partial(self._path_parts, settings)
        designs: dict[Design, Mark] = {}
        dropped_groups: dict[str, Mark] = {}
        kept_groups = set[str]()
        for spec in expand_groups(self.file.groups(), self.report, path_parts, size):
            if spec.design is not None:
                designs.setdefault(spec.design, spec.mark)
            written = self.reader.by_name(spec.settings)
            for name in (written.keys() | preset_fields(written)) & self.sizes.marks.keys():
                node = written[name] if name in written else written["preset"]
                remedy = "remove it from the row or from sizes"
                self.report(node.mark, chosen_elsewhere(name, "is set by sizes", remedy))
            draft = _Draft(spec, _prefix(size) + spec.label, merge(settings, written), written)
            if self._is_dropped(draft):
                self.dropped += 1
                dropped_groups.setdefault(spec.group, spec.options.node("where").mark)
                continue
            kept_groups.add(spec.group)
            config, matched = self._configure(draft, base.config)
            if config is None:
                continue
            if draft.full_label in rows:
                self._compare_with_first(spec, config, rows[draft.full_label])
            else:
                rows[draft.full_label] = self._row(draft, config, matched, base)
        for group, mark in dropped_groups.items():
            if group not in kept_groups:
                self.notes.add(_prefix(size) + group, [WITHOUT_ROWS], mark)
        self._check_designs(designs, rows)
        self.designs += designs
        return rows.values()

    def _path_parts(self, base: Mapping[str, Node], way: str, end: Settings) -> list[Part]:
        """The parts in which base and the end of a path differ, with a note on a preset at the end;
        empty if the end is not valid, which is reported.
        """
        written = self.reader.by_name(end)
        if self.reader.resolve(merge(base, written), end.mark, written=written) is None:
            return []
        if "preset" in written:
            remarks = self.reader.remarks(merge(base, written))
            self.notes.add(f"preset {written['preset'].value}", remarks, end.mark)
        try:
            start, last = self.reader.values(base), plain_values(written)
            return parts_of_path(way, end.mark, start, last, self.reader.configure)
        except ValidationError as error:
            faults = field_faults(error)
        except ValueError as error:
            faults = list(faults_in(error))
        for fault in faults:
            self.report(end.mark, with_causes(fault, base))
        return []

    @cached_property
    def _decoding(self) -> Choice | None:
        """The choice of the decoding of all rows, with base's settings at the first size."""
        if self.tuner is None or self.reader.task is None:
            return None
        first = next(iter(self.sizes.base_settings.values()))
        return self.tuner.decoding_choice(first, self.reader.task)

    def _base(self, settings: Mapping[str, Node], size: str, first_base: RowConfig | None) -> Row:
        """Make the base of a size. The base of a further size shows its changes from the first
        base.
        """
        label = f"{_prefix(size)}base"
        config = self.reader.configure(self.reader.values(settings))
        self.written[label] = settings
        first = next(iter(settings.values()), None)
        if first is not None:
            self.notes.add(label, self.reader.remarks(settings), first.mark)
        choice = None
        if self.tuner:
            choice = self.tuner.choice(label, settings, {}, config)
        return Row(
            label,
            "base",
            config,
            self._test_set,
            changed=changes(config, first_base) if first_base else {},
            choice=choice,
            base=label,
            size=size,
            decoding_choice=self._decoding,
        )

    def _row(self, draft: _Draft, config: RowConfig, matched: Matched | None, base: Row) -> Row:
        """Make a row from its draft and its valid configuration."""
        spec = draft.spec
        choice: Choice | None = None
        self._check_require(draft, config)
        if self.tuner:
            settings = draft.all_settings
            if matched is not None:
                settings = {**settings, matched.field: Node(matched.value, spec.mark)}
            if spec.options.is_tuned:
                choice = self.tuner.choice(draft.full_label, settings, draft.written, config)
            else:
                choice = self.tuner.choice_of_base(settings, draft.written)
            match = self._match_of(spec)
            if match and matched and base.choice:
                self.tuner.check_cost(match, spec, config, choice, base.choice)
        changed = changes(config, base.config)
        self.written[draft.full_label] = draft.written
        self.notes.add(draft.full_label, self.reader.remarks(draft.all_settings), spec.mark)
        if matched is not None and matched.kind != "flops":  # parameters also count if never read
            unread = map(self.reader.unread, (base.config, config))
            self.notes.add(draft.full_label, unread, spec.mark)
        # A row of a design is not noted, because a design may need a row equal to base. If only one
        # of row and base is tuned, they become different.
        only_one_is_tuned = (choice is None) != (base.choice is None)
        if spec.design is None and not only_one_is_tuned:
            if not changed:
                self.notes.add(draft.full_label, [EQUAL_TO_BASE], spec.mark)
            elif is_trained_alike(config, changed):
                self.notes.add(draft.full_label, [TRAINED_ALIKE], spec.mark)
        return Row(
            draft.full_label,
            _prefix(base.size) + spec.group,
            config,
            self._test_set,
            changed=changed,
            matched=matched,
            choice=choice,
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

    def _match_of(self, spec: RowSpec) -> Match | None:
        """The key `match` of the row's group, else of the study; None if it is missing or false."""
        if "match" in spec.options.written:
            return spec.options.match or None
        return self.file.match or None

    def _configure(self, draft: _Draft, base: RowConfig) -> tuple[RowConfig | None, Matched | None]:
        """Resolve a row, with the value that `match` chooses.

        Returns:
            The configuration, and how it was matched or None; (None, None) after an error.
        """
        settings = draft.all_settings
        written = draft.written
        mark = draft.spec.mark
        match = self._match_of(draft.spec)
        if match is None or self.data is None or match.field in written:
            combined = draft.spec.options.way in ("zip", "grid", "factorial")
            config = self.reader.resolve(settings, mark, written=written, combined=combined)
            if match is not None and match.field in written:
                chosen = chosen_elsewhere(match.field, "is chosen by match")
                self.report(written[match.field].mark, chosen)
            return config, None
        data = self.data
        n_errors = len(self.errors)
        try:
            matched = match_row(
                match,
                self.reader.values(settings),
                base,
                lambda config: fold_vocab_size(data, config)[0].vocab_size,
                self.reader.configure,
            )
        except NoMatch as error:
            # An invalid setting, or a setting without effect, is reported in place of the failed
            # match. `resolve` reports it.
            self.reader.resolve(settings, mark, written=written)
            if len(self.errors) == n_errors:
                self._report_row(match.mark, draft, Fault(str(error), tuple(settings)))
            return None, None
        with_match = {**settings, match.field: Node(matched.value, match.mark)}
        return self.reader.resolve(with_match, mark, written={*written, match.field}), matched

    def _is_dropped(self, draft: _Draft) -> bool:
        """Whether `where` drops the row. Errors in its settings are left to `resolve`."""
        where = draft.spec.options.where
        if where is None:
            return False
        try:
            values = unchecked_values(self.reader.values(draft.all_settings))
            return not where(_with_symbols(values))
        except Invalid as error:
            for fault in error.faults:
                self._report_row(draft.spec.mark, draft, fault)
        except (TypeError, ZeroDivisionError, IndexError):
            # A value of the wrong type, as in `h: many` with `where: h > 2`; a division by a field
            # that is 0; or an empty list. `resolve` reports the value.
            pass
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
        self.report(mark, with_causes(fault, draft.all_settings))

    def _compare_with_first(self, spec: RowSpec, config: RowConfig, first: Row) -> None:
        """Report a second row with the label of `first` if it differs from `first`; else note
        it.
        """
        difference = ""
        has_grid = bool(self.file.tune and self.file.tune.grid)
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
        """Report designs in which a part changes nothing, so that two rows are equal. Only the
        first two equal rows of a design are reported.
        """
        base_label = next(iter(rows))
        for design, mark in designs.items():
            # The first row with each configuration: comparing all pairs of a thousand rows is slow.
            first: dict[RowConfig, Row] = {}
            for label in _compared_labels(design, base_label):
                row = rows.get(label)
                if row is None:
                    continue
                same = first.setdefault(row.config, row)
                if same is not row:
                    equal = f'rows "{same.name}" and "{row.name}" have equal settings'
                    fields = (*self.written[same.label], *self.written[row.label])
                    fault = Fault(f"{equal}: a part has no effect", fields)
                    self.report(mark, with_causes(fault, self.base_settings))
                    break


def _compared_labels(design: Design, base_label: str) -> list[str]:
    """Labels of the rows that a design compares with each other."""
    if isinstance(design, FactorialDesign):
        return list(design.rows)
    if design.way == "leave-one-out":  # compares the target with each row, and no row with base
        return [design.target, *design.rows]
    return [base_label, design.target, *design.rows]


@dataclass(frozen=True)
class _Draft:
    """A row before it is resolved.

    spec: the row as its group makes it.
    full_label: label of the row, with its size.
    all_settings: settings of base and of the row, by standard name.
    written: settings of the row only, by standard name.
    """

    spec: RowSpec
    full_label: str
    all_settings: Mapping[str, Node]
    written: Mapping[str, Node]


def _prefix(size: str) -> str:
    return f"{size} " if size else ""


def _with_symbols(values: dict[str, Any]) -> dict[str, Any]:
    """The values that conditions can read, by standard name and by symbol."""
    return {**values, **{symbol: values[name] for name, symbol in SYMBOL_OF.items()}}
