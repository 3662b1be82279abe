"""What could go of a run, and that nothing else does."""

import hashlib

import pytest

from ablate.store import RunFolder, checkpoints
from ablate.store.audit import Audit, audit
from ablate.store.cleaning import remove, size_of, waste_of
from ablate.store.files import write_bytes, write_json
from ablate.store.layout import RESULT_FORMAT
from ablate.store.lease import Lease

ID = "0123456789ab"
METRICS, TEXT = b'{"step": 1}\n', b"kana uno\n"


def digest(content):
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def run(tmp_path):
    """An unfinished run with two whole checkpoints."""
    run = RunFolder(tmp_path / ID)
    write_json(run.run, {"id": ID})
    write_json(run.provenance, {"device": "cpu"})
    write_bytes(run.metrics, METRICS)
    for step in (4, 8):
        checkpoints.save(run.checkpoints, step, b"w" * 100, b"s" * 200, {}, scheduled=True)
    return run


def finish(run):
    write_bytes(run.translations("abc"), TEXT)
    checkpoints.prune(run.checkpoints, {8}, finished=True)
    decodings = {"abc": {"sha256": digest(TEXT)}}
    write_json(run.result, {
        "format": RESULT_FORMAT, "id": ID, "outcome": "done", "kept_steps": [8], "decodings": decodings,
        "metrics": {"sha256": digest(METRICS)},
    })  # fmt: skip
    return run


def files(run):
    return {path.relative_to(run.path).as_posix() for path in run.path.rglob("*") if path.is_file()}


LEFT = ("result.json.damaged", ".result.json.1a2b3c4d.tmp", "checkpoints/000000012.weights.safetensors",
        "checkpoints/000000004.json.damaged", "translations/.abc.txt.1a2b3c4d.tmp")  # fmt: skip


def test_what_kills_and_damage_have_left_goes_and_nothing_else(run):
    before = files(run)
    for name in LEFT:
        write_bytes(run.path / name, b"12345")
    found = waste_of(run, weights=False)
    assert {path.relative_to(run.path).as_posix() for path in found.paths} == set(LEFT)
    assert remove(found, weights=False) == size_of(()) + 5 * len(LEFT)
    assert files(run) == before


@pytest.mark.parametrize("weights", [False, True])
def test_the_checkpoints_of_an_unfinished_run_stay(run, weights):
    before = files(run)
    assert waste_of(run, weights).paths == ()
    assert remove(waste_of(run, weights), weights) == 0
    assert files(run) == before


def test_the_weights_of_a_finished_run_go_only_when_asked(run):
    finish(run)
    assert waste_of(run, weights=False).paths == ()
    assert remove(waste_of(run, weights=True), weights=True) > 100
    assert not list(run.checkpoints.iterdir())
    assert run.read_result()["outcome"] == "done"
    look = Audit()
    audit(run, look)
    assert look.faults == []


def test_weights_stay_where_the_result_is_damaged_as_it_will_be_made_again_from_them(run):
    finish(run).result.write_text("{")
    assert waste_of(run, weights=True).paths == ()


def test_a_run_that_is_at_work_is_left_alone(run):
    write_bytes(run.path / LEFT[0], b"12345")
    worker = Lease(run.lease)
    assert worker.try_to_take()
    assert remove(waste_of(run, weights=False), weights=False) is None
    worker.release()
    assert remove(waste_of(run, weights=False), weights=False) == 5


def test_a_whole_run_is_found_whole(run):
    look = Audit()
    audit(run, look)
    assert (look.files, look.faults) == (8, [])  # run, provenance, and twice manifest, weights and state
    look = Audit()
    audit(finish(run), look)
    assert (look.files, look.faults) == (7, [])


@pytest.mark.parametrize("name", [
    "run.json", "provenance.json", "result.json", "metrics.jsonl", "translations/abc.txt",
    "checkpoints/000000008.json", "checkpoints/000000008.weights.safetensors",
])  # fmt: skip
@pytest.mark.parametrize("at", [0, -1])
def test_a_flip_in_any_file_of_a_run_is_found_and_named(run, name, at):
    path = finish(run).path / name
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)
    look = Audit()
    audit(run, look)
    assert look.faults
    assert str(path) in look.faults[0]


def test_weights_that_are_missing_of_several_are_told(run):
    write_json(finish(run).result, {**run.read_result(), "kept_steps": [4, 8]})
    look = Audit()
    audit(run, look)
    assert look.faults == [f"{run.checkpoints}: has lost the weights of step 4"]
