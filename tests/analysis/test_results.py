"""Results as pandas frames: the tidy frame, its aggregation, and `ablate.load`."""

import math
import statistics
import subprocess
import sys

import pandas as pd
import pytest

import ablate
from ablate.analysis.results import (
    aggregate,
    differences,
    measured_metrics,
    read_runs,
    results_frame,
)
from ablate.report.render import comma_separated
from tests.report.fakes import SIGNATURE, SMALL, Fake, study_from


@pytest.fixture
def results(tmp_path):
    results = Fake(tmp_path / "results", study_from(tmp_path, SMALL))
    results.all_done()
    results.folder("D dropout=0.3", 2).result.unlink()
    return results


def tidy(results):
    return results_frame(read_runs(results.study, results.results), measured_metrics(results.study))


def load(results, **options):
    return ablate.load(results.study.path, results.results.root, **options)


def line(frame, row, seed, metric):
    (found,) = frame[
        (frame["row"] == row) & (frame["seed"] == seed) & (frame["metric"] == metric)
    ].to_dict("records")
    return found


def test_tidy_frame_has_a_line_for_each_row_seed_and_metric(results):
    frame = tidy(results)
    assert list(frame.columns) == [
        "row", "group", "seed", "run", "state", "params", "steps", "seconds", "tokens_per_second", "metric", "value",
    ]  # fmt: skip
    assert len(frame) == 5 * 3 * len(measured_metrics(results.study))
    assert not frame.duplicated(["row", "seed", "metric"]).any()
    done = line(frame, "A h=1", 2, "bleu")
    assert (done["group"], done["run"], done["state"]) == (
        "A",
        results.folder("A h=1", 2).id,
        "done",
    )
    assert (done["steps"], done["seconds"]) == (100, 60.0)
    assert done["value"] == pytest.approx(25.0 - 1 / 10 - 2 / 100, abs=1e-3)
    pending = line(frame, "D dropout=0.3", 2, "bleu")
    assert pending["state"] == "pending"
    assert pd.isna(pending["steps"])
    assert pd.isna(pending["value"])


def test_aggregation_is_exact(results):
    values = [25.03, 25.84, 25.43]  # last digits of pandas' own mean and std differ
    for seed, value in zip((1, 2, 3), values, strict=True):
        results.done("base", seed, 5.0, value)
    summary = aggregate(tidy(results)).loc[("base", "bleu")]
    assert (summary["mean"], summary["std"]) == (statistics.fmean(values), statistics.stdev(values))
    assert (pd.Series(values).mean(), pd.Series(values).std()) != (summary["mean"], summary["std"])
    assert summary["n"] == 3


def test_aggregation_leaves_out_missing_values(results):
    results.folder("D dropout=0.3", 3).result.unlink()
    summary = aggregate(tidy(results))
    one = summary.loc[("D dropout=0.3", "bleu")]
    assert one["n"] == 1
    assert one["mean"] == pytest.approx(25.0 - 3 / 10 - 1 / 100, abs=1e-3)
    assert math.isnan(one["std"])
    results.folder("D dropout=0.3", 1).result.unlink()
    none = aggregate(tidy(results)).loc[("D dropout=0.3", "bleu")]
    assert none["n"] == 0
    assert math.isnan(none["mean"])


def test_differences_are_paired_by_seed(results):
    results.folder("base", 1).result.unlink()
    frame = tidy(results)
    paired = differences(frame, "base")
    for row in ("A h=1", "A h=2"):
        assert math.isnan(line(paired, row, 1, "bleu")["value"])
        for seed in (2, 3):
            expected = (
                line(frame, row, seed, "bleu")["value"] - line(frame, "base", seed, "bleu")["value"]
            )
            assert line(paired, row, seed, "bleu")["value"] == expected
    assert math.isnan(line(paired, "D dropout=0.3", 2, "bleu")["value"])
    assert paired[paired["row"] == "base"]["value"].isna().all()


def test_load_by_row_has_the_numbers_of_the_table(results):
    frame = load(results)
    table = results.table()
    assert list(frame.index) == [row.row.label for row in table.rows]
    for row in table.rows:
        cells = frame.loc[row.row.label]
        for metric in ("ppl", "bleu"):
            for prefix, scores in (
                (metric, row.scores[metric]),
                (f"delta_{metric}", row.deltas.get(metric)),
            ):
                if scores is None:  # base
                    assert cells[f"{prefix}_n"] == 0
                    continue
                assert cells[f"{prefix}_n"] == scores.n
                assert cells[f"{prefix}_mean"] == scores.mean
                assert cells[f"{prefix}_std"] == scores.std
        if row.verdicts:
            assert cells["verdict_bleu"] == row.verdicts["bleu"].word
            assert cells["delta_bleu_low"] == row.verdicts["bleu"].seed_test.low
        assert (cells["params"], cells["steps"], cells["state"]) == (
            row.params,
            row.steps,
            row.state,
        )
    assert frame.attrs == {"study": "small", "signatures": table.signatures}
    assert table.signatures["bleu"] == [SIGNATURE]
    printed = comma_separated(table).splitlines()[0].split(",")
    assert [name for name in ("row", *frame.columns) if name != "beam"] == [
        name for name in printed if not name.startswith("paper_")
    ]
    assert list(frame["beam"]) == [4, 4, 4, 4, 1]  # no field of Table 3, but of a row


