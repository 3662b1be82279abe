"""Check that the file system of a folder is fit for a results root to which several writers, on
several hosts, write at once.
"""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from queue import Empty
from typing import Any

from ablate.store.files import write_bytes
from ablate.store.lease import TERM_SECONDS, Lease

ROUNDS = 50  # number of files for which writers compete
WRITERS = 4  # number of writers that compete
TEST_TERM = 3.0  # term of the leases in this check, in seconds
MEET_SECONDS = 10.0  # time in which the same command on another host can take part
MAX_SKEW = TERM_SECONDS / 4  # seconds between the clocks of this host and of the file system
MAX_DELAY = TERM_SECONDS / 4  # seconds until a file of another host is seen
_SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Check:
    """The outcome of one check: whether it has passed, and a detail for people."""

    name: str
    passed: bool
    detail: str


def check_filesystem(folder: Path, meet_seconds: float = MEET_SECONDS) -> Iterator[Check]:
    """Check a folder, and yield the outcome of each check.

    The folder is created if it does not exist. The files of the checks are removed.

    Args:
        folder: folder of the future results root.
        meet_seconds: seconds to wait for other hosts.

    Raises:
        OSError: the folder cannot be written.
    """
    place = folder / ".ablate-filesystem"
    place.mkdir(parents=True, exist_ok=True)
    # With a random part, because in containers both host names and process ids may be equal.
    ours = place / f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    ours.mkdir()
    try:
        yield _one_winner("exclusive create", ours / "create", _create)
        yield _one_winner("hard link", ours / "link", _link)
        yield _replacing(ours / "replaced")
        yield from _leases(ours)
        yield from _other_hosts(place / "hosts" / ours.name, meet_seconds)
    finally:
        shutil.rmtree(ours, ignore_errors=True)
        for directory in (place / "hosts", place):  # not removed while another host uses them
            try:
                directory.rmdir()
            except OSError:
                break


# Several writers at once


def _one_winner(name: str, folder: Path, attempt: Callable[[Path, int], bool]) -> Check:
    """Check that exactly one of several simultaneous writers makes a file."""
    folder.mkdir()
    wins = [0] * ROUNDS
    with _SPAWN.Pool(WRITERS) as pool:
        outcomes = pool.starmap(_compete, [(attempt, folder, i) for i in range(WRITERS)])
    for outcome in outcomes:
        if isinstance(outcome, str):  # an error
            return Check(name, False, outcome)
        for round in outcome:
            wins[round] += 1
    wrong = sum(count != 1 for count in wins)
    if wrong:
        return Check(name, False, f"files made by no writer or by several: {wrong} of {ROUNDS}")
    return Check(name, True, f"one of {WRITERS} writers in each of {ROUNDS} rounds")


def _compete(attempt: Callable[[Path, int], bool], folder: Path, number: int) -> list[int] | str:
    """Compete as one writer, and return the rounds that this writer wins, or an error."""
    # A barrier: without it, the first writer to start would win all rounds.
    (folder / f"ready-{number}").touch()
    end = time.monotonic() + 60
    while len(list(folder.glob("ready-*"))) < WRITERS and time.monotonic() < end:
        time.sleep(0.002)
    try:
        return [round for round in range(ROUNDS) if attempt(folder / f"{round}", number)]
    except OSError as error:
        return f"{error.strerror} ({errno.errorcode.get(error.errno or 0, '?')})"


def _create(path: Path, number: int) -> bool:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True


def _link(path: Path, number: int) -> bool:
    source = path.with_name(f"{path.name}.{number}")
    source.write_text(f"{number}")
    try:
        os.link(source, path)
    except FileExistsError:
        return False
    return True


def _replacing(path: Path) -> Check:
    """Check that readers of a replaced file see the old or the new content, never a part."""
    write_bytes(path, _block(0))
    done = path.with_name("done")
    writer = _SPAWN.Process(target=_replace_often, args=(path, done))
    writer.start()
    reads = 0
    wrong = 0
    while not done.exists() and writer.is_alive():
        try:
            content = path.read_bytes()
        except OSError:
            content = b""
        reads += 1
        wrong += len(set(content)) != 1 or len(content) != len(_block(0))
    writer.join()
    if wrong or not done.exists():
        return Check(
            "rename", False, f"{wrong} of {reads} reads found neither the old nor the new content"
        )
    return Check("rename", True, f"{reads} reads of a file that was replaced {ROUNDS} times")


