"""The candidates of tuned rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ablate.config import RowConfig
from ablate.config.data import CorpusConfig
from ablate.config.identity import fold_vocab_size
from ablate.errors import Fault
from ablate.study.choice import Candidate, Choice
from ablate.study.matching import Match
from ablate.study.rows import RowSpec
from ablate.study.settings import with_causes
from ablate.study.settings_reader import SettingsReader
from ablate.study.tuning import Grid, Tune, grid_points
from ablate.study.yaml_nodes import Node, Report, plain_values
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
    ) -> Choice | None:
        """The candidates of a row; None after an error, and without a grid."""
        for name in (self.tune.grid.keys() | self.tune.decoding.keys()) & written.keys():
            remedy = "remove it, or give the group `tune: false`"
            fault = Fault("is chosen by tune", (name,), name, remedy=remedy)
            self.report(written[name].mark, fault)
        if not self.tune.grid:
            return None
        trial_steps = self._trial_steps(label, config, settings)
        if trial_steps is None:
            return None
        candidates = self._candidates_of(self.tune.grid, settings, written, trial_steps)
        if not candidates:
            return None
        return Choice(candidates, math.log(self._vocab_size(config)), legend=self.tune.legend)

    def as_base(self, settings: Mapping[str, Node], written: Mapping[str, Node]) -> Choice | None:
        """The row with the values of each of base's candidates, except for the fields that it sets;
        None after an error, and if no field is left.
        """
        candidates = []
        for point in grid_points(self.tune.grid):
            left = {name: node for name, node in point.items() if name not in written}
            # A value that base hands on may have no effect in the row.
            config = self.settings.resolve({**settings, **left}, self.tune.mark, written=written)
            if config is None or not left:
                return None
            candidates.append(Candidate(plain_values(left), config, config))
        return Choice(tuple(candidates), uniform=0.0, by_base=True)

    def decoding(self, settings: Mapping[str, Node], task: Task) -> Choice | None:
        """The candidates for every row's decoding, over base's settings; None after an error."""
        tune = self.tune
        metrics = [name for name in task.default_metrics if name in task.prediction_metric_names]
        if not tune.decoding:
            return None
        if not metrics:
            self.report(tune.mark, f"tune: task {task.name} predicts nothing to choose decoding by")
            return None
        candidates = self._candidates_of(tune.decoding, settings, {}, {})
        if not candidates:
            return None
        return Choice(candidates, uniform=0.0, metric=task.metrics[metrics[0]])

    def _candidates_of(
        self,
        grid: Grid,
        settings: Mapping[str, Node],
        written: Mapping[str, Node],
        trial: Mapping[str, Any],
    ) -> tuple[Candidate, ...]:
        """A candidate at each point of a grid; none after an error."""
        candidates = []
        for point in grid_points(grid):
            names = {*written, *point}
            config = self.settings.resolve({**settings, **point}, self.tune.mark, written=names)
            if config is None:
                return ()
            trained = config.model_copy(update=trial)
            candidates.append(Candidate(plain_values(point), config, trained))
        return tuple(candidates)

    def check_cost(self, rule: Match, spec: RowSpec, config: RowConfig, choice: Choice) -> None:
        """Report candidates of a matched row that would change its cost."""
        costs = {rule.of(config, self._vocab_size(config))}
        for candidate in choice.candidates:
            costs.add(rule.of(candidate.config, self._vocab_size(candidate.config)))
        if rule.field in self.tune.grid or len(costs) > 1:
            fields = " and ".join(self.tune.grid)
            remedy = "set them in the group, with `tune: false`"
            if rule.field in self.tune.grid:
                remedy = "remove match from the group"
            fault = Fault(
                f"tuning {fields} changes its {rule.cost}, which match makes those of base",
                (rule.field, *self.tune.grid),
                f'row "{spec.label}"',
                remedy=f"tune other fields, or {remedy}",
            )
            self.report(self.tune.mark, fault)

    def _trial_steps(
        self, label: str, config: RowConfig, settings: Mapping[str, Node]
    ) -> dict[str, int] | None:
        """The fields of the tuning runs that differ from the row's; None after an error."""
        tune, steps, warmup = self.tune, config.train_steps, config.warmup_steps
        if steps is None:
            if tune.share == 1:
                return {}
            fault = Fault("a share of the steps needs train_steps", ("train_steps",))
            self.report(tune.mark, fault.about(f'row "{label}"'))
            return None
        if tune.steps(steps) <= warmup < steps:
            fault = Fault(
                f"tuning runs of {tune.steps(steps)} of {steps} steps end before "
                f"warmup_steps={warmup}",
                ("warmup_steps", "train_steps"),
                f'row "{label}"',
                remedy="raise the share, or lower warmup_steps",
            )
            self.report(tune.mark, with_causes(fault, settings))
            return None
        return {"train_steps": tune.steps(steps)}

    def _vocab_size(self, config: RowConfig) -> int:
        return fold_vocab_size(self.data, config)[0].vocab_size
