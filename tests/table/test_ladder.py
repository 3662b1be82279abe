"""A study at several sizes: its rows, their comparison within a size, signs, ranks and slopes."""

import io
import json
import math
from collections import Counter
from random import Random

import pytest
from rich.console import Console
from scipy import stats

from ablate.analysis.tuning_runs import tuning_runs_of
from ablate.plan.progress import ProgressReader
from ablate.study import read_study, runs_of
from ablate.table.ladder import ladder_layout, ladders
from ablate.table.render import as_json, markdown, print_rich
from tests.report.fakes import Fake, study_from

BASE = "base: {N: 2, d_model: 32, d_ff: 64, h: 4, train_steps: 100}\n"
HEAD = "study: small\ndata: {corpus: toy, vocab_size: 200}\n"
SIZES = "sizes: {small: {}, medium: {d_model: 64}, large: {d_model: 128, N: 3}}\n"
ROWS = "rows:\n  A: {each: {h: [1, 2]}}\n  D: {each: {dropout: [0.3]}}\n"
LADDER = f"{HEAD}{BASE}seeds: [1, 2, 3]\n{SIZES}{ROWS}"
# BLEU of each row less that of base at the three sizes, with the first seed; later seeds add to it.
EFFECTS = {
    "A h=1": (-2.0, -1.0, 0.5),
    "A h=2": (1.0, 1.5, 3.0),
    "D dropout=0.3": (-1.0, -2.0, -4.0),
}


def finished(tmp_path, text=LADDER):
    fake = Fake(tmp_path / "results", study_from(tmp_path, text))
    for row in fake.study.rows:
        index = ["small", "medium", "large"].index(row.size)
        effect = 0.0 if row.is_base else EFFECTS[row.name][index]
        for seed in fake.study.seeds.rows:
            noise = 0.0 if row.is_base else 0.1 * seed * (index - 1)
            fake.done(
                row.label,
                seed,
                ppl=5.0 - effect / 10,
                bleu=20.0 + 3 * index + effect + noise,
                params=10 ** (5 + index),
            )
    return fake


def test_each_size_has_the_rows_that_a_study_of_this_size_has(tmp_path):
    study = study_from(tmp_path, LADDER)
    assert len(study.rows) == 3 * (1 + 3)
    for size, settings in (
        ("small", {}),
        ("medium", {"d_model": 64}),
        ("large", {"d_model": 128, "N": 3}),
    ):
        base = BASE
        for name, value in settings.items():
            base = base.replace({"d_model": "d_model: 32", "N": "N: 2"}[name], f"{name}: {value}")
        alone = study_from(tmp_path, f"{HEAD}{base}seeds: [1, 2, 3]\n{ROWS}")
        ours = [row for row in study.rows if row.size == size]
        assert [row.name for row in ours] == [row.label for row in alone.rows]
        assert [[run.id for run in runs_of(study).of(row)] for row in ours] == [
            [run.id for run in runs_of(alone).of(row)] for row in alone.rows
        ]
        assert [row.changed for row in ours[1:]] == [row.changed for row in alone.rows[1:]]
        assert {row.base for row in ours} == {f"{size} base"}


def test_a_study_without_sizes_has_no_ladder_and_its_labels(fake):
    results = fake(f"{HEAD}{BASE}{ROWS}")
    assert [row.label for row in results.study.rows] == ["base", "A h=1", "A h=2", "D dropout=0.3"]
    assert ladders(results.table()) == []
    assert "sizes" not in json.loads(as_json(results.table()))


def test_rows_are_compared_with_the_base_of_their_size_everywhere(tmp_path):
    fake = finished(tmp_path)
    table = fake.table()
    for row in table.rows:
        deltas = row.deltas["bleu"].by_seed if row.deltas else {}
        assert bool(deltas) == (not row.is_base)
        assert deltas == pytest.approx({
            seed: EFFECTS[row.name][index] + 0.1 * seed * (index - 1)
            for index in [["small", "medium", "large"].index(row.size)] for seed in deltas
        })  # fmt: skip
    live = {
        row.row.label: row.against_base
        for row in ProgressReader(fake.planned, fake.results).read().rows
    }
    assert live["large base"] is None
    assert live["large D dropout=0.3"].log_ratio == pytest.approx(math.log(5.4 / 5.0))


