"""Generations: whole or ignored, the newest two resumable, and no more kept than is needed."""

import os
import shutil

import pytest

from ablate.errors import StoreError
from ablate.store import checkpoints
from ablate.store import files as store_files

WEIGHTS = {step: bytes(range(256)) * 4 + str(step).encode() for step in range(1, 20)}
STATE = {step: content[::-1] for step, content in WEIGHTS.items()}
INFO = {"step": 0, "tokens": 123_456, "best_perplexity": 12.75, "metrics_bytes": 9876}


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "checkpoints"


def save(folder, *steps, scheduled=True):
    for step in steps:
        checkpoints.save(folder, step, WEIGHTS[step], STATE[step], {**INFO, "step": step}, scheduled)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def steps(found):
    return [generation.step for generation in found]


def files_of(step, *parts):
    return [f"{step:09d}.{part}" for part in parts]


KEPT = ("json", "weights.safetensors")
WHOLE = ("json", "state.safetensors", "weights.safetensors")


# Saving and finding


def test_a_saved_generation_is_the_newest(folder):
    save(folder, 4)
    generation, damaged = checkpoints.newest(folder)
    assert (generation.step, generation.scheduled, damaged) == (4, True, [])
    assert generation.info == {**INFO, "step": 4}
    assert generation.weights.read_bytes() == WEIGHTS[4]
    assert generation.state.read_bytes() == STATE[4]
    assert names(folder) == files_of(4, *WHOLE)


def test_there_is_no_newest_in_an_empty_folder_or_in_none(folder):
    assert checkpoints.newest(folder) == (None, [])
    folder.mkdir()
    assert checkpoints.newest(folder) == (None, [])
    assert checkpoints.generations(folder) == []


def test_generations_are_in_the_order_of_their_steps(folder):
    save(folder, 10, 9, 2, 11)
    assert steps(checkpoints.generations(folder)) == [2, 9, 10, 11]
    assert checkpoints.newest(folder)[0].step == 11


def test_only_those_that_were_due_are_averaged(folder):
    save(folder, 2, 4, 8)
    save(folder, 3, 5, scheduled=False)
    assert steps(checkpoints.scheduled(folder)) == [2, 4, 8]
    assert steps(checkpoints.scheduled(folder, until=4)) == [2, 4]
    assert steps(checkpoints.scheduled(folder, until=7)) == [2, 4]
    assert steps(checkpoints.scheduled(folder, until=1)) == []


@pytest.mark.parametrize("missing", WHOLE)
def test_a_generation_without_one_of_its_files_does_not_count(folder, missing):
    save(folder, 1, 2)
    (folder / files_of(2, missing)[0]).unlink()
    assert checkpoints.newest(folder)[0].step == 1


def test_a_generation_whose_state_was_pruned_is_not_damaged(folder):
    save(folder, 1, 2)
    (folder / files_of(2, "state.safetensors")[0]).unlink()
    generation, damaged = checkpoints.newest(folder)
    assert (generation.step, damaged) == (1, [])
    assert steps(checkpoints.generations(folder)) == [1, 2]


def test_saving_anew_replaces_what_a_kill_has_left(folder):
    save(folder, 1)
    (folder / files_of(2, "weights.safetensors")[0]).write_bytes(b"half")
    (folder / ".000000002.state.safetensors.1a2b3c4d.tmp").write_bytes(b"half")
    save(folder, 2)
    assert checkpoints.newest(folder)[0].weights.read_bytes() == WEIGHTS[2]
    assert names(folder) == sorted(files_of(1, *WHOLE) + files_of(2, *WHOLE))


@pytest.mark.parametrize("call", range(1, 12))
@pytest.mark.parametrize("name", ["open", "replace", "fsync"])
def test_whatever_call_fails_while_saving_the_newest_is_the_old_one_or_the_new(folder, monkeypatch, name, call):
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
    generation, damaged = checkpoints.newest(folder)
    assert damaged == []
    assert generation.step in ((1, 2) if failed else (2,))
    assert generation.weights.read_bytes() == WEIGHTS[generation.step]
    assert not [name for name in names(folder) if name.endswith(".tmp")]


# Damage


def damage(content, at):
    return content[:at] + bytes([content[at] ^ (1 << at % 8)]) + content[at + 1 :]


def every_damage(content, every):
    """The content with one bit of every so many bytes flipped, and cut at every so many bytes."""
    yield from (damage(content, at) for at in range(0, len(content), every))
    yield from (content[:at] for at in range(0, len(content), every))


@pytest.mark.parametrize("part", ["weights", "state"])
def test_a_flip_or_a_cut_of_a_file_is_found_and_the_generation_before_is_used(folder, part):
    save(folder, 1, 2)
    path = folder / f"000000002.{part}.safetensors"
    manifest, whole = folder / "000000002.json", path.read_bytes()
    described = manifest.read_bytes()
    for content in every_damage(whole, 97):
        path.write_bytes(content)
        generation, (line,) = checkpoints.newest(folder)
        assert generation.step == 1
        assert line == (
            f"{path}: is damaged or missing (its SHA-256 is not the one written); the checkpoint before it is used"
        )
        assert not manifest.exists()
        assert steps(checkpoints.generations(folder)) == [1]
        manifest.write_bytes(described)
    path.write_bytes(whole)
    assert checkpoints.newest(folder)[0].step == 2


