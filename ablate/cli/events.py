"""`ablate run --format json`: a line of JSON on standard output for each event of a study.
docs/programs.md describes the events.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ablate.analysis.stages import Stage
from ablate.loggers.dashboards import LoggedRun, Outcome, Point
from ablate.stdio import print_json
from ablate.store import Results, State, none_if_unreadable
from ablate.table import render
from ablate.table.table import Table


def print_event(event: str, **facts: Any) -> None:
    """Print an event."""
    print_json({"event": event, **facts}, in_one_line=True)


@dataclass
class Events:
    """The events of a study, each printed once.

    missing: ids of the runs that were unfinished when their stage began.
    ended: ids of the runs whose result was printed. A run may belong to several stages.
    """

    missing: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)

    def stage(self, stage: Stage, results: Results) -> None:
        """Print the runs of a stage, before they begin."""
        self.missing.update(stage.missing)
        facts = {"study": stage.study.name, "results": str(results.root)}
        print_event("stage", **facts, runs=len(stage.runs.by_id), missing=stage.missing)

    def start(self, folder: Path, run: LoggedRun) -> _RunEvents | None:
        """Start a logger that prints the events of a run; None if its result was printed before."""
        if run.id in self.ended:
            return None
        if run.id in self.missing:
            print_event("started", run=run.id, row=run.row, seed=run.seed)
        return _RunEvents(self, run)

    def end(
        self, stage: Stage, results: Results, table: Table, states: Counter[State], exit_code: int
    ) -> None:
        """Print the runs that have failed, the rows with their verdicts, and the end."""
        for row in stage.selected.rows:
            for run in stage.selected.of(row):
                folder = results.run(run.id)
                failure = none_if_unreadable(folder.read_failure)
                if failure is not None and run.id not in self.ended:
                    self.ended.add(run.id)
                    facts = {"run": run.id, "row": row.label, "seed": run.seed}
                    facts |= {"reason": failure.reason, "log": str(folder.log)}
                    print_event("result", **facts, outcome="failed")
        for content in json.loads(render.as_json(table))["rows"]:
            print_event("row", **content)
        print_event("end", runs=dict(states), exit_code=exit_code)


@dataclass
class _RunEvents:
    """Prints the events of one run, as a logger."""

    events: Events
    run: LoggedRun

    def log(self, points: Sequence[Point]) -> None:
        """Print the metrics of each step, unless the run was finished before this command."""
        if self.run.id in self.events.missing:
            for step, values in points:
                print_event("metrics", run=self.run.id, step=step, **_numbers(values))

    def finish(self, scores: Mapping[str, float] | None, outcome: Outcome) -> None:
        """Print the result of a run that has ended; `scores` is None for an unfinished run."""
        if scores is None:
            return
        self.events.ended.add(self.run.id)
        final = {name.removeprefix("final_"): value for name, value in _numbers(scores).items()}
        facts = {"run": self.run.id, "row": self.run.row, "seed": self.run.seed}
        print_event("result", **facts, outcome=outcome, scores=final)


def _numbers(values: Mapping[str, float]) -> dict[str, float | None]:
    """The values for JSON: None in place of a value that is not finite."""
    return {name: value if math.isfinite(value) else None for name, value in values.items()}
