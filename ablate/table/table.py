"""The content of a table: each row with the scores of its seeds, and the differences from base."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from typing import NamedTuple

from ablate.formatting import number
from ablate.stats.metrics import CHANCE_SCORE, EXACT, PPL, Metric, ScorePart
from ablate.stats.verdict import Verdict, joint_word
from ablate.table.experiment import Experiment, ExperimentRow, ExperimentRun, Notes
from ablate.table.scores import Scores
from ablate.table.verdicts import scores_of, verdicts_on


@dataclass(frozen=True)
class TableRow(ExperimentRow):
    """A row with the scores of its seeds, and the differences from base.

    scores: metric -> scores by seed.
    deltas: metric -> differences from base by seed; empty for base.
    verdicts: metric -> verdict; empty for base.
    """

    scores: Mapping[str, Scores] = field(default_factory=dict)
    deltas: Mapping[str, Scores] = field(default_factory=dict)
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)

    @classmethod
    def of(cls, row: ExperimentRow, metrics: Iterable[Metric]) -> TableRow:
        """A row with its scores in these metrics, and without differences."""
        scores = {metric.name: scores_of(row.runs, metric) for metric in metrics}
        return cls(**vars(row), scores=scores)

    def part(self, metric: Metric, part: ScorePart) -> Scores:
        """The values of a part of the scores, by seed; empty if no run has stored this part."""
        values = {}
        for run in self.runs:
            score = run.scores.get(metric.name)
            if score and part.name in score.parts:
                values[run.seed] = score.parts[part.name]
        return Scores(values).only_seeds(self.scores[metric.name].by_seed)

    def has_learned(self, metric: Metric) -> bool:
        """Whether any score is better than chance, or any prediction is exact. Also True if there
        is no score, or if the score of chance is unknown.
        """
        metric = self.learning_metric(metric)
        scores = self.scores[metric.name].by_seed
        chance = self.part(metric, CHANCE_SCORE).by_seed
        if not scores or any(self.part(metric, EXACT).by_seed.values()):
            return True
        if not chance and not metric.has_known_chance:
            return True
        return any(
            metric.beats(score, chance.get(seed, metric.chance)) for seed, score in scores.items()
        )

    def learning_metric(self, metric: Metric) -> Metric:
        """The metric that shows whether the row has learned: the given metric, or perplexity if the
        score of chance is unknown in the given metric, such as in a loss.
        """
        if (
            metric.has_known_chance
            or self.part(metric, CHANCE_SCORE).n
            or PPL.name not in self.scores
        ):
            return metric
        return PPL

    def prints_zero_despite_exact(self, metric: Metric) -> bool:
        """Whether every score is printed as 0 although some predictions are exact."""
        scores = self.scores[metric.name].by_seed
        exact = self.part(metric, EXACT).by_seed
        is_zero = not any(round(score, metric.digits) for score in scores.values())
        return metric.more_is_better and is_zero and any(exact.values())

    def only_seeds(self, seeds: Collection[int]) -> TableRow:
        """The row with only the runs, scores and differences of these seeds."""
        return replace(
            self,
            runs=tuple(run for run in self.runs if run.seed in seeds),
            scores={name: scores.only_seeds(seeds) for name, scores in self.scores.items()},
            deltas={name: delta.only_seeds(seeds) for name, delta in self.deltas.items()},
        )

    @property
    def note(self) -> str:
        """Why the row is not finished; empty if it is."""
        counts = Counter(self.states.values())
        if counts["done"] == len(self.runs):
            return ""
        reason = next((run.note for run in self.runs if run.note), "")
        if len(self.runs) == 1:
            return reason or "pending"
        done = f"{counts['done']} of {len(self.runs)} seeds done"
        return f"{done}; {reason}" if reason else f"{done}, the others pending"


class Family(NamedTuple):
    """A base with the rows that are compared with it, which share the noise of seeds."""

    base: TableRow
    rows: list[TableRow]


@dataclass(frozen=True)
class Table:
    """An experiment with the differences of its rows from base, and their verdicts."""

    experiment: Experiment
    rows: tuple[TableRow, ...]

    @staticmethod
    def build(experiment: Experiment) -> Table:
        """Make the table of an experiment: compare each row with its base, with Holm's correction
        over all rows.
        """
        rows = [TableRow.of(row, experiment.measured) for row in experiment.rows]
        table = Table(experiment, tuple(rows))
        by_label = table.by_label
        pairs = [(by_label[row.base], row) for row in table.compared_rows]
        for judged in table._judge(pairs, experiment.n_tests):
            by_label[judged.label] = judged
        return replace(table, rows=tuple(by_label.values()))

    def with_notes(self, notes: Notes) -> Table:
        """The table with its notes replaced by these notes."""
        return replace(self, experiment=replace(self.experiment, notes=notes))

    def with_rows(self, labels: Collection[str]) -> Table:
        """The table with some of its rows, and the verdicts by the noise of all of them."""
        rows = [row for row in self.experiment.rows if row.label in labels]
        table_rows = [row for row in self.rows if row.label in labels]
        experiment = replace(self.experiment, rows=tuple(rows))
        return Table(experiment, tuple(table_rows))

    @property
    def by_label(self) -> dict[str, TableRow]:
        """The rows by their labels."""
        return {row.label: row for row in self.rows}

    @property
    def compared_rows(self) -> list[TableRow]:
        """The rows except bases."""
        return [row for row in self.rows if not row.is_base]

    @property
    def runs(self) -> list[ExperimentRun]:
        """The runs of all rows."""
        return list(chain.from_iterable(row.runs for row in self.rows))

    @property
    def missing_runs(self) -> set[str]:
        """Ids of the trainings that have not ended, or that some row has not evaluated."""
        return {run.id for run in self.runs if run.state not in ("done", "diverged")}

    @property
    def covers_paper(self) -> bool:
        """Whether the table has every row of the paper's table; False if the paper's table has a
        single row.
        """
        paper = self.experiment.setup.paper
        if paper is None or len(paper.rows) == 1:
            return False
        counterparts = [row.recipe.paper for row in self.rows]
        return all(paper_row in counterparts for paper_row in paper.rows)

    @property
    def rules(self) -> set[int]:
        """The indices of the rows with a rule above: below each base, and between groups, as in
        Table 3 of the paper. Groups of a single row in sequence have no rule between them, because
        each row would stand in a box.
        """
        rules = set[int]()
        index = 0
        above_is_single = False
        for (is_base, _), group in groupby(self.rows, key=lambda row: (row.is_base, row.group)):
            size = len(list(group))
            is_single = size == 1 and not is_base
            if index and not (is_single and above_is_single):
                rules.add(index)
            index += size
            above_is_single = is_single
        return rules

    @property
    def families(self) -> list[Family]:
        """The bases with their rows, in order; most experiments have a single base."""
        families = {row.label: Family(row, []) for row in self.rows if row.is_base}
        for row in self.compared_rows:
            families[row.base].rows.append(row)
        return list(families.values())

    def verdicts(self, metric: Metric) -> list[Verdict]:
        """The verdicts in a metric, on all rows except bases."""
        return [row.verdicts[metric.name] for row in self.rows if metric.name in row.verdicts]

    def verdict(self, row: TableRow) -> str | None:
        """The joint verdict on a row by the judged metrics, such as `worse` or `worse by PPL`; None
        for base.
        """
        if not row.verdicts:
            return None
        return joint_word([row.verdicts[metric.name] for metric in self.judged_metrics])

    @property
    def level(self) -> float:
        """The significance level of the verdicts in one metric: the level of the experiment,
        divided equally between the judged metrics.
        """
        return self.experiment.level / len(self.judged_metrics)

    @property
    def shown_metrics(self) -> tuple[Metric, ...]:
        """The metrics with a column, in this order and without repetition: perplexity per subword,
        if it was measured; the perplexity by which rows are compared, such as perplexity per
        character; the metrics that the study shows; and the metrics by which it judges.
        """
        experiment = self.experiment
        metrics = (experiment.perplexity, *experiment.shown, *experiment.judged)
        if PPL.name in experiment.metrics:
            metrics = (experiment.metrics[PPL.name], *metrics)
        return tuple(dict.fromkeys(metrics))

    @property
    def main_metric(self) -> Metric:
        """The first judged metric."""
        return self.judged_metrics[0]

    @property
    def judged_metrics(self) -> tuple[Metric, ...]:
        """The metrics by which rows are judged."""
        return self.experiment.judged

    @property
    def compared_metrics(self) -> tuple[Metric, ...]:
        """The metrics in which differences are shown: the judged metrics, and perplexity."""
        return tuple(dict.fromkeys((*self.judged_metrics, self.experiment.perplexity)))

    @property
    def item_metric(self) -> Metric:
        """The metric in which single test items are scored: the first metric that the study shows
        besides perplexity.
        """
        return self.experiment.shown[0]

    def best(self, metric: Metric) -> float | None:
        """The best mean of a row, among the rows with a score for every seed.

        None if rows cannot be compared in this metric, if all rows print the same mean, or if a row
        with missing seeds is better, because its final mean is not known. A row with diverged seeds
        counts only if its verdict is better.
        """
        if metric.is_per_token and len(self.experiment.setup.vocabularies) > 1:
            return None
        # A mean over fewer seeds may be the best by luck, so only complete rows count.
        means = []
        incomplete_means = []
        texts = set()
        for row in self.rows:
            scores, verdict = row.scores[metric.name], row.verdicts.get(metric.name)
            if scores.mean is None:
                continue
            if scores.n == len(self.experiment.seeds_of(row)):
                means.append(scores.mean)
                texts.add(number(scores.mean, metric.digits))
            elif "diverged" not in row.states.values() or (verdict and verdict.word == "better"):
                incomplete_means.append(scores.mean)
        if len(texts) < 2:
            return None
        choose = max if metric.more_is_better else min
        best = choose(means)
        return best if choose([best, *incomplete_means]) == best else None

    def compare_pair(self, base: TableRow, compared: TableRow) -> TableRow:
        """Compare a row with another row in the place of base, without a correction for multiple
        comparisons. The noise between seeds is pooled over all rows with the same base.

        Returns:
            The row with the differences and verdicts of this comparison.
        """
        rows = []
        for row in self.rows:
            if row.base == compared.base and row is not base:
                rows.append(row)
        return self._judge([(base, row) for row in rows], 1)[rows.index(compared)]

    def _judge(self, pairs: Sequence[tuple[TableRow, TableRow]], n_tests: int) -> list[TableRow]:
        """Judge the row of each pair (base, row). Holm's correction covers `n_tests` rows.

        Where base has further seeds, the mean of base changes by `verdict.shift`; the shift is
        added to each difference.

        Returns:
            The rows, with their differences and verdicts.
        """
        if not pairs:
            return []
        # Differences, intervals and verdicts have the same seeds.
        seeds = self.experiment.judged_seeds or self.experiment.seeds
        deltas: list[dict[str, Scores]] = [{} for _ in pairs]
        verdicts: list[dict[str, Verdict]] = [{} for _ in pairs]
        for metric in self.experiment.measured:
            judged = verdicts_on(self.experiment, metric, pairs, n_tests)
            for index, ((base, row), verdict) in enumerate(zip(pairs, judged, strict=True)):
                name = metric.name
                scores = row.scores[name].only_seeds(seeds)
                deltas[index][name] = scores.minus(base.scores[name], verdict.shift)
                has_learned = base.has_learned(metric)
                verdicts[index][name] = replace(verdict, base_has_learned=has_learned)
        compared = []
        for (_, row), row_deltas, row_verdicts in zip(pairs, deltas, verdicts, strict=True):
            compared.append(replace(row, deltas=row_deltas, verdicts=row_verdicts))
        return compared

    def judged_part(self) -> Table:
        """The table with only the runs and scores that its verdicts use."""
        seeds = set(self.experiment.judged_seeds)
        if seeds:
            seeds.update(self.experiment.further_seeds)
        return replace(self, rows=tuple(row.only_seeds(seeds) for row in self.rows))
