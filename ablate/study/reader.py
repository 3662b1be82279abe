"""Read a study file: collect every error with its position, then resolve each row against base.

In the order of reading: sections, `--set`, name, data, seeds, metrics, base, rows; then checks of rows against data.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ablate.config import PRESETS, DecodingConfig, ModelConfig, RowConfig, resolve_row, standard_name
from ablate.config.data import CorpusConfig
from ablate.config.fields import field_errors
from ablate.config.identity import NOT_IDENTITY, fold_vocab_size
from ablate.config.inactive import InactiveSettings, check_active
from ablate.config.metrics import PPL
from ablate.config.plugins import Reference, parse_reference, pin_reference, plugin_fields
from ablate.config.resolve import SYMBOL_OF, SYMBOLS, unchecked_values
from ablate.config.training import MAX_SEEDS
from ablate.errors import StudyError, listed, unknown_name
from ablate.formatting import plural
from ablate.paths import home_path
from ablate.study.designs import FRACTIONS, Design, FactorialDesign, PathDesign
from ablate.study.matching import Match, Matched, NoMatch, match_row, read_match
from ablate.study.rows import MAX_ROWS, OPTIONS, WAYS, RowSpec, expand_group
from ablate.study.select import MAX_RUNS, Selection, select
from ablate.study.settings import MAX_SIZES, OPTIONS_OF_RUN, Settings, is_single_value, known_fields
from ablate.study.study import Looks, Row, Study, changes
from ablate.study.tuning import Candidate, Tune, Tuning, read_tune
from ablate.study.yaml_nodes import Mark, Node, Report, parse_yaml, read_file
from ablate.tasks import TASKS, Task, load_task

SECTIONS = ("study", "task", "data", "base", "seeds", "metrics", "margin", "sizes", "match", "tune", "rows")
MAX_PRINTED = 100  # errors in the message
MAX_ERRORS = 1000  # errors after which reading stops
MAX_NAMED = 6  # rows that a note names
_SIZE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,19}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_GROUP = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+-]{0,39}")
_FIELD_NAMES = re.compile(r'^"?(\w{1,40})\b|\b(\w{1,40})=')  # bounded, because a value may be as long as the file
# Fields that leave the weights as they are.
_NOT_TRAINED = {*DecodingConfig.model_fields, *NOT_IDENTITY}
_RESERVED = ("runs", "corpora")  # folders of the results root


def folded_name(name: str) -> str:
    """A name as some file systems compare it: without case, and without spaces and dots at its end."""
    return name.rstrip(" .").casefold()


def read_study(path: Path, selection: Selection | None = None) -> Study:
    """Read a study file and apply the command line's `--set`, `--rows` and `--seeds`.

    Raises:
        StudyError: the file or `--set` has errors; it holds all of them.
        UsageError: `--rows` or `--seeds` selects an unknown row or invalid seeds.
    """
    selection = selection or Selection()
    text = read_file(path)
    root = parse_yaml(text, str(path))
    try:
        study = _Reader(path).read(root, selection.overrides)
    except StudyError as error:
        raise StudyError(*_blame_overrides(path, root, selection.overrides, error.lines)) from None
    families = {row.label: study.family(row) for row in study.rows if row.is_base}
    study = replace(study, text=text, rows_of_bases=families, total_runs=len(study.rows) * len(study.seeds))
    return select(study, selection)


def _blame_overrides(path: Path, root: Node, overrides: Sequence[str], lines: Sequence[str]) -> list[str]:
    """Name the `--set` that causes an error at a position of the file: the file without it does not have the error."""
    before = _error_lines(path, root, ()) if overrides else lines
    blamed = []
    for line in lines:
        if line in before or line.startswith("--set"):
            blamed.append(line)
            continue
        alone = [text for text in overrides if line in _error_lines(path, root, [text])]
        position, _, message = line.partition(": ")
        blamed.append(f"--set {' --set '.join(alone[:1] or overrides)}: {message} ({position})")
    return blamed


def _error_lines(path: Path, root: Node, overrides: Sequence[str]) -> tuple[str, ...]:
    try:
        _Reader(path).read(root, overrides)
    except StudyError as error:
        return error.lines
    return ()


@dataclass
class _Reader:
    path: Path
    errors: dict[str, Mark] = field(default_factory=dict)  # complete line -> position; each line once
    designs: dict[tuple[Design, str], Mark] = field(default_factory=dict)  # with the size, in the order of the file
    size_fields: dict[str, Mark] = field(default_factory=dict)  # by standard name; the first position
    fields_of_all_sizes: frozenset[str] = frozenset()
    equal_to_base: dict[str, Mark] = field(default_factory=dict)  # rows by label
    repeated: dict[str, Mark] = field(default_factory=dict)  # rows by label

    def __post_init__(self) -> None:
        self.plugins = _PluginResolver(self.path.parent, self.report)
        self.defaults: Mapping[str, Any] = {}  # of the task
        self.unused: Mapping[str, str] = {}
        self.symbols: dict[Mark, str] = {}  # of fields that the study writes by their symbol
        self.written_fields: dict[str, Settings] = {}  # by a row's label; its fields by standard name

    def report(self, mark: Mark, message: str) -> None:
        """Record an error; reading goes on, so that all errors are reported at once."""
        self.errors.setdefault(mark.error_line(message), mark)
        if len(self.errors) >= MAX_ERRORS:
            raise StudyError(*self.error_lines())

    def error_lines(self) -> list[str]:
        """The errors in the file's order, at most MAX_PRINTED of them."""
        lines = sorted(self.errors, key=lambda line: (self.errors[line].line, self.errors[line].column))
        more = len(lines) - MAX_PRINTED
        if more <= 0:
            return lines
        stopped = " (reading stopped there)" if len(lines) >= MAX_ERRORS else ""
        return [*lines[:MAX_PRINTED], f"{self.path}: {plural(more, 'more error')}{stopped}"]

    def read(self, root: Node, overrides: Sequence[str]) -> Study:
        sections = self.read_sections(root)
        for text in overrides:
            mark = Mark(f"--set {text[:80]}")
            try:
                self.override(sections, *_parse_override(text, mark))
            except ValueError as error:
                self.report(mark, str(error))
        name = self.read_name(sections.get("study"), root)
        task, task_name = self.read_task(sections.get("task"))
        data = self.read_data(sections.get("data"), root, task) if task else None  # its class knows the fields
        if task is not None:
            self.defaults, self.unused = task.defaults, task.unused_fields
        seeds, looks = read_seeds_or_looks(sections.get("seeds"), self.report)
        metrics = read_metrics(sections.get("metrics"), task, self.report) if task else ()
        margins = read_margins(sections.get("margin"), task, metrics, self.report) if task else {}
        before = len(self.errors)
        base = self.read_base(sections.get("base"))
        base_is_valid = len(self.errors) == before
        match = read_match(sections["match"], self.report) if "match" in sections else None
        tune = read_tune(sections["tune"], seeds, read_seeds, self.report) if "tune" in sections else None
        rows: list[Row] = []
        dropped = 0
        for size, settings in self.read_sizes(sections.get("sizes"), base).items():
            of_size, left_out = self.read_rows(sections.get("rows"), settings, data, match, tune, size)
            rows += of_size
            dropped += left_out
        rows = [rows[0], *(self.with_changes(row, rows[0]) for row in rows[1:])]
        self.check_overridden(overrides, tune, rows)
        if task and data and base_is_valid:
            self.check_task(task, data, rows, sections["data"])
        if not self.errors:
            self.check_seeds(rows, seeds, looks, sections)
        # Settings are resolved up to here although some are invalid, so that all errors are reported at once.
        if self.errors or task is None or data is None:
            raise StudyError(*self.error_lines())
        return Study(
            name,
            self.path,
            data,
            tuple(rows),
            seeds,
            dropped,
            metrics,
            margins=margins,
            task=task,
            task_name=task_name,
            plugin_sources=self.plugins.sources,
            tune=tune,
            designs=tuple(design.at_size(size) for design, size in self.designs),
            looks=looks,
            notes=tuple(self.notes()),
        )

    def check_overridden(self, overrides: Sequence[str], tune: Tune | None, rows: Sequence[Row]) -> None:
        """Report fields of `--set` and of sizes whose value no row has."""
        tuned = tune.grid.keys() if tune and all(row.tuning for row in rows) else frozenset[str]()
        for name in tuned & self.size_fields.keys():
            self.report(self.size_fields[name], f"{name}: is chosen by tune at every size; remove it")
        for text in overrides:
            key = text.partition("=")[0].strip().removeprefix("base.")
            name = standard_name(key) or key
            for source, names in (("tune chooses it for", tuned), ("sizes set it for", self.fields_of_all_sizes)):
                if name in names:
                    self.report(Mark(f"--set {text[:80]}"), f"has no effect, because {source} every row")

    def check_seeds(
        self, rows: Sequence[Row], seeds: Sequence[int], looks: Looks | None, sections: Mapping[str, Node]
    ) -> None:
        """Report looks without a row to judge, and too many runs."""
        if looks and all(row.is_base for row in rows):
            self.report(looks.mark, "looks: the study has no row to judge; list the seeds instead, as in [1, 2, 3]")
        runs = len(rows) * len(seeds)
        if runs > MAX_RUNS:
            self.report(sections["seeds"].mark, f"makes {runs:,} runs; a study can have at most {MAX_RUNS:,}")

    def notes(self) -> Iterator[str]:
        """Yield a line for each kind of rows that add nothing to the study, at the first of them."""
        kinds = (
            (self.equal_to_base, "rows with the settings of base, which show no difference"),
            (self.repeated, "rows that are written twice, and trained once"),
        )
        for rows, kind in kinds:
            if rows:
                named = ", ".join(list(rows)[:MAX_NAMED]) + (", ..." if len(rows) > MAX_NAMED else "")
                yield next(iter(rows.values())).error_line(f"{kind}: {named}")

    def check_task(self, task: Task, data: CorpusConfig, rows: Sequence[Row], section: Node) -> None:
        """Report the rows that do not fit the task and its data: at a field that the message names, if it is written.

        A row differs from base by the fields that it writes, so these come first; then those of base and of `data`.
        """
        found: dict[str, str] = {}  # message -> the first row with it: one setting of base concerns every row
        for row in rows:
            for message in task.check(data, row.config):
                found.setdefault(message, row.label)
        of_base, of_data = self.written_fields[rows[0].label], {key: node for key, _, node in section.items()}
        for message, label in found.items():
            mark = named_mark(message, [self.written_fields[label], of_base, of_data], section.mark)
            self.report(mark, f'row "{label}": {message}')

    def read_sections(self, root: Node) -> dict[str, Node]:
        if not isinstance(root.value, dict):
            raise StudyError(root.mark.error_line(f"a study must be a mapping of {listed(SECTIONS)}; got {root.kind}"))
        for key, mark, _ in root.items():
            if key not in SECTIONS:
                self.report(mark, _unknown_section(key))
        return {key: node for key, _, node in root.items()}

    def override(self, sections: dict[str, Node], key: str, node: Node) -> None:
        """Replace a field of `data` or of `base` by `--set`, before anything is checked."""
        section, _, name = key.rpartition(".")
        section = section or "base"
        if section not in ("data", "base"):
            return self.report(node.mark, f'"{section}" cannot be set; --set takes FIELD and data.FIELD')
        old = sections.get(section)
        if old and old.value is not None and not isinstance(old.value, dict):
            return None  # an error that is reported at the section itself
        fields = dict(old.value) if old and isinstance(old.value, dict) else {}
        if section == "base":  # the same field may be written by its symbol
            same = standard_name(name)
            fields = {k: v for k, v in fields.items() if k == "preset" or standard_name(k) != same or same is None}
        fields[name] = (node.mark, node)
        sections[section] = Node(fields, old.mark if old else node.mark)
        return None

    def read_name(self, node: Node | None, root: Node) -> str:
        if node is None or node.value is None:
            self.report(node.mark if node else root.mark, 'the study has no name; add "study: NAME"')
            return ""
        name = node.value if isinstance(node.value, str) else str(node.to_python())
        if not _NAME.fullmatch(name) or ".." in name:
            allowed = 'letters, digits, "-", "_" and "." (at most 64 characters)'
            self.report(node.mark, f'"{name[:60]}" is not a valid study name; allowed: {allowed}')
        elif folded_name(name) in _RESERVED:
            self.report(node.mark, f'"{name}" is reserved for a folder of the results root; choose another name')
        return name

    def read_task(self, node: Node | None) -> tuple[Task | None, str]:
        """The task and its name: a task of ablate, or a reference to a class, pinned to its source."""
        default = TASKS["translation"], "translation"
        if node is None:
            return default
        name = node.value
        if isinstance(name, str) and name in TASKS:
            return TASKS[name], name
        if not isinstance(name, str) or parse_reference(name) is None:
            self.report(node.mark, unknown_name("task", str(node.to_python()), TASKS))
            # The rest of the file is read for the task that is probably meant.
            return next(((TASKS[near], near) for near in get_close_matches(str(name), TASKS, n=1)), (None, ""))
        pinned = self.plugins.pin(node)
        plugin = parse_reference(pinned.value) if pinned else None
        if plugin is None:
            return None, ""
        try:
            return load_task(plugin, self.plugins.sources[str(plugin.digest)]), str(plugin)
        except StudyError as error:
            self.report(node.mark, str(error))
            return None, ""

    def read_data(self, node: Node | None, root: Node, task: Task) -> CorpusConfig | None:
        example = "such as {corpus: toy, vocab_size: 350}"
        if node is None or node.value is None:
            self.report(node.mark if node else root.mark, f'the study needs a "data" section, {example}')
            return None
        if not isinstance(node.value, dict):
            self.report(node.mark, f"data must be a mapping, {example}; got {node.kind}")
            return None
        settings = {}
        for key, mark, value in node.items():
            if key not in task.data_config.model_fields:
                self.report(mark, unknown_name("data field", key, task.data_config.model_fields))
            elif is_single_value(key, value, self.report):
                settings[key] = value
        try:
            data = task.resolve_data({key: value.value for key, value in settings.items()})
            folder = self.data_folder(settings["folder"]) if data.folder else None
            return data.model_copy(update={"folder": folder}) if data.folder else data
        except ValidationError as error:
            self.report_fields(field_errors(error, task.data_config), settings, node.mark, settings)
        except ValueError as error:
            mark = settings["corpus"].mark if "corpus" in settings else node.mark
            self.report(named_mark(str(error), [settings], mark), str(error))
        return None

    def data_folder(self, folder: Node) -> str:
        """Path of `data.folder`: relative to the study file, or to the working directory if given by `--set`."""
        try:
            path = home_path(folder.value)
            if "://" in folder.value:
                raise ValueError(f"{folder.value}: an address is written in train, dev and test")
        except ValueError as error:
            self.report(folder.mark, f"folder: {error}")
            return ""
        # A mark without a line is that of --set.
        return str(self.path.parent / path if folder.mark.line else path)

    def read_base(
        self, node: Node | None, inherited: Mapping[str, Node] | None = None, place: str = "base"
    ) -> dict[str, Node]:
        """Base's settings by standard name. Invalid ones are reported and left out, so that rows are checked too.

        For the settings of a size, `inherited` has those of base, and `place` its name in messages.
        """
        if node is None or node.value is None:
            return {}
        if not isinstance(node.value, dict):
            self.report(node.mark, f"{place} must be a mapping of fields, such as {{d_model: 64}}; got {node.kind}")
            return {}
        known = known_fields(node, self.report)
        settings = self.by_name({k: value for k, value in known.items() if is_single_value(k, value, self.report)})
        settings = self.plugins.resolve(settings)
        # Each field alone first: one invalid field of base would otherwise be reported again for every row.
        for name, value in list(settings.items()):
            if name != "preset" and self.resolve({name: value}, value.mark, alone=True) is None:
                del settings[name]
        return settings if self.resolve(_merge(inherited or {}, settings), node.mark, written=settings) else {}

    def resolve(
        self, settings: Mapping[str, Node], mark: Mark, alone: bool = False, written: Collection[str] = ()
    ) -> RowConfig | None:
        """Resolve settings into a configuration; None, with the errors reported, if they are invalid.

        Settings without effect are reported, too, but leave a configuration, so that further errors are found.

        Args:
            settings: by standard name.
            mark: position of errors that concern several fields.
            alone: report only errors of the fields in `settings`, not of their combination with defaults.
            written: the fields that must have an effect.
        """
        values = {**self.defaults, **{name: node.value for name, node in settings.items()}}
        own = {name: settings[name] for name in written if name in settings}
        try:
            check_active(values, written, self.unused)  # known before the values are valid
        except InactiveSettings as error:
            self.report_fields(error.errors, settings, mark)
        try:
            return resolve_row(values, written, self.unused)
        except ValidationError as error:
            if not alone or any(name in settings for name, _ in field_errors(error)):
                self.report_fields(field_errors(error), settings, mark, own)
                return None
        except InactiveSettings as error:
            self.report_fields(error.errors, settings, mark)
            return resolve_row(values)
        except ValueError as error:  # before any other check
            if not alone:
                self.report(named_mark(str(error), [own], mark), str(error))
                for name in written:
                    self.resolve({name: settings[name]}, mark, alone=True)
                return None
        return resolve_row(self.defaults)

    def report_fields(
        self,
        errors: Sequence[tuple[str, str]],
        settings: Mapping[str, Node],
        mark: Mark,
        written: Mapping[str, Node] | None = None,
    ) -> None:
        """Report (field, message) pairs: each at its field, or at `mark` if the study does not write the field.

        A message without a field is reported at the first of the fields in `written` that it names.
        """
        for name, message in errors:
            position = settings[name].mark if name in settings else named_mark(message, [written or {}], mark)
            self.report(position, f"{self.symbols.get(position, name)}: {message}" if name else message)

    def by_name(self, written: Mapping[str, Node]) -> Settings:
        """Settings by standard name, with a preset first: the fields beside it override it wherever it is written."""
        self.symbols |= {node.mark: key for key, node in written.items() if key in SYMBOLS}
        ordered = sorted(written.items(), key=lambda item: item[0] != "preset")
        return {standard_name(key) or key: node for key, node in ordered}

    def read_sizes(self, node: Node | None, base: dict[str, Node]) -> dict[str, dict[str, Node]]:
        """Base's settings at each size, by name; those of base alone, without a name, if there are no sizes."""
        if node is None:
            return {"": base}
        if not isinstance(node.value, dict) or not 2 <= len(node.value) <= MAX_SIZES:
            got = plural(len(node.value), "name") if isinstance(node.value, dict) else node.kind
            example = "{small: {}, large: {d_model: 128}}"
            needs = f"sizes must be a mapping of 2 to {MAX_SIZES} names to fields of base, such as {example}; got {got}"
            self.report(node.mark, needs)
            return {"": base}
        self.refuse_similar_names("size", node)
        sizes: dict[str, dict[str, Node]] = {}
        configs: dict[str, dict[str, Any] | None] = {}
        for name, mark, value in node.items():
            if not _SIZE.fullmatch(name) or folded_name(name) == "base":
                allowed = 'letters, digits, ".", "_" and "-" (at most 20 characters), but not "base"'
                self.report(mark, f'"{name[:60]}" is not a valid name of a size; allowed: {allowed}')
            written = self.read_base(value, base, f'size "{name[:60]}"')
            sizes[name] = _merge(base, written)
            config = self.resolve(sizes[name], mark)
            trained = None if config is None else config.model_dump(exclude=_NOT_TRAINED)
            other = next((known for known, earlier in configs.items() if earlier == trained), None)
            if trained is not None and other is not None:
                self.report(mark, f'size "{name[:60]}" has the settings of size "{other[:60]}" in training')
            configs[name] = trained
            self.size_fields = {one: each.mark for one, each in written.items()} | self.size_fields
            set_here = written.keys() | (PRESETS[written["preset"].value].keys() if "preset" in written else set())
            self.fields_of_all_sizes = frozenset(set_here & self.fields_of_all_sizes if len(sizes) > 1 else set_here)
        return sizes

    @staticmethod
    def with_changes(row: Row, first: Row) -> Row:
        """A base of a further size, with its changes from the first base; any other row unchanged."""
        return replace(row, changed=changes(row.config, first.config)) if row.is_base else row

    def read_rows(
        self,
        node: Node | None,
        base: dict[str, Node],
        data: CorpusConfig | None,
        match: Match | None,
        tune: Tune | None,
        size: str,
    ) -> tuple[list[Row], int]:
        """Return the rows of one size, base first, and the number of rows that `where` drops.

        `match` and `tune` are the study's; a group may have its own match, or leave `tune` out.
        """
        prefix = f"{size} " if size else ""
        base_config = resolve_row({**self.defaults, **{name: value.value for name, value in base.items()}})
        test = data.test if data else ""
        label = f"{prefix}base"
        tuning = self.tune_row(tune, label, base, {}, base_config, data)
        rows = {label: Row(label, "base", base_config, test, tuning=tuning, base=label, size=size)}
        self.written_fields[label] = base
        dropped = 0
        for spec in self.expand_groups(node):
            if spec.design is not None:
                self.designs.setdefault((spec.design, size), spec.mark)
            written = self.plugins.resolve(self.by_name(spec.settings))
            of_preset = PRESETS.get(written["preset"].value, {}) if "preset" in written else {}
            for name in (written.keys() | of_preset.keys()) & self.size_fields.keys():
                mark = written[name if name in written else "preset"].mark
                self.report(mark, f"{name}: is set by sizes; a row must differ from base at every size")
            settings = _merge(base, written)
            if self.is_dropped(spec, settings):
                dropped += 1
                continue
            rule = match if spec.match is None else spec.match.value
            config, matched = self.configure(spec, rule, settings, written, base_config, data)
            row_label = f"{prefix}{spec.label}"
            if config is not None and row_label not in rows:
                self.check_require(spec, config)
                if matched is not None:
                    settings = {**settings, matched.field: Node(matched.value, spec.mark)}
                row_tune = tune if spec.is_tuned else None
                tuning = self.tune_row(row_tune, row_label, settings, written, config, data)
                if rule is not None and matched is not None and tune is not None and tuning is not None and data:
                    self.check_matched(rule, tune, spec, config, tuning, data)
                changed, group = changes(config, base_config), f"{prefix}{spec.group}"
                self.written_fields[row_label] = written
                rows[row_label] = Row(
                    row_label, group, config, test, changed, matched, tuning,
                    base=label, size=size, is_labeled=spec.written_label is not None,
                )  # fmt: skip
                # A design may need base among its rows, and a row that is not tuned may compare with one that is.
                if not changed and spec.design is None and (tuning is None) == (rows[label].tuning is None):
                    self.equal_to_base[row_label] = spec.mark
            elif config is not None and rows[row_label].config != config:
                self.report(spec.mark, f'a second row "{spec.label}", with other settings; use another group')
            elif config is not None and tune is not None and (rows[row_label].tuning is not None) != spec.is_tuned:
                self.report(spec.mark, f'a second row "{spec.label}", one tuned and one not; use another group')
            elif config is not None and spec.design is None:
                self.repeated[row_label] = spec.mark
        self.check_designs(prefix, rows)
        return list(rows.values()), dropped

    def check_designs(self, prefix: str, rows: Mapping[str, Row]) -> None:
        """Report designs of one size in which a part changes nothing, so that two rows are equal."""
        for (design, size), mark in self.designs.items():
            if f"{size} " * bool(size) != prefix:
                continue
            others = () if isinstance(design, FactorialDesign) else (design.whole,)
            start = ("base",) if isinstance(design, PathDesign) and design.way == "add-one-in" else ()
            known = [rows[label] for name in (*start, *others, *design.rows) if (label := prefix + name) in rows]
            for one, other in itertools.combinations(known, 2):
                if one.config == other.config:
                    self.report(mark, f'rows "{one.name}" and "{other.name}" have equal settings: a part has no effect')
                    break

    def configure(
        self,
        spec: RowSpec,
        rule: Match | None,
        settings: Mapping[str, Node],
        written: Mapping[str, Node],
        base: RowConfig,
        data: CorpusConfig | None,
    ) -> tuple[RowConfig | None, Matched | None]:
        """Resolve a row, whose free field is chosen by `match` if it has a rule; (None, None) after an error."""
        if rule is not None and data is not None and rule.field not in written:
            return self.match(spec, rule, settings, written, base, data)
        config = self.resolve(settings, spec.mark, written=written)
        if rule is not None and rule.field in written:
            self.report(written[rule.field].mark, f"{rule.field}: is chosen by match; remove it")
        return config, None

    def match(
        self,
        spec: RowSpec,
        rule: Match,
        settings: Mapping[str, Node],
        written: Collection[str],
        base: RowConfig,
        data: CorpusConfig,
    ) -> tuple[RowConfig | None, Matched | None]:
        """Resolve a row whose free field is chosen by `match`; None, with the errors reported, if that fails."""
        values = {**self.defaults, **{name: node.value for name, node in settings.items()}}
        try:
            _, matched = match_row(rule, values, base, lambda one: fold_vocab_size(data, one)[0].vocab_size)
        except NoMatch as error:
            before = len(self.errors)
            self.resolve(settings, spec.mark, written=written)  # an invalid setting is the better message
            if len(self.errors) == before:
                self.report(rule.mark, f'row "{spec.label}": {error}')
            return None, None
        chosen = {**settings, rule.field: Node(matched.value, rule.mark)}
        return self.resolve(chosen, spec.mark, written={*written, rule.field}), matched

    def tune_row(
        self,
        tune: Tune | None,
        label: str,
        settings: Mapping[str, Node],
        written: Mapping[str, Node],
        config: RowConfig,
        data: CorpusConfig | None,
    ) -> Tuning | None:
        """The candidates of a row; None without `tune`, and after an error.

        Args:
            tune: the study's section.
            label: of the row.
            settings: of the row, base's included.
            written: the fields that the row writes itself; none of them may be tuned.
            config: of the row as written.
            data: of the study.
        """
        if tune is None or data is None:
            return None
        for name in tune.grid.keys() & written.keys():
            self.report(written[name].mark, f"{name}: is chosen by tune; remove it, or give the group `tune: false`")
        trial_steps = self.trial_steps(tune, label, config)
        if trial_steps is None:
            return None
        candidates = []
        for point in tune.points():
            found = self.resolve({**settings, **point}, tune.mark, written={*written, *point})
            if found is None:
                return None
            values = {name: node.value for name, node in point.items()}
            trial = found.model_copy(update=trial_steps)
            candidates.append(Candidate(values, found, trial))
        vocab_size = fold_vocab_size(data, config)[0].vocab_size
        return Tuning(tuple(candidates), math.log(vocab_size))

    def check_matched(
        self, rule: Match, tune: Tune, spec: RowSpec, config: RowConfig, tuning: Tuning, data: CorpusConfig
    ) -> None:
        """Report candidates of a matched row that would change its cost."""

        def cost(one: RowConfig) -> float:
            return rule.of(one, fold_vocab_size(data, one)[0].vocab_size)

        if rule.field in tune.grid or any(cost(one.config) != cost(config) for one in tuning.candidates):
            fields = " and ".join(tune.grid)
            self.report(
                tune.mark,
                f'row "{spec.label}": tuning {fields} changes its {rule.cost}, which match makes those of base; '
                "tune other fields, or give the group `tune: false`",
            )

    def trial_steps(self, tune: Tune, label: str, config: RowConfig) -> dict[str, int] | None:
        """The fields of the tuning runs that differ from the row's, with their values; None after an error."""
        steps, warmup = config.train_steps, config.warmup_steps
        if steps is None:
            if tune.share == 1:
                return {}
            self.report(tune.mark, f'row "{label}": a share of the steps needs train_steps')
            return None
        if tune.steps(steps) <= warmup < steps:
            self.report(
                tune.mark,
                f'row "{label}": tuning runs of {tune.steps(steps)} of {steps} steps end before warmup_steps={warmup}; '
                "raise the share, or lower warmup_steps",
            )
            return None
        return {"train_steps": tune.steps(steps)}

    def expand_groups(self, node: Node | None) -> list[RowSpec]:
        specs: list[RowSpec] = []
        if node is None or node.value is None:
            return specs
        if not isinstance(node.value, dict):
            self.report(node.mark, f"rows must be a mapping of groups; got {node.kind}")
            return specs
        self.refuse_similar_names("group", node)
        for group, mark, ways in node.items():
            if not _GROUP.fullmatch(group) or ".." in group or folded_name(group) == "base":
                allowed = 'letters a-z, digits, spaces and . _ + - (at most 40 characters), but not "base"'
                self.report(mark, f'"{group[:60]}" is not a valid group name; allowed: {allowed}')
            elif group in WAYS and not (isinstance(ways.value, dict) and set(ways.value) & set(WAYS)):
                self.report(mark, f'"{group}" is a key of a group; write rows: {{GROUP: {{{group}: ...}}}}')
                continue
            specs += expand_group(group, ways, self.report, MAX_ROWS - len(specs))
        return self.with_own_labels(specs)

    def with_own_labels(self, specs: Sequence[RowSpec]) -> list[RowSpec]:
        """Return the rows without those whose written label is also base, another row or another group."""
        labels = Counter(folded_name(spec.label) for spec in specs)
        groups = Counter(folded_name(spec.group) for spec in specs)
        kept = []
        for spec in specs:
            name = folded_name(spec.label)
            # The only row of a group may have the name of the group.
            of_others = groups[name] - (1 if name == folded_name(spec.group) else 0)
            if spec.written_label is None or not (name == "base" or labels[name] > 1 or of_others):
                kept.append(spec)
                continue
            kind = "base" if name == "base" else "another row" if labels[name] > 1 else "a group with other rows"
            self.report(spec.written_label.mark, f'label "{spec.label}" is also the name of {kind}; choose another')
        return kept

    def refuse_similar_names(self, kind: str, names: Node) -> None:
        """Report each name that file systems, and people, do not tell from an earlier one."""
        seen: dict[str, tuple[str, Mark]] = {}
        for name, mark, _ in names.items():
            other, earlier = seen.setdefault(folded_name(name), (name, mark))
            if other != name:
                where = f'"{other}" on line {earlier.line}'
                self.report(mark, f'{kind} "{name}" differs from {where} only in case, or at its end; rename one')

    def is_dropped(self, spec: RowSpec, settings: Mapping[str, Node]) -> bool:
        """Whether `where` drops the row. Evaluated before the row is resolved, so it can drop invalid ones."""
        if spec.where is None:
            return False
        try:
            values = unchecked_values({**self.defaults, **{name: node.value for name, node in settings.items()}})
            return not spec.where(_with_symbols(values))
        except ValueError as error:
            self.report(spec.mark, f'row "{spec.label}": {error}')
        except (TypeError, ZeroDivisionError):
            pass  # a value of the wrong type, which `resolve` reports
        return False

    def check_require(self, spec: RowSpec, config: RowConfig) -> None:
        if spec.require is None:
            return
        values = _with_symbols(config.model_dump())
        try:
            if not spec.require(values):
                shown = ", ".join(f"{name}={values[name]}" for name in spec.require.fields(values))
                self.report(spec.mark, f'row "{spec.label}" violates require: {spec.require.text} ({shown})')
        except ValueError as error:
            self.report(spec.mark, f'row "{spec.label}": {error}')


