"""The content of a study's table: each row with its scores over seeds, its difference from base and
its cost.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from ablate.analysis.position import (
    Position,
    error_of_verdicts,
    position_of_runs,
    verdicts_of_rows,
)
from ablate.analysis.provenance_diff import provenance_remarks
from ablate.analysis.results import (
    RunResult,
    by_row,
    faults_of,
    measured_metrics,
    of_seeds,
    read_runs,
    row_state,
    scores_of,
    signatures,
    vocabularies_of,
)
from ablate.analysis.scores import Scores
from ablate.analysis.short_texts import cause_of
from ablate.config import cost
from ablate.config.cost import ASSUMED_LENGTH, Lengths
from ablate.formatting import first_few, number, plural, shares_text
from ablate.paper import PaperRow, PaperTable
from ablate.stats.metrics import BY_CHANCE, EXACT, PPL, PPL_CHAR, Metric, ScorePart
from ablate.stats.significance import LEVEL
from ablate.stats.verdict import Verdict, joint_word
from ablate.store import Results, State
from ablate.store.corpora import MANIFEST, lengths_in, overlap_in
from ablate.store.records import Provenance
from ablate.study import Row, Study
from ablate.study.study import Family


@dataclass(frozen=True)
class Cost:
    """Cost of training a row.

    seconds: of one training with its evaluations, by finished seed.
    tokens_per_second: tokens trained on, divided by `seconds`.
    flops: of one training, in closed form; None while the number of steps is unknown.
    machines: devices and processors that trained the row.
    flops_per_step: in closed form.
    """

    seconds: Scores
    tokens_per_second: Scores
    flops: float | None
    machines: tuple[str, ...]
    flops_per_step: float

    def as_json(self, timed: bool = True) -> dict[str, Any]:
        """The cost for scripts; `timed` adds measured times, which differ each time a study is
        repeated.
        """
        content: dict[str, Any] = {}
        if timed:
            content["seconds"] = self.seconds.as_json()
            content["tokens_per_second"] = self.tokens_per_second.as_json()
        return {**content, "flops": self.flops}


@dataclass(frozen=True)
class TableRow:
    """A row with its scores, its differences from base and its cost.

    runs: by seed.
    scores: by metric.
    cost: of one training.
    paper: the row of the paper's table with the same change, if there is one.
    deltas: differences from base by metric, paired by seed; empty for base.
    verdicts: by metric; empty for base.
    """

    row: Row
    runs: tuple[RunResult, ...]
    scores: Mapping[str, Scores]
    cost: Cost
    paper: PaperRow | None
    deltas: Mapping[str, Scores] = field(default_factory=dict)
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)

    @property
    def params(self) -> int:
        """Trained parameters, as counted by the last run that has ended; plug-ins may have
        parameters of their own.
        """
        # The closed form does not know the parameters of a plug-in.
        ended = filter(lambda run: run.result, reversed(self.runs))
        return next(ended, self.runs[-1]).params

    @property
    def steps(self) -> int | None:
        """Optimizer steps made, or planned while no run is done."""
        steps = self.row.config.train_steps
        for run in self.runs:
            if run.decoding:
                steps = run.steps
        return steps

    def part(self, metric: Metric, part: ScorePart) -> Scores:
        """A part of the scores in a metric; empty where the results do not have it."""
        by_seed = {}
        for run in self.runs:
            score = run.scores.get(metric.name)
            if score and part.name in score.parts:
                by_seed[run.run.seed] = score.parts[part.name]
        return Scores(by_seed).with_seeds(self.scores[metric.name].by_seed)

    def has_learned(self, metric: Metric) -> bool:
        """Whether a score is printed as better than chance, or a prediction is exact; also True
        without a score, and in a metric without a worst score, such as perplexity.
        """
        scores, chance = self.scores[metric.name].by_seed, self.part(metric, BY_CHANCE).by_seed
        if not scores or any(self.part(metric, EXACT).by_seed.values()):
            return True
        if not (chance or (metric.of_100 and metric.more_is_better)):
            return True
        for seed, score in scores.items():
            level = round(chance.get(seed, metric.chance), metric.digits)
            gain = round(score, metric.digits) - level
            if gain and metric.is_better(gain):
                return True
        return False

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
    def states(self) -> dict[int, State]:
        """State of each run, by seed."""
        return {run.run.seed: run.state for run in self.runs}

    @property
    def state(self) -> State:
        """The state of the row over its runs."""
        return row_state(self.states.values())

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


@dataclass(frozen=True)
class Table:
    """A study's table.

    position: where the study is; its `study` is that of the table.
    signatures: how each metric was computed; one for each metric if all runs agree.
    corpora: the corpora behind the results; one if all runs agree.
    remarks: differences in how the runs were made, and test text that occurs in the training data.
    advice: those of them that say how to improve the study, which are not for a paper.
    archived: a line on runs without predictions here; empty without such runs.
    faults: files that cannot be used, and what heals them.
    error: bound of the error of all verdicts; above 0.05 if seeds were changed after a verdict.
    is_measured_elsewhere: whether the rows are labels, without settings and cost.
    """

    position: Position
    rows: tuple[TableRow, ...]
    signatures: dict[str, list[str]]
    corpora: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    archived: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    error: float = LEVEL
    is_measured_elsewhere: bool = False

    @property
    def study(self) -> Study:
        """The study, with the seeds up to its position."""
        return self.position.study

    @property
    def by_label(self) -> dict[str, TableRow]:
        """The rows by their labels."""
        return {row.row.label: row for row in self.rows}

    @property
    def is_papers(self) -> bool:
        """Whether it has a counterpart of each row in the paper's table of several rows."""
        paper = self.study.task.paper
        if paper is None or len(paper.rows) == 1:
            return False
        found = [row.paper for row in self.rows]
        return all(row in found for row in paper.rows)

    @property
    def runs(self) -> list[RunResult]:
        """The runs of all rows."""
        return list(chain.from_iterable(row.runs for row in self.rows))

    @property
    def families(self) -> list[Family[TableRow]]:
        """The rows by their bases, the first base first; a single family in most studies."""
        by_label, families = self.by_label, []
        for base, rows, count in self.study.families:
            of_base = [by_label[row.label] for row in rows]
            families.append(Family(by_label[base.label], of_base, count))
        return families

    def verdicts(self, metric: Metric) -> list[Verdict]:
        """The verdicts in a metric, on every row but base."""
        return [row.verdicts[metric.name] for row in self.rows if metric.name in row.verdicts]

    def verdict(self, row: TableRow) -> str | None:
        """The verdict on a row by all metrics that the study judges by: `worse`, `worse by PPL`.
        None for base.
        """
        if not row.verdicts:
            return None
        return joint_word([row.verdicts[metric.name] for metric in self.judged])

    @property
    def level(self) -> float:
        """The level of the verdicts of this table in one metric; each of several metrics that
        verdicts are by has an equal part.
        """
        return self.position.level / len(self.judged)

    @property
    def vocabularies(self) -> tuple[int, ...]:
        """Sizes of the rows' vocabularies. Perplexities per subword can only be compared if there
        is one size.
        """
        return vocabularies_of(self.study)

    @property
    def perplexity(self) -> Metric:
        """The perplexity that rows are compared by: per character if vocabularies differ and the
        task measures it. Without any perplexity, the main metric.
        """
        metrics = self.study.task.metrics
        if PPL.name not in metrics:
            return self.main
        if len(self.vocabularies) > 1 and PPL_CHAR.name in metrics:
            return metrics[PPL_CHAR.name]
        return metrics[PPL.name]

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The columns: perplexity per subword, the perplexity to compare, and the metrics of the
        study.
        """
        known = self.study.task.metrics
        names = (PPL.name, self.perplexity.name, *self.study.metrics, *self.study.judged)
        return tuple(filter(None, map(known.get, dict.fromkeys(names))))

    @property
    def main(self) -> Metric:
        """The metric of the verdicts; of several, the first."""
        return self.judged[0]

    @property
    def judged(self) -> tuple[Metric, ...]:
        """The metrics that verdicts are by."""
        return tuple(self.study.task.metrics[name] for name in self.study.judged)

    @property
    def compared(self) -> tuple[Metric, ...]:
        """The metrics in which differences are shown: those of the verdicts, and perplexity."""
        return tuple(dict.fromkeys((*self.judged, self.perplexity)))

    @property
    def of_items(self) -> Metric:
        """The metric of single test items: the study's first, which verdicts need not be by."""
        return self.study.task.metrics[self.study.metrics[0]]

    def best(self, metric: str) -> float | None:
        """The best mean over the rows with a score for every seed.

        None if rows cannot be compared by this metric, if all have the same mean to its last digit,
        or if a row that lacks seeds is better: the best is not known then. One that lacks them
        because they diverged counts only where its verdict is better.
        """
        # Perplexities per subword of different vocabularies cannot be compared.
        if metric == PPL.name and len(self.vocabularies) > 1:
            return None
        # Only complete rows: a mean over fewer seeds may be the best one by the luck of its seeds.
        shown, means, unknown, texts = self.study.task.metrics[metric], [], [], set()
        for row in self.rows:
            scores, verdict = row.scores[metric], row.verdicts.get(metric)
            if scores.mean is None:
                continue
            if scores.n == len(self.study.seeds_of(row.row)):
                means.append(scores.mean)
                texts.add(number(scores.mean, shown.digits))
            elif "diverged" not in row.states.values() or (verdict and verdict.word == "better"):
                unknown.append(scores.mean)
        if len(texts) < 2:
            return None
        choose = max if shown.more_is_better else min
        best = choose(means)
        return best if choose([best, *unknown]) == best else None

    def with_verdicts(self) -> Table:
        """The table with each row compared with its base; the correction of the verdicts covers all
        rows of the study.
        """
        rows, pairs = dict(self.by_label), []
        for base, of_base, _ in self.families:
            pairs += [(base, row) for row in of_base]
        for row in self._compared(pairs, self.study.tests):
            rows[row.row.label] = row
        return replace(self, rows=tuple(rows.values()))

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
        runs = [(base.runs, row.runs) for base, row in pairs]
        judged: dict[str, list[Verdict]] = {}
        for name in self.rows[0].scores:
            judged[name] = verdicts_of_rows(self.study, name, runs, family, self.position.judged)
        compared = []
        for index, (base, row) in enumerate(pairs):
            deltas, verdicts = {}, {}
            for name, scores in base.scores.items():
                verdicts[name] = judged[name][index]
                deltas[name] = row.scores[name].minus(scores, verdicts[name].shift)
            compared.append(replace(row, deltas=deltas, verdicts=verdicts))
        return compared

    def as_judged(self) -> Table:
        """The table with the scores that its verdicts have seen."""
        seeds = self.position.seen
        return replace(self, rows=tuple(row.with_seeds(seeds) for row in self.rows))


