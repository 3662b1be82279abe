"""Read the sections `sizes` and `rows`: each row is resolved against the base of its size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from ablate.config import PRESETS, DecodingConfig, RowConfig, resolve_row, standard_name
from ablate.config.data import CorpusConfig
from ablate.config.identity import NOT_IDENTITY, fold_vocab_size
from ablate.config.resolve import SYMBOL_OF, unchecked_values
from ablate.study.designs import Design, FactorialDesign, PathDesign
from ablate.study.error_list import ErrorList
from ablate.study.groups import expand_groups
from ablate.study.matching import Match, Matched, NoMatch, match_row
from ablate.study.row_tuning import RowTuner
from ablate.study.rows import RowSpec
from ablate.study.sections import override_mark
from ablate.study.settings import merge
from ablate.study.settings_reader import SettingsReader
from ablate.study.study import Row, changes
from ablate.study.study_file import StudyFile
from ablate.study.tuning import Tuning
from ablate.study.yaml_nodes import Mark, Node

MAX_NAMED = 6  # rows that a note names
# Fields that leave the weights as they are.
_NOT_TRAINED = {*DecodingConfig.model_fields, *NOT_IDENTITY}


class RowReader:
    """Reads the rows of a study. Errors are reported.

    written: the fields that each row writes, by label and standard name; for a base, all of its
        fields.
    designs: with the size, in the order of the file.
    """

    def __init__(
        self,
        file: StudyFile,
        settings: SettingsReader,
        data: CorpusConfig | None,
        errors: ErrorList,
    ) -> None:
        """Prepare for reading.

        Args:
            file: with the groups of rows, and the sections that concern them.
            settings: reads and resolves the settings of rows.
            data: of the study; None if it is not valid. Rows are then neither matched nor tuned.
            errors: receives the errors.
        """
        self.file, self.settings, self.data, self.tune = file, settings, data, file.tune
        self.errors, self.report = errors, errors.report
        self.tuner = None
        if file.tune and data:
            self.tuner = RowTuner(file.tune, settings, data, self.report)
        self.written: dict[str, Mapping[str, Node]] = {}
        self._decoding: Tuning | None = None
        self.designs: dict[tuple[Design, str], Mark] = {}
        self._size_fields: dict[str, Mark] = {}  # by standard name; the first position
        self._fields_of_all_sizes: frozenset[str] = frozenset()
        self._equal_to_base: dict[str, Mark] = {}  # rows by label
        self._repeated: dict[str, Mark] = {}  # rows by label

    def read(self, base: dict[str, Node]) -> tuple[list[Row], int]:
        """The rows of all sizes, the first base first, and the number of rows that `where`
        drops.
        """
        read: list[Row] = []
        dropped = 0
        for size, settings in self._read_sizes(base).items():
            of_size, left_out = self._read_size(settings, size)
            read += of_size
            dropped += left_out
        rows = read[:1]
        for row in read[1:]:
            # The base of a further size shows its changes from the first base.
            changed = changes(row.config, read[0].config) if row.is_base else row.changed
            rows.append(replace(row, changed=changed))
        return rows, dropped

    def check_overridden(self, overrides: Sequence[str], rows: Sequence[Row]) -> None:
        """Report fields of `--set` and of sizes whose value no row has."""
        tuned: frozenset[str] = frozenset()
        if self.tune and all(row.tuning or row.decoding_choice for row in rows):
            tuned = frozenset((*self.tune.grid, *self.tune.decoding))
        for name in tuned & self._size_fields.keys():
            where = self._size_fields[name]
            self.report(where, f"{name}: is chosen by tune at every size; remove it")
        for text in overrides:
            key = text.partition("=")[0].strip().removeprefix("base.")
            name = standard_name(key) or key
            if name in tuned:
                source = "tune chooses it for"
            elif name in self._fields_of_all_sizes:
                source = "sizes set it for"
            else:
                continue
            self.report(override_mark(text), f"has no effect, because {source} every row")

    def notes(self) -> Iterator[str]:
        """Yield a line for each kind of rows that add nothing to the study, at the first of
        them.
        """
        kinds = (
            (self._equal_to_base, "rows with the settings of base, which show no difference"),
            (self._repeated, "rows that are written twice, and trained once"),
        )
        for rows, kind in kinds:
            if rows:
                named = ", ".join(list(rows)[:MAX_NAMED]) + (
                    ", ..." if len(rows) > MAX_NAMED else ""
                )
                yield next(iter(rows.values())).error_line(f"{kind}: {named}")

    def _read_sizes(self, base: dict[str, Node]) -> dict[str, dict[str, Node]]:
        """Base's settings at each size, by name; those of base alone, without a name, if there are
        no sizes.
        """
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
            set_by_all.append(written.keys() | _of_preset(written))
        if set_by_all:
            self._fields_of_all_sizes = frozenset.intersection(*map(frozenset, set_by_all))
        return sizes or {"": base}

    def _read_size(self, settings: dict[str, Node], size: str) -> tuple[list[Row], int]:
        """The rows of one size, base first, and the number of rows that `where` drops."""
        base = self._base(settings, size)
        rows = {base.label: base}
        dropped = 0
        for spec in expand_groups(self.file.rows, self.report):
            if spec.design is not None:
                self.designs.setdefault((spec.design, size), spec.mark)
            written = self.settings.by_name(spec.settings)
            for name in (written.keys() | _of_preset(written)) & self._size_fields.keys():
                mark = written[name if name in written else "preset"].mark
                self.report(
                    mark, f"{name}: is set by sizes; a row must differ from base at every size"
                )
            of_row = merge(settings, written)
            if self._is_dropped(spec, of_row):
                dropped += 1
                continue
            config, matched = self._configure(spec, of_row, written, base.config)
            if config is None:
                continue
            label = _prefix(size) + spec.label
            if label in rows:
                self._compare_with_first(spec, config, rows[label])
            else:
                rows[label] = self._row(spec, label, of_row, written, config, matched, base)
        self._check_designs(size, rows)
        return list(rows.values()), dropped

    def _base(self, settings: dict[str, Node], size: str) -> Row:
        label = f"{_prefix(size)}base"
        config = resolve_row(self.settings.values(settings))
        tuning = self.tuner.candidates(label, settings, {}, config) if self.tuner else None
        self.written[label] = settings
        if self.tuner and self.settings.task and self._decoding is None:
            self._decoding = self.tuner.decoding(settings, self.settings.task)
        return Row(
            label, "base", config, self._test, tuning=tuning, base=label, size=size,
            decoding_choice=self._decoding,
        )  # fmt: skip

    def _row(
        self,
        spec: RowSpec,
        label: str,
        settings: Mapping[str, Node],
        written: Mapping[str, Node],
        config: RowConfig,
        matched: Matched | None,
        base: Row,
    ) -> Row:
        """A row with a valid configuration."""
        self._check_require(spec, config)
        if matched is not None:
            settings = {**settings, matched.field: Node(matched.value, spec.mark)}
        tuning = self._tuning(spec, label, settings, written, config, matched)
        changed = changes(config, base.config)
        self.written[label] = written
        # A design may need base among its rows, and a row that is not tuned may compare with one
        # that is.
        if not changed and spec.design is None and (tuning is None) == (base.tuning is None):
            self._equal_to_base[label] = spec.mark
        return Row(
            label, _prefix(base.size) + spec.group, config, self._test, changed, matched, tuning,
            base=base.label, size=base.size, is_labeled=bool(spec.options.label),
            decoding_choice=self._decoding if spec.options.is_tuned else None,
        )  # fmt: skip

    def _tuning(
        self,
        spec: RowSpec,
        label: str,
        settings: Mapping[str, Node],
        written: Mapping[str, Node],
        config: RowConfig,
        matched: Matched | None,
    ) -> Tuning | None:
        """The candidates of a row; None for a row that is not tuned, and after an error."""
        if self.tuner is None or not spec.options.is_tuned:
            return None
        tuning = self.tuner.candidates(label, settings, written, config)
        rule = self._rule(spec)
        if rule is not None and matched is not None and tuning is not None:
            self.tuner.check_cost(rule, spec, config, tuning)
        return tuning

    @property
    def _test(self) -> str:
        return self.data.test if self.data else ""

    # Matching

    def _rule(self, spec: RowSpec) -> Match | None:
        of_group = "match" in spec.options.written
        return (spec.options.match if of_group else self.file.match) or None

    def _configure(
        self,
        spec: RowSpec,
        settings: Mapping[str, Node],
        written: Mapping[str, Node],
        base: RowConfig,
    ) -> tuple[RowConfig | None, Matched | None]:
        """Resolve a row, whose free field is chosen by `match` if it has a rule; (None, None) after
        an error.
        """
        rule = self._rule(spec)
        if rule is not None and self.data is not None and rule.field not in written:
            return self._match(spec, rule, settings, written, base, self.data)
        config = self.settings.resolve(settings, spec.mark, written=written)
        if rule is not None and rule.field in written:
            self.report(written[rule.field].mark, f"{rule.field}: is chosen by match; remove it")
        return config, None

    def _match(
        self,
        spec: RowSpec,
        rule: Match,
        settings: Mapping[str, Node],
        written: Mapping[str, Node],
        base: RowConfig,
        data: CorpusConfig,
    ) -> tuple[RowConfig | None, Matched | None]:
        """Resolve a row whose free field is chosen by `match`; (None, None) after an error."""
        values = self.settings.values(settings)
        try:
            _, matched = match_row(
                rule, values, base, lambda one: fold_vocab_size(data, one)[0].vocab_size
            )
        except NoMatch as error:
            before = len(self.errors)
            self.settings.resolve(
                settings, spec.mark, written=written
            )  # an invalid setting is the better message
            if len(self.errors) == before:
                self.report(rule.mark, f'row "{spec.label}": {error}')
            return None, None
        chosen = {**settings, rule.field: Node(matched.value, rule.mark)}
        return self.settings.resolve(chosen, spec.mark, written={*written, rule.field}), matched

    # Conditions

    def _is_dropped(self, spec: RowSpec, settings: Mapping[str, Node]) -> bool:
        """Whether `where` drops the row. Evaluated before the row is resolved, so it can drop
        invalid ones.
        """
        if spec.options.where is None:
            return False
        try:
            return not spec.options.where(
                _with_symbols(unchecked_values(self.settings.values(settings)))
            )
        except ValueError as error:
            self.report(spec.mark, f'row "{spec.label}": {error}')
        except (TypeError, ZeroDivisionError):
            pass  # a value of the wrong type, which `resolve` reports
        return False

    def _check_require(self, spec: RowSpec, config: RowConfig) -> None:
        if spec.options.require is None:
            return
        values = _with_symbols(config.model_dump())
        try:
            if not spec.options.require(values):
                shown = ", ".join(
                    f"{name}={values[name]}" for name in spec.options.require.fields(values)
                )
                self.report(
                    spec.mark,
                    f'row "{spec.label}" violates require: {spec.options.require.text} ({shown})',
                )
        except ValueError as error:
            self.report(spec.mark, f'row "{spec.label}": {error}')

    def _compare_with_first(self, spec: RowSpec, config: RowConfig, first: Row) -> None:
        """Report a second row of a label that differs from the first; note one that does not."""
        if first.config != config:
            self.report(
                spec.mark, f'a second row "{spec.label}", with other settings; use another group'
            )
        elif self.tune is not None and (first.tuning is not None) != spec.options.is_tuned:
            self.report(
                spec.mark, f'a second row "{spec.label}", one tuned and one not; use another group'
            )
        elif spec.design is None:
            self._repeated[first.label] = spec.mark

    def _check_designs(self, size: str, rows: Mapping[str, Row]) -> None:
        """Report designs of one size in which a part changes nothing, so that two rows are
        equal.
        """
        for (design, of_size), mark in self.designs.items():
            if of_size != size:
                continue
            others = () if isinstance(design, FactorialDesign) else (design.whole,)
            start = (
                ("base",) if isinstance(design, PathDesign) and design.way == "add-one-in" else ()
            )
            labels = [_prefix(size) + name for name in (*start, *others, *design.rows)]
            first: dict[
                RowConfig, Row
            ] = {}  # by hash, because the pairs of a thousand rows are half a million
            for row in (rows[label] for label in labels if label in rows):
                one = first.setdefault(row.config, row)
                if one is not row:
                    self.report(
                        mark,
                        f'rows "{one.name}" and "{row.name}" have equal settings: a part has no '
                        f"effect",
                    )
                    break


def _prefix(size: str) -> str:
    return f"{size} " if size else ""


def _of_preset(settings: Mapping[str, Node]) -> frozenset[str]:
    """The fields that a preset among the settings sets."""
    return frozenset(PRESETS.get(settings["preset"].value, {}) if "preset" in settings else ())


def _with_symbols(values: dict[str, Any]) -> dict[str, Any]:
    """The values that conditions see: by standard name and by symbol."""
    return {**values, **{symbol: values[name] for name, symbol in SYMBOL_OF.items()}}
