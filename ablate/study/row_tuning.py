"""The candidates of tuned rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ablate.config import RowConfig
from ablate.config.data import CorpusConfig
from ablate.config.identity import fold_vocab_size
from ablate.study.matching import Match
from ablate.study.rows import RowSpec
from ablate.study.settings_reader import SettingsReader
from ablate.study.tuning import Candidate, Grid, Tune, Tuning, points
from ablate.study.yaml_nodes import Node, Report
from ablate.tasks import Task


@dataclass(frozen=True)
class RowTuner:
    """Makes the candidates of rows by the study's section `tune`. Errors are reported."""

    tune: Tune
    settings: SettingsReader
    data: CorpusConfig
    report: Report

    def candidates(
        self,
        label: str,
        settings: Mapping[str, Node],
        written: Mapping[str, Node],
        config: RowConfig,
    ) -> Tuning | None:
        """The candidates of a row; None after an error, and without a grid.

        Args:
            label: of the row.
            settings: of the row, base's included.
            written: the fields that the row writes itself; none of them may be tuned.
            config: of the row as written.
        """
        for name in (self.tune.grid.keys() | self.tune.decoding.keys()) & written.keys():
            self.report(
                written[name].mark,
                f"{name}: is chosen by tune; remove it, or give the group `tune: false`",
            )
        if not self.tune.grid:
            return None
        trial_steps = self._trial_steps(label, config)
        if trial_steps is None:
            return None
        candidates = self._at_points(self.tune.grid, settings, written, trial_steps)
        return Tuning(candidates, math.log(self._vocab_size(config))) if candidates else None

    def decoding(self, settings: Mapping[str, Node], task: Task) -> Tuning | None:
        """The candidates for every row's decoding, over base's settings; None after an error."""
        tune = self.tune
        metrics = [name for name in task.default_metrics if name in task.on_predictions]
        if not tune.decoding:
            return None
        if not metrics:
            self.report(tune.mark, f"tune: task {task.name} predicts nothing to choose decoding by")
            return None
        candidates = self._at_points(tune.decoding, settings, {}, {})
        if not candidates:
            return None
        return Tuning(candidates, uniform=0.0, metric=task.metrics[metrics[0]])

    def _at_points(
        self,
        grid: Grid,
        settings: Mapping[str, Node],
        written: Mapping[str, Node],
        trial: Mapping[str, Any],
    ) -> tuple[Candidate, ...]:
        """A candidate at each point of a grid; none after an error."""
        candidates = []
        for point in points(grid):
            of_point = {**settings, **point}
            config = self.settings.resolve(of_point, self.tune.mark, written={*written, *point})
            if config is None:
                return ()
            values = {name: node.to_python() for name, node in point.items()}
            candidates.append(Candidate(values, config, config.model_copy(update=trial)))
        return tuple(candidates)

    def check_cost(self, rule: Match, spec: RowSpec, config: RowConfig, tuning: Tuning) -> None:
        """Report candidates of a matched row that would change its cost."""
        costs = set()
        for changed in (config, *(candidate.config for candidate in tuning.candidates)):
            costs.add(rule.of(changed, self._vocab_size(changed)))
        if rule.field in self.tune.grid or len(costs) > 1:
            fields = " and ".join(self.tune.grid)
            self.report(
                self.tune.mark,
                f'row "{spec.label}": tuning {fields} changes its {rule.cost}, which match makes '
                "those of base; tune other fields, or give the group `tune: false`",
            )

    def _trial_steps(self, label: str, config: RowConfig) -> dict[str, int] | None:
        """The fields of the tuning runs that differ from the row's, with their values; None after
        an error.
        """
        tune, steps, warmup = self.tune, config.train_steps, config.warmup_steps
        if steps is None:
            if tune.share == 1:
                return {}
            self.report(tune.mark, f'row "{label}": a share of the steps needs train_steps')
            return None
        if tune.steps(steps) <= warmup < steps:
            self.report(
                tune.mark,
                f'row "{label}": tuning runs of {tune.steps(steps)} of {steps} steps end before '
                f"warmup_steps={warmup}; raise the share, or lower warmup_steps",
            )
            return None
        return {"train_steps": tune.steps(steps)}

    def _vocab_size(self, config: RowConfig) -> int:
        return fold_vocab_size(self.data, config)[0].vocab_size