def test_the_paper_s_scores_are_loaded_on_request_only(results):
    plain, both = load(results), load(results, against="paper")
    assert not [name for name in plain if "paper" in name]
    assert both["paper_bleu"].iloc[0] == 25.8
    pd.testing.assert_frame_equal(both[list(plain)], plain)
    for options in (
        {"against": "paper", "per": "run"},
        {"against": "paper", "per": "step"},
        {"against": "us"},
    ):
        with pytest.raises(ValueError, match="against="):
            load(results, **options)


def test_load_by_run_has_ids_settings_and_scores(results):
    frame = load(results, per="run")
    assert frame.index.names == ["row", "seed"]
    assert len(frame) == 5 * 3
    assert frame.loc[("A h=1", 2), "bleu"] == results.table().rows[1].scores["bleu"].by_seed[2]
    assert frame.loc[("A h=1", 2), "run"] == results.folder("A h=1", 2).id
    assert frame.loc[("D dropout=0.3", 2), "state"] == "pending"
    assert pd.isna(frame.loc[("D dropout=0.3", 2), "bleu"])
    assert list(frame.loc[(slice(None), 1), "n_heads"]) == [4, 1, 2, 4, 4]
    assert list(frame.loc[(slice(None), 1), "beam"]) == [
        4,
        4,
        4,
        4,
        1,
    ]  # no field of Table 3, but of a row
    assert not any("paper" in column for column in frame.columns)
    means = frame.groupby("row", sort=False)["bleu"].mean()
    assert means["A h=2"] == pytest.approx(load(results).loc["A h=2", "bleu_mean"])


def test_load_by_step_has_learning_curves(results):
    results.logged(
        "A h=1", 2,
        {"step": 10, "tokens": 1000, "loss": 5.0, "lr": 0.25},
        {"step": 20, "tokens": 2000, "loss": 4.0, "lr": 0.5},
        {"step": 20, "tokens": 2000, "dev_perplexity": 60.0},
    )  # fmt: skip
    frame = load(results, per="step")
    assert frame.index.names == ["row", "seed", "step"]
    assert list(frame.columns) == ["run", "tokens", "loss", "lr", "dev_perplexity"]
    id = results.folder("A h=1", 2).id
    assert frame.index.to_list() == [("A h=1", 2, 10), ("A h=1", 2, 20)]
    assert frame.loc[("A h=1", 2, 20)].to_list() == [id, 2000, 4.0, 0.5, 60.0]
    assert math.isnan(frame.loc[("A h=1", 2, 10), "dev_perplexity"])


def test_load_by_step_without_any_log_is_an_empty_frame(results):
    frame = load(results, per="step")
    assert frame.empty
    assert frame.index.names == ["row", "seed", "step"]


def test_missing_numbers_keep_their_columns_numeric(tmp_path):
    (tmp_path / "results").mkdir()
    results = Fake(tmp_path / "results", study_from(tmp_path, SMALL))
    frame = load(results)
    assert (
        frame["delta_bleu_low"].dtype
        == frame["bleu_mean"].dtype
        == frame["seconds"].dtype
        == "float64"
    )
    assert frame["steps"].dtype == "Int64"
    assert load(results, per="run")["steps"].dtype == "Int64"


def test_results_is_the_default_root(results, monkeypatch):
    monkeypatch.chdir(results.results.root.parent)
    pd.testing.assert_frame_equal(ablate.load("study.yaml"), load(results))


def test_a_missing_results_root_is_a_warning(results, tmp_path):
    with pytest.warns(UserWarning, match="the results root .*elsewhere does not exist"):
        frame = ablate.load(results.study.path, tmp_path / "elsewhere")
    assert set(frame["state"]) == {"pending"}


def test_load_refuses_another_unit(results):
    with pytest.raises(ValueError, match="per='seed' is not one of"):
        load(results, per="seed")


def test_importing_the_package_loads_no_library():
    script = (
        "import sys, ablate; print({'torch', 'pandas', 'numpy', 'pydantic'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
