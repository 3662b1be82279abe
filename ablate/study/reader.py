"""Read a study: every fault found at once, then rows resolved against base."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ablate.config import DataConfig, RowConfig, canonical, resolve_data, resolve_row
from ablate.config.inactive import NoEffect
from ablate.config.resolve import SYMBOL_OF, provisional
from ablate.config.section import faults_of
from ablate.errors import StudyError, listed
from ablate.study.check_data import misfits
from ablate.study.lists import read_metrics, read_seeds
from ablate.study.resolve_plugins import Pins
from ablate.study.rows import MAX_ROWS, Draft, drafts, known_fields, single_value, unknown
from ablate.study.select import MAX_RUNS, Selection, select
from ablate.study.study import Row, Study
from ablate.study.yaml_nodes import Mark, Node, file_text, read_text

SECTIONS = ("study", "data", "base", "seeds", "metrics", "rows")
MAX_FAULTS = 100  # printed
MAX_FOUND = 1000  # then the reading stops
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_GROUP = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+-]{0,39}")
_RESERVED = ("runs", "corpora")  # folders of the results root


def read_study(path: Path, selection: Selection | None = None) -> Study:
    """Read a study file.

    Raises:
        StudyError: with every fault of the file and of --set.
        UsageError: --rows or --seeds names what the study does not have.
    """
    selection = selection or Selection()
    text = file_text(path)
    study = _Reader(path).read(read_text(text, str(path)), selection.overrides)
    study = replace(study, text=text, whole=len(study.rows) * len(study.seeds))
    return select(study, selection)


@dataclass
class _Reader:
    path: Path
    faults: dict[str, Mark] = field(default_factory=dict)  # each line once, and its place

    def __post_init__(self) -> None:
        self.pins = Pins(self.path.parent, self.report)

    def report(self, mark: Mark, message: str) -> None:
        self.faults.setdefault(mark.fault(message), mark)
        if len(self.faults) >= MAX_FOUND:
            raise StudyError(*self.all_faults())

    def all_faults(self) -> list[str]:
        """The lines in the file's order, cut where nobody would read on."""
        lines = sorted(self.faults, key=lambda line: (self.faults[line].line, self.faults[line].column))
        more = len(lines) - MAX_FAULTS
        return [*lines[:MAX_FAULTS], f"{self.path}: and {more} more faults, or still more"] if more > 0 else lines

    def read(self, root: Node, overrides: Sequence[str]) -> Study:
        sections = self.sections(root)
        for text in overrides:
            mark = Mark(f"--set {text[:80]}")
            try:
                self.override(sections, *_override(text, mark))
            except ValueError as error:
                self.report(mark, str(error))
        name = self.name(sections.get("study"), root)
        data = self.data(sections.get("data"), root)
        seeds = read_seeds(sections.get("seeds"), self.report)
        metrics = read_metrics(sections.get("metrics"), self.report)
        base = self.base(sections.get("base"))
        rows, dropped = self.rows(sections.get("rows"), base, data.test if data else "")
        if data and not self.faults:
            for message in misfits(data, rows):
                self.report(sections["data"].mark, message)
            if len(rows) * len(seeds) > MAX_RUNS:
                self.report(
                    sections["seeds"].mark, f"{len(rows) * len(seeds):,} runs; a study has at most {MAX_RUNS:,}"
                )
        if self.faults or data is None:
            raise StudyError(*self.all_faults())
        return Study(name, self.path, data, tuple(rows), seeds, dropped, metrics, sources=self.pins.sources)

    def sections(self, root: Node) -> dict[str, Node]:
        if not isinstance(root.value, dict):
            raise StudyError(root.mark.fault(f"a study is a mapping of {listed(SECTIONS)}; here is {root.kind}"))
        for key, mark, _ in root.items():
            if key not in SECTIONS:
                self.report(mark, unknown("section", key, SECTIONS))
        return {key: node for key, _, node in root.items()}

    def override(self, sections: dict[str, Node], key: str, node: Node) -> None:
        """--set replaces a value of `data` or of `base` before anything is checked."""
        section, _, name = key.rpartition(".")
        section = section or "base"
        if section not in ("data", "base"):
            return self.report(node.mark, f'"{section}" cannot be set; data.FIELD and base FIELDs can')
        old = sections.get(section)
        if old and old.value is not None and not isinstance(old.value, dict):
            return None  # a fault already, reported where it stands
        fields = dict(old.value) if old and isinstance(old.value, dict) else {}
        if section == "base":
            same = canonical(name)
            fields = {k: v for k, v in fields.items() if k == "preset" or canonical(k) != same or same is None}
        fields[name] = (node.mark, node)
        sections[section] = Node(fields, old.mark if old else node.mark)
        return None

    def name(self, node: Node | None, root: Node) -> str:
        if node is None or node.value is None:
            self.report(node.mark if node else root.mark, 'the study has no name: "study: NAME"')
            return ""
        name = node.value if isinstance(node.value, str) else str(node.plain())
        if not _NAME.fullmatch(name) or ".." in name:
            self.report(node.mark, f'"{name[:60]}" cannot name a study: letters, digits, "-", "_", "." (at most 64)')
        elif name in _RESERVED:
            self.report(node.mark, f'"{name}" is a folder of the results root; choose another name')
        return name

    def data(self, node: Node | None, root: Node) -> DataConfig | None:
        if node is None or not isinstance(node.value, dict):
            self.report(
                node.mark if node else root.mark,
                'the study needs a "data" section, such as {corpus: toy, vocab_size: 350}',
            )
            return None
        settings = {}
        for key, mark, value in node.items():
            if key not in DataConfig.model_fields:
                self.report(mark, unknown("data field", key, DataConfig.model_fields))
            elif single_value(key, value, self.report):
                settings[key] = value
        try:
            data = resolve_data({key: value.value for key, value in settings.items()})
            return data.model_copy(update={"folder": self.place(settings["folder"])}) if data.folder else data
        except ValidationError as error:
            self.invalid(faults_of(error, DataConfig), settings, node.mark)
        except ValueError as error:
            self.report(settings["corpus"].mark if "corpus" in settings else node.mark, str(error))
        return None

    def place(self, folder: Node) -> str:
        """A folder named in the file lies relative to the file, one named in --set to where the user stands."""
        path = Path(folder.value).expanduser()
        return str(self.path.parent / path if folder.mark.line else path)

    def base(self, node: Node | None) -> dict[str, Node]:
        """Base's settings under standard names, without those at fault, so that rows can be checked too."""
        if node is None or node.value is None:
            return {}
        if not isinstance(node.value, dict):
            self.report(node.mark, f"base is a mapping of fields; here is {node.kind}")
            return {}
        known = known_fields(node, self.report)
        settings = _by_name({key: value for key, value in known.items() if single_value(key, value, self.report)})
        settings = self.pins.of(settings)
        for name, value in list(settings.items()):
            if name != "preset" and self.resolve({name: value}, value.mark, alone=True) is None:
                del settings[name]
        return settings if self.resolve(settings, node.mark, own=settings) else {}

    def resolve(
        self, settings: Mapping[str, Node], mark: Mark, alone: bool = False, own: Collection[str] = ()
    ) -> RowConfig | None:
        """The settings resolved, or None and their faults reported; `alone`: only faults of a field itself."""
        try:
            return resolve_row({name: node.value for name, node in settings.items()}, own)
        except ValidationError as error:
            if not alone or any(name in settings for name, _ in faults_of(error)):
                self.invalid(faults_of(error), settings, mark)
                return None
        except NoEffect as error:
            self.invalid(error.faults, settings, mark)
            return None
        except ValueError as error:
            if not alone:
                self.report(mark, str(error))
                return None
        return resolve_row({})

    def invalid(self, faults: Sequence[tuple[str, str]], settings: Mapping[str, Node], mark: Mark) -> None:
        for name, message in faults:
            place = settings[name].mark if name in settings else mark
            self.report(place, f"{name}: {message}" if name else message)

    def rows(self, node: Node | None, base: dict[str, Node], test: str) -> tuple[list[Row], int]:
        all_drafts: list[Draft] = []
        if node is not None and node.value is not None and not isinstance(node.value, dict):
            self.report(node.mark, f"rows is a mapping of groups; here is {node.kind}")
        elif node is not None and node.value is not None:
            for group, mark, spec in node.items():
                if not _GROUP.fullmatch(group) or ".." in group or group == "base":
                    allowed = 'letters a-z, digits, spaces and . _ + - (at most 40), not "base"'
                    self.report(mark, f'"{group[:60]}" cannot name a group: {allowed}')
                all_drafts += drafts(group, spec, self.report, MAX_ROWS - len(all_drafts))
        base_config = resolve_row({name: value.value for name, value in base.items()})
        rows = {"base": Row("base", "base", base_config, test)}
        dropped = 0
        for draft in all_drafts:
            written = self.pins.of(_by_name(draft.written))
            settings = _over(base, written)
            if self.is_dropped(draft, settings):
                dropped += 1
                continue
            config = self.resolve(settings, draft.mark, own=written)
            if config is not None and draft.label not in rows:
                self.check_require(draft, config)
                rows[draft.label] = Row(draft.label, draft.group, config, test, _difference(config, base_config))
        return list(rows.values()), dropped

    def is_dropped(self, draft: Draft, settings: Mapping[str, Node]) -> bool:
        """Whether `where` leaves the row out; it may, before the row would be found impossible."""
        if draft.where is None:
            return False
        try:
            return not draft.where(_with_symbols(provisional({name: node.value for name, node in settings.items()})))
        except (ValueError, TypeError, ZeroDivisionError) as error:
            if isinstance(error, ValueError):  # otherwise a value is of the wrong kind, which is told elsewhere
                self.report(draft.mark, f'row "{draft.label}": {error}')
            return False

    def check_require(self, draft: Draft, config: RowConfig) -> None:
        if draft.require is None:
            return
        names = _with_symbols(config.model_dump())
        try:
            if not draft.require(names):
                values = ", ".join(f"{name}={names[name]}" for name in draft.require.fields(names))
                self.report(draft.mark, f'row "{draft.label}" violates require: {draft.require.text} ({values})')
        except ValueError as error:
            self.report(draft.mark, f'row "{draft.label}": {error}')