def test_signs_ranks_and_slopes(tmp_path):
    table = finished(tmp_path).table()
    ladder, by_perplexity = ladders(table)
    assert (ladder.metric.name, by_perplexity.metric.name) == ("bleu", "ppl")
    assert {row.name: row.signs for row in ladder.rows} == {
        "A h=1": "changes", "A h=2": "holds", "D dropout=0.3": "holds",
    }  # fmt: skip
    ranks = {row.name: [rung.rank for rung in row.rungs] for row in ladder.rows}
    assert ranks == {"A h=1": [4, 3, 2], "A h=2": [1, 1, 1], "D dropout=0.3": [3, 4, 4]}
    assert {row.name: [rung.rank for rung in row.rungs] for row in by_perplexity.rows} == ranks
    x = [math.log10(params) for params in ladder.sizes.values()]
    for row in ladder.rows:
        y = {seed: [rung.difference.by_seed[seed] for rung in row.rungs] for seed in (1, 2, 3)}
        slopes = {seed: stats.linregress(x, values).slope for seed, values in y.items()}
        assert row.slopes == pytest.approx(slopes)
        interval = stats.t.interval(
            0.95, 2, loc=sum(slopes.values()) / 3, scale=stats.sem(list(slopes.values()))
        )
        assert (row.slope.low, row.slope.high) == pytest.approx(interval)
    means = [[rung.difference.mean for rung in row.rungs] for row in ladder.rows]
    expected = stats.kendalltau([one[0] for one in means], [one[1] for one in means]).statistic
    assert ladder.tau("small", "medium") == pytest.approx(expected)


def test_the_ladder_has_the_differences_of_the_verdicts_if_base_has_further_seeds(fake):
    text = LADDER.replace("[1, 2, 3]", "{rows: 3, base: 6}")
    results, draw = fake(text), Random(0)
    for row in results.study.rows:
        for seed in results.planned.seeds_of(row):
            # At the last size base is worse with its further seeds, and a row worse without them.
            further = seed > 3 and row.size == "large"
            bleu = 20.0 + draw.gauss(0.0, 0.1) - 3.0 * further
            if not row.is_base:
                bleu -= 0.5
            results.done(row.label, seed, 40.0 - bleu, bleu)
    table = results.table()
    for ladder in ladders(table):
        for row in ladder.rows:
            for size, rung in zip(ladder.sizes, row.rungs, strict=True):
                verdict = table.by_label[f"{size} {row.name}"].verdicts[ladder.metric.name]
                assert rung.difference.mean == pytest.approx(verdict.mean)
        assert {row.signs for row in ladder.rows} == {"changes"}
        assert all(row.rungs[0].rank > 1 for row in ladder.rows)  # behind base, and before it
        best = [row.name for row in ladder.rows if row.rungs[2].rank == 1]
        assert best  # the rows whose difference is the best at the last size, where base is worst


def test_all_sizes_are_one_family_of_tests(tmp_path):
    table = finished(tmp_path).table()
    for metric in ("bleu", "ppl"):
        found = [row.verdicts[metric] for row in table.rows if row.verdicts]
        assert len(found) == 9
        tested = [verdict for verdict in found if verdict.seed_test]
        largest = 0.0
        for rank, verdict in enumerate(sorted(tested, key=lambda verdict: verdict.seed_test.p)):
            largest = max(largest, min(1.0, (9 - rank) * verdict.seed_test.p))
            assert verdict.p_holm == pytest.approx(largest)
    legend = markdown(table, against_paper=False)
    assert "Holm-corrected over 9 rows of all sizes" in legend


def test_differences_that_are_all_zero_have_no_sign(fake):
    results = fake(LADDER)
    for row in results.study.rows:
        results.done(row.label, 1, ppl=5.0, bleu=20.0)
    ladder, _ = ladders(results.table())
    assert [row.signs for row in ladder.rows] == ["", "", ""]


def test_a_missing_size_leaves_sign_rank_and_slope_open(fake):
    results = fake(LADDER)
    for row in results.study.rows[:-1]:
        results.done(row.label, 1, ppl=5.0, bleu=20.0)
    ladder, _ = ladders(results.table())
    last = ladder.rows[-1]
    assert (last.signs, last.rungs[-1].rank, last.slope) == ("", None, None)
    assert last.rungs[0].rank == 1
    assert ladder_layout(ladder).columns[0].cells == tuple(EFFECTS)


def test_a_size_ranks_its_rows_only_when_each_has_a_score(tmp_path):
    fake = finished(tmp_path)
    for seed in fake.study.seeds.rows:
        fake.folder("large D dropout=0.3", seed).result.unlink()
    (ladder, _) = ladders(fake.table())
    assert [[rung.rank for rung in row.rungs] for row in ladder.rows] == [
        [4, 3, None],
        [1, 1, None],
        [3, 4, None],
    ]


