"""Tasks: what a run learns, what it predicts, and how it is scored. Each task is a file.

The class of a task is imported when it is first used, because a study has only one task.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.config import DataConfig, RowConfig
from ablate.config.data import CorpusConfig
from ablate.config.decoding import SearchSettings
from ablate.config.identity import DEFAULT_TASK
from ablate.config.synthetic_data import Generator, SyntheticData
from ablate.custom.faults import ablate_error
from ablate.custom.loading import load_class, load_source
from ablate.custom.reference import Reference, parse_reference
from ablate.errors import StoreError, StudyError, listed
from ablate.fields import meanings_of
from ablate.lazy import Imports, imported
from ablate.stats.metrics import PPL, Metric
from ablate.store.records import Measurement, Score
from ablate.tasks.base import Batch, OutputTerms, Sample, Task

if TYPE_CHECKING:
    from ablate.tasks.language_model import LanguageModel
    from ablate.tasks.masked_lm import MaskedLanguageModel
    from ablate.tasks.parsing import Parsing
    from ablate.tasks.sequence_to_sequence import SequenceToSequence
    from ablate.tasks.synthetic import Synthetic
    from ablate.tasks.translation import Translation


class _Tasks(Imports[Task]):
    """The built-in tasks by name."""

    def __getitem__(self, name: str) -> Task:
        return _made(self.paths[name])


@cache
def _made(path: str) -> Task:
    task: Task = imported(path)()
    return task


TASKS = _Tasks(
    {
        "translation": "ablate.tasks.translation:Translation",
        "language-model": "ablate.tasks.language_model:LanguageModel",
        "masked-lm": "ablate.tasks.masked_lm:MaskedLanguageModel",
        "parsing": "ablate.tasks.parsing:Parsing",
        "synthetic": "ablate.tasks.synthetic:Synthetic",
    }
)
_BASES = ("ablate.tasks.sequence_to_sequence:SequenceToSequence",)
_CLASSES = Imports[Any]({path.partition(":")[2]: path for path in (*TASKS.paths.values(), *_BASES)})


def __getattr__(name: str) -> Any:
    """Import the class of a task."""
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _CLASSES[name]


def meaning_of(field: str) -> str:
    """The description of a row's field. If only some tasks use the field, their names come
    first.
    """
    description = meanings_of(RowConfig).get(field, "")
    if field not in TASKS[DEFAULT_TASK].unused_fields:
        return description
    users = [name for name, task in TASKS.items() if field not in task.unused_fields]
    return f"{', '.join(users)}: {description}"


def task_of(name: str, sources: Path) -> Task:
    """Load the task of a run.

    Raises:
        StoreError: the task is unknown, or its source is missing or has another hash.
        StudyError: the class is not a complete Task, or its module fails to load.
    """
    reference = parse_reference(name)
    if reference is not None:
        return _instance(reference, load_class(reference, sources, Task))  # type: ignore[type-abstract]
    if name not in TASKS:
        raise StoreError(f'task "{name}" is not known to this version of ablate: {listed(TASKS)}')
    return TASKS[name]


def load_task(reference: Reference, source: bytes) -> Task:
    """Load a user's task from the content of its file, for a study whose runs may not have stored
    the source yet.

    Raises:
        StudyError: the class is not a complete Task, or its module fails to load.
    """
    path = Path(reference.file)  # for the places in errors
    return _instance(reference, load_source(reference, path, source, Task))  # type: ignore[type-abstract]


def _instance(reference: Reference, cls: type[Task]) -> Task:
    try:
        task = cls()
    except (Exception, SystemExit) as error:  # such as a missing method
        raise ablate_error(reference, error) from None
    if fault := task.class_fault():
        raise StudyError(f"{reference.written}: {fault}")
    return task


__all__ = [
    "PPL",
    "TASKS",
    "Batch",
    "CorpusConfig",
    "DataConfig",
    "Generator",
    "LanguageModel",
    "MaskedLanguageModel",
    "Measurement",
    "Metric",
    "OutputTerms",
    "Parsing",
    "Sample",
    "Score",
    "SearchSettings",
    "SequenceToSequence",
    "Synthetic",
    "SyntheticData",
    "Task",
    "Translation",
    "load_task",
    "meaning_of",
    "task_of",
]