def test_a_flip_or_a_cut_of_a_manifest_is_found_and_the_generation_before_is_used(folder):
    save(folder, 1, 2)
    manifest = folder / "000000002.json"
    described = manifest.read_bytes()
    for content in every_damage(described, 1):
        manifest.write_bytes(content)
        generation, damaged = checkpoints.newest(folder)
        assert generation.step == 1
        (line,) = damaged
        assert line.startswith((f"{manifest}: is damaged", f"{manifest}: does not end with its hash"))
        assert "\n" not in line


def test_a_manifest_under_another_step_does_not_count(folder):
    save(folder, 1, 2)
    shutil.copy(folder / "000000001.json", folder / "000000003.json")
    generation, damaged = checkpoints.newest(folder)
    assert generation.step == 2
    assert len(damaged) == 1


def test_a_well_formed_lie_in_a_manifest_is_found(folder):
    save(folder, 1, 2)
    manifest = folder / "000000002.json"
    manifest.write_text(manifest.read_text().replace("9876", "9875"))
    assert checkpoints.newest(folder)[0].step == 1


def test_where_all_are_damaged_there_is_none_and_each_is_told(folder):
    save(folder, 1, 2, 3)
    for step in (1, 2, 3):
        (folder / files_of(step, "weights.safetensors")[0]).write_bytes(b"")
    generation, damaged = checkpoints.newest(folder)
    assert generation is None
    assert [line.partition(":")[0][-len("000000003.weights.safetensors") :] for line in damaged] == [
        "000000003.weights.safetensors",
        "000000002.weights.safetensors",
        "000000001.weights.safetensors",
    ]
    assert checkpoints.newest(folder) == (None, [])


def test_damaged_weights_are_refused_when_they_are_averaged(folder):
    save(folder, 1)
    (generation,) = checkpoints.scheduled(folder)
    assert checkpoints.verified_weights(generation) == generation.weights
    generation.weights.write_bytes(damage(WEIGHTS[1], 300))
    with pytest.raises(StoreError, match=r"000000001\.weights\.safetensors: is damaged or missing"):
        checkpoints.verified_weights(generation)
    generation.weights.unlink()
    with pytest.raises(StoreError, match="is damaged or missing"):
        checkpoints.verified_weights(generation)


# Pruning


def test_two_resumable_generations_and_the_kept_weights_remain(folder):
    save(folder, *range(1, 7))
    checkpoints.prune(folder, keep_weights={3, 4})
    kept = [*files_of(3, *KEPT), *files_of(4, *KEPT), *files_of(5, *WHOLE), *files_of(6, *WHOLE)]
    assert names(folder) == kept


def test_pruning_after_every_save_never_holds_more(folder):
    for step in range(1, 12):
        save(folder, step, scheduled=step % 2 == 0)
        window = [g.step for g in checkpoints.scheduled(folder)][-3:]
        checkpoints.prune(folder, set(window))
        assert steps(checkpoints.scheduled(folder))[-3:] == list(range(2, step + 1, 2))[-3:]
        assert checkpoints.newest(folder)[0].step == step
        resumable = [g.step for g in checkpoints.generations(folder) if g.state.exists()]
        assert resumable == list(range(max(1, step - 1), step + 1))
        assert len(list(folder.glob("*.weights.safetensors"))) <= 3 + checkpoints.GENERATIONS


def test_a_second_pruning_changes_nothing(folder):
    save(folder, *range(1, 7))
    checkpoints.prune(folder, {2})
    before = names(folder)
    checkpoints.prune(folder, {2})
    assert names(folder) == before


def test_a_finished_run_keeps_the_kept_weights_alone(folder):
    save(folder, *range(1, 6))
    checkpoints.prune(folder, {2, 5}, finished=True)
    assert names(folder) == sorted(
        files_of(2, "json", "weights.safetensors") + files_of(5, "json", "weights.safetensors")
    )
    assert checkpoints.newest(folder) == (None, [])
    for generation in checkpoints.scheduled(folder):
        checkpoints.verified_weights(generation)


def test_a_diverged_run_keeps_nothing(folder):
    save(folder, 1, 2, 3)
    checkpoints.prune(folder, set(), finished=True)
    assert names(folder) == []


def test_finishing_removes_what_kills_and_damage_have_left(folder):
    save(folder, 1, 2, 3)
    (folder / "000000002.json").write_text("{")  # damaged while nobody looked
    (folder / "000000003.weights.safetensors").write_bytes(b"")
    assert checkpoints.newest(folder)[0].step == 1
    save(folder, 4)
    (folder / "000000005.weights.safetensors").write_bytes(b"killed before the manifest")
    checkpoints.prune(folder, {4}, finished=True)
    assert names(folder) == files_of(4, *KEPT)


@pytest.mark.parametrize("calls", range(7))
def test_a_kill_while_pruning_loses_nothing_that_is_kept(folder, monkeypatch, calls):
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
