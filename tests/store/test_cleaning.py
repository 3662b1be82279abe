"""Removable files of a run, and the audit of stored files."""

import hashlib
import shutil

import pytest

from ablate.store import RunFolder, checkpoints
from ablate.store import audit as audit_module
from ablate.store import files as files_module
from ablate.store.audit import Audit, audit
from ablate.store.cleaning import removable_files, remove_files
from ablate.store.files import size_of, write_bytes
from ablate.store.lease import Lease
from ablate.store.records import Result
from tests.records import (
    RUN,
    a_decoding,
    a_provenance,
    a_result,
    a_run,
    an_execution,
    change,
    save_checkpoint,
)

METRICS, TEXT = b'{"step": 1}\n', b"kana uno\n"


def digest(content):
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def run(tmp_path):
    """An unfinished run with two whole checkpoints."""
    run = RunFolder(tmp_path / RUN)
    a_run().write(run.run)
    a_provenance().write(run.provenance)
    write_bytes(run.metrics, METRICS)
    for step in (4, 8):
        save_checkpoint(run.checkpoints, step, b"w" * 100, b"s" * 200)
    return run


def finish(run):
    write_bytes(run.predictions("abc"), TEXT)
    an_execution().write(run.execution)
    checkpoints.prune(run.checkpoints, {8}, finished=True)
    decodings = {"abc": a_decoding(sha256=digest(TEXT))}
    a_result(kept_steps=(8,), decodings=decodings, metrics_sha256=digest(METRICS)).write(run.result)
    return run


def files(folder):
    root = folder.path if isinstance(folder, RunFolder) else folder
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def faults_in(run):
    """The faults of a run's stored files."""
    found = Audit()
    audit(run, found)
    return found.faults


LEFT = (
    "result.json.damaged",
    ".result.json.1a2b3c4d.tmp",
    "checkpoints/000000012.weights.safetensors",
    "checkpoints/000000004.json.damaged",
    "translations/.abc.txt.1a2b3c4d.tmp",
    "scores/.abc.json.1a2b3c4d.tmp",
)


def test_leftovers_of_kills_and_damage_are_removed_and_nothing_else(run):
    before = files(run)
    for name in LEFT:
        write_bytes(run.path / name, b"12345")
    found = removable_files(run, weights=False)
    assert {path.relative_to(run.path).as_posix() for path in found.paths} == set(LEFT)
    assert remove_files(found, weights=False) == 5 * len(LEFT)
    assert files(run) == before


def test_a_quarantined_folder_is_removed_with_all_that_it_holds(run):
    run.progress.mkdir()
    write_bytes(run.progress / "inside", b"12345")
    assert run.make_room() == [run.progress]
    before = files(run) - {"progress.json.damaged/inside"}
    found = removable_files(run, weights=False)
    assert size_of(found.paths) == remove_files(found, weights=False) == 5
    assert files(run) == before


@pytest.mark.parametrize(
    "name", ["000000004.json", "000000012.json", "000000012.weights.safetensors"]
)
def test_a_folder_among_the_checkpoints_does_not_keep_a_run_from_its_end(run, name):
    path = run.checkpoints / name
    path.unlink(missing_ok=True)
    (path / "inside").mkdir(parents=True)
    assert checkpoints.newest(run.checkpoints)[0].step == 8
    checkpoints.prune(run.checkpoints, {8}, finished=True)
    assert files(run.checkpoints) == {"000000008.json", "000000008.weights.safetensors"}


def test_files_that_a_kill_before_the_last_pruning_has_left_are_removed(run):
    """The result is published before the states are removed, because a killed run needs them until
    then.
    """
    a_result(kept_steps=(8,)).write(run.result)
    found = removable_files(run, weights=False)
    assert {path.name for path in found.paths} == {
        "000000004.json", "000000004.weights.safetensors", "000000004.state.safetensors", "000000008.state.safetensors",
    }  # fmt: skip
    assert remove_files(found, weights=False) > 400
    assert files(run.checkpoints) == {"000000008.json", "000000008.weights.safetensors"}
    assert {path.name for path in removable_files(run, weights=True).paths} == files(
        run.checkpoints
    )


@pytest.mark.parametrize("weights", [False, True])
def test_the_checkpoints_of_an_unfinished_run_stay(run, weights):
    before = files(run)
    assert removable_files(run, weights).paths == ()
    assert remove_files(removable_files(run, weights), weights) == 0
    assert files(run) == before


def test_the_weights_of_a_finished_run_are_removed_only_on_request(run):
    finish(run)
    assert removable_files(run, weights=False).paths == ()
    found = removable_files(run, weights=True)
    # The manifest goes first: without its weights it would look like damage.
    assert [path.name for path in found.paths] == [
        "000000008.json",
        "000000008.weights.safetensors",
    ]
    assert remove_files(found, weights=True) > 100
    assert not list(run.checkpoints.iterdir())
    assert run.read_result().outcome == "done"
    assert faults_in(run) == []


