"""Commands, workers and further ranks forked from a server in which torch is loaded: each begins at
once.

Workers of an `ablate run` that a test calls inside of its process are forked. Tests of what a start
itself does, such as those of the worker, and of a launcher's signals, start new interpreters.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import ClassVar

import pytest

from ablate.launch import local
from ablate.workers import ranks

MODULES = {
    tuple(local.WORKER): "ablate.workers.worker",
    tuple(ranks.FOLLOWER): "ablate.workers.follower",
}
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    ["ablate.workers.worker", "ablate.cli.run", "torch._dynamo", "sacrebleu", "tests.forked"]
)


def _execute(
    module: str,
    words: Sequence[str],
    given: Connection,
    output: Connection,
    environment: Mapping[str, str],
    folder: str,
) -> None:
    """Call `main` of a module; standard input and output are these pipes."""
    os.setsid()
    os.dup2(given.fileno(), 0)
    os.dup2(output.fileno(), 1)
    given.close()
    output.close()
    sys.stdin = os.fdopen(os.dup(0), encoding="utf-8")
    sys.stdout = os.fdopen(os.dup(1), "w", encoding="utf-8")
    sys.argv = [module, *words]
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    local.subprocess = ranks.subprocess = _Subprocess  # type: ignore[assignment]
    sys.exit(import_module(module).main())


class Forked:
    """A process that calls `main` of a module, with what is used here of `subprocess.Popen`."""

    started: ClassVar[list[Forked]] = []

    def __init__(self, module: str, *words: object, env: Mapping[str, str] | None = None) -> None:
        given, writer = SERVER.Pipe(duplex=False)
        reader, output = SERVER.Pipe(duplex=False)
        environment = dict(os.environ if env is None else env)
        arguments = (
            module,
            [str(word) for word in words],
            given,
            output,
            environment,
            str(Path.cwd()),
        )
        self._process = SERVER.Process(target=_execute, args=arguments)
        self._process.start()
        self.module = module
        self.started.append(self)
        self.stdin = os.fdopen(os.dup(writer.fileno()), "wb")
        self.stdout = os.fdopen(os.dup(reader.fileno()), "rb")
        for end in (given, writer, reader, output):
            end.close()
        self.pid, self.kill, self.terminate = (
            self._process.pid,
            self._process.kill,
            self._process.terminate,
        )

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def communicate(self) -> tuple[str, None]:
        """Wait for the end; the output."""
        with self.stdin, self.stdout:
            output = self.stdout.read().decode()
        self.wait()
        return output, None

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("a forked process", timeout or 0.0)
        return self.returncode


class _Subprocess:
    """The module `subprocess`, whose processes are forked if they are workers or further ranks."""

    PIPE, TimeoutExpired = subprocess.PIPE, subprocess.TimeoutExpired

    @staticmethod
    def Popen(
        command: Sequence[str], env: Mapping[str, str] | None = None, **options: object
    ) -> Forked | subprocess.Popen[bytes]:
        if module := MODULES.get(tuple(command)):
            return Forked(module, env=env)
        return subprocess.Popen(command, env=env, **options)


@pytest.fixture(scope="session", autouse=True)
def forked_workers():
    """Let workers and further ranks that this process starts begin at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "subprocess", _Subprocess)
        patch.setattr(ranks, "subprocess", _Subprocess)
        yield
