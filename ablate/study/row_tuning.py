"""Make the candidates of tuned rows, by the section `tune` of a study."""

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
    """Makes the candidates of rows. Errors are reported.

    tune: section `tune` of the study.
    settings: resolves settings.
    data: section `data` of the study.
    report: records a fault with its position.
    """

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
        """Make the candidates of a row; None after an error, and if `tune` has no grid.

        Args:
            label: label of the row, for messages.
            settings: settings of base and of the row, by standard name.
            written: settings of the row only, by standard name.
            config: configuration of the row before tuning.
        """
        for name in (self.tune.grid.keys() | self.tune.decoding.keys()) & written.keys():
            remedy = "remove it, or give the group `tune: false`"
            fault = Fault("is chosen by tune", (name,), name, remedy=remedy)
            self.report(written[name].mark, fault)
        if not self.tune.grid:
            return None
        trial_steps = self._trial_steps(label, config, settings)
        if trial_steps is None:
            return None
        candidates = self._grid_candidates(self.tune.grid, settings, written, trial_steps)
        if not candidates:
            return None
        return Choice(candidates, math.log(self._vocab_size(config)), legend=self.tune.legend)

    def candidates_of_base(
        self, settings: Mapping[str, Node], written: Mapping[str, Node]
    ) -> Choice | None:
        """Make the candidates of a row with `tune: false`, which takes the values chosen for base:
        the row with the values of each candidate of base, except for fields that the row sets.

        None after an error, and if the row sets all fields of the grid.
        """
        candidates = []
        for point in grid_points(self.tune.grid):
            inherited = {name: node for name, node in point.items() if name not in written}
            # Only the row's own settings must have an effect: a value of base may have none here.
            config = self.settings.resolve(
                {**settings, **inherited}, self.tune.mark, written=written
            )
            if config is None or not inherited:
                return None
            candidates.append(Candidate(plain_values(inherited), config, config))
        return Choice(tuple(candidates), uniform_loss=0.0, by_base=True)

    def decoding(self, settings: Mapping[str, Node], task: Task) -> Choice | None:
        """Make the candidates for the decoding of all rows, with the settings of base; None after
        an error, and if `tune` has no candidates for decoding.
        """
        tune = self.tune
        metrics = [name for name in task.default_metrics if name in task.prediction_metric_names]
        if not tune.decoding:
            return None
        if not metrics:
            self.report(
                tune.mark,
                f"tune: decoding cannot be chosen, because task {task.name} makes no predictions",
            )
            return None
        candidates = self._grid_candidates(tune.decoding, settings, {}, {})
        if not candidates:
            return None
        return Choice(candidates, uniform_loss=0.0, metric=task.metrics[metrics[0]])

    def _grid_candidates(
        self,
        grid: Grid,
        settings: Mapping[str, Node],
        written: Mapping[str, Node],
        trial: Mapping[str, Any],
    ) -> tuple[Candidate, ...]:
        """Make a candidate at each point of a grid; empty after an error.

        `trial` has the fields of the trials that differ from the row.
        """
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
        """Report a tuned row if the candidates change the cost that `match` makes equal to base."""
        costs = {rule.cost_of(config, self._vocab_size(config))}
        for candidate in choice.candidates:
            costs.add(rule.cost_of(candidate.config, self._vocab_size(candidate.config)))
        if rule.field in self.tune.grid or len(costs) > 1:
            fields = " and ".join(self.tune.grid)
            remedy = "set them in the group, with `tune: false`"
            if rule.field in self.tune.grid:
                remedy = "remove match from the group"
            fault = Fault(
                f"tuning {fields} changes its {rule.kind}, which match keeps equal to base",
                (rule.field, *self.tune.grid),
                f'row "{spec.label}"',
                remedy=f"tune other fields, or {remedy}",
            )
            self.report(self.tune.mark, fault)

    def _trial_steps(
        self, label: str, config: RowConfig, settings: Mapping[str, Node]
    ) -> dict[str, int] | None:
        """The fields of the tuning runs that differ from the row; None after an error."""
        tune = self.tune
        steps = config.train_steps
        warmup = config.warmup_steps
        if steps is None:
            if tune.share == 1:
                return {}
            fault = Fault("a share of the steps needs train_steps", ("train_steps",))
            self.report(tune.mark, fault.about(f'row "{label}"'))
            return None
        if tune.steps(steps) <= warmup < steps:
            fault = Fault(
                f"tuning runs train for {tune.steps(steps)} of {steps} steps, which end before "
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
