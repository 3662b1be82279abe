"""Scores of others, in the forms in which they come. Those of the published studies are in
test_published.py.
"""

import json
import math
import re
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

import ablate
from ablate.errors import UsageError
from ablate.judging.columns import numbered_lines
from ablate.judging.files import read_lines
from ablate.judging.judge import judged
from ablate.judging.scores import direction_of
from ablate.stats.metrics import METRICS
from ablate.tasks import TASKS
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


def test_rows_named_by_columns_and_runs_without_seeds(tmp_path):
    lines = [
        {"lr": {"base": 1, "wide": 2, "deep": 3}[row], "layers": 2, "loss": value}
        for (row, _), value in SCORES.items()
    ]
    options = ["--by", "lr", "--by", "layers", "--base", "lr=1 layers=2"]
    assert judgments(csv_of(lines), tmp_path, *options) == {
        "lr=2 layers=2": {"loss": "better"}, "lr=3 layers=2": {"loss": "cannot tell"},
    }  # fmt: skip


@pytest.mark.parametrize("text", ["nan", "inf", "diverged", "Diverged"])
def test_a_file_says_divergence_by_a_word(text, tmp_path):
    lines = [{**line, "value": text if line["row"] == "deep" else line["value"]} for line in LONG]
    assert judgments(csv_of(lines), tmp_path)["deep"] == {"loss": "worse"}
    in_json = "\n".join(map(json.dumps, lines))
    assert judgments(in_json, tmp_path, name="scores.jsonl")["deep"] == {"loss": "worse"}


def test_a_path_in_place_of_a_frame_is_refused_with_the_call_that_reads_it():
    with pytest.raises(
        UsageError, match=r"a path is no data frame; use pandas\.read_csv\('scores\.csv'\)"
    ):
        ablate.judge("scores.csv")
    with pytest.raises(UsageError, match=r"a list is no data frame; use pandas\.DataFrame"):
        ablate.judge(LONG)


def test_rows_and_metrics_of_a_frame_may_be_numbers():
    frame = pd.DataFrame({"row": [1, 1, 2, 2], "seed": [1, 2, 1, 2], 3: [1.0, 2.0, 3.0, 4.0]})
    named = frame.rename(columns={3: "3"}).astype({"row": str})
    directions = {"more_is_better": {"3": True}}
    by_number = ablate.judge(frame, base=1, metrics=[3], **directions)
    pd.testing.assert_frame_equal(
        by_number, ablate.judge(named, base="1", metrics=["3"], **directions)
    )
    with pytest.raises(UsageError, match='unknown row "4"; allowed: 1, 2'):
        ablate.judge(frame, base=4, metrics=[3], **directions)
    with pytest.raises(UsageError, match='margin: "x" is not allowed: must be a number'):
        ablate.judge(frame, base=1, metrics=[3], margin="x", **directions)


def test_nan_is_divergence_in_json_and_a_missing_value_in_a_frame(tmp_path):
    values = {"deep": math.nan}
    lines = [{**line, "value": values.get(line["row"], line["value"])} for line in LONG]
    in_json = "\n".join(map(json.dumps, lines))
    assert judgments(in_json, tmp_path, name="scores.jsonl")["deep"] == {"loss": "worse"}
    with pytest.raises(
        UsageError,
        match="line 7: loss is NaN, which may mean a missing value or a diverged run; remove",
    ):
        ablate.judge(pd.DataFrame(lines))
    wide = pd.DataFrame(WIDE)
    wide.loc[8, "loss"] = math.nan
    with pytest.raises(UsageError, match="line 9: loss is NaN"):
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
        table = judged(numbered_lines(lines), "scores", base="base", directions={})
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
    table = judged(numbered_lines(LONG), "scores", base="base", directions={})
    scores = np.array(list(SCORES.values())).reshape(3, 3)
    centered = scores - scores.mean(axis=0) - scores.mean(axis=1, keepdims=True) + scores.mean()
    sd = math.sqrt((centered**2).sum() / 4)
    assert (
        f"Standard deviation: {table.main_metric.size_text(sd)} over seeds, estimated"
        in table.experiment.notes.remarks[-1]
    )
    of_base = table.main_metric.size_text(scores[0].std(ddof=1))
    assert of_base != table.main_metric.size_text(sd)


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


def with_cell(line, **cells):
    """The scores with other cells in one line."""
    return [{**one, **cells} if number == line else one for number, one in enumerate(WIDE)]


def in_json(lines):
    return "\n".join(map(json.dumps, lines))


