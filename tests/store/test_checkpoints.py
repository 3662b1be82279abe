"""Checkpoints: whole or ignored, the newest two resumable, and only needed files kept."""

import os
import shutil

import pytest

from ablate.errors import StoreError
from ablate.store import checkpoints
from ablate.store import files as store_files
from ablate.store.lease import LeaseLost
from tests.records import a_training_state

WEIGHTS = {step: bytes(range(256)) * 4 + str(step).encode() for step in range(1, 20)}
STATE = {step: content[::-1] for step, content in WEIGHTS.items()}


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "checkpoints"


def save(folder, *steps, scheduled=True):
    for step in steps:
        info = a_training_state(step, metrics_bytes=9876)
        checkpoints.save(folder, WEIGHTS[step], STATE[step], info, scheduled)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def steps(found):
    return [checkpoint.step for checkpoint in found]


def files_of(step, *parts):
    return [f"{step:09d}.{part}" for part in parts]


KEPT = ("json", "weights.safetensors")
WHOLE = ("json", "state.safetensors", "weights.safetensors")


# Saving and finding


def test_a_saved_checkpoint_is_the_newest(folder):
    save(folder, 4)
    checkpoint, damaged = checkpoints.newest(folder)
    assert (checkpoint.step, checkpoint.scheduled, damaged) == (4, True, [])
    assert checkpoint.info == a_training_state(4, metrics_bytes=9876)
    assert checkpoint.weights.read_bytes() == WEIGHTS[4]
    assert checkpoint.state.read_bytes() == STATE[4]
    assert names(folder) == files_of(4, *WHOLE)


def test_an_empty_or_missing_folder_has_no_newest_checkpoint(folder):
    assert checkpoints.newest(folder) == (None, [])
    folder.mkdir()
    assert checkpoints.newest(folder) == (None, [])
    assert checkpoints.valid(folder) == []


def test_checkpoints_are_in_the_order_of_their_steps(folder):
    save(folder, 10, 9, 2, 11)
    assert steps(checkpoints.valid(folder)) == [2, 9, 10, 11]
    assert checkpoints.newest(folder)[0].step == 11


def test_averaging_may_use_scheduled_checkpoints_only(folder):
    save(folder, 2, 4, 8)
    save(folder, 3, 5, scheduled=False)
    assert steps(checkpoints.scheduled(folder)) == [2, 4, 8]
    assert steps(checkpoints.scheduled(folder, until=4)) == [2, 4]
    assert steps(checkpoints.scheduled(folder, until=7)) == [2, 4]
    assert steps(checkpoints.scheduled(folder, until=1)) == []


@pytest.mark.parametrize("missing", WHOLE)
def test_a_checkpoint_without_one_of_its_files_does_not_count(folder, missing):
    save(folder, 1, 2)
    (folder / files_of(2, missing)[0]).unlink()
    assert checkpoints.newest(folder)[0].step == 1


def test_a_checkpoint_whose_state_was_pruned_is_not_damaged(folder):
    save(folder, 1, 2)
    (folder / files_of(2, "state.safetensors")[0]).unlink()
    checkpoint, damaged = checkpoints.newest(folder)
    assert (checkpoint.step, damaged) == (1, [])
    assert steps(checkpoints.valid(folder)) == [1, 2]


def test_saving_replaces_the_leftovers_of_a_kill(folder):
    save(folder, 1)
    (folder / files_of(2, "weights.safetensors")[0]).write_bytes(b"half")
    (folder / ".000000002.state.safetensors.1a2b3c4d.tmp").write_bytes(b"half")
    save(folder, 2)
    assert checkpoints.newest(folder)[0].weights.read_bytes() == WEIGHTS[2]
    assert names(folder) == sorted(files_of(1, *WHOLE) + files_of(2, *WHOLE))


@pytest.mark.parametrize("call", range(1, 12))
@pytest.mark.parametrize("name", ["open", "replace", "fsync"])
def test_after_a_failed_system_call_the_newest_checkpoint_is_the_old_or_the_new_one(
    folder, monkeypatch, name, call
):
    save(folder, 1)
    owner = os if name == "fsync" else store_files.Path
    done, real, count = [], getattr(owner, name), iter(range(1, 100))

    def failing(*given, **named):
        if next(count) == call:
            done.append(call)
            raise OSError(28, "No space left on device")
        return real(*given, **named)

    monkeypatch.setattr(owner, name, failing)
    try:
        save(folder, 2)
        failed = False
    except OSError:
        failed = True
    monkeypatch.undo()
    assert failed == bool(done)
    checkpoint, damaged = checkpoints.newest(folder)
    assert damaged == []
    assert checkpoint.step in ((1, 2) if failed else (2,))
    assert checkpoint.weights.read_bytes() == WEIGHTS[checkpoint.step]
    assert not [name for name in names(folder) if name.endswith(".tmp")]


