"""From a YAML file to rows and runs, every fault with its line."""

from ablate.study.reader import Selection, read_study
from ablate.study.study import Row, Run, Study

__all__ = ["Row", "Run", "Selection", "Study", "read_study"]
