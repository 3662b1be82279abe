"""Refuse classes of a user's own that do not fit, before anything is trained with them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ablate.config import RowConfig
from ablate.own.reference import parse_import, parse_reference
from ablate.parts.variant import references
from ablate.tasks import Task

if TYPE_CHECKING:
    from ablate.data.corpus import Corpus


def refuse_own_faults(
    config: RowConfig, task: Task, task_name: str, corpus: Corpus, sources: Path
) -> None:
    """Check the classes and the task of a row; `sources` has their source by hash. Torch is loaded
    only if there are some.

    Raises:
        StudyError: one of them fails, or does not do what its interface asks for.
    """
    if references(config) or parse_import(config.optimizer):
        from ablate.model.plugin_check import check_plugins
        from ablate.training.own_check import check_own_training

        check_plugins(config, sources)
        check_own_training(config, sources)
    own_task = parse_reference(task_name)
    if own_task is not None:
        from ablate.tasks.task_check import check_task

        check_task(task, own_task, corpus, config, sources)