class _PluginResolver:
    """Pins the custom classes of a study to the hash of their source; each source is read once.

    sources: the sources by their hash.
    """

    def __init__(self, folder: Path, report: Report) -> None:
        self.folder, self.report = folder, report
        self.sources: dict[str, bytes] = {}
        self._pinned: dict[Reference, Reference | ValueError] = {}

    def resolve(self, settings: Settings) -> Settings:
        """Pin every `module:Class` in the settings; report and leave out those that are not found."""
        pinned = {name: self.pin(node) if name in _PLUGIN_FIELDS else node for name, node in settings.items()}
        return {name: node for name, node in pinned.items() if node is not None}

    def pin(self, node: Node) -> Node | None:
        written = parse_reference(node.value)
        if written is None:
            return node
        if written not in self._pinned:
            self._pinned[written] = self._pin(written)
        pinned = self._pinned[written]
        if isinstance(pinned, ValueError):
            self.report(node.mark, str(pinned))
            return None
        return Node(str(pinned), node.mark)

    def _pin(self, written: Reference) -> Reference | ValueError:
        try:
            pinned, source = pin_reference(written, self.folder)
        except ValueError as error:
            return error
        self.sources[str(pinned.digest)] = source
        return pinned


_PLUGIN_FIELDS = plugin_fields(ModelConfig)


