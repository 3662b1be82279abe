"""Scores of others, in the forms in which they come. Those of the published studies are in
test_published.py.
"""

import json
import math

import numpy as np
import pandas as pd
import pytest

import ablate
from ablate.analysis.numbers import direction_of
from ablate.analysis.score_files import read_lines
from ablate.errors import UsageError
from ablate.report.judge import judged
from tests.cli.inside import inside

SCORES = {
    ("base", 1): 3.11, ("base", 2): 3.12, ("base", 3): 3.09,
    ("wide", 1): 3.01, ("wide", 2): 3.02, ("wide", 3): 2.99,
    ("deep", 1): 3.10, ("deep", 2): 3.15, ("deep", 3): 3.10,
}  # fmt: skip


LONG = [
    {"row": row, "seed": seed, "metric": "loss", "value": value}
    for (row, seed), value in SCORES.items()
]


def judgments(content, tmp_path, *options, name="scores.csv"):
    """The words of the command on a file, by row."""
    file = tmp_path / name
    file.write_text(content)
    done = inside("judge", file, "--format", "json", *options)
    assert done.code == 0, done.err
    return {
        row["row"]: {metric: one["verdict"] for metric, one in row["against_base"].items()}
        for row in json.loads(done.out)["rows"]
        if row["against_base"]
    }


def csv_of(lines, delimiter=","):
    return "\n".join(
        delimiter.join(map(str, line)) for line in ([*lines[0]], *(one.values() for one in lines))
    )


WIDE = [{"row": row, "seed": seed, "loss": value} for (row, seed), value in SCORES.items()]
WANDB = [
    {"Name": f"sunny-{number}", "State": state, "Group": row, "Created": "2026-01-01",
     "seed": seed, "lr": 0.1, "eval/loss": value, "_step": 100}
    for number, (row, seed, value, state) in enumerate(
        [*((row, seed, value, "finished") for (row, seed), value in SCORES.items()),
         ("wide", 4, 9.0, "crashed")]
    )
]  # fmt: skip
MLFLOW = [
    {"run_id": f"{row}{seed}", "experiment_id": 0, "status": "FINISHED", "metrics.loss": value,
     "params.seed": seed, "params.lr": 0.1, "tags.mlflow.runName": row}
    for (row, seed), value in SCORES.items()
]  # fmt: skip
NAMED = [{"Name": f"{row}_seed{seed}", "loss": value} for (row, seed), value in SCORES.items()]


@pytest.mark.parametrize(
    ("lines", "metric"),
    [(LONG, "loss"), (WIDE, "loss"), (WANDB, "eval/loss"), (MLFLOW, "loss"), (NAMED, "loss")],
    ids=["long", "wide", "wandb", "mlflow", "named"],
)
def test_every_form_gives_the_same_verdicts(lines, metric, tmp_path):
    expected = {"wide": {metric: "better"}, "deep": {metric: "cannot tell"}}
    assert judgments(csv_of(lines), tmp_path) == expected
    assert judgments(csv_of(lines, ";"), tmp_path) == expected
    in_json = "\n".join(map(json.dumps, lines))
    assert judgments(in_json, tmp_path, name="scores.jsonl") == expected
    frame = ablate.judge(pd.DataFrame(lines))
    assert frame[f"verdict_{metric}"].dropna().to_dict() == {
        row: one[metric] for row, one in expected.items()
    }


def test_scalars_of_tensorboard_are_judged_by_their_last_value(tmp_path):
    files = []
    for (row, seed), value in SCORES.items():
        files.append(tmp_path / f"run-{row}_seed{seed}-tag-eval_loss.csv")
        files[-1].write_text(f"Wall time,Step,Value\n1.0,20,{value}\n2.0,10,7.5\n")
    done = inside("judge", *files, "--format", "json")
    assert done.code == 0, done.err
    means = {row["row"]: row["eval_loss"]["mean"] for row in json.loads(done.out)["rows"]}
    assert means["wide"] == pytest.approx((3.01 + 3.02 + 2.99) / 3)


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("nothing.csv", None, "nothing.csv: No such file or directory"),
        (
            "run-a_seed1-tag-loss.csv",
            "Wall time,Step,Value\n1,,2\n",
            "loss.csv: a Step is no number",
        ),
        ("wide.csv", "row,seed,loss\na,1,2,3,4\n", "wide.csv:2: has more cells than the header"),
        ("far.csv", "row,seed,loss\na,1,1e200\n", "loss 1e+200 is not allowed: must be between"),
    ],
)
def test_a_file_that_cannot_be_judged_is_one_line_that_names_it_once(tmp_path, name, content, line):
    file = tmp_path / name
    if content is not None:
        file.write_text(content)
    done = inside("judge", file)
    assert done.code == 2
    assert line in done.err
    assert (done.err.count("\n"), done.err.count(name)) == (1, 1)


