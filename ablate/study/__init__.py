"""Read a study file into rows and runs. Every fault has its line."""

from ablate.study.reader import read_study
from ablate.study.row import Row
from ablate.study.runs import Run, Runs, runs_of
from ablate.study.select import Selection
from ablate.study.study import Study

__all__ = ["Row", "Run", "Runs", "Selection", "Study", "read_study", "runs_of"]
