"""Results as a pandas frame."""

import subprocess
import sys

import pandas as pd
import pytest

import ablate
from ablate.report.render import comma_separated, flat
from tests.report.fakes import SIGNATURE, SMALL, Fake, study_from


@pytest.fixture
def results(tmp_path):
    results = Fake(tmp_path / "results", study_from(tmp_path, SMALL))
    results.all_done()
    results.folder("D dropout=0.3", 2).result.unlink()
    return results


def given(results):
    return results.results.root, results.study.path


def test_a_line_a_row_has_every_number_in_full(results):
    frame = ablate.load(*given(results))
    table = results.table()
    assert list(frame.index) == [row.row.label for row in table.rows]
    for row in table.rows:
        for name, value in flat(row).items():
            if name != "row":
                found = frame.loc[row.row.label, name]
                assert (pd.isna(found) and value is None) or found == value
    assert frame.attrs == {"study": "small", "signatures": table.signatures}
    assert table.signatures["bleu"] == [SIGNATURE]
    assert ["row", *frame.columns] == comma_separated(table).splitlines()[0].split(",")


def test_a_line_a_run_has_each_seeds_scores(results):
    frame = ablate.load(*given(results), per="run")
    assert frame.index.names == ["row", "seed"]
    assert len(frame) == 5 * 3
    assert frame.loc[("A h=1", 2), "bleu"] == results.table().rows[1].bleu.by_seed[2]
    assert frame.loc[("D dropout=0.3", 2), "state"] == "pending"
    assert pd.isna(frame.loc[("D dropout=0.3", 2), "bleu"])
    means = frame.groupby("row", sort=False)["bleu"].mean()
    assert means["A h=2"] == pytest.approx(ablate.load(*given(results)).loc["A h=2", "bleu_mean"])


def test_anything_else_is_refused(results):
    with pytest.raises(ValueError, match='per is "row" or "run", not'):
        ablate.load(*given(results), per="seed")


def test_importing_the_package_loads_nothing_heavy():
    script = "import sys, ablate; print({'torch', 'pandas', 'numpy', 'pydantic'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
