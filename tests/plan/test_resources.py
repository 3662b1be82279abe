"""Memory and disk that are not there are refused before anything is prepared."""

import json

import pytest

from ablate.config.memory import CUDA_CONTEXT, SMALLEST_MICRO_BATCH, peak_memory
from ablate.plan import plan as plan_module
from ablate.plan import resources
from ablate.store.machine import Resources
from tests.cli.inside import inside
from tests.report.fakes import SMALL, Fake, study_from

TEXT = SMALL.replace("d_model: 64, d_ff: 128", "d_model: 256, d_ff: 512").replace(
    "D: {each: {dropout: [0.3]}}", "D: {set: {d_ff: 2048}}"
)


@pytest.fixture
def fake(tmp_path):
    return Fake(tmp_path / "results", study_from(tmp_path, TEXT))


@pytest.fixture
def given(fake):
    return fake.study.path, "--results", fake.results.root


def needed(row, device="cpu", processes=1):
    tokens = SMALLEST_MICRO_BATCH
    return processes * peak_memory(row.config, 200, tokens, device, processes=processes)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_byte_too_few_for_the_smallest_micro_batch_of_the_largest_row_is_named(
    fake, processes, monkeypatch
):
    largest = fake.row("D d_ff=2048")
    bytes = needed(largest, processes=processes)
    given = [fake.planned], fake.results, Resources(device="cpu", processes=processes)
    monkeypatch.setattr(resources, "memory", lambda: bytes)
    assert resources.memory_shortage(*given) == ""
    monkeypatch.setattr(resources, "memory", lambda: bytes - 1)
    line = resources.memory_shortage(*given)
    assert line.startswith("memory: D d_ff=2048 needs ")
    assert "--rows" in line
    for seed in fake.study.seeds.rows:  # what has ended needs no memory
        fake.done("D d_ff=2048", seed, 5.0, 25.0)
    assert resources.memory_shortage(*given) == ""


@pytest.mark.parametrize("missing", [0, 1])
def test_the_smallest_gpu_of_this_machine_counts_where_nvidia_smi_answers(
    fake, missing, monkeypatch
):
    monkeypatch.setattr(plan_module, "visible_gpus", lambda: 2)
    given = [fake.planned], fake.results, Resources()
    largest = max(needed(row, "cuda") for row in fake.planned.rows)
    monkeypatch.setattr(resources, "gpu_memory", lambda: largest + CUDA_CONTEXT - missing)
    line = resources.memory_shortage(*given)
    assert ("a GPU of this machine has" in line) is bool(missing)
    monkeypatch.setattr(resources, "gpu_memory", lambda: None)
    assert resources.memory_shortage(*given) == ""


def test_a_file_system_that_does_not_know_its_size_refuses_no_run(fake, monkeypatch):
    usage = resources.shutil.disk_usage(fake.study.path.parent)
    given = fake.planned.of(fake.planned.base), fake.results, 1
    monkeypatch.setattr(resources.shutil, "disk_usage", lambda path: usage._replace(free=0))
    assert "0 B are free" in resources.disk_shortage(*given)
    monkeypatch.setattr(
        resources.shutil, "disk_usage", lambda path: usage._replace(total=0, free=0)
    )
    assert resources.disk_shortage(*given) == ""


@pytest.mark.parametrize("format", ["text", "json"])
def test_plan_prints_and_ends_as_run_does_which_prepares_nothing(fake, given, monkeypatch, format):
    monkeypatch.setattr(resources, "visible_gpus", lambda: 0)
    monkeypatch.setattr(resources, "memory", lambda: 1000)
    usage = resources.shutil.disk_usage(fake.study.path.parent)
    monkeypatch.setattr(resources.shutil, "disk_usage", lambda path: usage._replace(free=2000))
    planned, run = inside("plan", *given, "--format", format), inside("run", *given)
    assert planned.err == run.err
    assert (planned.code, run.code, run.err.count("\n")) == (4, 4, 2)
    assert "this machine has 1.00 KB" in run.err
    assert "2.00 KB are free" in run.err
    assert json.loads(planned.out)["rows"] if format == "json" else " rows, " in planned.out
    assert not fake.results.corpora.exists()