def test_rows_named_by_columns_and_runs_without_seeds(tmp_path):
    lines = [
        {"lr": {"base": 1, "wide": 2, "deep": 3}[row], "layers": 2, "loss": value}
        for (row, _), value in SCORES.items()
    ]
    options = ["--row", "lr", "--row", "layers", "--base", "lr=1 layers=2"]
    assert judgments(csv_of(lines), tmp_path, *options) == {
        "lr=2 layers=2": {"loss": "better"}, "lr=3 layers=2": {"loss": "cannot tell"},
    }  # fmt: skip


def test_a_score_that_is_not_finite_is_a_divergence(tmp_path):
    lines = [{**line, "value": "nan" if line["row"] == "deep" else line["value"]} for line in LONG]
    assert judgments(csv_of(lines), tmp_path)["deep"] == {"loss": "worse"}


@pytest.mark.parametrize("text", ["nan", "inf", "diverged", "Diverged"])
def test_a_file_says_divergence_by_a_word(text, tmp_path):
    lines = [{**line, "value": text if line["row"] == "deep" else line["value"]} for line in LONG]
    assert judgments(csv_of(lines), tmp_path)["deep"] == {"loss": "worse"}
    in_json = "\n".join(map(json.dumps, lines))
    assert judgments(in_json, tmp_path, name="scores.jsonl")["deep"] == {"loss": "worse"}


def test_nan_is_divergence_in_json_and_a_missing_value_in_a_frame(tmp_path):
    values = {"deep": math.nan}
    lines = [{**line, "value": values.get(line["row"], line["value"])} for line in LONG]
    in_json = "\n".join(map(json.dumps, lines))
    assert judgments(in_json, tmp_path, name="scores.jsonl")["deep"] == {"loss": "worse"}
    with pytest.raises(UsageError, match="line 7 has no loss, but NaN; leave the line out, or"):
        ablate.judge(pd.DataFrame(lines))
    wide = pd.DataFrame(WIDE)
    wide.loc[8, "loss"] = math.nan
    with pytest.raises(UsageError, match="line 9 has no loss, but NaN"):
        ablate.judge(wide)
    wide.loc[6:8, "loss"] = math.inf
    assert ablate.judge(wide).loc["deep", "verdict_loss"] == "worse"
    with pytest.raises(UsageError, match=r"--metric NAME \(metrics=\[NAME\] in Python\)"):
        ablate.judge(wide.assign(ppl=1.0))
    assert "deep" not in ablate.judge(wide[:6]).index


def test_the_bound_of_a_loss_is_0_unless_a_score_is_below_it(tmp_path):
    def interval(shift, metric="loss"):
        scores = {("base", 1): 0.26, ("base", 2): 0.26, ("row", 1): 0.25, ("row", 2): 0.21}
        lines = [
            {"row": row, "seed": seed, "metric": metric, "value": value - shift}
            for (row, seed), value in scores.items()
        ]
        table = judged(lines, "scores", base="base", directions={})
        return table.rows[1].verdicts[metric].interval

    assert interval(0)[0] == pytest.approx(-0.26)
    assert interval(0.5)[0] == pytest.approx(-0.2841, abs=1e-4)
    # Of a perplexity it is 1.
    for metric in ("ppl", "perplexity"):
        assert interval(-0.8, metric)[0] == pytest.approx(-math.log(1.06))
        assert interval(-0.76, metric)[0] < -math.log(1.02)


