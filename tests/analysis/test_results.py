"""Results as pandas frames: the tidy frame, its aggregation, and `ablate.load`."""

import math
import os
import subprocess
import sys
import warnings

import pandas as pd
import pytest

import ablate
from ablate.errors import StoreError, StudyError, UsageError
from ablate.table.render import comma_separated
from tests.records import CORPUS
from tests.report.fakes import SIGNATURE, SMALL, Fake, study_from


@pytest.fixture
def results(tmp_path):
    results = Fake(tmp_path / "results", study_from(tmp_path, SMALL))
    results.all_done()
    results.folder("D dropout=0.3", 2).result.unlink()
    return results


def load(results, **options):
    return ablate.load(results.study.path, results.results.root, **options)


def damaged_file(results, which):
    folder, id = results.folder("base", 2), results.row("base").decoding
    path = {
        "result": folder.result,
        "scores": folder.scores(id),
        "metrics": folder.metrics,
    }[which]
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(path.read_bytes()[:-9] if path.exists() else b"{")
    return path


@pytest.mark.parametrize(
    ("which", "per"),
    [
        ("result", "row"), ("result", "run"), ("result", "step"), ("scores", "row"),
        ("scores", "run"), ("metrics", "step"),
    ],
)  # fmt: skip
def test_load_refuses_numbers_without_those_of_a_damaged_file(results, which, per):
    results.logged("base", 2, {"step": 10, "tokens": 1000, "loss": 5.0, "lr": 0.25})
    load(results, per=per)
    path = damaged_file(results, which)
    with pytest.raises(StoreError) as caught:
        load(results, per=per)
    assert str(path) in str(caught.value)


def test_a_pipe_in_the_place_of_a_result_is_damage(results):
    path = results.folder("base", 2).result
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(StoreError, match="a pipe or a device in place of a file"):
        load(results)
    (fault,) = results.table().experiment.notes.faults
    assert str(path) in fault


def test_load_warns_where_flops_are_those_of_assumed_lengths(results):
    """The lengths of a corpus are lost with its manifest; a corpus that is not here is no fault."""
    load(results)
    manifest = results.results.corpora / CORPUS / "corpus.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text("{}")
    with pytest.warns(UserWarning, match=r"corpus\.json: is missing or damaged; FLOPs assume"):
        load(results)


def test_load_by_row_has_the_numbers_of_the_table(results):
    frame = load(results)
    table = results.table()
    assert list(frame.index) == [row.label for row in table.rows]
    for row in table.rows:
        cells = frame.loc[row.label]
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
            row.recipe.params,
            row.recipe.steps,
            row.state,
        )
    assert frame.attrs == {
        "study": "small",
        "judge": ["bleu"],
        "log_scale": ["ppl"],
        "signatures": table.experiment.signatures,
    }
    assert list(frame["verdict"][1:]) == list(frame["verdict_bleu"][1:])
    assert table.experiment.signatures["bleu"] == [SIGNATURE]
    printed = comma_separated(table).splitlines()[0].split(",")
    assert [name for name in ("row", *frame.columns) if name != "beam"] == printed
    printed = comma_separated(table, with_paper=True).splitlines()[0].split(",")
    assert {"paper_ppl", "paper_bleu"} < set(printed)
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
        with pytest.raises(UsageError, match="against"):
            load(results, **options)


def test_load_by_run_has_ids_settings_and_scores(results):
    frame = load(results, per="run")
    assert frame.index.names == ["row", "seed"]
    assert len(frame) == 5 * 3
    assert frame.loc[("A h=1", 2), "bleu"] == results.table().rows[1].scores["bleu"].by_seed[2]
    assert frame.loc[("A h=1", 2), "run"] == results.folder("A h=1", 2).id
    assert frame.loc[("A h=1", 2), ["steps", "seconds"]].to_list() == [100, 60.0]
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
    with pytest.warns(UserWarning, match="no run of this study has a log in ") as warned:
        frame = load(results, per="step")
    assert len(warned) == 1
    assert frame.empty
    assert frame.index.names == ["row", "seed", "step"]


def test_missing_numbers_keep_their_columns_numeric(tmp_path):
    (tmp_path / "results").mkdir()
    results = Fake(tmp_path / "results", study_from(tmp_path, SMALL))
    without = "no run of this study has a result in "
    with pytest.warns(UserWarning, match=without) as warned:
        frame = load(results)
    assert len(warned) == 1
    assert frame["flops"].isna().all()  # lengths of the corpus and steps are not known
    assert (
        frame["delta_bleu_low"].dtype
        == frame["bleu_mean"].dtype
        == frame["seconds"].dtype
        == "float64"
    )
    assert frame["steps"].dtype == "Int64"
    with pytest.warns(UserWarning, match=without):
        assert load(results, per="run")["steps"].dtype == "Int64"


def test_results_is_the_default_root(results, monkeypatch):
    monkeypatch.chdir(results.results.root.parent)
    pd.testing.assert_frame_equal(ablate.load("study.yaml"), load(results))


def test_a_missing_results_root_is_a_warning(results, tmp_path):
    with pytest.warns(UserWarning, match="the results root .*elsewhere does not exist") as warned:
        frame = ablate.load(results.study.path, tmp_path / "elsewhere")
    assert warned[0].filename == __file__  # the line of the caller
    assert set(frame["state"]) == {"pending"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a refusal stands alone
        with pytest.raises(StudyError, match="no such file"):
            ablate.load(tmp_path / "nope.yaml", tmp_path / "elsewhere")


def test_a_frame_can_be_changed_without_a_warning_of_pandas(results):
    frame = load(results, rows=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(frame.reset_index().assign(more=1).columns) == len(frame.columns) + 2
        frame["more"] = 1
    assert frame.attrs["study"] == results.study.name


@pytest.mark.parametrize(
    ("function", "argument", "value"),
    [
        (ablate.load, "study", 3),
        (ablate.load, "study", None),
        (ablate.load, "study", b"s.yaml"),
        (ablate.load, "results", 3),
        (ablate.run, "study", 3),
        (ablate.run, "on_event", "print"),
        (ablate.run, "retry_failed", "yes"),
    ],
)
def test_an_argument_of_another_type_is_refused_with_its_name(function, argument, value):
    with pytest.raises(UsageError, match=f"^{argument}: .*(is not allowed|has no value): must be"):
        function(**{"study": "s.yaml", argument: value})


def test_load_refuses_another_unit(results):
    with pytest.raises(UsageError, match="unknown row or group") as refused:
        load(results, rows="Z")
    assert [fault.code for fault in refused.value.faults] == ["unknown-name"]
    with pytest.raises(UsageError, match="data frame") as refused:
        ablate.judge("a.csv")
    assert [fault.code for fault in refused.value.faults] == ["usage"]
    with pytest.raises(UsageError, match=r'per: "runs" is not allowed: .*; did you mean "run"'):
        load(results, per="runs")


def test_importing_the_package_loads_no_library():
    script = (
        "import sys, ablate; print({'torch', 'pandas', 'numpy', 'pydantic'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
