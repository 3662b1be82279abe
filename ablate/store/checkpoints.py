"""Checkpoints on disk.

A checkpoint is `<step>.weights.safetensors`, `<step>.state.safetensors` (optimizer and random
state, kept only as long as a resume may need it) and `<step>.json`, the manifest, which is written
last and holds the hashes of both. A file without a manifest, or with another hash, does not count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pydantic import Field

from ablate.errors import Damaged, StoreError
from ablate.store.files import quarantine, remove, remove_temporaries, verify, write_bytes
from ablate.store.records import CheckpointHashes, CheckpointManifest, TrainingState

RESUMABLE = 2  # checkpoints kept for resuming: the newest may turn out to be damaged


class Checkpoint(CheckpointManifest):
    """A checkpoint with a valid manifest. Its files are not verified yet."""

    folder: Path = Field(exclude=True)

    @property
    def weights(self) -> Path:
        """The model's parameters."""
        return _path(self.folder, self.step, "weights.safetensors")

    @property
    def state(self) -> Path:
        """Optimizer and random state."""
        return _path(self.folder, self.step, "state.safetensors")

    @property
    def manifest(self) -> Path:
        """The file that makes the checkpoint valid."""
        return _path(self.folder, self.step, "json")

    @property
    def files(self) -> tuple[Path, Path, Path]:
        """Every file of the checkpoint."""
        return self.weights, self.state, self.manifest


def save(
    folder: Path,
    weights: bytes,
    state: bytes,
    info: TrainingState,
    scheduled: bool,
    check_lease: Callable[[], None] = lambda: None,
) -> None:
    """Write a checkpoint, its manifest last. `check_lease` is called before each file, and may
    raise.

    Raises:
        OSError: the disk refused; earlier checkpoints are unchanged.
    """
    check_lease()
    # Left by a killed worker: this process has the lease, so no other writes here.
    remove_temporaries(folder)
    for part, content in (("weights", weights), ("state", state)):
        check_lease()
        write_bytes(_path(folder, info.step, f"{part}.safetensors"), content)
    hashes = CheckpointHashes(
        weights=hashlib.sha256(weights).hexdigest(), state=hashlib.sha256(state).hexdigest()
    )
    manifest = CheckpointManifest(step=info.step, scheduled=scheduled, sha256=hashes, info=info)
    check_lease()
    manifest.write(_path(folder, info.step, "json"))


def valid(folder: Path) -> list[Checkpoint]:
    """The checkpoints with a whole manifest, oldest first.

    Raises:
        StoreError: a manifest cannot be read, so that it is unknown whether it counts.
    """
    whole = []
    for path in sorted(folder.glob("*.json")):
        with suppress(Damaged):
            whole.append(_read(path))
    return whole


def scheduled(folder: Path, until: int | None = None) -> list[Checkpoint]:
    """The checkpoints that averaging may use, oldest first, up to a step."""
    return [c for c in valid(folder) if c.scheduled and (until is None or c.step <= until)]


def verified_weights(checkpoint: Checkpoint) -> Path:
    """The path of a checkpoint's weights, after comparing their hash.

    Raises:
        Damaged: they are missing or do not match.
        StoreError: they cannot be read.
    """
    verify(checkpoint.weights, checkpoint.sha256.weights)
    return checkpoint.weights


def newest(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint that can be resumed, and a line for each newer one that cannot.

    A damaged checkpoint is quarantined. An unreadable one stays, because a later read may succeed.

    Raises:
        StoreError: none can be read. Starting over would discard checkpoints that may still be
            good.
    """
    skipped = []
    unreadable = []
    # Names have nine digits, so that they sort by step.
    for path in sorted(folder.glob("*.json"), reverse=True):
        try:
            checkpoint = _read(path)
            # Kept for averaging only: `prune` has removed the state.
            if not checkpoint.state.exists():
                continue
            verify(checkpoint.weights, checkpoint.sha256.weights)
            verify(checkpoint.state, checkpoint.sha256.state)
        except Damaged as error:
            skipped.append(f"{error}; the checkpoint before it is used")
            with suppress(OSError):
                quarantine(path)
        except StoreError as error:
            skipped.append(f"{error}; the checkpoint before it is used")
            unreadable.append(error)
        else:
            return checkpoint, skipped
    if unreadable:
        raise StoreError(f"{unreadable[0]}, and there is no checkpoint before it")
    return None, skipped


def prune(folder: Path, keep_weights: set[int], finished: bool = False) -> None:
    """Remove the files that neither resuming nor averaging needs, which keeps the weights of some
    steps. Where training has finished, no state is needed.
    """
    whole = valid(folder)
    resumable: list[int] = []
    if not finished:
        resumable = [c.step for c in whole if c.state.exists()][-RESUMABLE:]
    for checkpoint in whole:
        if checkpoint.step not in resumable:
            remove(checkpoint.state)
            if checkpoint.step not in keep_weights:
                # The manifest first: after a kill in between, weights without a manifest do not
                # count, while a manifest without weights would count as damage.
                remove(checkpoint.manifest)
                remove(checkpoint.weights)
    # While a run trains, a file without a manifest may be a checkpoint that is being written.
    if finished:
        _remove_orphans(folder)


def _remove_orphans(folder: Path) -> None:
    """Remove files without a manifest, left by a kill, and quarantined files."""
    named = {path for checkpoint in valid(folder) for path in checkpoint.files}
    for pattern in ("*.safetensors", "*.json", "*.damaged"):
        for path in folder.glob(pattern):
            if path not in named:
                remove(path)


def _read(manifest: Path) -> Checkpoint:
    content = CheckpointManifest.read(manifest)
    if content is None or manifest != _path(manifest.parent, content.step, "json"):
        raise Damaged(f"{manifest}: is damaged (the step does not match its name)")
    return Checkpoint(folder=manifest.parent, **dict(content))


def _path(folder: Path, step: int, suffix: str) -> Path:
    return folder / f"{step:09d}.{suffix}"
