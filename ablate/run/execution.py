"""How a run is carried out: as it was begun, since threads and micro-batches change the last digits of a sum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ablate.config import RowConfig
from ablate.errors import Damaged, StoreError
from ablate.run.job import Unit
from ablate.run.provenance import provenance
from ablate.store import RunFolder, checkpoints
from ablate.store.files import read_json, set_aside, write_json


@dataclass(frozen=True)
class Execution:
    """What execution.json holds.

    training, device: the text and the device that the run was begun on, the device without its number.
    threads: of torch.
    micro_batch_tokens: what was thought to fit, in padded tokens.
    halvings: how often it was halved since, because it did not.
    """

    training: str
    device: str
    threads: int
    micro_batch_tokens: int
    halvings: int = 0

    @property
    def fitting_tokens(self) -> int:
        """The micro-batch that is used."""
        return max(1, -(-self.micro_batch_tokens // (1 << self.halvings)))

    def halved(self) -> Execution:
        """With a micro-batch of half the size."""
        return replace(self, halvings=self.halvings + 1)

    def save(self, folder: RunFolder) -> Execution:
        """Write it down."""
        write_json(folder.execution, vars(self))
        return self


def execution_of(
    folder: RunFolder, unit: Unit, config: RowConfig, training: str, say: Callable[[str], None]
) -> Execution:
    """The execution of a run: as begun, or as the unit says.

    Raises:
        StoreError: the run was begun on other data, or on a device whose random state is of no use here.
    """
    kind = unit.device.partition(":")[0]
    begun = _begun(folder, say)
    if begun is None:
        tokens = config.micro_batch_tokens or unit.fitting_tokens
        new = Execution(training, kind, unit.threads, tokens, int(unit.smaller)).save(folder)
        write_json(folder.provenance, provenance(unit.device, unit.threads))
        return new
    if begun.training != training:
        raise StoreError(
            f"{folder.path}: was begun on text {begun.training}, and the files now make text "
            f"{training}; bring the old files back, or use another --results"
        )
    if begun.device != kind and not folder.result.exists():
        raise StoreError(
            f"{folder.path}: was begun on {begun.device}, and its random state is of no use on {kind}; "
            f"use --device {begun.device}, or another --results"
        )
    if config.micro_batch_tokens not in (None, begun.micro_batch_tokens):
        begun = replace(begun, micro_batch_tokens=config.micro_batch_tokens, halvings=0).save(folder)
    if unit.smaller:
        begun = begun.halved().save(folder)
        say(f"the system ran out of memory: micro-batches of {begun.fitting_tokens} tokens from here")
    return begun


def _begun(folder: RunFolder, say: Callable[[str], None]) -> Execution | None:
    """What the run was begun with. Where that is damaged, the run begins again: what it began with is not known."""
    try:
        content: dict[str, Any] | None = read_json(folder.execution)
    except Damaged as error:
        set_aside(folder.execution)
        if not folder.result.exists():
            say(f"{error}; the run begins again")
            checkpoints.prune(folder.checkpoints, set(), finished=True)
        return None
    return None if content is None else Execution(**content)