def _with_symbols(values: dict[str, Any]) -> dict[str, Any]:
    """The fields that conditions see: by standard name and by symbol."""
    return {**values, **{symbol: values[name] for name, symbol in SYMBOL_OF.items()}}


def _by_name(written: Mapping[str, Node]) -> dict[str, Node]:
    """Settings under standard names; a preset comes first, whatever its place, since it is a start."""
    ordered = sorted(written.items(), key=lambda item: item[0] != "preset")
    return {canonical(key) or key: node for key, node in ordered}


def _over(base: Mapping[str, Node], written: Mapping[str, Node]) -> dict[str, Node]:
    """Base's settings, then the row's: a preset in the row undoes what base has set."""
    return {**{name: node for name, node in base.items() if name not in written}, **written}


def _difference(config: RowConfig, base: RowConfig) -> dict[str, Any]:
    return {name: value for name, value in config.model_dump().items() if value != getattr(base, name)}


def _override(text: str, mark: Mark) -> tuple[str, Node]:
    key, equals, value = (part.strip() for part in text.partition("="))
    if not (key and equals and value):
        raise ValueError("is not of the form FIELD=VALUE, such as train_steps=200")
    try:
        node = read_text(value, str(mark))
    except StudyError as error:
        raise ValueError(error.lines[0].rpartition(": ")[2]) from None
    return key, Node(node.value, mark)