@pytest.mark.parametrize(
    ("outcome", "steps"), [("done", {"000000004", "000000008"}), ("diverged", set())]
)
def test_a_result_that_names_no_weights_has_all_or_none(run, outcome, steps):
    """As of early versions, and of a run that diverged."""
    a_result(outcome=outcome).write(run.result)
    assert {
        path.name.partition(".")[0] for path in removable_files(run, weights=True).weights
    } == steps
    left = {path.name for path in removable_files(run, weights=False).leftovers}
    assert {"000000004.state.safetensors", "000000008.state.safetensors"} <= left
    assert ("000000008.weights.safetensors" in left) == (outcome == "diverged")


def test_a_file_that_disappears_has_no_size(tmp_path):
    (tmp_path / "there").write_bytes(b"12345")
    assert size_of([tmp_path / "gone", tmp_path / "there"]) == 5


def test_weights_stay_if_the_result_is_damaged_because_it_is_made_again_from_them(run):
    finish(run).result.write_text("{")
    assert removable_files(run, weights=True).paths == ()


def test_a_run_whose_lease_is_held_is_left_alone(run):
    write_bytes(run.path / LEFT[0], b"12345")
    worker = Lease(run.lease)
    assert worker.try_to_take()
    assert remove_files(removable_files(run, weights=False), weights=False) is None
    worker.release()
    assert remove_files(removable_files(run, weights=False), weights=False) == 5


def test_cleaning_stops_as_soon_as_the_lease_is_lost(run, monkeypatch):
    """As after a suspension in which another process has taken the run."""
    for name in LEFT:
        write_bytes(run.path / name, b"12345")

    def remove_and_lose(path):
        path.unlink()
        run.lease.unlink()

    monkeypatch.setattr(files_module, "remove", remove_and_lose)
    assert (
        remove_files(removable_files(run, weights=False), weights=False) is None
    )  # `ablate clean` goes on with other runs
    assert len(files(run) & set(LEFT)) == len(LEFT) - 1


def test_an_intact_run_has_no_faults(run):
    result = Audit()
    audit(run, result)
    assert (result.files, result.faults) == (
        8,
        [],
    )  # run, provenance, and twice manifest, weights and state
    result = Audit()
    audit(finish(run), result)
    assert (result.files, result.faults) == (8, [])


def test_predictions_that_were_never_made_or_that_an_archive_leaves_out_are_no_fault(run):
    """A language model has none, and the archive of a publication has scores alone."""
    finish(run)
    change(Result, run.result, decodings={"abc": a_decoding(sha256=None)})
    run.predictions("abc").unlink()
    assert faults_in(run) == []
    change(Result, run.result, decodings={"abc": a_decoding(sha256=digest(TEXT))})
    run.predictions("abc").parent.rmdir()
    shutil.rmtree(run.checkpoints)
    assert [fault.partition(":")[0] for fault in faults_in(run)] == [str(run.predictions("abc"))]
    write_bytes(run.scores("abc"), b"{}")
    assert faults_in(run) == []


@pytest.mark.parametrize("lost", ["weights", "state"])
def test_checkpoints_that_a_run_in_progress_removes_meanwhile_are_no_fault(run, monkeypatch, lost):
    """As another process does with each save while the files are hashed."""

    def verify(path, expected):
        if lost in path.name:
            checkpoints.prune(run.checkpoints, set(), finished=True)
        files_module.verify(path, expected)

    monkeypatch.setattr(audit_module, "verify", verify)
    assert faults_in(run) == []


@pytest.mark.parametrize("part", ["weights", "state"])
def test_a_checkpoint_that_has_lost_its_weights_is_a_fault(run, part):
    """Without its state it is one that averaging needs."""
    (run.checkpoints / f"000000008.{part}.safetensors").unlink()
    assert len(faults_in(run)) == (part == "weights")


@pytest.mark.parametrize("name", [
    "run.json", "provenance.json", "result.json", "metrics.jsonl", "translations/abc.txt",
    "checkpoints/000000008.json", "checkpoints/000000008.weights.safetensors",
])  # fmt: skip
@pytest.mark.parametrize("at", [0, -1])
def test_a_flipped_bit_in_any_file_is_a_fault_that_names_the_file(run, name, at):
    path = finish(run).path / name
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)
    assert str(path) in faults_in(run)[0]


def test_damaged_weights_of_a_finished_run_have_a_remedy(run):
    path = finish(run).checkpoints / "000000008.weights.safetensors"
    path.write_bytes(b"damaged")
    assert faults_in(run) == [
        f"{path}: is damaged or missing (its SHA-256 is not the one written); remove {run.path} to "
        "train the run again"
    ]


@pytest.mark.parametrize("name", ["run.json", "execution.json", "provenance.json"])
def test_a_missing_record_of_a_finished_run_is_a_fault(run, name):
    path = finish(run).path / name
    path.unlink()
    assert faults_in(run) == [f"{path}: is missing"]


@pytest.mark.parametrize("step", [4, 8])
def test_missing_weights_are_a_fault(run, step):
    """Of a step that was never saved, or whose manifest is lost."""
    change(Result, finish(run).result, kept_steps=(4, 8) if step == 4 else (8,))
    if step == 8:
        (run.checkpoints / "000000008.json").unlink()
    assert faults_in(run) == [
        f"{run.checkpoints}: the weights of step {step} are missing; remove {run.path} to train the run again"
    ]