def _block(number: int) -> bytes:
    # One byte, repeated: a mixture of contents shows as two values, a part as a shorter file.
    return bytes([number]) * 65_536


def _replace_often(path: Path, done: Path) -> None:
    for number in range(1, ROUNDS + 1):
        write_bytes(path, _block(number))
    done.touch()


# Leases


def _leases(folder: Path) -> Iterator[Check]:
    """Check that a lease is kept while its holder lives, and taken over from a host that is
    gone.
    """
    path = folder / "lease"
    reports = _SPAWN.Queue()
    holder = _SPAWN.Process(target=_hold, args=(path, reports))
    holder.start()
    try:
        reports.get(timeout=60)
        contender = Lease(path, TEST_TERM)
        began = time.monotonic()
        taken = False
        while not taken and time.monotonic() - began < 2 * TEST_TERM:
            taken = contender.try_to_take()
            time.sleep(0.1)
        kept = f"kept for {2 * TEST_TERM:.0f} s against another process"
        yield Check("lease of a living holder", not taken, "was taken from it" if taken else kept)
        holder.kill()  # it claims to be on another host, so only its silence tells that it is gone
        holder.join()
        began = time.monotonic()
        while not taken and time.monotonic() - began < 10 * TEST_TERM:
            taken = contender.try_to_take()
            time.sleep(0.05)
        seconds = time.monotonic() - began
        in_time = taken and seconds >= TEST_TERM / 3
        detail = f"taken over after {seconds:.1f} s of silence; its term is {TEST_TERM:.0f} s"
        yield Check(
            "lease of another host that died", in_time, detail if taken else "is not taken over"
        )
        contender.release()
    except Empty:
        yield Check("lease of a living holder", False, "cannot be taken")
    finally:
        holder.kill()
        holder.join()


def _hold(path: Path, reports: Any) -> None:
    """Hold a lease under the name of another host."""
    socket.gethostname = lambda: "another-host"
    lease = Lease(path, TEST_TERM)
    assert lease.try_to_take()
    reports.put("held")
    time.sleep(600)


# Clocks and hosts


def _other_hosts(ours: Path, seconds: float) -> Iterator[Check]:
    """Compare the clock of this host with the clock of the file system, and with other hosts on
    which the same command writes to this folder.
    """
    try:
        before = time.time()
        write_bytes(ours, _beat(0))
        after = time.time()
        changed = ours.stat().st_mtime
        skew = max(before - changed, changed - after, 0.0)
        apart = f"{skew:.1f} s apart from this host's clock"
        yield Check("clock of the file system", skew < MAX_SKEW, apart)
        delays = _measure_delays(ours, seconds)
        if not delays:
            hint = "none: run the same command on another host at the same time"
            yield Check("other hosts", True, hint)
        for host, delay in sorted(delays.items()):
            detail = f"its files are seen here {delay:.1f} s after the time of its clock"
            yield Check(f"host {host}", abs(delay) < MAX_DELAY, detail)
    finally:
        ours.unlink(missing_ok=True)


def _beat(number: int) -> bytes:
    content = {"host": socket.gethostname(), "number": number, "time": time.time()}
    return json.dumps(content).encode()


def _measure_delays(ours: Path, seconds: float) -> dict[str, float]:
    """Measure for each other host the longest time from writing a file there, by its clock, to
    seeing the file here.
    """
    delays: dict[str, float] = {}
    seen: dict[str, int] = {}
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end:
        number += 1
        write_bytes(ours, _beat(number), durable=False)
        for path in ours.parent.iterdir():
            if path == ours or path.name.startswith("."):
                continue
            try:
                beat = json.loads(path.read_bytes())
            except (OSError, ValueError):
                continue
            # Not for the first file of a host, which may be old.
            if path.name in seen and beat["number"] > seen[path.name]:
                delay = time.time() - beat["time"]
                delays[beat["host"]] = max(delays.get(beat["host"], delay), delay, key=abs)
            seen[path.name] = beat["number"]
        time.sleep(0.2)
    return delays