def table_of(study: Study, results: Results, faults: Sequence[str] = ()) -> Table:
    """Read the results that a study has so far. A file that cannot be used takes only the cells of
    its run.

    Args:
        study: names rows and metrics.
        results: root of the results.
        faults: lines about scores that could not be computed, for the remarks.
    """
    runs = read_runs(study, results)
    error, changed, damage = error_of_verdicts(study, results)
    position = position_of_runs(study, runs)
    study = position.study
    runs = of_seeds(runs, study.seeds_of(study.base))
    of_rows = by_row(runs)
    rows = tuple(_row(study, row, tuple(of_rows[row.label]), results) for row in study.rows)
    trained, decoded = set(), set()
    problems: dict[str, None] = {}
    for run in runs:
        if run.result is not None:
            trained.add(run.result.corpus)
        if run.decoding is not None:
            decoded.add(run.decoding.corpus)
        problems |= dict.fromkeys((*run.damage, *faults_of(run, results)))
    problems |= dict.fromkeys((*_corpus_faults(sorted(trained), results), *damage, *faults))
    corpora = tuple(sorted(decoded))
    advice = tuple(_low_parts(study, rows))
    remarks = [*provenance_remarks(study.task, runs), *advice, *changed]
    remarks += _overlaps(results, corpora)
    return Table(
        position,
        rows,
        signatures(study, runs),
        corpora,
        tuple(remarks),
        advice,
        tuple(_archived(runs)),
        tuple(problems),
        error,
    ).with_verdicts()


