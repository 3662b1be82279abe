"""Cost of a row: time, tokens per second and FLOPs."""

import pytest

from ablate.config import cost
from ablate.config.lengths import Lengths
from ablate.store.records import Provenance
from ablate.table.columns.layouts import full_layout
from tests.records import change


def with_cost(table):
    """The full layout with the columns of cost."""
    return full_layout(table, str, "*", with_cost=True)


def test_time_and_rate_are_means_over_seeds_and_flops_count_the_steps_made(fake):
    results = fake(seeds="1,2")
    for seed, seconds in ((1, 100.0), (2, 300.0)):
        results.done("base", seed, 5.0, 25.0, seconds=seconds, steps=70, tokens=60_000)
    row = results.table().rows[0]
    assert row.recipe.cost.seconds.mean == 200.0
    assert row.recipe.cost.tokens_per_second.by_seed == {1: 600.0, 2: 200.0}
    assert row.recipe.cost.flops == pytest.approx(
        70 * cost.flops_per_step(results.study.base.config, 200, Lengths.assumed())
    )
    heads = {column.head: column.cells for column in with_cost(results.table()).columns}
    assert heads["tokens/s"][0] == "400 ±283"
    assert heads["time"] == ("3 min", "", "", "", "")
    assert heads["FLOPs"][0]


def test_times_measured_on_different_devices_bring_a_warning(fake):
    results = fake(seeds="1").all_done()
    assert not any("WARNING" in line for line in with_cost(results.table()).legend)
    change(Provenance, results.folder("A h=1", 1).provenance, device="Some GPU")
    trained, warning = with_cost(results.table()).legend[-2:]
    assert "Some GPU" in trained
    assert "their times cannot be compared" in warning
