"""Checkpoints on disk: generations that are whole or ignored.

A generation is `<step>.weights.safetensors`, `<step>.state.safetensors` (optimizer and random
state, as long as a resume may need it), and `<step>.json`, written last, with the hashes of both and
of itself. A file without its manifest, or with another hash, does not count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate.errors import Damaged, StoreError
from ablate.store.files import read_json, remove_temporaries, set_aside, verify, write_bytes, write_json

GENERATIONS = 2  # resumable ones: the newest may turn out damaged


@dataclass(frozen=True)
class Generation:
    """One whole checkpoint. `scheduled`: saved because its step was due, not because of the clock or a signal."""

    folder: Path
    step: int
    scheduled: bool
    info: dict[str, Any]
    hashes: dict[str, str]  # of both files, by part

    @property
    def weights(self) -> Path:
        """The model's parameters."""
        return _path(self.folder, self.step, "weights.safetensors")

    @property
    def state(self) -> Path:
        """What resuming needs besides the weights."""
        return _path(self.folder, self.step, "state.safetensors")

    @property
    def manifest(self) -> Path:
        """What makes the generation count."""
        return _path(self.folder, self.step, "json")


def save(
    folder: Path,
    step: int,
    weights: bytes,
    state: bytes,
    info: Mapping[str, Any],
    scheduled: bool,
    guard: Callable[[], None] = lambda: None,
) -> None:
    """Write a generation, its manifest last; `guard` is called before each file and may raise.

    Raises:
        OSError: the disk refused; the generations before it are as they were.
    """
    guard()
    folder.mkdir(parents=True, exist_ok=True)
    remove_temporaries(folder)
    hashes = {}
    for part, content in (("weights", weights), ("state", state)):
        guard()
        write_bytes(_path(folder, step, f"{part}.safetensors"), content)
        hashes[part] = hashlib.sha256(content).hexdigest()
    guard()
    write_json(
        _path(folder, step, "json"), {"step": step, "scheduled": scheduled, "sha256": hashes, "info": dict(info)}
    )


def generations(folder: Path) -> list[Generation]:
    """The generations with a whole manifest, oldest first; their content is not yet verified.

    Raises:
        StoreError: one cannot be read, so that it is not known whether it counts.
    """
    found = []
    for path in sorted(folder.glob("*.json")):
        with suppress(Damaged):
            found.append(_read(path))
    return found


def scheduled(folder: Path, until: int | None = None) -> list[Generation]:
    """The checkpoints that averaging takes, oldest first: those whose step was due."""
    return [g for g in generations(folder) if g.scheduled and (until is None or g.step <= until)]


def verified_weights(generation: Generation) -> Path:
    """The path of a generation's weights.

    Raises:
        Damaged: they are missing or not what was written.
        StoreError: they cannot be read.
    """
    verify(generation.weights, generation.hashes["weights"])
    return generation.weights


def newest(folder: Path) -> tuple[Generation | None, list[str]]:
    """The newest generation that can be resumed, and a line for each newer one that cannot.

    A damaged one is set aside. One that the disk does not give up is left where it is: it may do so another time.

    Raises:
        StoreError: the disk gives up none; beginning again would throw away what may still be there.
    """
    passed, unreadable = [], []
    for path in sorted(folder.glob("*.json"), reverse=True):
        try:
            generation = _read(path)
            if not generation.state.exists():
                continue
            verify(generation.weights, generation.hashes["weights"])
            verify(generation.state, generation.hashes["state"])
        except Damaged as error:
            passed.append(f"{error}; the checkpoint before it is used")
            with suppress(OSError):
                set_aside(path)
        except StoreError as error:
            passed.append(f"{error}; the checkpoint before it is used")
            unreadable.append(error)
        else:
            return generation, passed
    if unreadable:
        raise StoreError(f"{unreadable[0]}, and there is no checkpoint before it")
    return None, passed


def prune(folder: Path, keep_weights: set[int], finished: bool = False) -> None:
    """Remove what no resume and no averaging will need.

    Args:
        folder: the checkpoints.
        keep_weights: steps whose weights stay.
        finished: nothing will be resumed any more.
    """
    all_generations = generations(folder)
    resumable = {g.step for g in all_generations if g.state.exists()}
    resumable = set() if finished else set(sorted(resumable)[-GENERATIONS:])
    for generation in all_generations:
        if generation.step not in resumable:
            generation.state.unlink(missing_ok=True)
            if generation.step not in keep_weights:
                generation.manifest.unlink()
                generation.weights.unlink(missing_ok=True)
    if finished:
        _remove_orphans(folder)


def _remove_orphans(folder: Path) -> None:
    """Remove files that no manifest names: what a kill between two writes has left, and what was set aside."""
    named = {path for g in generations(folder) for path in (g.weights, g.state, g.manifest)}
    for pattern in ("*.safetensors", "*.json", "*.damaged"):
        for path in folder.glob(pattern):
            if path not in named:
                path.unlink()


def _read(manifest: Path) -> Generation:
    content = read_json(manifest)
    if content is None or manifest != _path(manifest.parent, content["step"], "json"):
        raise Damaged(f"{manifest}: is damaged (it is not of this step)")
    return Generation(manifest.parent, content["step"], content["scheduled"], content["info"], content["sha256"])


def _path(folder: Path, step: int, suffix: str) -> Path:
    return folder / f"{step:09d}.{suffix}"