def paper_metrics(table: Table) -> list[str]:
    """Names of the metrics in the paper's table for this task."""
    paper = table.study.task.paper
    if paper is None:
        return []
    return list(dict.fromkeys(itertools.chain.from_iterable(row.scores for row in paper.rows)))


def _row(study: Study, row: Row, runs: tuple[RunResult, ...], results: Results) -> TableRow:
    scores = {metric.name: scores_of(runs, metric) for metric in measured_metrics(study)}
    paper = paper_row(study.task.paper, row, study.base_of(row))
    return TableRow(row, runs, scores, _cost(study, row, runs, results), paper)


def _low_parts(study: Study, rows: Sequence[TableRow]) -> Iterator[str]:
    """Yield a line on each part of a shown metric that is too small, and its cause, with the rows;
    the surest cause first.
    """
    for name in study.metrics:
        metric = study.task.metrics[name]
        for part in metric.parts:
            low: dict[tuple[int, str], list[str]] = defaultdict(list)
            for row in rows:
                mean = row.part(metric, part).mean
                if mean is not None and mean < part.least and row.has_learned(metric):
                    cause = cause_of(row.runs, row.row.config, 1 - part.least)
                    label = f"{row.row.label} ({number(mean, 3)}{cause.evidence})"
                    low[cause.order, cause.text].append(label)
            what = part.name.replace("_", " ")
            for (_, cause_text), labels in sorted(low.items()):
                yield (
                    f"NOTE: {what} below {part.least}: {first_few(labels)}: {part.remark}. "
                    f"{cause_text}."
                )