# Damage


def damage(content, at):
    return content[:at] + bytes([content[at] ^ (1 << at % 8)]) + content[at + 1 :]


def every_damage(content, every):
    """The content with one bit of every so many bytes flipped, and cut at every so many bytes."""
    yield from (damage(content, at) for at in range(0, len(content), every))
    yield from (content[:at] for at in range(0, len(content), every))


@pytest.mark.parametrize("part", ["weights", "state"])
def test_a_flipped_bit_or_a_cut_in_a_file_is_found_and_the_checkpoint_before_is_used(folder, part):
    save(folder, 1, 2)
    path = folder / f"000000002.{part}.safetensors"
    manifest, whole = folder / "000000002.json", path.read_bytes()
    described = manifest.read_bytes()
    for content in every_damage(whole, 97):
        path.write_bytes(content)
        checkpoint, (line,) = checkpoints.newest(folder)
        assert checkpoint.step == 1
        assert line == (
            f"{path}: is damaged or missing (its SHA-256 is not the one written); the checkpoint "
            f"before it is used"
        )
        assert not manifest.exists()
        assert steps(checkpoints.valid(folder)) == [1]
        manifest.write_bytes(described)
    path.write_bytes(whole)
    assert checkpoints.newest(folder)[0].step == 2


def test_a_flipped_bit_or_a_cut_in_a_manifest_is_found_and_the_checkpoint_before_is_used(folder):
    save(folder, 1, 2)
    manifest = folder / "000000002.json"
    described = manifest.read_bytes()
    for content in every_damage(described, 1):
        manifest.write_bytes(content)
        checkpoint, damaged = checkpoints.newest(folder)
        assert checkpoint.step == 1
        (line,) = damaged
        assert line.startswith(f"{manifest}: is damaged")
        assert "\n" not in line


def test_a_manifest_under_another_step_does_not_count(folder):
    save(folder, 1, 2)
    shutil.copy(folder / "000000001.json", folder / "000000003.json")
    checkpoint, damaged = checkpoints.newest(folder)
    assert checkpoint.step == 2
    assert len(damaged) == 1


def test_if_all_are_damaged_there_is_no_newest_and_a_line_for_each(folder):
    save(folder, 1, 2, 3)
    for step in (1, 2, 3):
        (folder / files_of(step, "weights.safetensors")[0]).write_bytes(b"")
    checkpoint, damaged = checkpoints.newest(folder)
    assert checkpoint is None
    assert [
        line.partition(":")[0][-len("000000003.weights.safetensors") :] for line in damaged
    ] == [
        "000000003.weights.safetensors",
        "000000002.weights.safetensors",
        "000000001.weights.safetensors",
    ]
    assert checkpoints.newest(folder) == (None, [])


def test_damaged_weights_are_refused_by_verification(folder):
    save(folder, 1)
    (checkpoint,) = checkpoints.scheduled(folder)
    assert checkpoints.verified_weights(checkpoint) == checkpoint.weights
    checkpoint.weights.write_bytes(damage(WEIGHTS[1], 300))
    with pytest.raises(StoreError, match=r"000000001\.weights\.safetensors: is damaged or missing"):
        checkpoints.verified_weights(checkpoint)
    checkpoint.weights.unlink()
    with pytest.raises(StoreError, match="is damaged or missing"):
        checkpoints.verified_weights(checkpoint)


# Pruning


def test_a_checkpoint_that_has_lost_its_state_is_none_of_the_two_resumable_ones(folder):
    save(folder, 1, 2, 3, 4)
    checkpoints.newest(folder)[0].state.unlink()
    checkpoints.prune(folder, keep_weights=set())
    assert names(folder) == [*files_of(2, *WHOLE), *files_of(3, *WHOLE)]


def test_pruning_after_every_save_never_keeps_more(folder):
    for step in range(1, 12):
        save(folder, step, scheduled=step % 2 == 0)
        window = [c.step for c in checkpoints.scheduled(folder)][-3:]
        checkpoints.prune(folder, set(window))
        assert steps(checkpoints.scheduled(folder))[-3:] == list(range(2, step + 1, 2))[-3:]
        assert checkpoints.newest(folder)[0].step == step
        resumable = [c.step for c in checkpoints.valid(folder) if c.state.exists()]
        assert resumable == list(range(max(1, step - 1), step + 1))
        assert len(list(folder.glob("*.weights.safetensors"))) <= 3 + checkpoints.RESUMABLE