def read_seeds(node: Node | None, report: Report) -> tuple[int, ...]:
    """Read the list of seeds; (1,) if the study has none. Errors are reported."""
    if node is None:
        return (1,)
    if not isinstance(node.value, list):
        report(node.mark, f"seeds must be a list, such as [1, 2, 3]; got {node.kind}")
        return ()
    values = node.value
    if not values or len(values) > MAX_SEEDS:
        report(node.mark, f"a study has 1 to {MAX_SEEDS} seeds; got {len(values)}")
        return ()
    seeds: list[int] = []
    for value in values:
        if type(value.value) is not int or not 0 <= value.value < 2**32:
            report(value.mark, f"{value.kind} is not a valid seed; seeds are whole numbers from 0 to {2**32 - 1}")
        elif value.value in seeds:
            report(value.mark, f"duplicate seed {value.value}")
        else:
            seeds.append(value.value)
    return tuple(seeds)


def read_seeds_or_looks(node: Node | None, report: Report) -> tuple[tuple[int, ...], Looks | None]:
    """Read the section `seeds`: a list, or `{looks: [3, 5, 8]}` for the seeds 1 to 8. Errors are reported."""
    if node is None or not isinstance(node.value, dict) or not node.value:
        return read_seeds(node, report), None
    looks = _read_looks(node, report)
    return tuple(range(1, looks.plan[-1] + 1)) if looks else (), looks