def _archived(runs: Sequence[RunResult]) -> Iterator[str]:
    """Yield a line on the runs whose predictions are not here, if there are any."""
    if count := sum(not run.has_predictions for run in runs):
        archived = f"{plural(count, 'run')} from an archive of records"
        yield f"{archived}: scores as stored, without predictions."


def _corpus_faults(corpora: Iterable[str], results: Results) -> Iterator[str]:
    """Yield the corpora of finished runs whose lengths are lost. A folder that was removed is no
    fault.
    """
    for corpus in corpora:
        folder = results.corpus(corpus)
        if folder.exists() and lengths_in(folder) is None:
            yield (
                f"{folder / MANIFEST}: is missing or damaged; FLOPs assume sentences of "
                f"{ASSUMED_LENGTH} tokens, and "
                "predictions are not scored; `ablate run` prepares the corpus again"
            )


def _overlaps(results: Results, corpora: Sequence[str]) -> Iterator[str]:
    """Yield a line on the share of test text in the training data; one for all corpora with the
    same shares.
    """
    texts: dict[str, None] = {}
    for corpus in corpora:
        shares = overlap_in(results.corpus(corpus))
        if shares and any(shares.values()):
            texts[shares_text(shares)] = None
    for text in texts:
        yield f"Test text that also occurs in the training data: {text}."


def _cost(study: Study, row: Row, runs: Sequence[RunResult], results: Results) -> Cost:
    """The cost of a row from its finished runs."""
    seconds, rates, machines = dict[int, float](), dict[int, float](), set[str]()
    made: list[int] = []
    lengths, flops = None, None
    for run in runs:
        if run.result is None or run.decoding is None:
            continue
        if not made:
            lengths = lengths_in(results.corpus(run.result.corpus))
        made.append(run.result.steps)
        if run.seconds:
            seconds[run.run.seed] = run.seconds
        if run.tokens_per_second is not None:
            rates[run.run.seed] = run.tokens_per_second
        if run.provenance:
            machines.add(_machine(run.provenance))
    # Of the steps made if training has ended, else of those planned.
    steps: float | None = cost.steps(row.config, lengths)
    if made:
        steps = sum(made) / len(made)
    V = study.data_of(row).vocab_size
    per_step = cost.flops_per_step(row.config, V, lengths or Lengths.assumed())
    if steps is not None:
        flops = per_step * steps
    return Cost(Scores(seconds), Scores(rates), flops, tuple(sorted(machines)), per_step)


def _machine(provenance: Provenance) -> str:
    """`cpu (1 thread), Some Processor`, or the GPU's name."""
    if provenance.device != "cpu":
        return provenance.device
    return f"cpu ({plural(provenance.threads, 'thread')}), {provenance.machine.processor}"


def paper_row(paper: PaperTable | None, row: Row, base: Row) -> PaperRow | None:
    """The row of the paper's table that changes the same fields by the same factors."""
    if paper is None:
        return None
    changed = {}
    for name, value in row.changed.items():
        # Head sizes of d_model / h follow from h.
        follows = name in ("d_k", "d_v") and row.config.has_derived_heads(name)
        if name in paper.base and not follows:
            changed[name] = value
    # All that the row changes is constant in the paper's table.
    if not changed and row.changed:
        return None
    match = paper.counterpart({name: getattr(base.config, name) for name in paper.base}, changed)
    if match is None:
        return None
    # The paper trains its big model by another recipe too; its other rows share base's.
    recipe = paper.recipe if match.group == "big" else ()
    return match if row.changed.keys() <= {*paper.base, *recipe} else None