def test_a_finished_run_keeps_only_the_named_weights(folder):
    save(folder, *range(1, 6))
    checkpoints.prune(folder, {2, 5}, finished=True)
    assert names(folder) == sorted(
        files_of(2, "json", "weights.safetensors") + files_of(5, "json", "weights.safetensors")
    )
    assert checkpoints.newest(folder) == (None, [])
    for checkpoint in checkpoints.scheduled(folder):
        checkpoints.verified_weights(checkpoint)


def test_a_diverged_run_keeps_nothing(folder):
    save(folder, 1, 2, 3)
    checkpoints.prune(folder, set(), finished=True)
    assert names(folder) == []


def test_finishing_removes_leftovers_of_kills_and_damage(folder):
    save(folder, 1, 2, 3)
    (folder / "000000002.json").write_text("{")  # damaged, and not yet noticed
    (folder / "000000003.weights.safetensors").write_bytes(b"")
    assert checkpoints.newest(folder)[0].step == 1
    save(folder, 4)
    (folder / "000000005.weights.safetensors").write_bytes(b"killed before the manifest")
    checkpoints.prune(folder, {4}, finished=True)
    assert names(folder) == files_of(4, *KEPT)


@pytest.mark.parametrize("calls", range(7))
def test_a_kill_while_pruning_loses_nothing_needed(folder, monkeypatch, calls):
    save(folder, *range(1, 6))
    unlink, left = store_files.Path.unlink, iter(range(calls))

    def unlink_until_killed(self, *given, **named):
        if next(left, None) is None:
            raise KeyboardInterrupt
        unlink(self, *given, **named)

    monkeypatch.setattr(store_files.Path, "unlink", unlink_until_killed)
    with pytest.raises(KeyboardInterrupt):
        checkpoints.prune(folder, {3})
    monkeypatch.undo()
    assert checkpoints.newest(folder)[0].step == 5
    checkpoints.prune(folder, {3, 5}, finished=True)
    assert names(folder) == sorted(files_of(3, *KEPT) + files_of(5, "json", "weights.safetensors"))


# The lease


@pytest.mark.parametrize("written", [0, 1, 2])
def test_a_process_that_loses_the_run_while_it_saves_writes_nothing_more(folder, written):
    """The manifest makes a checkpoint valid, and another process may have begun its files anew."""

    def check_lease():
        if len(list(folder.glob("000000002.*"))) == written:
            raise LeaseLost("lease.json")

    save(folder, 1)
    with pytest.raises(LeaseLost):
        checkpoints.save(folder, WEIGHTS[2], STATE[2], a_training_state(2), True, check_lease)
    assert len(list(folder.glob("000000002.*"))) == written
    assert [c.step for c in checkpoints.valid(folder)] == [1]


@pytest.mark.parametrize("calls", range(4))
def test_the_lease_is_checked_before_anything_is_removed_or_written(folder, calls):
    save(folder, 1)
    leftover = folder / ".000000002.json.tmp"
    leftover.write_text("of a killed process")
    made = []

    def check_lease():
        made.append(sorted(path.name for path in folder.glob("*2.*")))
        if len(made) > calls:
            raise LeaseLost("lease.json")

    with pytest.raises(LeaseLost):
        checkpoints.save(folder, WEIGHTS[2], STATE[2], a_training_state(2), True, check_lease)
    weights, state = "000000002.weights.safetensors", "000000002.state.safetensors"
    before = [[leftover.name], [], [weights], sorted([state, weights])]
    assert made == before[: calls + 1]


def test_an_unreadable_checkpoint_is_told_and_the_one_before_it_is_used(folder, monkeypatch):
    save(folder, 1, 2)
    read = checkpoints._read

    def refuse_the_second(path):
        if path.name == "000000002.json":
            raise StoreError(f"{path.name}: cannot be read")
        return read(path)

    monkeypatch.setattr(checkpoints, "_read", refuse_the_second)
    checkpoint, skipped = checkpoints.newest(folder)
    assert (checkpoint.step, skipped) == (
        1,
        ["000000002.json: cannot be read; the checkpoint before it is used"],
    )
    assert (folder / "000000002.json").exists()  # it may be good, unlike a damaged one


def test_of_several_unreadable_checkpoints_the_newest_is_named(folder, monkeypatch):
    save(folder, 1, 2)

    def refuse(path):
        raise StoreError(f"{path.name}: cannot be read")

    monkeypatch.setattr(checkpoints, "_read", refuse)
    with pytest.raises(
        StoreError, match=r"^000000002.json: cannot be read, and there is no checkpoint before it$"
    ):
        checkpoints.newest(folder)
