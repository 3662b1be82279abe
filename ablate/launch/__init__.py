"""Launching: the executor interface, the scheduler, and workers on this machine."""

from ablate.launch.executor import Demand, Executor, Lost, Slot
from ablate.launch.launch import launch, outcome_of_launch
from ablate.launch.preparation import prepare_runs
from ablate.launch.scheduler import Watcher

__all__ = [
    "Demand",
    "Executor",
    "Lost",
    "Slot",
    "Watcher",
    "launch",
    "outcome_of_launch",
    "prepare_runs",
]
