"""Progress as lines: always within the terminal, always with the active rows."""

import io
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from ablate.analysis.tuning_runs import tuning_runs_of
from ablate.plan.progress import PerplexityDifference, RowProgress, StudyProgress
from ablate.report.live_table import DECAY_WARNING, live_table
from ablate.store.records import Progress
from ablate.store.status import STATES
from ablate.study import runs_of
from ablate.table.scores import Scores
from tests.report.fakes import study_from

MANY = """\
study: many
data: {corpus: toy, vocab_size: 200}
base: {N: 2, d_model: 64, d_ff: 128, h: 4, train_steps: 100000}
seeds: [1, 2, 3]
rows:
  D: {each: {dropout: [0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.09, 0.11, 0.12, 0.13, 0.14, 0.15, 0.16]}}
  A long name for a group of rows: {each: {positional_encoding: [learned, none]}}
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return study_from(tmp_path_factory.mktemp("many"), MANY)


def standing(study, rows, **more):
    states = {
        f"{i}{seed}": state for i, row in enumerate(rows) for seed, state in row.states.items()
    }
    return StudyProgress(
        runs_of(study),
        tuple(rows),
        states,
        **{"share": 0.4, "seconds_left": 100.0, "memory": {}, **more},
    )


def all_rows(study, state="pending", **others):
    """Every row in a state; `others`: rows by their place, `r3="running"`."""
    return [
        RowProgress(
            row, dict.fromkeys((1, 2, 3), others.get(f"r{i}", state)), Scores(), Scores(), {1: AT}
        )
        for i, row in enumerate(study.rows)
    ]


def report(**fields):
    return Progress(host="here", pid=1, born=None, **{"phase": "training", **fields})


AT = report(step=53000, steps=100000, tokens_per_second=12345.6, perplexity=8.125)


def lines(standing, width, height):
    """The lines of the table on a terminal of this size."""
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    found = console.render_lines(live_table(standing, width, height), pad=False)
    return [Text("".join(segment.text for segment in line)) for line in found]


def shown(standing, width=79, height=40):
    return [line.plain.rstrip() for line in lines(standing, width, height)]


def line_of(standing, label, width=140):
    return (
        next(line for line in shown(standing, width) if line.startswith(label))
        .removeprefix(label)
        .split("  ")
    )


def words(parts):
    return [part.strip() for part in parts if part.strip()]


reports = st.fixed_dictionaries(
    {"phase": st.sampled_from(["training", "starting", "decoding", "measuring"])},
    optional={
        "step": st.integers(0, 10**8),
        "steps": st.none() | st.integers(1, 10**8),
        "perplexity": st.none() | st.floats(1, 1e9),
        "tokens_per_second": st.none() | st.floats(0, 1e9),
    },
).map(lambda fields: report(**fields))
scores = st.dictionaries(st.integers(1, 3), st.floats(0, 1e9)).map(Scores)
against = st.none() | st.builds(
    PerplexityDifference, st.floats(-1e6, 1e6), st.none() | st.integers(1, 10**8)
)


@settings(max_examples=40)
@given(data=st.data(), width=st.integers(1, 200), height=st.integers(1, 40))
def test_lines_stay_within_the_terminal(study, data, width, height):
    rows = [
        RowProgress(
            row,
            {seed: data.draw(st.sampled_from(STATES)) for seed in (1, 2, 3)},
            data.draw(scores),
            data.draw(scores),
            {1: data.draw(reports), 2: data.draw(reports), 3: data.draw(reports)},
            against_base=data.draw(against),
        )
        for row in study.rows[: data.draw(st.integers(1, len(study.rows)))]
    ]
    memory = data.draw(
        st.dictionaries(st.sampled_from(["cpu", "cuda:0"]), st.just((10**9, 10**11)))
    )
    found = lines(
        standing(study, rows, memory=memory, share=data.draw(st.floats(0, 1))), width, height
    )
    assert len(found) <= height
    assert all(line.cell_len <= width for line in found)
    assert all("\n" not in line.plain for line in found)


def test_a_training_row_shows_step_speed_and_perplexity_at_80_columns(study):
    rows = all_rows(study, r3="running")
    line = next(line for line in shown(standing(study, rows)) if "53000" in line)
    assert line.startswith("D dropout=0.03")
    assert line.split()[2:] == ["0/3", "~8.12", "53000/100000,", "12.3", "K"]


def test_several_runs_of_a_row_show_the_step_of_the_last_one(study):
    ahead = AT.model_copy(update={"step": 60000, "perplexity": 4 * AT.perplexity})
    row = RowProgress(
        study.rows[1], dict.fromkeys((1, 2, 3), "running"), Scores(), Scores(), {1: ahead, 2: AT}
    )
    said = words(line_of(standing(study, [row]), "D dropout=0.01"))
    assert said[-1] == "53000/100000, 24.7 K x2"
    assert f"~{2 * AT.perplexity:.2f}" in said  # the geometric mean, as of finished seeds


@pytest.mark.parametrize(
    ("states", "said"),
    [
        (("done", "done", "done"), "done"),
        (("done", "pending", "pending"), "pending"),
        (("done", "failed", "pending"), "failed"),
        (("done", "diverged", "pending"), "diverged at 53K"),
        (("interrupted", "pending", "pending"), "interrupted at 53K"),
        (("pending", "pending", "pending"), "pending"),
    ],
)
def test_a_row_that_does_not_train_shows_why(study, states, said):
    numbered = dict(zip((1, 2, 3), states, strict=True))
    at = {
        seed: AT
        for seed, state in numbered.items()
        if state in ("diverged", "interrupted", "failed")
    }
    row = RowProgress(study.rows[1], numbered, Scores(), Scores(), at)
    assert words(line_of(standing(study, [row]), "D dropout=0.01"))[-1] == said


def test_finished_seeds_are_counted_averaged_and_compared(study):
    states = {1: "done", 2: "done", 3: "pending"}
    row = RowProgress(
        study.rows[1],
        states,
        Scores({1: 5.0, 2: 5.5}, is_log=True),
        Scores({1: 25.0, 2: 26.0}),
        {},
        against_base=PerplexityDifference(-0.25, None),
    )
    assert words(line_of(standing(study, [row]), "D dropout=0.01")) == [
        "2/3", "5.24", "×0.779", "25.5", "pending",
    ]  # fmt: skip


def test_a_comparison_while_training_shows_its_step(study):
    row = RowProgress(
        study.rows[1],
        {1: "running", 2: "pending", 3: "pending"},
        Scores(),
        Scores(),
        {1: AT},
        against_base=PerplexityDifference(12.5, 53000),
    )
    assert "×268337 @53K" in words(line_of(standing(study, [row]), "D dropout=0.01"))


@pytest.mark.parametrize("height", [6, 8, 12, 16])
def test_a_tall_table_shows_base_and_active_rows_and_counts_the_others(study, height):
    rows = all_rows(
        study, "done", r9="running", r10="pending", r11="pending", r12="pending", r2="failed"
    )
    found = shown(standing(study, rows), 79, height)
    assert len(found) == height
    more = next(i for i, line in enumerate(found) if line.startswith("and "))
    labels = [line.split("  ")[0] for line in found[3:more]]
    assert labels[0] == "base"
    assert "D dropout=0.09" in labels  # the ninth
    assert height < 8 or "D dropout=0.02" in labels  # the second
    order = [row.row.label for row in rows]
    assert labels == sorted(labels, key=order.index)
    assert found[more].startswith(f"and {len(rows) - len(labels)} more: ")
    counts = [int(part.split()[0]) for part in found[more].partition(": ")[2].split(", ")]
    assert sum(counts) == len(rows) - len(labels)


def test_the_title_has_the_counts_and_the_time_left(study):
    rows = all_rows(study, "done", r3="running", r4="failed")
    title, bar = shown(standing(study, rows, memory={"cpu": (10**9, 25 * 10**9)}))[:2]
    assert title == "many: 51 of 54 runs, 3 running, 3 failed, about 2 min left"
    assert bar.endswith(" 40 %  memory 1.00 GB of 25.0 GB")


def test_the_title_says_if_no_process_is_running(study):
    title = shown(standing(study, all_rows(study), seconds_left=None))[0]
    assert title == "many: 0 of 54 runs, no process is running this study"


def test_the_process_that_runs_a_study_never_says_that_none_does(study):
    for seconds, left in ((None, ""), (120.0, ", about 2 min left")):
        progress = standing(study, all_rows(study), seconds_left=seconds)
        console = Console(file=io.StringIO(), width=80, height=20)
        table = live_table(progress, 80, 20, is_launcher=True)
        title = console.render_lines(table, pad=False)[0][0].text
        assert title == f"many: 0 of 54 runs{left}"


def test_100_percent_is_shown_only_at_the_end(study):
    assert "  99 %" in shown(standing(study, all_rows(study), share=0.9999))[1]
    assert " 100 %" in shown(standing(study, all_rows(study), share=1.0))[1]


def test_shortened_labels_still_differ(tmp_path):
    grid = (
        "{grid: {dropout: [0.0, 0.3], label_smoothing: [0.0, 0.2], positional_encoding: [none, "
        "learned]}}"
    )
    small = study_from(tmp_path, MANY.split("rows:")[0] + f"rows:\n  D: {grid}\n")
    found = shown(standing(small, all_rows(small)))[3:-1]
    labels = [line.split("  ")[0] for line in found]
    assert len(set(labels)) == len(labels) == 9
    assert labels[1] == "D 0.0 0.0 none"


@pytest.mark.parametrize(
    ("width", "labels"),
    [
        (80, ["base: 0.003", "base: 0.01", "D dropout=0.3: 0.003", "D dropout=0.3: 0.01"]),
        (
            120,
            [
                "base: learning_rate=0.003", "base: learning_rate=0.01",
                "D dropout=0.3: learning_rate=0.003", "D dropout=0.3: learning_rate=0.01",
            ],
        ),
    ],
)  # fmt: skip
def test_the_candidates_of_tuning_have_labels_of_one_form_and_are_counted_as_tuning_runs(
    tmp_path, width, labels
):
    tune = "tune: {grid: {learning_rate: [0.003, 0.01]}, seeds: [101]}\n"
    text = MANY.split("rows:")[0] + tune + "rows:\n  D: {each: {dropout: [0.3]}}\n"
    tuning = tuning_runs_of(runs_of(study_from(tmp_path, text)))
    rows = [RowProgress(row, {101: "done"}, Scores(), Scores(), {}) for row in tuning.rows]
    states = {str(index): "done" for index in range(4)}
    progress = StudyProgress(tuning, tuple(rows), states, 1.0, None, {})
    found = [line.plain for line in lines(progress, width, 24)]
    assert found[0].startswith("many: 4 of 4 tuning runs")
    assert [line.split("  ")[0] for line in found[3:7]] == labels


def test_shortened_labels_of_a_path_still_differ(tmp_path):
    parts = "{label_smoothing: 0.2, name-of-a-group-of-fields: {dropout: 0.3}}"
    group = f"the-long-name-of-a-group: {{leave-one-out: {parts}}}"
    small = study_from(tmp_path, MANY.split("rows:")[0] + f"rows:\n  {group}\n")
    found = shown(standing(small, all_rows(small)))[3:-1]
    labels = [line.split("  ")[0] for line in found]
    assert len(set(labels)) == len(labels) == 4


@pytest.mark.parametrize("step", [3, 133, 53_001])
def test_the_step_of_an_interrupted_run_is_whole_at_80_columns(tmp_path, step):
    steps = 10 ** len(str(step)) - 1
    text = MANY.replace("100000", str(steps))
    small = study_from(tmp_path, text)
    rows = [
        RowProgress(
            row, {1: "interrupted"}, Scores(), Scores(), {1: report(step=step, steps=steps)}
        )
        for row in small.rows
    ]
    assert all(
        line.endswith(f"interrupted at {step}")
        for line in shown(standing(small, rows))[3:-1]
        if "=" in line
    )
    assert sum(f"interrupted at {step}" in line for line in shown(standing(small, rows))) == len(
        rows
    )


def test_a_comparison_at_a_common_step_warns_once_that_rankings_can_flip(study):
    at_a_step, at_the_end = PerplexityDifference(0.5, 500), PerplexityDifference(0.5, None)
    rows = [replace(row, against_base=at_a_step) for row in all_rows(study)]
    assert shown(standing(study, rows)).count(DECAY_WARNING) == 1
    ended = [replace(row, against_base=at_the_end) for row in all_rows(study)]
    assert DECAY_WARNING not in shown(standing(study, ended))
    assert DECAY_WARNING not in shown(standing(study, all_rows(study)))


def test_base_is_counted_over_its_further_seeds(tmp_path):
    study = study_from(tmp_path, MANY.replace("[1, 2, 3]", "{rows: 2, base: 4}"))
    rows = []
    for row in study.rows[:2]:
        seeds = runs_of(study).seeds_of(row)
        rows.append(RowProgress(row, dict.fromkeys(seeds, "pending"), Scores(), Scores(), {}))
    view = standing(study, rows)
    assert words(line_of(view, "base"))[0] == "0/4"
    assert words(line_of(view, "D dropout=0.01"))[0] == "0/2"