DEEP = "[" * 100_000
STATES = [{**line, "state": "finished"} for line in WIDE]
HALF = [{**line, "row": line["row"] if line["row"] == "base" else ""} for line in LONG]
TWICE = [{**line, "config.seed": line["seed"] + (line is WIDE[4])} for line in WIDE]
LETTERS = [{**line, "Loss": line["loss"] + 1} for line in WIDE]
# File, content, options, and a part of the line with which it is refused.
FAULTS = [
    ("nothing.csv", None, [], "nothing.csv: no such file"),
    ("run-a_seed1-tag-loss.csv", "Wall time,Step,Value\n1,,2\n", [],
     "loss.csv:2: a Step or a Wall time is not a number"),
    ("wide.csv", "row,seed,loss\na,1,2,3,4\n", [], "wide.csv:2: has more cells than the header"),
    # A decimal comma without quotes: the second line would have the loss 27 and the note 1.
    ("a.csv", "row,seed,loss,note\na,1,27\na,2,27,1\n", [], "a.csv:2: has fewer cells than the header"),
    ("a.csv", "row,seed,loss\na,1,1e200\n", [], "loss: 1e200 is not allowed: must be between"),
    ("a.csv", csv_of([{"seed": 1, "loss": 2}]), [], "no column names the row"),
    ("a.csv", csv_of([{"row": "a", "seed": 1}]), [], "which column is the metric?"),
    ("a.csv", csv_of([{**line, "metric": "q"} for line in LONG]), [], "--higher-is-better q"),
    ("a.csv", csv_of(LONG), ["--base", "wode"], 'unknown row "wode"; did you mean "wide"?'),
    ("a.csv", csv_of(LONG).replace("base", "x"), [], "which row is base? Give --base ROW"),
    ("a.csv", csv_of([{**line, "acc": 1} for line in WIDE]), [], "found loss, acc"),
    ("a.csv", csv_of(LONG).replace("3.11", "oops"), [], 'loss: "oops" is not a number'),
    ("a.csv", csv_of(WIDE).replace("3.01", "oops"), [], 'a.csv:5: loss: "oops" is not a number'),
    ("a.csv", csv_of(WIDE).replace(",", ";").replace(".", ","), ["--metric", "loss"],
     'a.csv:2: loss: "3,11" is not a number'),
    ("a.csv", csv_of([{**line, "bleu": f"2,{line['seed']}"} for line in WIDE], ";"), [],
     'bleu: "2,1" is not a number; write a point in place of the decimal comma'),
    ("a.csv", csv_of([{**line, "bleu": f"2.{line['seed']} %"} for line in WIDE]), [],
     'bleu: "2.1 %" is not a number; write the number without %'),
    ("a.jsonl", in_json({**line, "loss": line["loss"] < 3} for line in WIDE), ["--metric", "loss"],
     'loss: "False" is not a number'),
    ("a.csv", csv_of([{**line, "resample": "x"} for line in LONG]), [], 'resample: "x" is not'),
    ("a.csv", csv_of([*LONG, LONG[-1]]), [], "a.csv:11: deep, seed 3: the line is there twice; remove one of the two"),
    ("a.csv", csv_of([{**line, "seed": f"{line['row']}{line['seed']}"} for line in LONG]), [],
     "no seed in common"),
    ("a.csv", csv_of(WIDE) + "\nbase,mean,3.107\nwide,mean,3.007\n", [], 'seed: "mean" is not a number'),
    ("a.csv", csv_of(with_cell(3, loss="")), [],
     "a.csv:5: wide, seed 1, has no loss; write inf if the run diverged, or"),
    ("a.csv", csv_of([*LONG[1:], {**LONG[0], "metric": "acc"}]), ["--metric", "loss"],
     "base, seed 1, has no loss"),
    ("a.csv", csv_of([*STATES[:3], {**STATES[3], "state": ""}, *STATES[4:]]), [],
     "a.csv:5: has no state; the state of a run with a score is finished, "),
    ("a.csv", csv_of(TWICE), [],
     'a.csv:6: the columns "seed" and "config.seed" have different values, "2" and "3"; remove'),
    ("a.csv", csv_of(LETTERS), [], 'the columns "loss" and "Loss" have different values, "3.11" and'),
    ("a.csv", csv_of(LETTERS).replace("Loss", "loss"), [], '2 columns are named "loss"'),
    ("a.jsonl", '{"row": "a", "seed": 1, "loss": 1, "loss": 2}', [], ':1: two values are named "loss"'),
    *(
        ("a.csv", csv_of(with_cell(3, row=twin)), [], "look alike")
        for twin in ("wi\u200bde", "wide\ufe0f", "\uff57ide", "WIDE")
    ),
    ("a.csv", csv_of(with_cell(3, row="True")).replace("wide", "true"), [], "look alike"),
    ("a.csv", csv_of(WIDE).replace("wide", "1.1").replace("deep", "1.10"), [], "'1.1' and '1.10' look alike"),
    ("a.csv", csv_of(HALF), [],
     '"base" is the only row; there is nothing to compare it with; 6 lines left out'),
    ("a.jsonl", '{"row": "a"}\n[1]', [], ":2: is not a JSON object"),
    ("a.jsonl", f'{{"row": {DEEP}}}', [], ":1: is not a JSON object"),
    ("a.json", '[{"row": "base"', [], "a.json: is not an array of JSON objects; expected the"),
    ("a.json", "[1]", [], "a.json: entry 1 is not a JSON object; expected the"),
    ("a.json", '[{"row": 1, "row": 2}]', [], 'a.json: two values of an entry are named "row"'),
    ("a.json", DEEP, [], "a.json: is not an array of JSON objects"),
    ("a.json", "[]", [], "a.json: has no lines of scores"),
    ("a.csv", csv_of(WIDE).replace("wide", "w" * 200_000), [], ":5: field larger than field limit"),
    ("a.csv", "", [], "expected the columns"),
    ("a.csv", "\0\1", [], "expected the columns"),
    ("a.csv", csv_of(WIDE), ["--metric", "los"], 'unknown metric "los"; did you mean "loss"?'),
    ("a.csv", csv_of(WIDE), ["--by", "rou"], 'unknown column "rou"'),
    ("a.csv", csv_of(LONG[:3]), [], "there is nothing to compare it with"),
    ("a.csv", csv_of(WIDE), ["--lower-is-better", "loss", "--higher-is-better", "loss"],
     '--lower-is-better: "loss" is in --higher-is-better, too'),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "options", "message"), FAULTS, ids=range(len(FAULTS)))
def test_a_file_that_cannot_be_judged_is_one_line_that_names_it_once_and_data(
    tmp_path, name, content, options, message
):
    if content is not None:
        (tmp_path / name).write_text(content)
    done = inside("judge", tmp_path / name, *options, "--format", "json")
    assert done.code == 2
    assert message in done.err
    assert done.err.count(name) <= 1
    (fault,) = json.loads(done.out)["faults"]
    assert done.err == f"{fault['place']}: {fault['message']}\n"
    quoted = fault["problem"].startswith(('"', "unknown"))
    assert not quoted or "given" in fault
    is_answered = fault.keys() & {"remedy", "allowed", "meant"}
    assert is_answered or fault["code"] == "no-such-file"


def test_a_fault_has_the_value_what_is_allowed_and_the_name_that_is_meant(tmp_path):
    def fault(text, *options):
        file = tmp_path / "scores.csv"
        file.write_text(text)
        (found,) = json.loads(inside("judge", file, *options, "--format", "json").out)["faults"]
        return found

    scores = csv_of(WIDE)
    found = fault(scores, "--base", "bse")
    assert (found["code"], found["given"], found["meant"]) == ("unknown-name", '"bse"', "base")
    found = fault(scores.replace("base", "x"))
    assert found["choices"] == ["x", "wide", "deep"]
    found = fault(scores.replace("3.11", "1e200"))
    assert (found["given"], found["allowed"]) == ("1e200", "between -1e100 and 1e100")
    assert (found["code"], found["subject"]) == ("not-allowed", "loss")
    assert found["place"] == f"{tmp_path / 'scores.csv'}:2"
    found = fault(scores.replace("3.11", "high"))
    assert (found["given"], found["problem"]) == ('"high"', "is not a number")
    found = fault(scores, "--margin", "-1")
    assert (found["place"], found["given"]) == ("--margin", "-1")
    found = fault(scores, "--stream", "--legend")
    assert (found["code"], found["given"]) == ("no-effect", "--legend")
    found = fault(scores, "--stream", "--format=csv", "--format=json")
    assert found["place"] == "--format"
    states = csv_of([{**line, "state": "finishd"} for line in WIDE])
    found = fault(states)
    assert (found["given"], found["meant"]) == ('"finishd"', "finished")