def test_items_are_resampled_and_add_their_noise(tmp_path):
    draw, lines, means = np.random.default_rng(0), [], {}
    for (row, seed), value in SCORES.items():
        items = value + draw.normal(0, 1, 50)
        means[row, seed] = items.mean()
        lines += [
            {"row": row, "seed": seed, "metric": "loss", "value": one, "item": number}
            for number, one in enumerate(items)
        ]
    file = tmp_path / "items.csv"
    file.write_text(csv_of(lines))
    rows = judged(read_lines([file]), "items", base="base", directions={}).rows
    verdict = rows[1].verdicts["loss"]
    difference = np.mean([means["wide", seed] - means["base", seed] for seed in (1, 2, 3)])
    assert verdict.mean == pytest.approx(difference)
    # The bootstrap's deviation is that of a mean over 50 items of the mean difference over seeds.
    by_item = {(one["row"], one["seed"], one["item"]): one["value"] for one in lines}
    of_items = [
        np.mean([by_item["wide", s, i] - by_item["base", s, i] for s in (1, 2, 3)])
        for i in range(50)
    ]
    assert verdict.bootstrap.std == pytest.approx(np.std(of_items) / math.sqrt(50), rel=0.1)


def test_power_is_by_the_noise_that_the_rows_share():
    table = judged(LONG, "scores", base="base", directions={})
    scores = np.array(list(SCORES.values())).reshape(3, 3)
    centered = scores - scores.mean(axis=0) - scores.mean(axis=1, keepdims=True) + scores.mean()
    sd = math.sqrt((centered**2).sum() / 4)
    assert f"; sd over seeds {table.main.size_text(sd)}, in" in table.remarks[-1]
    of_base = table.main.size_text(scores[0].std(ddof=1))
    assert of_base != table.main.size_text(sd)


def test_numbers_of_resamples_may_be_floats_as_pandas_has_beside_missing_ones():
    lines = [{**line, "resample": None} for line in LONG]
    for number in range(1, 40):
        lines += [
            {**line, "value": line["value"] + 0.001 * (number % 7), "resample": number}
            for line in LONG
        ]
    frame = pd.DataFrame(lines)
    assert frame["resample"].dtype == float
    verdict = ablate.judge(frame).loc["wide"]
    assert verdict["delta_loss_mean"] == pytest.approx(-0.1)
    assert verdict["test_set_loss_low"] == pytest.approx(-0.1)


FAULTS = {
    "no row": (csv_of([{"seed": 1, "loss": 2}]), [], "no column says the row"),
    "no metric": (csv_of([{"row": "a", "seed": 1}]), [], "which column is the metric?"),
    "direction": (csv_of([{**line, "metric": "q"} for line in LONG]), [], "--higher-is-better q"),
    "base": (csv_of(LONG), ["--base", "wode"], 'unknown row "wode"; did you mean "wide"?'),
    "no base": (csv_of(LONG).replace("base", "x"), [], "which row is base? --base ROW"),
    "several": (csv_of([{**line, "acc": 1} for line in WIDE]), [], "there are loss, acc"),
    "text": (csv_of(LONG).replace("3.11", "oops"), [], 'loss "oops" is no number'),
    "text of a run": (csv_of(WIDE).replace("3.11", "oops"), [], 'loss "oops" is no number'),
    "place": (csv_of(WIDE).replace("3.01", "oops"), [], ': line 5: loss "oops" is no number'),
    "resample": (csv_of([{**line, "resample": "x"} for line in LONG]), [], 'resample "x" is not'),
    "twice": (csv_of([*LONG, LONG[-1]]), [], "deep, seed 3: loss has two values"),
    "seeds": (csv_of([{**line, "seed": line["row"]} for line in LONG]), [], "no seed in common"),
    "json": ('{"row": "a"}\n[1]', [], ":2: is no JSON object"),
    "empty": ("", [], "needed are the columns"),
    "binary": ("\0\1", [], "needed are the columns"),
    "metric": (csv_of(WIDE), ["--metric", "los"], 'unknown metric "los"; did you mean "loss"?'),
    "column": (csv_of(WIDE), ["--row", "rou"], 'unknown column "rou"'),
    "one row": (csv_of(LONG[:3]), [], "there is nothing to compare it with"),
    "wide": (csv_of(LONG), ["--wide", "--format", "json"], "--wide has no effect"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "options", "message"), FAULTS.values(), ids=FAULTS)
