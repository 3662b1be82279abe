"""Read the settings of base, of sizes and of rows, and resolve them into configurations."""

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
    idle_windows_note,
    is_limited,
    unread_positions,
    untrained_positions_note,
)
from ablate.config.resolve import SYMBOLS, merged, resolve_row, standard_name
from ablate.errors import Fault, Mark, faults_in
from ablate.fields import entries_of, field_faults
from ablate.study.class_sources import ClassSources
from ablate.study.settings import Settings, merge, report_fields
from ablate.study.yaml_nodes import Node, Report, plain_values
from ablate.tasks import Task


class SettingsReader:
    """Reads settings, and resolves them with the defaults of the task and the lengths of the task's
    texts. Errors are reported.

    Attributes:
        defaults: the task's defaults, by standard name.
        unused: fields that the task does not use -> the reason.
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
            reason = "metrics, which name what is measured"
            self.unused = {**task.unused_fields, "probes": reason}
        # The symbol of each field that the study writes by its symbol, by position.
        self._symbols: dict[Mark, str] = {}
        self._report_fields = partial(report_fields, report=report, symbols=self._symbols)

    def values(self, settings: Mapping[str, Node]) -> dict[str, Any]:
        """The values of settings, with the task's defaults."""
        return {**self.defaults, **plain_values(settings)}

    def configure(self, values: Mapping[str, Any], written: Collection[str] = ()) -> RowConfig:
        """Resolve a configuration, as `resolve_row` does, and fit its positions to the lengths of
        the study's texts.

        Raises:
            ValidationError, Invalid: as `resolve_row`; InactiveSettings also if a field in
                `written`, such as a window, is longer than all texts.
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
        """Numbers of positions of the longest texts of a row; None if they are not known, or if no
        field of the row depends on them.
        """
        if self.task is None or self.data is None or not is_limited(config):
            return None
        return self.task.longest_sequences(self.data, config)

    def remarks(self, settings: Mapping[str, Node]) -> Iterator[str]:
        """Yield remarks on a valid row whose windows are longer than all texts, or whose learned
        positions are beyond all training texts. They are no faults, since a preset may set them.
        """
        values = self.values(settings)
        written = merged(values)
        is_local = "local" in entries_of(written.get("attention"))
        if not is_local and "learned" not in entries_of(written.get("positional_encoding")):
            return  # resolving the row a second time would take time for nothing
        config = resolve_row(values)
        reach = self.reach(config)
        if reach is not None:
            yield idle_windows_note(config, reach)
            yield untrained_positions_note(config, reach)

    def unread(self, config: RowConfig) -> str:
        """A remark on learned positions beyond all texts, for a matched row or its base: they count
        in the matched parameters. Empty if there are none.
        """
        reach = self.reach(config)
        if reach is None or not (unread := unread_positions(config, reach)):
            return ""
        read = config.max_positions - unread
        return (
            f"match counts {config.max_positions:,} learned positions, but the longest text has "
            f"{read:,}; remove max_positions, so that it follows from the texts"
        )

    def by_name(self, written: Mapping[str, Node]) -> dict[str, Node]:
        """The settings by standard name, with custom classes pinned to their source.

        A preset is moved to the front, so that all fields written with it override it.
        """
        named: dict[str, Node] = {}
        for key, node in sorted(written.items(), key=lambda item: item[0] != "preset"):
            if key in SYMBOLS:
                self._symbols[node.mark] = key
            named[standard_name(key) or key] = node
        return self.classes.resolve(named)

    def read(
        self, written: Settings, inherited: Mapping[str, Node], *, is_whole: bool = True
    ) -> dict[str, Node]:
        """Read the settings of base or of a size, by standard name. Invalid settings are reported
        and left out, so that rows can be read. `is_whole` is false if some were left out before.
        """
        if not written:
            return {}
        settings = self.by_name(written)
        n_written = len(settings)
        # Check each field by itself: an invalid field of base would be reported again for each row.
        for name, value in list(settings.items()):
            if (
                name != "preset"
                and self.resolve({name: value}, value.mark, single_fields=True) is None
            ):
                del settings[name]
        # Whether a setting has an effect may depend on a setting that is left out.
        is_whole = is_whole and len(settings) == n_written
        together = merge(inherited, settings)
        if self.resolve(together, written.mark, written=settings, acting=is_whole) is None:
            return {}
        return settings

    def resolve(
        self,
        settings: Mapping[str, Node],
        mark: Mark,
        single_fields: bool = False,
        written: Collection[str] = (),
        combined: bool = False,
        acting: bool = True,
    ) -> RowConfig | None:
        """Resolve settings into a configuration; None if they are invalid, which is reported.

        Settings without effect are also reported, but a configuration is returned, so that further
        errors are found.

        Args:
            settings: settings by standard name.
            mark: position of errors that concern several fields.
            single_fields: whether to report only errors of single fields, and not of their
                combination with defaults.
            written: fields that are written here, for positions of errors.
            acting: whether these fields must have an effect.
            combined: whether the row is from a group that combines values, as a grid does.
        """
        values = self.values(settings)
        own = {name: settings[name] for name in written if name in settings}
        # Report these even if values are invalid.
        self._report_fields(list(self._unused(values, written)), settings, mark)
        must_act = [name for name in written if acting and name not in self.unused]
        try:
            return self.configure(values, must_act)
        except ValidationError as error:
            faults = field_faults(error)
            if not single_fields or any(fault.subject in settings for fault in faults):
                self._report_fields(faults, settings, mark, written=own)
                return None
        except InactiveSettings as error:
            faults = list(error.faults)
            if combined:
                faults = [_remedy_in_group(fault, written) for fault in faults]
            self._report_fields(faults, settings, mark)
            return self.configure(values)
        except ValueError as error:  # a setting that cannot be checked further
            if not single_fields:
                self._report_fields(faults_in(error), settings, mark, written=own)
                for name in written:
                    self.resolve({name: settings[name]}, mark, single_fields=True)
                return None
        return resolve_row(self.defaults)

    def _unused(self, values: Mapping[str, Any], written: Collection[str]) -> Iterator[Fault]:
        """Yield a fault for every written field that the task does not use."""
        for name in written:
            if name in self.unused and values.get(name) is not None:
                problem = f"has no effect with {self.unused[name]}"
                yield idle_fault(name, values[name], problem)


def _remedy_in_group(fault: Fault, written: Collection[str]) -> Fault:
    """The fault of a field without effect, with a remedy for a grid: removing the field would also
    change the rows where it has an effect.
    """
    _, *other_fields = fault.fields
    if fault.remedy and any(name in written for name in other_fields):
        return replace(fault, remedy="write the rows in which it has an effect as another group")
    return fault
