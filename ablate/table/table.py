"""The content of a table: each row with its scores over seeds, and its difference from base."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ablate.formatting import number
from ablate.stats.metrics import CHANCE_SCORE, EXACT, PPL, Metric, ScorePart
from ablate.stats.verdict import Verdict, joint_word
from ablate.table.experiment import Experiment, Notes, Recipe, Row, Run
from ablate.table.scores import Scores
from ablate.table.verdicts import scores_of, verdicts_on


@dataclass(frozen=True)
class TableRow:
    """A row with its scores, and its differences from base.

    scores: by metric.
    deltas: differences from base by metric, paired by seed; empty for base.
    verdicts: by metric; empty for base.
    """

    row: Row
    scores: Mapping[str, Scores]
    deltas: Mapping[str, Scores] = field(default_factory=dict)
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The label of the row."""
        return self.row.label

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs of the row."""
        return self.row.runs

    @property
    def recipe(self) -> Recipe:
        """How the row was trained; only for rows of a study."""
        assert self.row.recipe is not None
        return self.row.recipe

    def part(self, metric: Metric, part: ScorePart) -> Scores:
        """A part of the scores in a metric; empty where the results do not have it."""
        by_seed = {}
        for run in self.runs:
            score = run.scores.get(metric.name)
            if score and part.name in score.parts:
                by_seed[run.seed] = score.parts[part.name]
        return Scores(by_seed).with_seeds(self.scores[metric.name].by_seed)

    def has_learned(self, metric: Metric) -> bool:
        """Whether a score is better than chance, or a prediction is exact; also True without a
        score, and where the level of chance is not known.
        """
        metric = self.shows_learning(metric)
        scores, chance = self.scores[metric.name].by_seed, self.part(metric, CHANCE_SCORE).by_seed
        if not scores or any(self.part(metric, EXACT).by_seed.values()):
            return True
        if not chance and not metric.has_level:
            return True
        return any(
            metric.beats(score, chance.get(seed, metric.chance)) for seed, score in scores.items()
        )

    def shows_learning(self, metric: Metric) -> Metric:
        """The metric that says whether the row has learned anything: perplexity where a metric,
        such as a loss, has no level of chance.
        """
        if metric.has_level or self.part(metric, CHANCE_SCORE).n or PPL.name not in self.scores:
            return metric
        return PPL

    def is_exact_at_zero(self, metric: Metric) -> bool:
        """Whether every score is printed as 0 though some predictions are exact."""
        scores, exact = self.scores[metric.name].by_seed, self.part(metric, EXACT).by_seed
        is_zero = not any(round(score, metric.digits) for score in scores.values())
        return metric.more_is_better and is_zero and any(exact.values())

    def with_seeds(self, seeds: Collection[int]) -> TableRow:
        """The row with the scores and differences of these seeds."""
        return replace(
            self,
            scores={name: scores.with_seeds(seeds) for name, scores in self.scores.items()},
            deltas={name: delta.with_seeds(seeds) for name, delta in self.deltas.items()},
        )

    @property
    def states(self) -> dict[int, str]:
        """State of each run, by seed."""
        return {run.seed: run.state for run in self.runs}

    @property
    def state(self) -> str:
        """The state of the row over its runs."""
        return self.row.state

    @property
    def note(self) -> str:
        """Why the row is not finished; empty if it is."""
        counts = Counter(self.states.values())
        if counts["done"] == len(self.runs):
            return ""
        reason = next((run.note for run in self.runs if run.note), "pending")
        if len(self.runs) == 1:
            return reason
        return f"{counts['done']} of {len(self.runs)} seeds done; {reason}"


class Family(NamedTuple):
    """Rows that are compared with one base, and share the noise of seeds with it."""

    base: TableRow
    rows: list[TableRow]


@dataclass(frozen=True)
class Table:
    """An experiment with the differences of its rows from base, and the verdicts on them."""

    experiment: Experiment
    rows: tuple[TableRow, ...]

    @staticmethod
    def of(experiment: Experiment) -> Table:
        """The table of an experiment: each row is compared with its base, and the correction of the
        verdicts covers all rows.
        """
        rows = []
        for row in experiment.rows:
            scores = {metric.name: scores_of(row.runs, metric) for metric in experiment.measured}
            rows.append(TableRow(row, scores))
        table = Table(experiment, tuple(rows))
        pairs = []
        for base, of_base in table.families:
            pairs += [(base, row) for row in of_base]
        by_label = table.by_label
        for compared in table._compared(pairs, experiment.tests):
            by_label[compared.label] = compared
        return replace(table, rows=tuple(by_label.values()))

    def with_notes(self, notes: Notes) -> Table:
        """The table with other lines below it."""
        return replace(self, experiment=replace(self.experiment, notes=notes))

    @property
    def by_label(self) -> dict[str, TableRow]:
        """The rows by their labels."""
        return {row.label: row for row in self.rows}

    @property
    def is_papers(self) -> bool:
        """Whether it has a counterpart of each row in the paper's table of several rows."""
        setup = self.experiment.setup
        if setup is None or setup.paper is None or len(setup.paper.rows) == 1:
            return False
        found = [row.recipe.paper for row in self.rows]
        return all(row in found for row in setup.paper.rows)

    @property
    def families(self) -> list[Family]:
        """The rows by their bases, the first base first; a single family in most experiments."""
        families = {row.label: Family(row, []) for row in self.rows if row.row.is_base}
        for row in self.rows:
            if not row.row.is_base:
                families[row.row.base].rows.append(row)
        return list(families.values())

    def verdicts(self, metric: Metric) -> list[Verdict]:
        """The verdicts in a metric, on every row but base."""
        return [row.verdicts[metric.name] for row in self.rows if metric.name in row.verdicts]

    def verdict(self, row: TableRow) -> str | None:
        """The verdict on a row by all metrics that verdicts are by: `worse`, `worse by PPL`. None
        for base.
        """
        if not row.verdicts:
            return None
        return joint_word([row.verdicts[metric.name] for metric in self.judged])

    @property
    def level(self) -> float:
        """The level of the verdicts of this table in one metric; each of several metrics that
        verdicts are by has an equal part.
        """
        return self.experiment.standing.level / len(self.judged)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The columns: perplexity per subword, the perplexity to compare, and the metrics that are
        shown or judged.
        """
        experiment = self.experiment
        metrics = (experiment.perplexity, *experiment.shown, *experiment.judged)
        if PPL.name in experiment.metrics:
            metrics = (experiment.metrics[PPL.name], *metrics)
        return tuple(dict.fromkeys(metrics))

    @property
    def main(self) -> Metric:
        """The metric of the verdicts; of several, the first."""
        return self.judged[0]

    @property
    def judged(self) -> tuple[Metric, ...]:
        """The metrics that verdicts are by."""
        return self.experiment.judged

    @property
    def compared(self) -> tuple[Metric, ...]:
        """The metrics in which differences are shown: those of the verdicts, and perplexity."""
        return tuple(dict.fromkeys((*self.judged, self.experiment.perplexity)))

    @property
    def of_items(self) -> Metric:
        """The metric of single test items: the first that is shown, which verdicts need not be
        by.
        """
        return self.experiment.shown[0]

    def best(self, metric: Metric) -> float | None:
        """The best mean over the rows with a score for every seed.

        None if rows cannot be compared by this metric, if all have the same mean to its last digit,
        or if a row that lacks seeds is better: the best is not known then. One that lacks them
        because they diverged counts only where its verdict is better.
        """
        # Perplexities per subword of different vocabularies cannot be compared.
        if metric.name == PPL.name and len(self.experiment.vocabularies) > 1:
            return None
        # Only complete rows: a mean over fewer seeds may be the best one by the luck of its seeds.
        means, unknown, texts = [], [], set()
        for row in self.rows:
            scores, verdict = row.scores[metric.name], row.verdicts.get(metric.name)
            if scores.mean is None:
                continue
            if scores.n == len(self.experiment.seeds_of(row.row)):
                means.append(scores.mean)
                texts.add(number(scores.mean, metric.digits))
            elif "diverged" not in row.states.values() or (verdict and verdict.word == "better"):
                unknown.append(scores.mean)
        if len(texts) < 2:
            return None
        choose = max if metric.more_is_better else min
        best = choose(means)
        return best if choose([best, *unknown]) == best else None

    def against(self, base: TableRow, compared: TableRow) -> TableRow:
        """Compare one row with another as its base, paired by seed: the same row with `deltas` and
        `verdicts`.

        The noise over seeds is estimated from all rows; p values are not corrected for other rows.
        """
        rows = []
        for row in self.rows:
            if row.row.base == compared.row.base and row is not base:
                rows.append(row)
        return self._compared([(base, row) for row in rows], 1)[rows.index(compared)]

    def _compared(self, pairs: Sequence[tuple[TableRow, TableRow]], family: int) -> list[TableRow]:
        """Rows, each given with its base, with their differences and verdicts; these are corrected
        for a family of rows.
        """
        if not pairs:
            return []
        of_rows = [(base.row, row.row) for base, row in pairs]
        deltas: list[dict[str, Scores]] = [{} for _ in pairs]
        verdicts: list[dict[str, Verdict]] = [{} for _ in pairs]
        for metric in self.experiment.measured:
            looks = self.experiment.standing.judged
            judged = verdicts_on(self.experiment, metric, of_rows, family, looks)
            for index, (base, row) in enumerate(pairs):
                scores, of_base = row.scores[metric.name], base.scores[metric.name]
                deltas[index][metric.name] = scores.minus(of_base, judged[index].shift)
                verdicts[index][metric.name] = replace(
                    judged[index], base_has_learned=base.has_learned(metric)
                )
        compared = []
        for (_, row), delta, verdict in zip(pairs, deltas, verdicts, strict=True):
            compared.append(replace(row, deltas=delta, verdicts=verdict))
        return compared

    def as_judged(self) -> Table:
        """The table with the scores that its verdicts have seen."""
        experiment, seeds = self.experiment, set[int]()
        if look := experiment.standing.look:
            seeds = {*experiment.seeds[: look.seeds], *experiment.further_seeds}
        return replace(self, rows=tuple(row.with_seeds(seeds) for row in self.rows))