def test_a_fault_names_its_line_of_several_files_and_of_json(tmp_path):
    whole, text = tmp_path / "a.csv", tmp_path / "b.json"
    whole.write_text("row,seed,loss\nbase,1,2.0\n")
    text.write_text('{"row": "w", "seed": 1, "loss": 2}\n\n{"row": "w", "seed": 2, "loss": "x"}\n')
    assert 'b.json:3: loss: "x" is not a number' in inside("judge", text).err
    assert 'b.json:3: loss: "x" is not a number' in inside("judge", whole, text).err


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
     ("train/perplexity", False), ("steps", None), ("loss_f1", None), ("glossary", None),
     ("neg_mean_squared_error", None), ("time_to_accuracy", None), ("accuracy_std", None)],
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
        "print([n for n in ('torch', 'pandas', 'matplotlib', 'scipy.stats') if n in sys.modules])"
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


def conclusions(content, tmp_path, *options, name="scores.csv"):
    """What the command prints on a file, or its error."""
    file = tmp_path / name
    file.write_text(content)
    done = inside("judge", file, *options)
    assert done.code in (0, 2)
    assert done.code == 0 or done.err.count("\n") == 1
    return done.out + done.err


# Two runs of `a` diverged: without them, it would be better than base.
DIVERGED = [
    {"row": row, "seed": seed, "state": "done" if loss else "diverged", "loss": loss}
    for row, losses in {
        "base": (2.10, 2.12, 2.11, 2.09, 2.11),
        "a": (2.00, "", "", 2.01, 2.02),
    }.items()
    for seed, loss in enumerate(losses, 1)
]
# Base and one row, with a difference that five seeds show.
PAIR = [
    {"row": row, "seed": seed, "loss": loss}
    for row, losses in {
        "base": (2.10, 2.12, 2.11, 2.09, 2.11),
        "wide": (2.00, 2.01, 2.02, 2.01, 2.02),
    }.items()
    for seed, loss in enumerate(losses, 1)
]


def test_a_run_whose_state_is_diverged_counts_as_diverged_whatever_its_cell_has(tmp_path):
    for cell in ("", "nan", "1.99"):
        lines = [
            {**line, "loss": cell if line["state"] == "diverged" else line["loss"]}
            for line in DIVERGED
        ]
        assert judgments(csv_of(lines), tmp_path)["a"] == {"loss": "cannot tell"}
        in_json = "\n".join(json.dumps({**line, "loss": line["loss"] or None}) for line in lines)
        found = judgments(in_json, tmp_path, name="scores.jsonl")
        assert found["a"] == {"loss": "cannot tell"}
    frame = pd.DataFrame(DIVERGED).replace({"loss": {"": math.nan}})
    assert ablate.judge(frame).loc["a", "verdict"] == "cannot tell"
    survivors = [line for line in DIVERGED if line["state"] == "done"]
    assert judgments(csv_of(survivors), tmp_path)["a"] == {"loss": "better"}


def test_a_run_that_diverged_in_a_metric_that_is_not_asked_for_has_diverged(tmp_path):
    lines = [line for line in LONG if line["row"] != "deep"]
    lines += [{**line, "metric": "ppl", "value": "nan"} for line in LONG if line["row"] == "deep"]
    assert judgments(csv_of(lines), tmp_path, "--metric", "loss")["deep"] == {"loss": "worse"}
    half = [{**line, "acc": 0.5, "loss": "nan"} if line is WIDE[3] else {**line, "acc": 0.5} for line in WIDE]  # fmt: skip
    text = conclusions(csv_of(half), tmp_path, "--metric", "acc", "--metric", "loss")
    assert "wide, seed 1: loss is nan, and acc 0.5; write inf for both" in text


CURVE_COLUMNS = (
    "step", "_step", "global_step", "epoch", "trainer/global_step", "train/epoch", "Iter", "steps",
    "tokens",
)  # fmt: skip


@pytest.mark.parametrize("column", CURVE_COLUMNS)
def test_the_evaluations_of_one_training_are_not_seeds(column, tmp_path):
    curve = [
        {"row": row, column: step, "loss": start - step / 1000}
        for row, start in (("base", 3.3), ("a", 3.2))
        for step in range(100, 1100, 100)
    ]
    fault = "base has lines at 10 steps, and no column has the seed or the run"
    assert fault in conclusions(csv_of(curve), tmp_path)
    assert fault in conclusions("\n".join(map(json.dumps, curve)), tmp_path, name="a.jsonl")
    assert fault in conclusions(csv_of(curve), tmp_path, "--stream")
    with pytest.raises(UsageError, match="base has lines at 10 steps"):
        ablate.judge(pd.DataFrame(curve))
    of_runs = [{"run_id": line["row"] + "1", **line} for line in curve]
    of_seeds = [{"seed": 1, **line} for line in curve]
    fault = f'scores.csv:3: base, seed 1: lines at 10 steps, by the column "{column}": '
    for lines in (of_runs, of_seeds):
        assert fault in conclusions(csv_of(lines), tmp_path)
        assert "keep only the last line" in conclusions(csv_of(lines), tmp_path, "--stream")
    at_one_step = [{**line, column: 100} for line in of_seeds]
    assert "loss has two values" in conclusions(csv_of(at_one_step), tmp_path)


