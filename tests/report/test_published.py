"""The committed results follow from their archives of records, and their verdicts from the scores
alone.
"""

import csv
import json
import re
import zipfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest

from ablate.analysis.choices import runs_with_choices
from ablate.analysis.outcome import outcome_of
from ablate.analysis.tuning_runs import with_tuning_runs
from ablate.config.resolve import SETTINGS
from ablate.judging.columns import numbered_lines
from ablate.judging.judge import judged
from ablate.plan.typical import published_spreads
from ablate.store import Results
from ablate.study import Runs, read_study
from ablate.table.columns.layouts import terminal_layout
from ablate.table.render import comma_separated, markdown
from ablate.table.table import Table
from benchmarks.spreads import spreads
from docs import hooks
from tests.cli.inside import inside

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Published:
    """A committed folder, and its table from the records in it."""

    folder: Path
    results: Results
    planned: Runs
    table: Table


def unpacked(name, root):
    """A results root with the records of a published study."""
    with zipfile.ZipFile(hooks.results() / name / "records.zip") as records:
        records.extractall(root)
    return Results(root)


@pytest.fixture(scope="module", params=hooks.published())
def published(request, tmp_path_factory):
    results = unpacked(request.param, tmp_path_factory.mktemp("records"))
    planned = runs_with_choices(read_study(ROOT / f"studies/{request.param}.yaml"), results)
    return Published(
        hooks.results() / request.param, results, planned, outcome_of(planned, results).table
    )


def test_a_published_table_follows_from_the_records(published):
    folder, table = published.folder, published.table
    table = table.with_notes(replace(table.experiment.notes, archived=()))
    assert (folder / "study.yaml").read_text() == published.planned.study.source.text
    assert markdown(table, against_paper=False) == (folder / "table.md").read_text()
    lines = comma_separated(table, timed=False).splitlines()
    assert_equal_numbers(lines, (folder / "table.csv").read_text().splitlines())
    ids = set()
    for run in with_tuning_runs(published.planned):
        if published.results.run(run.id).has_result:
            ids.add(run.id)
    assert ids == json.loads((folder / "provenance.json").read_text())["runs"].keys()


def test_the_command_prints_the_published_table(tmp_path):
    unpacked("state", tmp_path)
    done = inside(
        "table", ROOT / "studies/state.yaml", "--results", tmp_path, "--format", "markdown"
    )
    assert done.code == 0
    lines = [line for line in done.out.splitlines() if "from an archive of records" not in line]
    assert lines == (hooks.results() / "state/table.md").read_text().splitlines()


def assert_equal_numbers(lines, published):
    """Equal texts, and numbers within rounding: a processor's mathematical library decides the last
    digit of a logarithm or a power.
    """
    for row, expected in zip(csv.reader(lines), csv.reader(published), strict=True):
        assert [number_or_text(cell) for cell in row] == [
            pytest.approx(value, rel=1e-9) if isinstance(value, float) else value
            for value in map(number_or_text, expected)
        ]


def number_or_text(cell):
    """The float that a cell holds; otherwise its text."""
    try:
        return float(cell)
    except ValueError:
        return cell


def test_the_typical_spreads_follow_from_the_records(published):
    name = published.planned.study.name
    stated = [asdict(spread) for spread in published_spreads() if spread.study == name]
    assert spreads(published.planned, published.results, published.table) == stated


def lines_of(rows):
    """A line for each score of a study's rows, on its test set and on the resampled ones, as a
    file of scores has it.
    """
    for row in rows:
        for run in row.runs:
            common = {"row": row.label, "seed": run.seed, "run": run.id}
            if run.state == "diverged":
                yield {**common, "metric": "ppl", "value": "nan"}
            for name, score in run.scores.items():
                yield {**common, "metric": name, "value": repr(score.value)}
                for number, value in enumerate(getattr(score, "resamples", ())):
                    yield {**common, "metric": name, "value": repr(value), "resample": number}


def test_the_scores_of_a_published_study_give_its_verdicts(published):
    table, study = published.table, published.planned.study
    with (published.folder / "table.csv").open() as file:
        in_table = {line["row"]: line for line in csv.DictReader(file)}
    compared = 0
    is_one_family = len(table.families) == len(table.experiment.judged) == 1
    scored = [row for row in table.rows if any(run.scores for run in row.runs)]
    for base in (row for row in scored if row.is_base):
        rows = [row for row in scored if row.base == base.label]
        metrics = [table.main_metric.name, *(m for m in base.scores if m != table.main_metric.name)]
        found = judged(
            numbered_lines(lines_of(rows)),
            study.name,
            base=base.label,
            directions={},
            metrics=metrics,
            margin=study.metrics.margins.get(table.main_metric.name),
        )
        for ours, expected in zip(found.rows, rows, strict=True):
            assert ours.label == expected.label
            for metric, verdict in ours.verdicts.items():
                mine, theirs = verdict.as_json(), expected.verdicts[metric].as_json()
                if is_one_family:
                    assert mine == theirs
                    assert verdict.word == in_table[ours.label][f"verdict_{metric}"]
                else:  # the study corrects for more rows or metrics than this one
                    tests = ("n", "mean", "std", "p", "p_own")
                    assert [mine[name] for name in tests] == [theirs[name] for name in tests]
                    assert mine["p_holm"] <= theirs["p_holm"]
                compared += 1
    others = [row for row in scored if not row.is_base]
    assert compared == len(others) * len(table.rows[0].scores)


@pytest.mark.parametrize("width", [60, 80, 140])
def test_a_narrow_legend_explains_only_what_is_shown(published, width):
    table = published.table
    columns = terminal_layout(table, str, False, with_cost=True).columns
    layout = terminal_layout(table, str, False, with_cost=True, width=width)
    names = {column.name for column in layout.columns}
    left_out = {column.name for column in columns} - names
    # The conclusion has base's scores, and the legend the verdicts that have no column.
    left_out -= {"verdict", *(metric.title for metric in table.compared_metrics)}
    for line in layout.legend:
        if not line.startswith("Left out"):
            assert not left_out & set(line.split(":")[0].split(", ")), line
    factors = [line for line in layout.legend if "geometric mean" in line]
    for metric in table.compared_metrics:
        place = f"{metric.title} in the conclusion"
        for line in factors:
            assert (place in line) == (metric.is_log and metric.title not in names), line
    has_settings = any(setting.head in names for setting in SETTINGS)
    assert any(re.search("blank", line, re.I) for line in layout.legend) == has_settings
    if width < 140:
        assert left_out


def test_what_was_chosen_stands_between_the_scores_and_the_costs(published):
    table = published.table
    names = [column.name for column in terminal_layout(table, str, False).columns]
    scores = [names.index(metric.title) for metric in table.shown_metrics]
    for name in {"tuned", "matched"}.intersection(names):
        assert max(scores) < names.index(name)
        for later in {"params"}.intersection(names):
            assert names.index(name) < names.index(later)
    for metric in table.shown_metrics:
        if metric not in table.judged_metrics and f"Δ{metric.title}" in names:
            assert names.index(f"Δ{metric.title}") == names.index(metric.title) + 1
