"""Inject disk errors and kills at the n-th file operation of a process.

An operation is named by its kind and its file: `rename 000000004.json`, `fsync result.json (new)`.
Python's own audit events report every opening, renaming, linking and removing, in any library;
`os.write` and `os.fsync` have no event and are wrapped. The package contains no code for this.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path

SPACE = (
    "create",
    "write",
    "fsync",
    "rename",
    "link",
    "mkdir",
)  # operations that fail on a full disk
EVENTS = {
    "os.rename": "rename", "os.link": "link", "os.remove": "remove", "os.mkdir": "mkdir",
    "os.rmdir": "rmdir",
}  # fmt: skip
_TEMPORARY = re.compile(r"^\.(.*)\.[0-9a-f]{8}\.tmp$")
# Progress is written by the clock and nothing depends on it; the lease belongs to filelock, which
# has its own tests.
NOT_COUNTED = re.compile(r"progress\.json|lease")


@dataclass
class Fault:
    """A fault at one operation: `kill`, or the name of an errno. `lasting`: at all later operations
    too.
    """

    what: str
    at: int
    lasting: bool = False


@dataclass
class Disk:
    """Counts the operations of this process below a folder, and lets one of them fail."""

    root: str
    fault: Fault | None = None
    names: list[str] = field(default_factory=list)
    busy: bool = False

    def happens(self, operation: str, path: object, half: tuple[int, bytes] | None = None) -> None:
        """Called before an operation; `half`: a descriptor and the bytes that are written to it
        before a kill.
        """
        if (
            self.busy
            or not isinstance(path, (str, os.PathLike))
            or not os.fspath(path).startswith(self.root)
        ):
            return
        if operation == "mkdir" and Path(path).is_dir():  # has no effect
            return
        name = _named(Path(path).name)
        if NOT_COUNTED.search(name):
            return
        self.names.append(f"{operation} {name}")
        fault, n = self.fault, len(self.names)
        if fault is None or not (n == fault.at or (fault.lasting and n > fault.at)):
            return
        if fault.what == "kill":
            if half is not None:
                _write(half[0], half[1])
            os.kill(os.getpid(), signal.SIGKILL)
        number = getattr(errno, fault.what)
        if number != errno.ENOSPC or operation in SPACE:
            raise OSError(number, os.strerror(number), os.fspath(path))


def _named(name: str) -> str:
    found = _TEMPORARY.match(name)
    return f"{found[1]} (new)" if found else name


_write, _fsync = os.write, os.fsync
_disk: Disk | None = None


def install(disk: Disk) -> None:
    """Install the hooks in this process; they cannot be removed."""
    global _disk
    _disk = disk
    sys.addaudithook(_hook)
    os.write, os.fsync = _noted_write, _noted_fsync


def _hook(event: str, given: tuple[object, ...]) -> None:
    assert _disk is not None
    if event == "open":
        path, mode, flags = given
        writes = bool(int(flags or 0) & (os.O_WRONLY | os.O_RDWR)) or (
            isinstance(mode, str) and set(mode) & set("wax+")
        )
        _disk.happens("create" if writes else "open", path)
    elif event in EVENTS:
        _disk.happens(EVENTS[event], given[1] if event in ("os.rename", "os.link") else given[0])


def _noted_write(file: int, content: bytes) -> int:
    if _disk is not None:
        _disk.happens("write", _path(file), (file, bytes(content[: len(content) // 2])))
    return _write(file, content)


def _noted_fsync(file: int) -> None:
    if _disk is not None:
        _disk.happens("fsync", _path(file))
    _fsync(file)


def _path(file: int) -> str:
    try:
        return str(Path(f"/proc/self/fd/{file}").readlink())
    except OSError:
        return ""
