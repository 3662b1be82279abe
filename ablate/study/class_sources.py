"""Pin the custom classes of a study to their source code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ablate.config import RowConfig
from ablate.custom.faults import describe, place_of
from ablate.custom.reference import Reference, parse_import, parse_reference
from ablate.custom.source import check_import, pin_reference
from ablate.errors import AblateError, Invalid, Mark, StudyError
from ablate.parts.variant import class_fields
from ablate.study.yaml_nodes import Node, Report

CLASS_FIELDS = class_fields(RowConfig)


class ClassSources:
    """Pins each `module:Class` to the hash of its source. Each source is read once.

    Attributes:
        sources: source code of the classes, by its hash.
    """

    def __init__(self, folder: Path, report: Report) -> None:
        self.folder, self.report = folder, report
        self.sources: dict[str, bytes] = {}
        self._pinned: dict[Reference, Reference | Invalid] = {}

    def resolve(self, settings: Mapping[str, Node]) -> dict[str, Node]:
        """Pin every `module:Class` in settings. A class that is not found is reported and left
        out.
        """
        resolved = dict(settings)
        for name in settings.keys() & CLASS_FIELDS:
            pinned = self.pin(settings[name])
            if pinned is None:
                del resolved[name]
            else:
                resolved[name] = pinned
        return resolved

    def pin(self, node: Node) -> Node | None:
        """A reference with its hash; any other value as it is. None if the class is not found,
        which is reported.
        """
        if isinstance(node.value, list):  # a pattern over the layers
            entries = list(map(self.pin, node.value))
            return None if None in entries else Node(entries, node.mark)
        written = parse_reference(node.value)
        if written is None:
            return self._check_import_path(node)
        pinned = self.pin_reference(written, node.mark)
        return None if pinned is None else Node(str(pinned), node.mark)

    def pin_reference(self, written: Reference, mark: Mark) -> Reference | None:
        """A reference with the hash of its source. None if the class is not found, which is
        reported at `mark`.
        """
        if written not in self._pinned:
            self._pinned[written] = self._pin(written)
        pinned = self._pinned[written]
        if isinstance(pinned, Invalid):
            self._report(mark, pinned)
            return None
        return pinned

    def _check_import_path(self, node: Node) -> Node | None:
        """A value that is not a `module:Class`. None, and reported, if it is an import path that
        does not exist.
        """
        try:
            imported = parse_import(node.value)
            if imported is not None:
                check_import(imported)
        except Invalid as error:
            self._report(node.mark, error)
            return None
        return node

    def _report(self, mark: Mark, error: Invalid) -> None:
        for fault in error.faults:
            self.report(mark, fault)

    def _pin(self, written: Reference) -> Reference | Invalid:
        try:
            pinned, source = pin_reference(written, self.folder)
        except Invalid as error:
            return error
        self.sources[str(pinned.digest)] = source
        return pinned

    @contextmanager
    def faults_of_task(self, name: str) -> Iterator[None]:
        """Convert an exception that a custom task raises within the context.

        Raises:
            StudyError: one line with the file and the line of the exception.
        """
        try:
            yield
        except (Exception, SystemExit) as error:  # the user's module may call sys.exit
            task = parse_reference(name)
            if task is None or isinstance(error, AblateError):
                raise
            place = place_of(task, self.sources[str(task.digest)])
            raise StudyError(describe([task], error, place)) from None
