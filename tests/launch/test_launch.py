"""Disk space is checked before anything is trained."""

import shutil
from collections import namedtuple
from types import SimpleNamespace

import pytest

from ablate.config import cost
from ablate.config.resolve import resolve_row
from ablate.errors import MachineError, StoreError
from ablate.plan.resources import refuse_full_disk
from ablate.store import Results, RunFolder
from tests.records import RUN, an_execution

V = 500
SMALL, LARGE = (resolve_row({"d_model": d, "average_checkpoints": 2}) for d in (64, 128))
Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def free(monkeypatch):
    """Set the free bytes of every disk."""

    def free(n):
        monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(2 * n + 1, n + 1, n))

    return free


def needed(at_once):
    """For 2 runs of SMALL and 1 of LARGE: each keeps 2 sets of weights, and trains with 3
    checkpoints.
    """
    W = {c: 4 * cost.parameters(c, V) for c in (SMALL, LARGE)}
    working = sorted([9 * W[LARGE] - 2 * W[LARGE], 7 * W[SMALL], 7 * W[SMALL]], reverse=True)
    return 2 * (2 * W[SMALL] + W[LARGE]) + sum(working[:at_once])


def runs_of(*configs):
    data = SimpleNamespace(vocab_size=V)
    return [
        SimpleNamespace(id=f"{index:012x}", config=config, data=data)
        for index, config in enumerate(configs)
    ]


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_one_byte_too_few_is_refused_with_both_numbers(tmp_path, free, at_once):
    runs = runs_of(SMALL, LARGE, SMALL)
    free(needed(at_once))
    refuse_full_disk(runs, Results(tmp_path / "not" / "there"), at_once)
    free(needed(at_once) - 1)
    with pytest.raises(
        MachineError, match=r"the missing runs need .*B, and .*B are free; make room"
    ):
        refuse_full_disk(runs, Results(tmp_path), at_once)


def test_files_that_the_runs_have_already_written_are_subtracted(tmp_path, free):
    free(needed(1) - 1000)
    runs = runs_of(SMALL, LARGE, SMALL)
    written = Results(tmp_path).run(runs[0].id).checkpoints
    written.mkdir(parents=True)
    (written / "1.safetensors").write_bytes(bytes(1000))
    refuse_full_disk(runs, Results(tmp_path), 1)


@pytest.mark.parametrize("has_result", [True, False])
def test_files_of_one_run_leave_no_room_for_another(tmp_path, free, has_result):
    large, small = runs_of(LARGE, SMALL)
    results = Results(tmp_path)
    finished = results.run(large.id)
    finished.checkpoints.mkdir(parents=True)
    with (finished.checkpoints / "1.safetensors").open("wb") as file:
        file.truncate(10**9)  # a sparse file, larger than all that the runs need
    if has_result:  # it lacks only a decoding
        finished.result.touch()
    space = 9 * 4 * cost.parameters(SMALL, V)
    free(space)
    refuse_full_disk([large, small], results, 2)
    free(space - 1)
    with pytest.raises(MachineError):
        refuse_full_disk([large, small], results, 2)


def test_no_missing_run_needs_no_space(tmp_path, free):
    free(0)
    refuse_full_disk([], Results(tmp_path), 2)


def begun(folder, setting, **fields):
    """What a run began with, these fields of execution.json, and the study's `precision`."""
    an_execution(**fields).write(folder.execution)
    return folder.read_execution(), setting


@pytest.mark.parametrize(("setting", "fields"), [
    (None, {"device": "cuda", "precision": "bf16"}),
    (None, {"precision": "fp32"}),
    ("auto", {"device": "cuda", "precision": "fp32"}),  # a GPU without bf16
    ("fp32", {"precision": "fp32"}),
    ("tf32", {"precision": "fp32"}),  # on a CPU
    ("bf16", {"device": "cuda", "precision": "bf16"}),
    ("fp32", {"device": "cuda"}),  # a record from before the choice
])  # fmt: skip
def test_a_run_in_the_precision_that_the_study_allows_goes_on(tmp_path, setting, fields):
    folder = RunFolder(tmp_path / RUN)
    folder.refuse_other_precision(*begun(folder, setting, **fields))


def test_a_run_whose_gpu_chose_bf16_is_refused_to_a_study_that_names_fp32(tmp_path):
    folder = RunFolder(tmp_path / RUN)
    with pytest.raises(
        StoreError, match=r"began in bf16, .* sets precision=fp32; remove that setting"
    ):
        folder.refuse_other_precision(*begun(folder, "fp32", device="cuda", precision="bf16"))
