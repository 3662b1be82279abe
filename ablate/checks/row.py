"""Check all classes and functions that rows name, before anything is trained with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.config import RowConfig
from ablate.config.data import CorpusConfig
from ablate.custom.faults import FirstFaults
from ablate.custom.reference import Reference
from ablate.parts.variant import named_classes
from ablate.store import Results
from ablate.study import Run, Study
from ablate.tasks import Task

if TYPE_CHECKING:
    from ablate.data.corpus import Corpus


def check_runs(
    study: Study, runs: Iterable[Run], results: Results, corpora: Mapping[CorpusConfig, Corpus]
) -> None:
    """Check the classes of some runs, each combination of classes once.

    Raises:
        StudyError: classes fail, or lack a property; the first fault of each class.
    """
    faults = FirstFaults()
    checked: set[tuple[object, ...]] = set()
    for run in runs:
        c = run.config
        # The classes, and the settings that decide how the checks use them.
        combination = (
            tuple(map(str, named_classes(c))),
            run.data,
            c.architecture,
            c.attention,
            c.positional_encoding,
        )
        if combination not in checked:
            sources = results.run(run.id).sources
            with faults.collect():
                check_row(c, study.task, study.custom_task, corpora[run.data], sources)
            checked.add(combination)
    faults.refuse()


def check_row(
    config: RowConfig, task: Task, task_class: Reference | None, corpus: Corpus, sources: Path
) -> None:
    """Check the user's classes that a row names, and its task if `task_class` names a user's class.
    The checks, and torch, are imported only if there is something to check.

    Raises:
        StudyError: classes or the task fail, or lack a property; the first fault of each class. A
            task, whose check makes a model of the row, is checked only with classes that work.
    """
    faults = FirstFaults()
    if named_classes(config):
        from ablate.checks.layers import check_layers
        from ablate.checks.training import check_training

        with faults.collect():
            check_layers(config, sources)
        with faults.collect():
            check_training(config, sources)
        faults.refuse()
    if task_class is not None:
        from ablate.checks.tasks import check_task

        check_task(task, task_class, corpus, config, sources)
