"""How a run is carried out stays as it was begun, but for the micro-batch that turned out too large."""

import pytest

from ablate.config import resolve_row
from ablate.errors import StoreError
from ablate.run.execution import Execution, execution_of
from ablate.run.job import Unit
from ablate.store import RunFolder, checkpoints
from ablate.store.files import read_json, write_json

TEXT = "c" * 12
ROW = resolve_row({})


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "0123456789ab")


def carried_out(folder, config=ROW, training=TEXT, say=None, device="cpu", threads=1, fitting=1000, smaller=False):
    unit = Unit(str(folder.path), "", "test", {}, device, {}, threads, fitting, smaller)
    return execution_of(folder, unit, config, training, say or [].append)


def test_a_run_goes_on_with_what_it_began_with(folder):
    begun = carried_out(folder, threads=3, fitting=1000)
    assert begun == Execution(TEXT, "cpu", 3, 1000)
    assert carried_out(folder, threads=8, fitting=77) == begun
    assert read_json(folder.provenance)["threads"] == 3


@pytest.mark.parametrize(("halvings", "tokens"), [(0, 1001), (1, 501), (2, 251), (9, 2), (10, 1), (40, 1)])
def test_each_halving_halves_and_something_always_remains(halvings, tokens):
    assert Execution(TEXT, "cpu", 1, 1001, halvings).fitting_tokens == tokens


def test_after_an_end_for_want_of_memory_the_parts_are_smaller_and_stay_so(folder):
    said = []
    carried_out(folder)
    assert carried_out(folder, smaller=True, say=said.append).fitting_tokens == 500
    assert carried_out(folder, smaller=True, say=said.append).fitting_tokens == 250
    assert carried_out(folder).fitting_tokens == 250
    assert said == [f"the system ran out of memory: micro-batches of {n} tokens from here" for n in (500, 250)]


def test_what_the_study_says_of_micro_batches_holds_until_memory_does_not_suffice_for_it(folder):
    config = resolve_row({"micro_batch_tokens": 600})
    carried_out(folder)
    assert carried_out(folder, config).fitting_tokens == 600
    assert carried_out(folder, config, smaller=True).fitting_tokens == 300
    assert carried_out(folder, config).fitting_tokens == 300
    assert carried_out(folder, resolve_row({"micro_batch_tokens": 400})).fitting_tokens == 400


@pytest.mark.parametrize(("named", "message"), [
    ({"training": "d" * 12}, "was begun on text c{12}, and the files now make text d{12}"),
    ({"device": "cuda:0"}, "was begun on cpu, and its random state is of no use on cuda"),
])  # fmt: skip
def test_other_data_and_another_device_are_refused(folder, named, message):
    carried_out(folder)
    with pytest.raises(StoreError, match=message):
        carried_out(folder, **named)


def test_where_it_is_damaged_an_unfinished_run_begins_again_and_a_finished_one_keeps_its_weights(folder):
    for finished in (False, True):
        said = []
        carried_out(folder)
        checkpoints.save(folder.checkpoints, 4, b"w", b"s", {}, scheduled=True)
        if finished:
            write_json(folder.result, {"outcome": "done"})
        folder.execution.write_bytes(folder.execution.read_bytes()[:-3])
        assert carried_out(folder, threads=2, say=said.append).threads == 2
        assert [g.step for g in checkpoints.generations(folder.checkpoints)] == ([4] if finished else [])
        assert len(said) == (not finished)
        folder.execution.unlink()