@pytest.mark.parametrize("column", ["fold", "trial", "Replicate", "run", "params.k", "site"])
def test_a_column_that_may_pair_runs_is_named_where_it_is_not_used(column, tmp_path):
    values = ["north", "south", "east"] if column == "site" else [1, 2, 3]
    lines = [
        {"row": row, column: values[seed - 1], "lr": 0.1 * seed, "loss": value}
        for (row, seed), value in SCORES.items()
    ]
    independent = "No column seed: runs are taken as independent, and rows are not paired"
    named = f'Not used: the column "{column}". Rename it to seed if runs with the same value'
    text = " ".join(conclusions(csv_of(lines), tmp_path).split())
    assert independent in text
    assert named in text
    with_seeds = csv_of([{**line, "seed": line[column]} for line in lines])
    assert "Not used" not in conclusions(with_seeds, tmp_path)
    # A value that is there twice in a row, or not in every row, pairs nothing. Two lines with the
    # same `run` are refused.
    for value in (7,) if column == "run" else (values[1], 7):
        others = [{**lines[0], column: value}, *lines[1:]]
        text = " ".join(conclusions(csv_of(others), tmp_path).split())
        assert independent in text
        assert "Not used" not in text


def test_whole_scores_and_settings_do_not_look_like_a_column_that_pairs_runs(tmp_path):
    lines = [
        {"row": row, "acc": 80 + run, "quality": 70 + run, "lr": run / 10, "model": "small"}
        for row in ("base", "wide")
        for run in (1, 2, 3)
    ]
    options = ["--higher-is-better", "quality", "--metric", "quality"]
    text = conclusions(csv_of(lines), tmp_path, *options)
    assert "No column seed" in text
    assert "Not used" not in text


def test_a_split_of_cross_validation_may_be_the_seed(tmp_path):
    lines = [{"row": row, "split": seed, "loss": value} for (row, seed), value in SCORES.items()]
    assert "rename it to seed" in conclusions(csv_of(lines), tmp_path)
    renamed = csv_of(lines).replace("split", "seed")
    assert "Better than base: wide" in conclusions(renamed, tmp_path)
    lines[0]["split"] = 4
    assert "rename it to seed" not in conclusions(csv_of(lines), tmp_path)


def test_a_metric_asked_for_with_the_prefix_of_mlflow_has_its_plain_name(tmp_path):
    quality = [{**line, "metrics.q": 10 - line["metrics.loss"]} for line in MLFLOW]
    long = [{**line, "metric": "metrics.loss"} for line in LONG]
    for lines, metric in ((MLFLOW, "loss"), (quality, "q"), (long, "loss")):
        option = "--lower-is-better" if metric == "loss" else "--higher-is-better"
        for prefix in ("", "metrics."):
            for options in ([option, prefix + metric], ["--metric", prefix + metric]):
                if options[0] == "--metric" and metric == "q":
                    options += [option, "metrics.q"]
                found = judgments(csv_of(lines), tmp_path, *options)
                assert found == {"wide": {metric: "better"}, "deep": {metric: "cannot tell"}}
                assert "metrics." not in conclusions(csv_of(lines), tmp_path, *options)


def test_a_folder_has_the_call_with_its_files(tmp_path):
    folder = tmp_path / "my runs"
    folder.mkdir()
    assert inside("judge", folder).err.endswith("is a folder; give files\n")
    (folder / "a.csv").write_text(csv_of(WIDE))
    done = inside("judge", folder)
    assert done.err.endswith(f"is a folder; give its files: ablate judge '{folder}'/*.csv\n")


@pytest.mark.parametrize("line", [1, 2, 5, 11])
def test_a_comment_in_csv_is_called_one(line, tmp_path):
    lines = csv_of(WIDE).split("\n")
    lines.insert(line - 1, "# measured on Monday")
    text = conclusions("\n".join(lines), tmp_path)
    assert f"scores.csv:{line}: is a comment, and CSV has none; remove the line" in text
    numbered = csv_of([{"#": f"#{line['seed']}", **line} for line in WIDE])
    text = conclusions(numbered.replace("3.11", "3,11"), tmp_path)
    assert "scores.csv:2: has more cells than the header" in text


def test_steps_are_a_metric_where_they_are_asked_for_and_a_setting_in_a_table_of_runs(tmp_path):
    lines = [{"row": line["row"], "steps": round(line["loss"] * 1000)} for line in WIDE]
    options = ("--metric", "steps", "--lower-is-better", "steps")
    assert "Better than base: wide" in conclusions(csv_of(lines), tmp_path, *options)
    longer = [{**line, "epochs": 20 if line["row"] == "wide" else 10} for line in WIDE]
    text = conclusions(csv_of(longer), tmp_path)
    assert "Better than base: wide" in text
    assert "Scores of different epochs: base 10, wide 20, deep 10." in text


def test_items_without_a_seed_are_those_of_one_run(tmp_path):
    lines = [
        {"row": row, "metric": "loss", "value": value + item % 7 / 10, "item": item}
        for row, value in (("base", 3.0), ("a", 2.0))
        for item in range(50)
    ]
    text = conclusions(csv_of(lines), tmp_path)
    assert "runs are taken as independent, and rows are not paired (base 1, a 1)" in text
    assert "Better" not in text


@pytest.mark.parametrize("column", [{"seed": (1, 2, 1, 2)}, {}])
def test_unfinished_runs_are_counted_by_row_if_names_have_seeds(tmp_path, column):
    names = ["base-seed1", "base-seed2", "muon-seed1", "muon-seed2"]
    lines = []
    for number, name in enumerate(names):
        line = {"Name": name, "State": "finished", "loss": 3.0 + number / 10}
        lines.append({**line, **{key: values[number] for key, values in column.items()}})
    lines[-1] |= {"State": "crashed", "loss": ""}
    text = conclusions(csv_of(lines), tmp_path)
    assert "Lines left out, because not finished: muon 1 (crashed)." in text
    assert "Rows left out" not in text
    file = tmp_path / "scores.csv"
    refusal = inside("judge", file, "--base", "bse").refusal
    assert refusal.endswith('unknown row "bse"; did you mean "base"?')
    refusal = inside("judge", file, "--base", "adam").refusal
    assert refusal.endswith("; lines left out, because not finished: muon 1 (crashed)")
    lines[-2] |= {"State": "crashed", "loss": ""}
    file.write_text(csv_of(lines))
    assert inside("judge", file, "--base", "muon").refusal.endswith(
        'unknown row "muon"; no run of this row is finished; lines left out, because not finished: '
        "muon 2 (crashed)"
    )


def without_seeds(rows):
    """A file without a column of seeds."""
    return csv_of([{"row": row, "acc": score} for row, scores in rows.items() for score in scores])