def _read_looks(node: Node, report: Report) -> Looks | None:
    for key, mark, _ in node.items():
        if key != "looks":
            report(mark, unknown_name("key", key, ("looks",)))
    if "looks" not in node.value:
        return None
    looks = node.value["looks"][1]
    if not isinstance(looks.value, list) or len(looks.value) < 2:
        got = plural(len(looks.value), "number") if isinstance(looks.value, list) else looks.kind
        report(looks.mark, f"looks must be a list of two or more numbers of seeds, such as [3, 5, 8]; got {got}")
        return None
    plan: list[int] = []
    for value in looks.value:
        least = plan[-1] + 1 if plan else 2  # one seed shows no spread
        if type(value.value) is not int or not least <= value.value <= MAX_SEEDS:
            allowed = f"a whole number from {least} to {MAX_SEEDS}, more than at the look before" if plan else (
                f"a whole number from {least} to {MAX_SEEDS}: one seed shows no spread"
            )  # fmt: skip
            report(value.mark, f"{value.kind} is not a valid number of seeds at a look; allowed: {allowed}")
            return None
        plan.append(value.value)
    return Looks(tuple(plan), looks.mark)


def read_metrics(node: Node | None, task: Task, report: Report) -> tuple[str, ...]:
    """Read the study's metrics: a list or a single name; the task's default if there are none. Errors are reported."""
    if node is None:
        return task.default_metrics
    values = node.value if isinstance(node.value, list) else [node]
    if not values:
        report(node.mark, f"the list of metrics is empty; remove it for {listed(task.default_metrics)}")
    allowed = {name: metric for name, metric in task.metrics.items() if name not in _always_measured(task)}
    metrics: list[str] = []
    for value in values:
        if value.value in _always_measured(task):
            report(value.mark, f"{value.value} is always measured; list only other metrics")
        elif not isinstance(value.value, str) or value.value not in allowed:
            report(value.mark, unknown_name("metric", str(value.to_python()), allowed))
        elif value.value in metrics:
            report(value.mark, f'duplicate metric "{value.value}"')
        else:
            metrics.append(value.value)
    return tuple(metrics)


