"""The user's own variants that a study names, pinned to their sources as they are now."""

from __future__ import annotations

from pathlib import Path

from ablate.config import ModelConfig
from ablate.config.plugins import Reference, pin, reference, takes_own
from ablate.study.rows import Report, Written
from ablate.study.yaml_nodes import Node

_FIELDS = takes_own(ModelConfig)


class Pins:
    """Pins what a study names, each source read once. `sources`: by their digest."""

    def __init__(self, folder: Path, report: Report) -> None:
        self.folder, self.report = folder, report
        self.sources: dict[str, bytes] = {}
        self._found: dict[Reference, Reference | ValueError] = {}

    def of(self, settings: Written) -> Written:
        """The settings with references pinned; those that cannot be found are reported and left out."""
        pinned = {name: self._one(node) if name in _FIELDS else node for name, node in settings.items()}
        return {name: node for name, node in pinned.items() if node is not None}

    def _one(self, node: Node) -> Node | None:
        written = reference(node.value)
        if written is None:
            return node
        if written not in self._found:
            self._found[written] = self._pin(written)
        found = self._found[written]
        if isinstance(found, ValueError):
            self.report(node.mark, str(found))
            return None
        return Node(str(found), node.mark)

    def _pin(self, written: Reference) -> Reference | ValueError:
        try:
            found, source = pin(written, self.folder)
        except ValueError as error:
            return error
        self.sources[str(found.digest)] = source
        return found