def test_a_file_sorted_by_score_without_seeds_keeps_the_error(tmp_path):
    draw = np.random.default_rng(3)
    false = 0
    for _ in range(200):
        rows = {row: np.sort(draw.normal(50, 1, 5)) for row in ("base", "a", "b", "c")}
        words = judgments(without_seeds(rows), tmp_path)
        false += any(word["acc"] in ("worse", "better") for word in words.values())
    assert false <= 0.05 * 200 + 2 * (200 * 0.05 * 0.95) ** 0.5


def test_the_order_of_lines_without_seeds_does_not_change_a_number(tmp_path):
    rows = {"base": [50.0, 51.2, 52.1, 50.7], "a": [53.1, 54.0, 52.9], "b": [49.9, 51.0, 50.2]}
    shuffled = {row: scores[::-1] for row, scores in rows.items()}
    file = tmp_path / "scores.csv"
    outputs = []
    for scores in (rows, shuffled):
        file.write_text(without_seeds(scores))
        judged_rows = json.loads(inside("judge", file, "--format", "json").out)["rows"]
        outputs.append([row["against_base"] for row in judged_rows])
    assert outputs[0] == outputs[1]
    a = outputs[0][1]["acc"]
    assert a["mean"] == pytest.approx(np.mean(rows["a"]) - np.mean(rows["base"]))


def test_names_of_runs_that_rows_share_pair_them_without_seeds(tmp_path):
    names = ["run a", "run b", "run c"]
    seeds = dict(zip(names, (1, 2, 3), strict=True))
    named = [
        {"row": row, "id": name, "loss": SCORES[row, seeds[name]]}
        for row, order in (("base", names), ("wide", names[::-1]), ("deep", names))
        for name in order
    ]
    with_seeds = judgments(csv_of(WIDE), tmp_path)
    assert judgments(csv_of(named), tmp_path) == with_seeds
    assert "rows are paired by the names of runs (base 3, wide 3, deep 3)" in conclusions(
        csv_of(named), tmp_path
    )


def test_equal_unpaired_scores_of_two_rows_are_no_proof_of_equality(tmp_path):
    rows = {"base": [50.0, 51.0, 52.0], "a": [50.0, 51.0, 52.0]}
    assert judgments(without_seeds(rows), tmp_path)["a"]["acc"] == "cannot tell"
    same = {"base": [50.0, 50.0, 50.0], "a": [50.0, 50.0, 50.0]}
    assert judgments(without_seeds(same), tmp_path)["a"]["acc"] == "no difference"


def test_scores_of_different_steps_are_noted_and_refused_without_a_state(tmp_path):
    lines = [{**line, "step": 500 if line["row"] == "wide" else 1000} for line in WIDE]
    where = "cores of different steps: base 1000, wide 500, deep 1000"
    assert f"s{where}; keep the scores of one step, or" in conclusions(csv_of(lines), tmp_path)
    ended = [{**line, "state": "finished"} for line in lines]
    text = conclusions(csv_of(ended), tmp_path)
    assert f"S{where}." in text
    assert "Better than base: wide" in text


def test_different_steps_of_every_metric_are_noted(tmp_path):
    lines = []
    for metric, wide_step in (("loss", 200), ("bleu", 300)):
        for (row, seed), value in SCORES.items():
            line = {"row": row, "seed": seed, "metric": metric, "value": value}
            lines.append({**line, "step": wide_step if row == "wide" else 100, "state": "finished"})
    file = tmp_path / "scores.csv"
    file.write_text(csv_of(lines))
    text = inside("judge", file, "--metric", "loss", "--metric", "bleu").out
    assert "Scores of different steps: base 100, wide 200, deep 100." in text
    assert "Scores of different steps: base 100, wide 300, deep 100." in text


def test_a_note_on_different_steps_keeps_the_capitals_of_row_names(tmp_path):
    lines = [{**line, "state": "finished", "step": 1000} for line in WIDE]
    for line in lines:
        if line["row"] == "wide":
            line.update(row="Wide-GQA", step=500)
    text = conclusions(csv_of(lines), tmp_path)
    assert "Scores of different steps: base 1000, Wide-GQA 500, deep 1000." in text


def scalars(tmp_path, values):
    """Files of TensorBoard, from (step, value) pairs by row and seed."""
    files = []
    for (row, seed), pairs in values.items():
        files.append(tmp_path / f"run-{row}_seed{seed}-tag-loss.csv")
        lines = [f"{time}.5,{step},{value}\n" for time, (step, value) in enumerate(pairs)]
        files[-1].write_text("Wall time,Step,Value\n" + "".join(lines))
    return files


def test_a_scalar_that_is_logged_again_after_a_resume_has_its_later_value(tmp_path):
    pairs = {
        run: [(500, 3.5), (1000, 9.9), (750, 3.2), (1000, value)] for run, value in SCORES.items()
    }
    done = inside("judge", *scalars(tmp_path, pairs), "--format", "json")
    content = json.loads(done.out)
    means = {row["row"]: row["loss"]["mean"] for row in content["rows"]}
    assert means["wide"] == pytest.approx((3.01 + 3.02 + 2.99) / 3)
    note = "Values replaced by later values at the same step: base 3, wide 3, deep 3."
    assert note in content["remarks"]


def test_scalars_that_end_at_different_steps_and_empty_files_are_refused(tmp_path):
    pairs = {run: [(500, 3.5), (1000, value)] for run, value in SCORES.items()}
    short = {**pairs, ("wide", 3): [(250, 3.9)]}
    done = inside("judge", *scalars(tmp_path, short))
    assert done.code == 2
    assert "scores of different steps: base 1000, wide 1000, 250, deep 1000" in done.err
    done = inside("judge", *scalars(tmp_path, {**pairs, ("wide", 3): []}))
    assert "run-wide_seed3-tag-loss.csv: has no lines of scores" in done.err


def test_runs_without_a_row_are_left_out_and_counted(tmp_path):
    lines = [*PAIR, *({**line, "row": ""} for line in PAIR[5:8])]
    text = conclusions(csv_of(lines), tmp_path)
    assert "WARNING: 3 lines left out, because row is empty (first line 12)" in text
    assert judgments(csv_of(lines), tmp_path) == {"wide": {"loss": "better"}}
    frame = pd.DataFrame(lines).replace({"row": {"": None}}).astype({"row": "string"})
    judged = ablate.judge(frame)
    assert list(judged.index) == ["base", "wide"]
    assert "3 lines left out" in judged.attrs["remarks"][0]
    settings = [{**line, "lr": line["row"] and 1, "opt": line["row"] or "x"} for line in lines]
    options = ["--by", "opt", "--by", "lr", "--base", "opt=base lr=1"]
    assert judgments(csv_of(settings), tmp_path, *options) == {"opt=wide lr=1": {"loss": "better"}}


