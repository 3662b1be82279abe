"""Tasks: what a run learns, what it predicts, and how it is scored. One file each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from ablate.config import DataConfig, ModelConfig, RowConfig
from ablate.config.data import CorpusConfig
from ablate.config.decoding import SearchSettings
from ablate.config.identity import DEFAULT_TASK
from ablate.config.language_data import LanguageData
from ablate.config.synthetic_data import Generator, SyntheticData
from ablate.errors import StoreError, StudyError, listed, unknown_name
from ablate.fields import TaskSettings, meanings_of
from ablate.own.faults import ablate_error
from ablate.own.loading import load_class, load_source
from ablate.own.reference import Reference, parse_reference
from ablate.stats.metrics import PPL, Metric
from ablate.store.records import Measurement, Score
from ablate.tasks.base import Batch, OutputTerms, Sample, Task
from ablate.tasks.language_model import LanguageModel
from ablate.tasks.masked_lm import MaskedLanguageModel
from ablate.tasks.parsing import Parsing
from ablate.tasks.sequence_to_sequence import SequenceToSequence
from ablate.tasks.synthetic import Synthetic
from ablate.tasks.translation import Translation

TASKS: dict[str, Task] = {
    task.name: task
    for task in (Translation(), LanguageModel(), MaskedLanguageModel(), Parsing(), Synthetic())
}
ARCHITECTURES: tuple[str, ...] = get_args(ModelConfig.model_fields["architecture"].annotation)


def meaning_of(field: str) -> str:
    """The description of a field of a row, after the names of its tasks if not all use it."""
    description = meanings_of(RowConfig).get(field, "")
    if field not in TASKS[DEFAULT_TASK].unused_fields:
        return description
    users = [name for name, task in TASKS.items() if field not in task.unused_fields]
    return f"{', '.join(users)}: {description}"


def task_of(name: str, sources: Path) -> Task:
    """The task of a run.

    Args:
        name: name of a task, or a reference to a user's class.
        sources: folder with the source files of the user's classes.

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
    """Load a user's task before a run has stored its source.

    Args:
        reference: the reference in the study.
        source: text of its file.

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
    for fault in _faults(task):
        raise StudyError(f"{reference.written}: {fault}")
    return task


def _faults(task: Task) -> Iterator[str]:
    """Yield a fault for class attributes that are missing or wrong."""
    for name, expected in (
        ("name", str),
        ("architectures", tuple),
        ("model_metrics", tuple),
        ("default_metrics", tuple),
        ("settings", tuple),
    ):
        if not isinstance(getattr(task, name, None), expected):
            yield f"{name} is not a {expected.__name__}"
            return
    data = getattr(task, "data_config", None)
    preparable = (DataConfig, LanguageData, SyntheticData)
    if not (isinstance(data, type) and issubclass(data, preparable)):
        yield "data_config is not a subclass of ablate.tasks.DataConfig"
    elif isinstance(task, SequenceToSequence) and len(data.fields) < 2:
        yield (
            "data_config has one text field; a SequenceToSequence task reads one and predicts "
            "another"
        )
    elif PPL not in task.model_metrics:
        yield "model_metrics does not have PPL, which early stopping and learning curves use"
    elif not all(
        isinstance(section, type) and issubclass(section, TaskSettings) for section in task.settings
    ):
        yield "settings has another entry than classes such as ablate.tasks.SearchSettings"
    elif not task.default_metrics:
        yield "default_metrics is empty; verdicts use its first metric"
    elif unknown := [name for name in task.architectures if name not in ARCHITECTURES]:
        yield f"architectures has {unknown_name('architecture', str(unknown[0]), ARCHITECTURES)}"
    else:
        unknown = [name for name in task.default_metrics if name not in task.metrics]
        if unknown:
            yield (
                f"default_metrics has {unknown[0]}, which is not a metric of the task: "
                f"{listed(task.metrics)}"
            )


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