def test_faults_have_one_line(content, options, message, tmp_path):
    file = tmp_path / "scores.csv"
    file.write_text(content)
    done = inside("judge", file, *options)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert done.err.count("\n") == 1


def test_a_fault_names_its_line_of_several_files_and_of_json(tmp_path):
    whole, text = tmp_path / "a.csv", tmp_path / "b.json"
    whole.write_text("row,seed,loss\nbase,1,2.0\n")
    text.write_text('{"row": "w", "seed": 1, "loss": 2}\n\n{"row": "w", "seed": 2, "loss": "x"}\n')
    assert 'b.json: line 3: loss "x" is no number' in inside("judge", text).err
    assert 'b.json, line 3: loss "x" is no number' in inside("judge", whole, text).err


@pytest.mark.parametrize("form", ["wide", "long"])
def test_the_only_metric_with_a_direction_is_the_one_of_the_verdicts(form, tmp_path):
    if form == "wide":
        lines = [
            {"row": line["row"], "seed": line["seed"], "q": line["value"], "t": 1} for line in LONG
        ]
    else:
        lines = [{**line, "metric": "q"} for line in LONG] + [
            {**line, "metric": "t"} for line in LONG
        ]
    found = judgments(csv_of(lines), tmp_path, "--higher-is-better", "q")
    assert found["wide"].keys() == {"q"}
    file = tmp_path / "scores.csv"
    both = inside("judge", file, "--higher-is-better", "q", "--lower-is-better", "t")
    assert both.code == 2
    assert "--metric NAME" in both.err


@pytest.mark.parametrize(
    ("name", "more_is_better"),
    [("eval/loss", False), ("val_acc", True), ("test-F1", True), ("bleu", True),
     ("train/perplexity", False), ("steps", None), ("loss_f1", None), ("glossary", None)],
)  # fmt: skip
def test_the_words_of_a_name_tell_the_direction(name, more_is_better):
    assert direction_of(name) is more_is_better


def test_the_page_has_table_and_figure_and_nothing_of_a_study(tmp_path):
    file, page = tmp_path / "scores.csv", tmp_path / "page.html"
    file.write_text(csv_of(LONG))
    assert inside("judge", file, "--out", page).code == 0
    text = page.read_text()
    assert "Better than base: wide" in text
    assert 'data-row="deep"' in text
    assert "<svg" in text
    for part in ('id="settings"', 'id="provenance"', "params", "as base", "base configuration"):
        assert part not in text


def test_judging_loads_neither_torch_nor_pandas(tmp_path):
    import subprocess
    import sys

    file = tmp_path / "scores.csv"
    file.write_text(csv_of(LONG))
    code = (
        "import sys; from ablate.cli import main\n"
        f"sys.argv = ['ablate', 'judge', {str(file)!r}]\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print([n for n in ('torch', 'pandas', 'matplotlib', 'scipy') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_scripts_get_the_metric_of_the_verdicts_and_a_verdict_for_each_row(tmp_path):
    file = tmp_path / "scores.csv"
    file.write_text(csv_of([{"acc": 1 + number % 2, **line} for number, line in enumerate(WIDE)]))
    done = inside("judge", file, "--metric", "loss", "--metric", "acc", "--format", "json")
    content = json.loads(done.out)
    assert content["judge"] == ["loss"]
    expected = {"base": None, "wide": "better", "deep": "cannot tell"}
    assert {row["row"]: row["verdict"] for row in content["rows"]} == expected
    frame = ablate.judge(pd.read_csv(file), metrics=["loss", "acc"])
    assert frame.attrs["judge"] == ["loss"]
    assert frame["verdict"].dropna().to_dict() == {"wide": "better", "deep": "cannot tell"}


def test_a_margin_says_which_rows_are_as_good_as_base(tmp_path):
    words = judgments(csv_of(LONG), tmp_path, "--margin", "0.3")
    assert words == {"wide": {"loss": "better"}, "deep": {"loss": "as good as base"}}
    for options in (["--margin", "0"], ["--margin", "0.3", "--stream"]):
        refused = inside("judge", tmp_path / "scores.csv", *options)
        assert (refused.code, "--margin" in refused.err) == (2, True)
