"""Make the choice of each tuned row: its candidates, from the section `tune` of a study."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
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
class CandidateReader:
    """Makes the choice of each row: its candidates, from the section `tune`. Faults are reported.

    tune: section `tune` of the study.
    reader: resolves settings.
    data: section `data` of the study.
    report: records a fault with its position.
    """

    tune: Tune
    reader: SettingsReader
    data: CorpusConfig
    report: Report

    def choice(
        self,
        label: str,
        settings: Mapping[str, Node],
        written: Mapping[str, Node],
        config: RowConfig,
    ) -> Choice | None:
        """The choice of a row among the points of the grid; None if `tune` has no grid, or after a
        fault of the candidates. `config` is the configuration of the row before tuning, and
        `written` has the settings of only the row.
        """
        for name, node in written.items():
            if name in self.tune.grid or name in self.tune.decoding:
                remedy = "remove it, or give the group `tune: false`"
                self.report(node.mark, Fault("is chosen by tune", (name,), name, remedy=remedy))
        if not self.tune.grid:
            return None
        changes = self._changes_of_tuning_run(label, config, settings, written)
        if changes is None:
            return None
        candidates = self._candidates(self.tune.grid, settings, written, changes)
        if not candidates:
            return None
        return Choice(
            candidates,
            uniform_loss=math.log(self._vocab_size(config)),
            legend=self.tune.legend,
            trainings=self.tune.trainings,
        )

    def choice_of_base(
        self, settings: Mapping[str, Node], written: Mapping[str, Node]
    ) -> Choice | None:
        """The choice of a row with `tune: false`, which follows the choice of base. A candidate is
        the row with the values of one candidate of base; fields that the row itself sets keep their
        value. None if the row sets all fields of the grid, or after a fault.
        """
        if self.tune.grid.keys() <= written.keys():
            return None
        candidates = []
        for point in grid_points(self.tune.grid):
            inherited = {name: node for name, node in point.items() if name not in written}
            # A value taken from base may be without effect in this row, and that is no fault.
            config = self.reader.resolve({**settings, **inherited}, self.tune.mark, written=written)
            if config is None:
                return None
            candidates.append(Candidate(plain_values(inherited), config, trained=config))
        return Choice(tuple(candidates), by_base=True)

    def decoding_choice(self, settings: Mapping[str, Node], task: Task) -> Choice | None:
        """The choice of the decoding of all rows, with the settings of base; None if `tune` has no
        candidates for decoding, or after a fault.
        """
        tune = self.tune
        if not tune.decoding:
            return None
        metrics = [name for name in task.default_metrics if name in task.prediction_metric_names]
        if not metrics:
            self.report(
                tune.mark,
                f"tune: decoding cannot be chosen, because task {task.name} makes no predictions",
            )
            return None
        candidates = self._candidates(tune.decoding, settings)
        if not candidates:
            return None
        return Choice(candidates, metric=task.metrics[metrics[0]])

    def _candidates(
        self,
        grid: Grid,
        settings: Mapping[str, Node],
        written: Mapping[str, Node] | None = None,
        changes: Mapping[str, Any] | None = None,
    ) -> tuple[Candidate, ...]:
        """Make a candidate at each point of a grid; empty after a fault.

        Args:
            grid: values of each field.
            settings: settings of base and of the row, by standard name.
            written: settings of the row only, by standard name; None for none.
            changes: fields of the tuning run that differ from the row; None for none.
        """
        candidates = []
        for point in grid_points(grid):
            names = {*(written or ()), *point}
            config = self.reader.resolve({**settings, **point}, self.tune.mark, written=names)
            if config is None:
                return ()
            trained = config.model_copy(update=changes)
            candidates.append(Candidate(plain_values(point), config, trained))
        return tuple(candidates)

    def check_cost(
        self, rule: Match, spec: RowSpec, config: RowConfig, choice: Choice | None, base: Choice
    ) -> None:
        """Report a matched row if tuning changes its cost, or the cost of base.

        Args:
            rule: the cost that is equal to base's.
            spec: the row.
            config: configuration of the row before tuning.
            choice: choice of the row; None if the row sets all fields of the grid.
            base: choice of base.
        """
        remedy = "tune other fields, or remove match from the group"
        if choice is not None and self._changes_cost(rule, [config, *_configs(choice)]):
            changed = "its"
            if rule.field not in self.tune.grid:
                remedy = "tune other fields, or set them in the group, with `tune: false`"
        elif self._changes_cost(rule, _configs(base)):
            changed = "base's"
        else:
            return
        fields = " and ".join(self.tune.grid)
        fault = Fault(
            f"tuning {fields} changes {changed} {rule.kind}, which match keeps equal to base",
            (rule.field, *self.tune.grid),
            f'row "{spec.label}"',
            remedy=remedy,
        )
        self.report(self.tune.mark, fault)

    def _changes_cost(self, rule: Match, configs: Iterable[RowConfig]) -> bool:
        costs = {rule.cost_of(config, self._vocab_size(config)) for config in configs}
        return len(costs) > 1

    def _changes_of_tuning_run(
        self,
        label: str,
        config: RowConfig,
        settings: Mapping[str, Node],
        written: Mapping[str, Node],
    ) -> dict[str, int] | None:
        """The fields of a tuning run that differ from the row; None after a fault."""
        tune = self.tune
        steps = config.train_steps
        warmup = config.warmup_steps
        if steps is None:
            if tune.share == 1:
                return {}
            remedy = "set train_steps"
            if config.epochs is not None:
                remedy += " in place of epochs"
            fault = Fault("a share of the steps needs train_steps", ("train_steps",), remedy=remedy)
            # A fault of base is the same fault in each row, and is reported once.
            if written.keys() & {"train_steps", "epochs"}:
                fault = fault.about(f'row "{label}"')
            self.report(tune.node("steps").mark, fault)
            return None
        tuning_steps = tune.steps(steps)
        # A row that itself ends within its warm-up is trained as it is written.
        if tuning_steps <= warmup and warmup < steps:
            fault = Fault(
                f"tuning runs train for {tuning_steps} of {steps} steps, which end before "
                f"warmup_steps={warmup}",
                ("warmup_steps", "train_steps"),
                f'row "{label}"',
                remedy="raise the share, or lower warmup_steps",
            )
            self.report(tune.mark, with_causes(fault, settings))
            return None
        return {"train_steps": tuning_steps}

    def _vocab_size(self, config: RowConfig) -> int:
        """The vocabulary size with which a row is trained."""
        data, _ = fold_vocab_size(self.data, config)
        return data.vocab_size


def _configs(choice: Choice) -> list[RowConfig]:
    return [candidate.config for candidate in choice.candidates]