def read_margins(node: Node | None, task: Task, metrics: Sequence[str], report: Report) -> dict[str, float]:
    """Read the margins of equivalence: a number for the first metric, or one for each metric. Errors are reported."""
    if node is None:
        return {}
    measured = dict.fromkeys((*(metrics or task.default_metrics), *_always_measured(task)))
    one = [(metric, node.mark, node) for metric in (*metrics, *task.default_metrics)[:1]]
    named = list(node.items()) if isinstance(node.value, dict) else one
    margins = {}
    for name, mark, value in named:
        if name not in measured:
            report(mark, unknown_name("metric", name, measured))
        elif type(value.value) not in (int, float) or not 0 < value.value < math.inf:
            report(value.mark, f"margin of {name}: {value.kind} is not a positive number, such as 0.5")
        else:
            margins[name] = float(value.value)
    return margins


def _always_measured(task: Task) -> tuple[str, ...]:
    """Perplexities, where the verdicts use another metric."""
    return () if task.default_metrics[0] == PPL.name else tuple(metric.name for metric in task.model_metrics)


def _unknown_section(key: str) -> str:
    """Message for a key of the study that is not a section: its place, if it is an option or a key of another place."""
    text = f'unknown section "{key[:60]}"'
    if key in OPTIONS_OF_RUN:
        return f"{text}; it is an option of the command line: {OPTIONS_OF_RUN[key]}"
    if key == "looks":
        return f"{text}; write seeds: {{looks: [3, 5, 8]}}"
    if key in (*WAYS, *OPTIONS, *FRACTIONS):
        return f"{text}; it is a key of a group of rows: rows: {{GROUP: {{{key}: ...}}}}"
    if standard_name(key) is not None:
        return f"{text}; it is a field of base: base: {{{key}: VALUE}}"
    return unknown_name("section", key, SECTIONS)


