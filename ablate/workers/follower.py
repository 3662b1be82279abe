"""A follower: the process of a rank other than the first. It goes through the same stages as the
first rank, and writes no files.

The first rank starts it with `python -m ablate.workers.follower`; see `ablate/workers/ranks.py`.
The standard input of the follower begins with a `RankStart`, and ends when the first rank ends.
Commands come through the process group.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from contextlib import suppress

import torch

from ablate.errors import Interrupted
from ablate.kernels import ranks as collectives
from ablate.kernels.device import visible_device
from ablate.kernels.ranks import use_ranks
from ablate.training import Diverged, RunHooks
from ablate.workers.assignment import RankCommand, RankStart
from ablate.workers.ranks import use_loopback
from ablate.workers.run_inputs import RunInputs


def main() -> int:
    """Follow the first rank until it ends."""
    # A cluster sends signals to all processes, but only the first rank shall react.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    torch.set_flush_denormal(True)
    start = RankStart.from_line(sys.stdin.readline())
    threading.Thread(target=_end_with_first_rank, name="input", daemon=True).start()
    try:
        _follow(start)
    except Exception:
        traceback.print_exc()
    sys.stderr.flush()
    # Not by return, which would wait for the reading thread, or for a broken process group.
    os._exit(1)


def _end_with_first_rank() -> None:
    """End this process when standard input ends, which means that the first rank has ended."""
    while os.read(0, 1 << 16):
        pass
    os._exit(0)


def _follow(start: RankStart) -> None:
    """Go through the stages that the first rank commands."""
    assignment = start.assignment
    use_loopback()
    device = visible_device(assignment.devices, start.rank)
    inputs = RunInputs.read(assignment)
    with use_ranks(
        collectives.join(collectives.open_store(start.port), start.rank, start.size, device)
    ) as ranks:
        while True:
            command = RankCommand(**ranks.all_gather_objects(None)[0])
            inputs = inputs.set_up(device, command.execution)
            if command.decoding is None:
                with suppress(Interrupted, Diverged):  # the first rank handles these errors
                    inputs.trainer(command.execution, command.keep, RunHooks()).fit()
            else:
                assert command.result is not None
                inputs.evaluate(command.decoding, command.result, lambda phase: None)


if __name__ == "__main__":
    sys.exit(main())
