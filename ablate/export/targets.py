"""The models of other libraries that a run can be exported to."""

from __future__ import annotations

from ablate.config import ModelConfig
from ablate.export.causal import CAUSAL
from ablate.export.ctranslate import GENERATOR, TRANSLATOR
from ablate.export.encoders import BERT, MARIAN, MODERN_BERT
from ablate.export.target import Target
from ablate.tasks import TASKS

# By library, kind of model (`Task.exported_as`) and architecture.
TARGETS: dict[str, dict[str, dict[str, tuple[Target, ...]]]] = {
    "huggingface": {
        "sequence-to-sequence": {"encoder-decoder": (MARIAN,), "decoder-only": CAUSAL},
        "causal": {"decoder-only": CAUSAL},
        "masked": {"encoder-only": (BERT, MODERN_BERT)},
    },
    "ctranslate2": {
        "sequence-to-sequence": {"encoder-decoder": (TRANSLATOR,), "decoder-only": (GENERATOR,)}
    },
}


def task_kind(task: str) -> str:
    """The kind of model to which the runs of a task are exported; empty if there is none."""
    return TASKS[task].exported_as if task in TASKS else ""


def find_target(task: str, config: ModelConfig, library: str) -> Target | None:
    """The model of a library to which a run is exported: of several, the first one with the fewest
    violations. None if the library has no model for the task.
    """
    targets = TARGETS[library].get(task_kind(task), {}).get(config.architecture, ())
    return min(targets, key=lambda target: len(target.violations(config)), default=None)


def exportable_tasks(library: str) -> tuple[str, ...]:
    """The names of the tasks whose runs can be exported to a library."""
    return tuple(name for name in TASKS if task_kind(name) in TARGETS[library])
