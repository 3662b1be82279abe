"""Tables with a column for each run or row: the refusal leads to a table that is judged."""

import re
from io import StringIO

import pandas as pd
import pytest

import ablate
from tests.cli.inside import inside

LINES = [
    {"row": row, "seed": seed, "loss": value}
    for row, values in (("base", (3.11, 3.12, 3.09)), ("wide", (3.01, 3.02, 2.99)))
    for seed, value in enumerate(values, 1)
]
LONG = pd.DataFrame(LINES)
PIVOT = LONG.pivot(index="row", columns="seed", values="loss")
NAMED = PIVOT.rename(columns="Seed {}".format).rename_axis("Model")
WIDE = {
    "seeds": PIVOT.to_csv(),
    "index without a name": PIVOT.rename_axis(None).to_csv(),
    "rows": LONG.pivot(index="seed", columns="row", values="loss").to_csv(),
    "sheet": NAMED.to_csv(),
    "sheet with a mean": NAMED.assign(Mean=NAMED.mean(axis=1)).to_csv(),
    "sheet with a mean of a metric": NAMED.assign(**{"mean loss": 3.0}).to_csv(),
    "folds": PIVOT.rename(columns="fold_{}".format).to_csv(sep=";"),
}
CHART = """"Step","base-s1 - eval/loss","base-s1 - eval/loss__MIN","base-s1 - eval/loss__MAX"
"100","3.1","3.1","3.1"
"200","2.7","2.7","2.7"
"""


def judged(text, tmp_path, *options):
    (tmp_path / "scores.csv").write_text(text)
    return inside("judge", tmp_path / "scores.csv", *options)


@pytest.mark.parametrize("kind", WIDE)
def test_the_call_in_the_refusal_of_a_wide_table_makes_one_that_is_judged_alike(kind, tmp_path):
    expected = ablate.judge(LONG)
    for options in ((), ("--base", "base")):
        done = judged(WIDE[kind], tmp_path, *options)
        assert done.code == 2
        assert re.search("the table has a column for each (seed|row): ", done.err)
    call = done.err.strip().split("in pandas: ")[1]
    table = pd.read_csv(StringIO(WIDE[kind]), sep=";" if kind == "folds" else ",")
    long = eval(call.replace("METRIC", "loss"), {"df": table})
    found = ablate.judge(long)
    assert found.verdict.to_dict() == expected.verdict.to_dict()
    assert found.delta_loss_mean.equals(expected.delta_loss_mean)


def test_a_chart_of_wandb_is_refused_with_the_export_that_has_a_line_for_each_run(tmp_path):
    for options in ((), ("--by", "Step")):
        done = judged(CHART, tmp_path, *options)
        assert done.code == 2
        assert "W&B has exported has a column for each run; export the table of runs" in done.err


def test_a_table_of_runs_with_numbered_columns_is_not_wide(tmp_path):
    settings = LONG.assign(**{"1": 5, "2": 6, "seed 2": 7})
    assert judged(settings.to_csv(index=False), tmp_path).code == 0
    unpaired = LONG.drop(columns="seed").assign(**{"1": 5, "2": 6})
    assert judged(unpaired.to_csv(index=False), tmp_path).code == 0
    asked = ["--metric", "Seed 1", "--lower-is-better", "Seed 1"]
    assert judged(NAMED.to_csv(), tmp_path, "--by", "Model", *asked).code == 0
    several = "seed,loss,acc\n1,3.1,0.5\n2,3.2,0.6\n"
    assert "no column names the row" in judged(several, tmp_path).err