def _with_symbols(values: dict[str, Any]) -> dict[str, Any]:
    """The values that conditions see: by standard name and by symbol."""
    return {**values, **{symbol: values[name] for name, symbol in SYMBOL_OF.items()}}


def named_mark(message: str, places: Sequence[Mapping[str, Node]], mark: Mark) -> Mark:
    """Position of the first field in `places` that a message names, as its first word or as FIELD=VALUE; else `mark`.

    Args:
        message: of an error that concerns several fields.
        places: settings by standard name; all names of the message are looked up in the first, then in the next.
        mark: position if the study writes none of the fields.
    """
    words = [first or later for first, later in _FIELD_NAMES.findall(message)]
    names = [standard_name(word) or word for word in words]
    found = (place[name].mark for place in places for name in names if name in place)
    return next((position for position in found if position.line), mark)  # that of --set has no line


def _merge(base: Mapping[str, Node], written: Mapping[str, Node]) -> dict[str, Node]:
    """Base's settings followed by the row's, so that a preset in the row overrides what base sets."""
    return {**{name: node for name, node in base.items() if name not in written}, **written}


def _parse_override(text: str, mark: Mark) -> tuple[str, Node]:
    """Parse the FIELD=VALUE of `--set` into the field and its value.

    Raises:
        ValueError: it is not of this form, or VALUE is not YAML.
    """
    key, equals, value = (part.strip() for part in text.partition("="))
    if not (key and equals and value):
        raise ValueError("is not of the form FIELD=VALUE, such as train_steps=200")
    try:
        node = parse_yaml(value, str(mark))
    except StudyError as error:
        raise ValueError(error.lines[0].rpartition(": ")[2]) from None
    return key, Node(node.value, mark)