def test_no_kind_of_nan_in_a_frame_is_a_divergence():
    for value in (math.nan, Decimal("NaN"), np.float32("nan")):
        frame = pd.DataFrame(PAIR).astype({"loss": object})
        frame.loc[7, "loss"] = value
        with pytest.raises(UsageError, match="line 8: loss is NaN"):
            ablate.judge(frame)
    frame = pd.DataFrame(PAIR).astype({"loss": "Float64"})
    frame.loc[7, "loss"] = pd.NA
    with pytest.raises(UsageError, match="line 8: wide, seed 3, has no loss"):
        ablate.judge(frame)


def test_trials_of_optuna_have_the_column_value(tmp_path):
    lines = [
        {"number": number, "value": line["loss"], "params_lr": line["row"], "state": "COMPLETE"}
        for number, line in enumerate(PAIR)
    ]
    options = ["--by", "params_lr", "--metric", "value", "--lower-is-better", "value"]
    assert judgments(csv_of(lines), tmp_path, *options) == {"wide": {"value": "better"}}


def test_equal_numbers_that_are_written_differently_are_one_row(tmp_path):
    rates = {"base": "0.001", "wide": "0.0003"}
    lines = [{**line, "lr": rates[line["row"]]} for line in PAIR]
    lines[-1]["lr"] = "3e-4"
    options = ["--by", "lr", "--base", "0.001"]
    assert judgments(csv_of(lines), tmp_path, *options) == {"0.0003": {"loss": "better"}}
    text = conclusions(csv_of(lines), tmp_path, *options)
    assert "lr: 3e-4 is read as 0.0003 in 1 line." in text


def test_spaces_around_a_name_and_names_of_seeds_are_read(tmp_path):
    spaced = csv_of(with_cell(3, row="wide "))
    named = re.sub(r",(\d),", r",s\1,", csv_of(WIDE))
    for text in (spaced, named):
        assert judgments(text, tmp_path)["wide"] == {"loss": "better"}


def test_runs_without_a_score_in_another_metric_are_noted(tmp_path):
    lines = [*LONG, {**LONG[0], "metric": "acc"}]
    text = conclusions(csv_of(lines), tmp_path, "--metric", "loss", "--metric", "acc")
    assert "Runs without acc: base 2, wide 3, deep 3." in text


