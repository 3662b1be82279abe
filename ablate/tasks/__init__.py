"""Tasks: what a run learns from, what it predicts, and how it is scored. One file each."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ablate.config.plugins import Reference, parse_reference
from ablate.tasks.base import Batch, OutputTerms, Sample, Task
from ablate.tasks.translation import Translation

TASKS: dict[str, Task] = {task.name: task for task in (Translation(),)}


def task_of(name: str, sources: Path) -> Task:
    """The task of a run, by name or by reference to a class.

    Args:
        name: such as `translation`, or `module:Class@digest`.
        sources: folder of plug-in sources, `<digest>.py`.

    Raises:
        StudyError: the source has no such class, or the class is not a Task.
    """
    plugin = parse_reference(name)
    if plugin is None:
        return TASKS[name]
    from ablate.model.plugins import load

    return load(plugin, sources, Task)()  # type: ignore[type-var, type-abstract]


def load_task(plugin: Reference, source: bytes) -> Task:
    """The task of a class in a source that is not yet part of a run.

    Raises:
        StudyError: the source has no such class, or the class is not a Task.
    """
    with tempfile.TemporaryDirectory(prefix="ablate-task-") as folder:
        Path(folder, plugin.file).write_bytes(source)
        return task_of(str(plugin), Path(folder))


__all__ = ["TASKS", "Batch", "OutputTerms", "Sample", "Task", "Translation", "load_task", "task_of"]
