"""Launching: the executor interface, the scheduler, and worker processes on this machine."""

from ablate.launch.executor import Demand, Executor, Lost, Slot
from ablate.launch.launch import Launch, launch, outcome_of_launch
from ablate.launch.scheduler import Watcher
from ablate.launch.stages import launch_stages

__all__ = [
    "Demand",
    "Executor",
    "Launch",
    "Lost",
    "Slot",
    "Watcher",
    "launch",
    "launch_stages",
    "outcome_of_launch",
]
