"""Read the sections `sizes` and `rows`: each row is resolved against the base of its size."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pydantic import ValidationError

from ablate.config import DecodingConfig, RowConfig
from ablate.config.data import CorpusConfig
from ablate.config.identity import NOT_IDENTITY, fold_vocab_size
from ablate.config.presets import PARTS, PRESETS
from ablate.config.resolve import SYMBOL_OF, standard_name, unchecked_values
from ablate.errors import Fault, Invalid, Mark, faults_in
from ablate.fields import field_faults
from ablate.formatting import enumeration, setting_text
from ablate.stats.designs import Design, PathDesign
from ablate.study.choice import Choice
from ablate.study.designs import Part, parts_to
from ablate.study.error_list import ErrorList
from ablate.study.matching import Match, Matched, NoMatch, match_row
from ablate.study.row import Row, changes
from ablate.study.row_tuning import RowTuner
from ablate.study.rows import RowSpec, expand_groups
from ablate.study.sections import override_mark
from ablate.study.settings import Settings, merge, with_causes
from ablate.study.settings_reader import SettingsReader
from ablate.study.study_file import StudyFile
from ablate.study.yaml_nodes import Node, plain_values

MAX_NAMED = 6  # rows that a note names
EVALUATED_ONCE = "eval_every is above train_steps, so that only the end of training is evaluated"
_KINDS_OF_LAYERS = {"mixer", "attention", "positional_encoding"}
# Fields that leave the weights as they are.
_NOT_TRAINED = {*DecodingConfig.model_fields, *NOT_IDENTITY}


class RowReader:
    """Reads the rows of a study. Errors are reported.

    written: the fields that each row writes, by label and standard name; for a base, all of its
        fields.
    designs: in the order of sizes, and of the file.
    dropped: number of rows that `where` drops.
    """

    def __init__(
        self,
        file: StudyFile,
        settings: SettingsReader,
        data: CorpusConfig | None,
        errors: ErrorList,
    ) -> None:
        # Without data, which are then not valid, rows are neither matched nor tuned.
        self.file, self.settings, self.data, self.tune = file, settings, data, file.tune
        self.errors, self.report = errors, errors.report
        self.tuner = None
        if file.tune and data:
            self.tuner = RowTuner(file.tune, settings, data, self.report)
        self.written: dict[str, Mapping[str, Node]] = {}
        self._decoding: Choice | None = None
        self.designs: list[Design] = []
        self.dropped = 0
        self._size_fields: dict[str, Mark] = {}  # by standard name; the first position
        self._fields_of_all_sizes: frozenset[str] = frozenset()
        self._equal_to_base: dict[str, Mark] = {}  # rows by label
        self._repeated: dict[str, Mark] = {}  # rows by label
        self._remarks: dict[str, dict[str, Mark]] = {}  # what a note says -> rows by label
        self._of_base: dict[str, Node] = {}

    def read(self, base: dict[str, Node]) -> list[Row]:
        """The rows of all sizes, the first base first."""
        read: list[Row] = []
        self._of_base = base
        for size, settings in self._read_sizes(base).items():
            read += self._read_size(settings, size)
        for index, row in enumerate(read):
            if row.is_base:  # the base of a further size shows its changes from the first base
                changed = changes(row.config, read[0].config)
                read[index] = replace(row, changed=changed)
        for row in read:
            self._note_single_evaluation(row)
        self._note_untested_departures(read)
        return read

    def _note_untested_departures(self, rows: Sequence[Row]) -> None:
        """Remember the parts in which base differs from its preset though no row changes them: the
        table then does not say what they do.
        """
        preset = self._of_base.get("preset")
        if preset is None or preset.value not in PRESETS or not rows:
            return
        tested = {name for row in rows for name in row.changed}
        values = PRESETS[preset.value]
        departures = []
        for name in itertools.chain(*PARTS.values()):
            if name in values and name in self._of_base and name not in tested:
                value = getattr(rows[0].config, name)
                if value != values[name]:
                    departures.append(f"{name}={setting_text(value)}")
        if departures:
            remark = f"differs from preset {preset.value} in {enumeration(departures)}"
            self._remark("base", [f"{remark}, which no row tests"], preset.mark)

    def _note_single_evaluation(self, row: Row) -> None:
        """Remember a row that itself sets `eval_every` above `train_steps`, or the reverse."""
        written = self.written.get(row.label, {})
        every = written.get("eval_every") or self._of_base.get("eval_every")
        steps = row.config.train_steps
        if every is None or steps is None or row.config.eval_every <= steps:
            return
        if not written.keys().isdisjoint(("eval_every", "train_steps")):
            self._remarks.setdefault(EVALUATED_ONCE, {})[row.label] = every.mark

    def check_overridden(self, overrides: Sequence[str]) -> None:
        """Report fields of `--set` and of sizes whose value no row has."""
        tuned: Set[str] = set()
        if self.tune:
            tuned = self.tune.grid.keys() | self.tune.decoding.keys()
        for name in tuned & self._size_fields.keys():
            where = self._size_fields[name]
            self.report(where, _chosen_elsewhere(name, "is chosen by tune at every size"))
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

    def notes(self) -> Iterator[str]:
        """Yield a line for each kind of rows that are probably not meant, at the first, and for
        each list in base that may be meant as values to compare.
        """
        kinds = (
            (self._equal_to_base, "rows with the settings of base, which show no difference"),
            (self._repeated, "rows that are written twice, and trained once"),
        )
        for rows, kind in (*kinds, *((rows, kind) for kind, rows in self._remarks.items())):
            if rows:
                named = list(rows)[:MAX_NAMED]
                if len(rows) > MAX_NAMED:
                    named.append("...")
                first = next(iter(rows.values()))
                yield str(Fault(f"{kind}: {', '.join(named)}", place=first))

        yield from self._lists_of_base()

    def _lists_of_base(self) -> Iterator[str]:
        """Yield a line for each pattern that stands alone in base: other tools compare the values
        of a list.
        """
        lists = {name: node for name, node in self._of_base.items() if isinstance(node.value, list)}
        # Of several parts, or of kinds of layers, it is surely a pattern.
        if len(lists) > 1 or not lists.keys().isdisjoint(_KINDS_OF_LAYERS):
            return
        for name, node in lists.items():
            key = SYMBOL_OF.get(name, name)
            values = f"[{', '.join(map(setting_text, node.to_python()))}]"
            remedy = f"to compare values, write rows: {{{key}: {{each: {{{key}: {values}}}}}}}"
            what = "is a pattern, whose values the layers have in turn"
            yield str(Fault(what, (name,), key, values, remedy=remedy, place=node.mark))

    def _read_sizes(self, base: dict[str, Node]) -> dict[str, dict[str, Node]]:
        """Base's settings by size; without sizes, base's settings under ""."""
        sizes: dict[str, dict[str, Node]] = {}
        size_of: dict[tuple[Any, ...], str] = {}  # configuration -> the first size with it
        set_by_all: list[Set[str]] = []
        for name, fields in self.file.sizes.items():
            mark = self.file.node("sizes").value[name][0]
            written = self.settings.read(fields, base)
            sizes[name] = merge(base, written)
            config = self.settings.resolve(sizes[name], mark)
            if config is not None:
                trained = tuple(config.model_dump(exclude=_NOT_TRAINED).items())
                earlier = size_of.setdefault(trained, name)
                if earlier != name:
                    same = f'has the settings of size "{earlier}" in training'
                    self.report(mark, f'size "{name}" {same}')
            for field, node in written.items():
                self._size_fields.setdefault(field, node.mark)
            set_by_all.append(written.keys() | _preset_fields(written))
        if set_by_all:
            self._fields_of_all_sizes = frozenset.intersection(*map(frozenset, set_by_all))
        return sizes or {"": base}

    def _read_size(self, settings: dict[str, Node], size: str) -> Iterable[Row]:
        """The rows of one size, base first."""
        base = self._base(settings, size)
        rows = {base.label: base}
        parts_to = partial(self._parts_to, settings)
        designs: dict[Design, Mark] = {}
        for spec in expand_groups(self.file.groups(), self.report, parts_to, size):
            if spec.design is not None:
                designs.setdefault(spec.design, spec.mark)
            written = self.settings.by_name(spec.settings)
            for name in (written.keys() | _preset_fields(written)) & self._size_fields.keys():
                mark = written[name if name in written else "preset"].mark
                remedy = "a row must differ from base at every size"
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

    def _parts_to(self, base: dict[str, Node], way: str, end: Settings) -> list[Part]:
        """The parts between base and the end of a path; none, reported, if it is not valid."""
        written = self.settings.by_name(end)
        if self.settings.resolve(merge(base, written), end.mark, written=written) is None:
            return []
        if "preset" in written:
            remarks = self.settings.remarks(merge(base, written))
            self._remark(f"preset {written['preset'].value}", remarks, end.mark)
        try:
            start, last = self.settings.values(base), plain_values(written)
            return parts_to(way, end.mark, start, last, self.settings.configure)
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
        for node in settings.values():
            self._remark(label, self.settings.remarks(settings), node.mark)
            break
        choice = None
        if self.tuner:
            choice = self.tuner.candidates(label, settings, {}, config)
            if self.settings.task and self._decoding is None:
                self._decoding = self.tuner.decoding(settings, self.settings.task)
        return Row(
            label, "base", config, self._test_set, choice=choice, base=label, size=size,
            decoding_choice=self._decoding,
        )  # fmt: skip

    def _row(self, draft: _Draft, config: RowConfig, matched: Matched | None, base: Row) -> Row:
        """A row with a valid configuration."""
        spec, choice = draft.spec, None
        self._check_require(draft, config)
        if self.tuner:
            settings = draft.settings
            if matched is not None:
                settings = {**settings, matched.field: Node(matched.value, spec.mark)}
            if spec.options.is_tuned:
                choice = self.tuner.candidates(draft.label, settings, draft.written, config)
            else:
                choice = self.tuner.as_base(settings, draft.written)
            rule = self._rule(spec)
            if rule and matched and choice:
                self.tuner.check_cost(rule, spec, config, choice)
        changed = changes(config, base.config)
        self.written[draft.label] = draft.written
        self._remark(draft.label, self.settings.remarks(draft.settings), spec.mark)
        if matched is not None and matched.cost != "flops":
            unread = map(self.settings.unread, (base.config, config))
            self._remark(draft.label, unread, spec.mark)
        # A design may need base among its rows, and a tuned base differs from a row as written.
        if not changed and spec.design is None and (choice is None) == (base.choice is None):
            self._equal_to_base[draft.label] = spec.mark
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
            decoding_choice=self._decoding and self._decoding.except_for(draft.written.keys()),
        )

    def _remark(self, label: str, remarks: Iterable[str], mark: Mark) -> None:
        """Keep remarks on a row for a note."""
        for remark in filter(None, remarks):
            self._remarks.setdefault(remark, {})[label] = mark

    @property
    def _test_set(self) -> str:
        return self.data.evaluated if self.data else ""

    def _rule(self, spec: RowSpec) -> Match | None:
        if "match" in spec.options.written:
            return spec.options.match or None
        return self.file.match or None

    def _configure(self, draft: _Draft, base: RowConfig) -> tuple[RowConfig | None, Matched | None]:
        """Resolve a row, with the value that `match` chooses; (None, None) after an error."""
        settings, written, mark = draft.settings, draft.written, draft.spec.mark
        rule = self._rule(draft.spec)
        if rule is None or self.data is None or rule.field in written:
            combined = draft.spec.options.way in ("zip", "grid", "factorial")
            config = self.settings.resolve(settings, mark, written=written, combined=combined)
            if rule is not None and rule.field in written:
                where = written[rule.field].mark
                self.report(where, _chosen_elsewhere(rule.field, "is chosen by match"))
            return config, None
        data, before = self.data, len(self.errors)
        try:
            matched = match_row(
                rule,
                self.settings.values(settings),
                base,
                lambda config: fold_vocab_size(data, config)[0].vocab_size,
                self.settings.configure,
            )
        except NoMatch as error:
            # An invalid setting is the better message.
            self.settings.resolve(settings, mark, written=written)
            if len(self.errors) == before:
                self._report_row(rule.mark, draft, Fault(str(error), tuple(settings)))
            return None, None
        chosen = {**settings, rule.field: Node(matched.value, rule.mark)}
        return self.settings.resolve(chosen, mark, written={*written, rule.field}), matched

    def _is_dropped(self, draft: _Draft) -> bool:
        """Whether `where` drops the row, which may not be valid, since it is not resolved yet."""
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
            pass  # a value of the wrong type or an empty pattern, which `resolve` reports
        return False

    def _check_require(self, draft: _Draft, config: RowConfig) -> None:
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
        """Report a second row of a label that differs from the first; note one that does not."""
        differs, tune = "", self.tune
        is_tuned = first.own_choice is not None
        if first.config != config:
            differs = "with other settings"
        elif tune and tune.grid and is_tuned != spec.options.is_tuned:
            differs = "one tuned and one not"
        elif spec.design is None:
            self._repeated[first.label] = spec.mark
        if differs:
            second = f'a second row "{spec.label}", {differs}'
            self.report(spec.mark, Fault(second, remedy="use another group"))

    def _check_designs(self, designs: Mapping[Design, Mark], rows: Mapping[str, Row]) -> None:
        """Report designs in which a part changes nothing, so that two rows are equal.

        Args:
            designs: of one size.
            rows: of that size by label, base first.
        """
        for design, mark in designs.items():
            labels = list(design.rows)
            if isinstance(design, PathDesign):
                labels.insert(0, design.target)
                if design.way != "leave-one-out":
                    labels.insert(0, next(iter(rows)))
            # By hash, because the pairs of a thousand rows are half a million.
            first: dict[RowConfig, Row] = {}
            for row in filter(None, map(rows.get, labels)):
                same = first.setdefault(row.config, row)
                if same is not row:
                    equal = f'rows "{same.name}" and "{row.name}" have equal settings'
                    fields = (*self.written[same.label], *self.written[row.label])
                    fault = Fault(f"{equal}: a part has no effect", fields)
                    self.report(mark, with_causes(fault, self._of_base))
                    break


def _chosen_elsewhere(field: str, problem: str) -> Fault:
    return Fault(problem, (field,), field, remedy="remove it")


@dataclass(frozen=True)
class _Draft:
    """A row before it is resolved.

    settings: of base and of the row, by standard name. written: of the row alone.
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
    """The values that conditions see: by standard name and by symbol."""
    return {**values, **{symbol: values[name] for name, symbol in SYMBOL_OF.items()}}