def test_a_seed_in_another_spelling_is_the_same_seed(tmp_path):
    """Named seeds are numbered by their value, so that rows are paired."""
    lines = [{**line, "seed": {1: "a", 2: "1e3"}.get(line["seed"], line["seed"])} for line in PAIR]
    plain = csv_of(lines)
    for line in lines[len(lines) // 2 :]:
        line["seed"] = {"a": "a", "1e3": "1000"}.get(line["seed"], f"0{line['seed']}")
    text = conclusions(csv_of(lines), tmp_path)
    assert text == conclusions(plain, tmp_path)


def test_of_two_columns_with_one_plain_name_none_wins_silently(tmp_path):
    twice = [{**line, "config.seed": line["seed"]} for line in WIDE]
    assert judgments(csv_of(twice), tmp_path)["wide"] == {"loss": "better"}
    frame = pd.concat([pd.DataFrame(WIDE), pd.DataFrame(WIDE)[["loss"]]], axis=1)
    with pytest.raises(UsageError, match='two columns are named "loss"'):
        ablate.judge(frame)


@pytest.mark.parametrize(
    "word", ["COMPLETE", "COMPLETED", "TERMINATED", "Success", "succeeded", "FINISHED", "done"]
)
def test_the_words_of_other_programs_for_finished_runs(word, tmp_path):
    lines = [{**line, "status": word} for line in WIDE]
    lines += [{**line, "row": "late", "status": "PRUNED"} for line in WIDE[:2]]
    text = conclusions(csv_of(lines), tmp_path)
    assert "Better than base: wide" in text
    assert "Lines left out, because not finished: late 2 (PRUNED)." in text
    assert "Rows left out, because no run is finished: late." in text
    assert (f"Read as finished: the state {word}." in text) == (word not in ("FINISHED", "done"))
    lines[0]["status"] = "fine"
    assert (
        'scores.csv:2: unknown state "fine"; the state of a run with a score is finished'
        in conclusions(csv_of(lines), tmp_path)
    )


def test_a_seed_in_the_name_beside_a_column_seed_is_no_part_of_the_row(tmp_path):
    """As in a table of W&B's runs, and in the export of a study's own runs from MLflow."""
    named = [{"Name": f"{line['row']}_seed{line['seed']}", **line} for line in WIDE]
    for line in named:
        del line["row"]
    assert judgments(csv_of(named), tmp_path)["wide"] == {"loss": "better"}
    own = [
        {"status": "FINISHED", "metrics.loss": line["loss"], "params.seed": line["seed"],
         "tags.mlflow.runName": f"{line['row']} seed {line['seed']}", "tags.ablate.row": line["row"],
         "tags.ablate.seed": line["seed"], "tags.ablate.outcome": "done"} for line in WIDE
    ]  # fmt: skip
    assert judgments(csv_of(own), tmp_path)["wide"] == {"loss": "better"}
    some = [{"Name": line["row"] + "_seed1" * (line["row"] == "wide"), "loss": line["loss"]} for line in WIDE]  # fmt: skip
    text = conclusions(csv_of(some), tmp_path)
    assert '"wide_seed1" has a seed, and "base" has none' in text


def test_a_stream_says_what_it_leaves_out(tmp_path):
    lines = [{"row": "base", "loss": 1 + number % 5 / 10, "state": "finished"} for number in range(24)]  # fmt: skip
    lines += [{"row": "a", "loss": 1.0, "state": "crashed"}, {"row": "b", "loss": 1.0, "state": "done"}]  # fmt: skip
    text = conclusions(csv_of(lines), tmp_path, "--stream")
    assert "Lines left out, because not finished: a 1 (crashed)." in text
    content = json.loads(conclusions(csv_of(lines), tmp_path, "--stream", "--format", "json"))
    assert content["remarks"][0] == "Lines left out, because not finished: a 1 (crashed)."
    assert "Lines equal to an earlier line, counted as further runs: base 19." in content["remarks"]


@pytest.mark.parametrize("margin", [math.nan, math.inf, 0.0, -1.0])
def test_a_margin_is_a_number_above_0(margin):
    with pytest.raises(UsageError, match=r"margin: .* is not allowed"):
        ablate.judge(pd.DataFrame(LONG), margin=margin)


def test_a_name_is_taken_in_place_of_a_list_and_arguments_of_other_types_are_refused():
    frame = pd.DataFrame(WIDE).rename(columns={"row": "model"})
    listed = ablate.judge(frame, by=["model"], metrics=["loss"])
    pd.testing.assert_frame_equal(ablate.judge(frame, by="model", metrics="loss"), listed)
    by_number = frame.rename(columns={"model": 0})
    pd.testing.assert_frame_equal(ablate.judge(by_number, by=0, metrics=None), listed)
    pd.testing.assert_frame_equal(
        ablate.judge(by_number.rename(columns={0: "row"}), by=None), listed
    )
    with pytest.raises(UsageError, match='unknown column "3"'):
        ablate.judge(frame, by=3)
    directions = [{"loss": word} for word in (False, np.bool_(False))]
    found = [ablate.judge(frame, by="model", more_is_better=words) for words in directions]
    pd.testing.assert_frame_equal(*found)
    with pytest.raises(UsageError, match="margin: true is not allowed: must be a number"):
        ablate.judge(frame, by="model", margin=True)
    levels = frame.groupby("model").agg(["mean", "std"])
    with pytest.raises(UsageError, match="the columns have names of several levels; give a line"):
        ablate.judge(levels)
    with pytest.raises(UsageError, match='"loss": "lower" is not allowed: must be True or False'):
        ablate.judge(frame, more_is_better={"loss": "lower"})


def test_an_index_with_names_is_read_as_columns_and_another_is_refused_with_its_name():
    frame = pd.DataFrame(WIDE)
    expected = ablate.judge(frame)
    for names in ("row", ["row", "seed"]):
        pd.testing.assert_frame_equal(ablate.judge(frame.set_index(names)), expected)
    by_model = frame.rename(columns={"row": "model"}).set_index("model")
    pd.testing.assert_frame_equal(ablate.judge(by_model, by="model"), expected)
    with pytest.raises(UsageError, match=r"give --by model \(by='model' in Python\)"):
        ablate.judge(by_model)
    with pytest.raises(UsageError, match=r'the index has no name; .* frame.rename_axis\("row"\)'):
        ablate.judge(by_model.rename_axis(None))
    unnamed = frame.set_index(["row", "seed"]).rename_axis([None, None])
    with pytest.raises(UsageError, match=r'frame.rename_axis\(\["row", "seed"\]\)'):
        ablate.judge(unnamed)
    with pytest.raises(UsageError, match='the index and a column are named "row"'):
        ablate.judge(frame.set_index("row", drop=False))


def test_the_index_that_pandas_writes_into_a_file_counts_for_nothing(tmp_path):
    frame = pd.DataFrame(WIDE)[["row", "loss"]]
    expected = judgments(frame.to_csv(index=False), tmp_path)
    file = tmp_path / "scores.csv"
    for shuffled in (frame, frame.sample(frac=1, random_state=1)):
        assert judgments(shuffled.to_csv(), tmp_path) == expected
        assert (
            "Left out: the column without a name, which numbers the lines."
            in inside("judge", file).out
        )
        read = ablate.judge(pd.read_csv(file))
        whole = ablate.judge(frame)
        pd.testing.assert_frame_equal(read.loc[whole.index], whole)
    file.write_text(pd.concat([frame, frame.assign(loss=frame.loss + 0.1)]).to_csv())
    assert "Left out" not in inside("judge", file).out  # the numbers do not tell lines apart
    file.write_text(frame.set_index("row").rename_axis(None).to_csv())
    refusal = inside("judge", file).refusal
    assert "no column names the row; name the column without a name row" in refusal


@pytest.mark.parametrize("value", ["3_11", "1" * 400, "1e400", "-" + "1" * 400])
def test_a_number_is_not_read_as_another(value, tmp_path):
    text = csv_of(WIDE).replace("3.11", value)
    assert "scores.csv:2: loss" in conclusions(text, tmp_path)
    json_lines = "\n".join(map(json.dumps, WIDE)).replace("3.11", value)
    assert conclusions(json_lines, tmp_path, name="a.jsonl").count("\n") == 1
    text = csv_of([{**line, "seed": "1" * 4999 + str(line["seed"])} for line in WIDE])
    assert judgments(text, tmp_path)["wide"] == {"loss": "better"}


def test_a_line_of_json_ends_at_a_line_feed(tmp_path):
    lines = [{**line, "note": "one\u2028two\x85three"} for line in WIDE]
    text = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    assert judgments(text, tmp_path, name="a.jsonl")["wide"] == {"loss": "better"}


@pytest.mark.parametrize("form", ["text", "json", "csv", "latex", "html", "markdown"])
@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("a\x01b", "the row 'a\\x01b' contains '\\x01', which cannot be printed"),
        ("a\0b", "contains '\\x00'"),
        ("a\ud800b", "contains '\\ud800'"),
        ("a\uffffb", "contains '\\uffff'"),
        ("x" * 200_000, "the name of a row has 200,000 characters"),
    ],
)
def test_a_name_that_no_page_can_show_is_refused(row, fault, form, tmp_path):
    lines = [{**line, "row": row if line["row"] == "wide" else line["row"]} for line in PAIR]
    text = "\n".join(map(json.dumps, lines))
    options = ["--format", form, "--out", tmp_path / "page.html"]
    found = conclusions(text, tmp_path, *options, name="a.jsonl")
    assert fault in found.replace("\\\\", "\\")
    assert len(found) < 1000


@pytest.mark.parametrize("row", ["[1pt]", "* z", "[", "*"])
def test_a_name_of_a_row_is_no_option_of_the_command_before_it(row, tmp_path):
    """In LaTeX, \\\\ takes [1pt] in the next line as its argument, and * as a part of itself."""
    lines = [{**line, "row": row if line["row"] == "wide" else line["row"]} for line in PAIR]
    text = conclusions(csv_of(lines), tmp_path, "--format", "latex")
    inside_tabular = text.split(r"\begin{tabular}")[1].split(r"\end{tabular}")[0]
    assert f"\n    {{}}{row} & " in inside_tabular
    assert not [line for line in inside_tabular.splitlines() if line.strip()[:1] in ("[", "*")]


