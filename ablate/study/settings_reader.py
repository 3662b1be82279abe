"""Read the fields of base, of sizes and of rows, and resolve them into configurations."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic import ValidationError

from ablate.config import RowConfig
from ablate.config.data import CorpusConfig
from ablate.config.inactive import InactiveSettings, idle_fault
from ablate.config.reach import (
    Reach,
    fitted,
    idle_settings,
    idle_windows,
    is_limited,
    unread_positions,
    untrained_positions,
)
from ablate.config.resolve import SYMBOLS, merged, resolve_row, standard_name
from ablate.errors import Fault, Mark, faults_in
from ablate.fields import entries_of, field_faults
from ablate.study.class_sources import ClassSources
from ablate.study.settings import Settings, merge, report_fields
from ablate.study.yaml_nodes import Node, Report, plain_values
from ablate.tasks import Task


class SettingsReader:
    """Reads settings, and resolves them with the defaults of the task and by the lengths of its
    texts. Errors are reported.
    """

    def __init__(
        self,
        task: Task | None,
        data: CorpusConfig | None,
        metrics: Sequence[str],
        classes: ClassSources,
        report: Report,
    ) -> None:
        self.task, self.data, self.classes, self.report = task, data, classes, report
        self.defaults: dict[str, Any] = {}
        self.unused: dict[str, str] = {}
        if task:
            self.defaults = {**task.original_defaults, **task.defaults}
            if any(task.metrics[name].is_probe for name in metrics if name in task.metrics):
                self.defaults["probes"] = True
            cause = "metrics, which name what is measured"
            self.unused = {**task.unused_fields, "probes": cause}
        self._symbols: dict[Mark, str] = {}  # of fields that the study writes by their symbol
        self._report_fields = partial(report_fields, report=report, symbols=self._symbols)

    def values(self, settings: Mapping[str, Node]) -> dict[str, Any]:
        """The values of settings, with the task's defaults."""
        return {**self.defaults, **plain_values(settings)}

    def configure(self, values: Mapping[str, Any], written: Collection[str] = ()) -> RowConfig:
        """`resolve_row`, and what follows from the lengths of the study's texts.

        Raises:
            ValidationError, Invalid: as `resolve_row` does; InactiveSettings also for a field in
                `written` that reaches further than any text.
        """
        config = resolve_row(values, written)
        reach = self.reach(config)
        if reach is None:
            return config
        faults = [fault for fault in idle_settings(config, reach) if fault.subject in written]
        if faults:
            raise InactiveSettings(faults[0])
        return fitted(config, reach, "max_positions" in merged(values))

    def reach(self, config: RowConfig) -> Reach | None:
        """Positions that the texts of a row take; None if they are not known, or limit nothing."""
        if self.task is None or self.data is None or not is_limited(config):
            return None
        return self.task.longest_sequences(self.data, config)

    def remarks(self, settings: Mapping[str, Node]) -> Iterator[str]:
        """Yield what no text of a valid row reaches, or no text of training, for a note: it may be
        part of a preset.
        """
        values = self.values(settings)
        written = merged(values)
        is_local = "local" in entries_of(written.get("attention"))
        if not is_local and "learned" not in entries_of(written.get("positional_encoding")):
            return  # rows are not resolved twice for nothing
        config = resolve_row(values)
        reach = self.reach(config)
        if reach is not None:
            yield idle_windows(config, reach)
            yield untrained_positions(config, reach)

    def unread(self, config: RowConfig) -> str:
        """The note on learned positions that no text reaches, in a matched row or in its base."""
        reach = self.reach(config)
        if reach is None or not (unread := unread_positions(config, reach)):
            return ""
        read = config.max_positions - unread
        return (
            f"match counts {config.max_positions:,} learned positions, of which texts reach "
            f"{read:,}; remove max_positions, so that it follows from them"
        )

    def by_name(self, written: Mapping[str, Node]) -> dict[str, Node]:
        """Settings by standard name, with custom classes pinned.

        A preset comes first: the fields beside it override it wherever it is written.
        """
        named: dict[str, Node] = {}
        for key, node in sorted(written.items(), key=lambda item: item[0] != "preset"):
            if key in SYMBOLS:
                self._symbols[node.mark] = key
            named[standard_name(key) or key] = node
        return self.classes.resolve(named)

    def read(self, written: Settings, inherited: Mapping[str, Node]) -> dict[str, Node]:
        """Settings by standard name. Invalid ones are reported and left out: rows are read, too.

        Args:
            written: the fields of a mapping.
            inherited: settings that hold beside these.
        """
        if not written:
            return {}
        settings = self.by_name(written)
        # Each field alone first: an invalid one of base would be reported again for every row.
        for name, value in list(settings.items()):
            if name != "preset" and self.resolve({name: value}, value.mark, alone=True) is None:
                del settings[name]
        if self.resolve(merge(inherited, settings), written.mark, written=settings) is None:
            return {}
        return settings

    def resolve(
        self,
        settings: Mapping[str, Node],
        mark: Mark,
        alone: bool = False,
        written: Collection[str] = (),
        combined: bool = False,
    ) -> RowConfig | None:
        """Resolve settings into a configuration; None, with the errors reported, if invalid.

        Settings without effect are reported, too, but leave a configuration, so that further errors
        are found.

        Args:
            settings: by standard name.
            mark: position of errors that concern several fields.
            alone: report only errors of the fields in `settings`, not of their combination with
                defaults.
            written: the fields that must have an effect.
            combined: whether other rows have the written values, too, in other combinations.
        """
        values = self.values(settings)
        own = {name: settings[name] for name in written if name in settings}
        # Known before the values are valid.
        self._report_fields(list(self._unused(values, written)), settings, mark)
        try:
            return self.configure(values, [name for name in written if name not in self.unused])
        except ValidationError as error:
            faults = field_faults(error)
            if not alone or any(fault.subject in settings for fault in faults):
                self._report_fields(faults, settings, mark, written=own)
                return None
        except InactiveSettings as error:
            faults = list(error.faults)
            if combined:
                faults = [_remedy_in_group(fault, written) for fault in faults]
            self._report_fields(faults, settings, mark)
            return self.configure(values)
        except ValueError as error:  # before any other check
            if not alone:
                self._report_fields(faults_in(error), settings, mark, written=own)
                for name in written:
                    self.resolve({name: settings[name]}, mark, alone=True)
                return None
        return resolve_row(self.defaults)

    def _unused(self, values: Mapping[str, Any], written: Collection[str]) -> Iterator[Fault]:
        """Yield a fault for every written field that the task does not use."""
        for name in written:
            if name in self.unused and values.get(name) is not None:
                what = f"has no effect with {self.unused[name]}"
                yield idle_fault(name, values[name], what)


def _remedy_in_group(fault: Fault, written: Collection[str]) -> Fault:
    """The fault for a grid: without the field, the rows where it acts would change, too."""
    _, *others = fault.fields
    if fault.remedy and any(name in written for name in others):
        return replace(fault, remedy="give the rows where it acts a group of their own")
    return fault
