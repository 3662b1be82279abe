"""Checkpoints on disk.

A checkpoint has three files: `<step>.weights.safetensors`; `<step>.state.safetensors`, the
optimizer and random state, which is removed when no resume needs it; and `<step>.json`, the
manifest with the hashes of the other two, which is written last. Files without a manifest are
ignored, and so are files that do not match the hashes in it.
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

# Number of checkpoints that keep their state. More than one, because the newest may be damaged.
RESUMABLE = 2


class Checkpoint(CheckpointManifest):
    """A checkpoint with a valid manifest. Its files are not verified yet."""

    folder: Path = Field(exclude=True)

    @property
    def weights(self) -> Path:
        """File of the model's parameters."""
        return _path(self.folder, self.step, "weights.safetensors")

    @property
    def state(self) -> Path:
        """File of the optimizer and random state."""
        return _path(self.folder, self.step, "state.safetensors")

    @property
    def manifest(self) -> Path:
        """The file that makes the checkpoint valid."""
        return _path(self.folder, self.step, "json")

    @property
    def files(self) -> tuple[Path, Path, Path]:
        """All files of the checkpoint."""
        return self.weights, self.state, self.manifest


def save(
    folder: Path,
    weights: bytes,
    state: bytes,
    info: TrainingState,
    scheduled: bool,
    check_lease: Callable[[], None] = lambda: None,
) -> None:
    """Write a checkpoint, its manifest last.

    Args:
        folder: folder of the checkpoints.
        weights: content of the file of weights.
        state: content of the file of the optimizer and random state.
        info: state of the training.
        scheduled: whether averaging may use the checkpoint.
        check_lease: called before each file; raises an exception if the lease is lost.

    Raises:
        OSError: the disk refused; earlier checkpoints are unchanged.
    """
    check_lease()
    remove_temporaries(folder)  # left by a killed worker
    for name, content in (("weights", weights), ("state", state)):
        check_lease()
        write_bytes(_path(folder, info.step, f"{name}.safetensors"), content)
    hashes = CheckpointHashes(
        weights=hashlib.sha256(weights).hexdigest(), state=hashlib.sha256(state).hexdigest()
    )
    manifest = CheckpointManifest(step=info.step, scheduled=scheduled, sha256=hashes, info=info)
    check_lease()
    manifest.write(_path(folder, info.step, "json"))


def valid(folder: Path) -> list[Checkpoint]:
    """The checkpoints with an undamaged manifest, oldest first.

    Raises:
        StoreError: a manifest cannot be read, so that it is unknown whether it is damaged.
    """
    result = []
    for path in sorted(folder.glob("*.json")):
        with suppress(Damaged):
            result.append(_read(path))
    return result


def scheduled(folder: Path, until: int | None = None) -> list[Checkpoint]:
    """The checkpoints that averaging may use, up to a step, oldest first."""
    return [c for c in valid(folder) if c.scheduled and (until is None or c.step <= until)]


def verified_weights(checkpoint: Checkpoint) -> Path:
    """Verify the weights of a checkpoint, and return their path.

    Raises:
        Damaged: the weights are missing or do not match their hash.
        StoreError: the weights cannot be read.
    """
    verify(checkpoint.weights, checkpoint.sha256.weights)
    return checkpoint.weights


def newest(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """Find the newest checkpoint from which training can resume.

    Damaged checkpoints are quarantined. Unreadable checkpoints are kept, because a later attempt
    may be able to read them.

    Returns:
        The checkpoint, or None; and a line for each newer checkpoint that cannot be used.

    Raises:
        StoreError: all checkpoints that are left are unreadable. Starting over would discard them.
    """
    skipped = []
    unreadable = []
    for path in sorted(folder.glob("*.json"), reverse=True):  # by step: names have nine digits
        try:
            checkpoint = _read(path)
            if not checkpoint.state.exists():  # `prune` has kept only the weights, for averaging
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
    """Remove the files that neither resuming nor averaging needs.

    Args:
        folder: folder of the checkpoints.
        keep_weights: steps whose weights averaging needs.
        finished: whether training has finished. Then no state is needed, and all files without a
            manifest are removed too.
    """
    all_valid = valid(folder)
    resumable: list[int] = []
    if not finished:
        resumable = [c.step for c in all_valid if c.state.exists()][-RESUMABLE:]
    for checkpoint in all_valid:
        if checkpoint.step not in resumable:
            remove(checkpoint.state)
            if checkpoint.step not in keep_weights:
                # The manifest first: after a kill in between, a manifest without weights would look
                # like damage.
                remove(checkpoint.manifest)
                remove(checkpoint.weights)
    if finished:
        _remove_orphans(folder)


def remove_all(folder: Path) -> None:
    """Remove all checkpoints, so that the run starts over from its first step."""
    prune(folder, set(), finished=True)


def _remove_orphans(folder: Path) -> None:
    """Remove files without a manifest, which a killed worker has left, and quarantined files."""
    valid_files = {path for checkpoint in valid(folder) for path in checkpoint.files}
    for pattern in ("*.safetensors", "*.json", "*.damaged"):
        for path in folder.glob(pattern):
            if path not in valid_files:
                remove(path)


def _read(manifest: Path) -> Checkpoint:
    content = CheckpointManifest.read(manifest)
    if content is None or manifest != _path(manifest.parent, content.step, "json"):
        raise Damaged(f"{manifest}: is damaged (the step does not match its name)")
    return Checkpoint(folder=manifest.parent, **dict(content))


def _path(folder: Path, step: int, suffix: str) -> Path:
    return folder / f"{step:09d}.{suffix}"