def test_an_array_of_json_is_read_as_its_lines_are(tmp_path):
    text = json.dumps(WIDE, indent=1)
    assert conclusions(text, tmp_path, name="a.json") == conclusions(csv_of(WIDE), tmp_path)


def test_metrics_of_the_built_in_tasks_are_known_to_judge():
    for task in TASKS.values():
        assert {name: METRICS[name] for name in task.metrics} == task.metrics


def test_numbers_that_count_the_runs_of_each_row_are_no_ids_of_shared_trainings():
    """Rows of equal ids are base's trainings in another decoding, whose noise is another one."""
    lines = [
        {"row": row, "replicate": seed, "accuracy": score}
        for row, scores in (("base", (81.0, 85.2, 79.1)), ("x", (84, 80.5, 85.1)), ("y", (87, 83.5, 86)))
        for seed, score in enumerate(scores, 1)
    ]  # fmt: skip
    plain = ablate.judge(pd.DataFrame(lines))
    paired = ablate.judge(pd.DataFrame([{**line, "seed": line["replicate"]} for line in lines]))
    for kind in (int, float, str):
        counted = ablate.judge(
            pd.DataFrame([{**line, "run": kind(line["replicate"])} for line in lines])
        )
        pd.testing.assert_frame_equal(counted, plain)
    ids = ablate.judge(pd.DataFrame([{**line, "run": f"r{line['replicate']}"} for line in lines]))
    assert not ids.equals(plain)  # an id is shared
    assert 'Rows that share trainings, by the column "run": base, x, y.' in ids.attrs["remarks"]
    # A training has one seed, so the name of a sweep or of a row is no id of a training.
    for name in ("sweep-7", None):
        named = [{**line, "run": name or line["row"]} for line in lines]
        seeded = [{**line, "seed": line["replicate"]} for line in named]
        found = ablate.judge(pd.DataFrame(seeded))
        pd.testing.assert_frame_equal(found, paired)
        assert any("several seeds: sweep-7" in text for text in found.attrs["remarks"]) == bool(
            name
        )


def test_a_logarithm_of_perplexity_is_no_perplexity():
    """Its logarithm is not taken again, and 1 is no bound of it."""
    lines = []
    for row, scores in (("base", (1.10, 1.12, 1.09)), ("x", (1.02, 1.01, 1.03))):
        lines += [{"row": row, "seed": s, "log_ppl": v, "nll": v} for s, v in enumerate(scores, 1)]
    found = ablate.judge(pd.DataFrame(lines), metrics=["log_ppl", "nll"])
    for name in ("mean", "low", "high", "p"):
        assert found[f"delta_log_ppl_{name}"]["x"] == found[f"delta_nll_{name}"]["x"]


@pytest.mark.parametrize(
    ("column", "values"),
    [("signature", ("tok:13a", "tok:zh")), ("split", ("dev", "test")), ("lang", ("de", ""))],
)
def test_scores_of_different_text_or_signature_are_refused(column, values, tmp_path):
    lines = [{**line, column: values[line["row"] != "base"]} for line in WIDE]
    file = tmp_path / "scores.csv"
    file.write_text(csv_of(lines))
    done = inside("judge", file)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert (
        f'loss has scores with different values of "{column}": base {values[0]}, wide' in done.err
    )
    assert judgments(csv_of([{**line, column: values[0]} for line in WIDE]), tmp_path)


@pytest.mark.parametrize(
    ("base", "row"), [("best", "last"), ("out/1/best.pt", "out/2/step-500.pt"), ("ema", "")]
)
def test_scores_of_differently_chosen_checkpoints_are_refused(base, row, tmp_path):
    values = {"base": base, "wide": row, "deep": base}
    lines = [{**line, "checkpoint": values[line["row"]]} for line in WIDE]
    text = conclusions(csv_of(lines), tmp_path)
    assert f'different values of "checkpoint": base {base}, wide {row or "none"}; keep' in text
    paths = [{**line, "ckpt": f"{line['row']}/{line['seed']}/best.pt"} for line in WIDE]
    assert judgments(csv_of(paths), tmp_path)


def test_a_diverged_run_was_not_measured_and_has_no_signature(tmp_path):
    lines = [{**line, "signature": "tok:13a"} for line in WIDE]
    diverged = {**lines[-1], "signature": "", "loss": "inf"}
    assert judgments(csv_of([*lines[:-1], diverged]), tmp_path)


@pytest.mark.parametrize("share", [0.91, 0.85])
def test_shares_beside_percentages_are_refused(share, tmp_path):
    lines = f"row,seed,accuracy\nbase,1,{share}\nbase,2,{share}1\nx,1,91.0\nx,2,91.5\n"
    file = tmp_path / "scores.csv"
    file.write_text(lines)
    done = inside("judge", file)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert f"accuracy is {share} in one run and 91 in another" in done.err
    assert judgments(lines, tmp_path, "--higher-is-better", "accuracy")
    assert judgments(lines.replace("0.", "0.00"), tmp_path)  # less than 1 %: of one scale


def test_a_perfect_score_with_a_rounding_error_is_100(tmp_path):
    lines = "row,seed,bleu\nbase,1,100.00000000000004\nbase,2,100.00000000000004\nx,1,97\nx,2,99\n"
    (tmp_path / "scores.csv").write_text(lines)
    done = inside("judge", tmp_path / "scores.csv", "--format", "json")
    _, row = json.loads(done.out)["rows"]
    assert row["against_base"]["bleu"]["high"] == 0.0


@pytest.mark.parametrize(("metric", "has_ceiling"), [("ter", False), ("bleu", True)])
def test_an_error_rate_has_no_ceiling_because_it_may_exceed_100(metric, has_ceiling, tmp_path):
    file = tmp_path / "scores.csv"
    file.write_text(f"row,seed,{metric}\nbase,1,95\nA,1,99\nbase,2,91\nA,2,95\nbase,3,99\nA,3,91\n")
    assert ("near the ceiling" in inside("judge", file).out) == has_ceiling
