"""Tasks: what a run learns from, what it predicts, and how it is scored. One file each."""

from __future__ import annotations

from pathlib import Path

from ablate.config.plugin_loader import as_ablate_error, load, load_source
from ablate.config.plugins import Reference, parse_reference
from ablate.tasks.base import Batch, OutputTerms, Sample, Task
from ablate.tasks.translation import Translation

TASKS: dict[str, Task] = {task.name: task for task in (Translation(),)}


def task_of(name: str, sources: Path) -> Task:
    """The task of a run, by its name or by a reference to a class.

    Args:
        name: such as `translation`, or `module:Class@digest`.
        sources: folder of plug-in sources, `<digest>.py`.

    Raises:
        StoreError: the source is missing, or has another hash.
        StudyError: the class is not a Task, or its module fails to load.
    """
    plugin = parse_reference(name)
    return TASKS[name] if plugin is None else _instance(plugin, load(plugin, sources, Task))  # type: ignore[type-abstract]


def load_task(plugin: Reference, source: bytes) -> Task:
    """The task of a class that a study names, before any run has its source.

    Raises:
        StudyError: the class is not a Task, or its module fails to load.
    """
    path = Path(f"{plugin.module}.py")
    return _instance(plugin, load_source(plugin, path, source, Task))  # type: ignore[type-abstract]


def _instance(plugin: Reference, cls: type[Task]) -> Task:
    try:
        return cls()
    except Exception as error:  # abstract methods that are left out, for one
        raise as_ablate_error(plugin, error) from None


__all__ = ["TASKS", "Batch", "OutputTerms", "Sample", "Task", "Translation", "load_task", "task_of"]