@pytest.mark.parametrize("width", [80, 70])
def test_a_narrow_terminal_cuts_no_word_of_the_ladder(tmp_path, width):
    table, out = finished(tmp_path).table(), io.StringIO()
    print_rich(
        table,
        Console(file=out, color_system=None, width=width, force_terminal=True),
        against_paper=False,
    )
    shown = out.getvalue().partition("Over sizes: ΔBLEU")[2].partition("Over sizes: ΔPPL")[0]
    layout = ladder_layout(ladders(table)[0])
    words = Counter(
        word
        for column in layout.columns
        for cell in (column.head, *column.cells)
        for word in cell.split()
    )
    assert "…" not in shown
    assert not words - Counter(shown.split())


def test_the_ladder_is_in_markdown_and_json(tmp_path):
    table = finished(tmp_path).table()
    text = markdown(table, against_paper=False)
    assert "### Over sizes: ΔBLEU" in text
    assert "| A h=2 | +0.8 | +1.5 | +3.2 | holds | 1, 1, 1 |" in text
    found = json.loads(as_json(table))["sizes"][0]
    assert found["sizes"].keys() == {"small", "medium", "large"}
    assert [row["sign"] for row in found["rows"]] == ["changes", "holds", "holds"]


def test_rows_are_selected_by_size_or_across_sizes_with_their_bases(tmp_path):
    def labels(*rows):
        return [row.label for row in study_from(tmp_path, LADDER, rows=list(rows)).rows]

    assert labels("large D*") == ["small base", "large base", "large D dropout=0.3"]
    assert labels("D") == ["small base", "small D dropout=0.3", "medium base", "medium D dropout=0.3", "large base",
                           "large D dropout=0.3"]  # fmt: skip
    assert labels("medium") == [
        "small base", "medium base", "medium A h=1", "medium A h=2", "medium D dropout=0.3",
    ]  # fmt: skip


def test_sizes_go_with_match_tune_and_designs(tmp_path):
    text = f"""{HEAD}{BASE}seeds: [1]
{SIZES}tune: {{grid: {{learning_rate: [0.01, 0.1]}}, seeds: [9]}}
rows:
  P: {{set: {{activation: swiglu}}, match: {{params: d_ff, within: 0.05}}}}
  F: {{factorial: {{dropout: [0.1, 0.3], norm_position: [post, pre]}}}}
"""
    study = study_from(tmp_path, text)
    widths = {row.size: row.matched.target for row in study.rows if row.matched}
    assert len(set(widths.values())) == 3
    assert len(tuning_runs_of(runs_of(study)).rows) == len(study.rows) * 2
    assert [design.group for design in study.designs] == ["small F", "medium F", "large F"]
    assert {label for design in study.designs for label in design.rows} <= {
        row.label for row in study.rows
    }


def test_set_of_a_field_that_every_size_sets_is_refused(tmp_path):
    from ablate.errors import StudyError
    from ablate.study import Selection

    path, sizes = (
        tmp_path / "study.yaml",
        "sizes: {small: {d_model: 16}, large: {d_model: 64, eps_ls: 0.3}}\n",
    )
    path.write_text(f"{HEAD}{BASE}{sizes}{ROWS}")
    with pytest.raises(StudyError) as caught:
        read_study(path, Selection(overrides=["d_model=32"]))
    assert caught.value.lines == (
        "--set d_model=32: has no effect, because sizes set it for every row",
    )
    found = {
        row.size: row.config.label_smoothing
        for row in read_study(path, Selection(overrides=["label_smoothing=0.0"])).rows
    }
    assert found == {"small": 0.0, "large": 0.3}


def test_the_base_of_a_further_size_shows_its_tuned_value_as_a_change(tmp_path):
    from ablate.analysis.choices import runs_with_choices

    tune = "tune: {grid: {learning_rate: [0.01, 0.1]}, seeds: [9]}\n"
    study = study_from(tmp_path, f"{HEAD}{BASE}{SIZES}{tune}{ROWS}")
    tuning = Fake(tmp_path / "results", tuning_runs_of(runs_of(study)))
    for row in tuning_runs_of(runs_of(study)).rows:
        slow_is_best = row.group.startswith("small")
        ppl = 2.0 if (row.config.learning_rate == 0.01) == slow_is_best else 3.0
        tuning.logged(row.label, 9, {"step": row.config.train_steps, "dev_perplexity": ppl})
        tuning.done(row.label, 9, ppl, 0.0)
    bases = [row for row in runs_with_choices(study, tuning.results).rows if row.is_base]
    assert [row.config.learning_rate for row in bases] == [0.01, 0.1, 0.1]
    assert [row.changed.get("learning_rate") for row in bases] == [None, 0.1, 0.1]
