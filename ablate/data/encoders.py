"""Sentence pairs encoded by several processes, in order.

Each process is this module as a program: chunks of text come in on standard input and go out as ids on standard
output, as blobs with their sizes before them. It leaves when its input ends, so that none outlives its parent.
"""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from ablate.data.encoding import IDS, Encoded, Encoder
from ablate.data.tokenizer import Tokenizer
from ablate.errors import StoreError

Chunk = tuple[Sequence[str], Sequence[str]]  # sentences of the source, and as many of the target
Result = tuple[Encoded, Encoded]
_LENGTHS = np.dtype("<i8")
_SIZE = struct.Struct("<q")


class Encoders:
    """Encodes chunks of pairs with the vocabularies of source and target."""

    def __init__(self, models: tuple[Path, Path], processes: int) -> None:
        """With 1 process it is this one."""
        self.models, self.processes = models, processes
        self._workers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Encoders:
        command = [sys.executable, "-m", __spec__.name, *map(str, self.models)]
        for _ in range(self.processes if self.processes > 1 else 0):
            # In a session of its own, so that a Ctrl-C reaches the parent alone.
            self._workers.append(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
            )
        return self

    def __exit__(self, *exception: object) -> None:
        for worker in self._workers:
            worker.kill()
            worker.communicate()

    def __call__(self, chunks: Iterable[Chunk]) -> Iterator[Result]:
        """Each chunk encoded, in order; the next ones are read meanwhile.

        Raises:
            StoreError: a process was killed.
        """
        if not self._workers:
            encoders = encoders_of(self.models)
            yield from ((encoders[0](source), encoders[1](target)) for source, target in chunks)
            return
        given = taken = 0
        for chunk in chunks:
            if given - taken == len(self._workers):
                yield self._take(taken)
                taken += 1
            self._give(given, chunk)
            given += 1
        while taken < given:
            yield self._take(taken)
            taken += 1

    def _give(self, turn: int, chunk: Chunk) -> None:
        stream = self._workers[turn % len(self._workers)].stdin
        assert stream is not None
        try:
            _write(stream, *("\n".join(side).encode() for side in chunk))
        except BrokenPipeError:
            raise _killed() from None

    def _take(self, turn: int) -> Result:
        stream = self._workers[turn % len(self._workers)].stdout
        assert stream is not None
        blobs = [_read(stream) for _ in range(4)]
        if None in blobs:
            raise _killed()
        ids = [np.frombuffer(blob or b"", dtype=IDS) for blob in blobs[:2]]
        lengths = [np.frombuffer(blob or b"", dtype=_LENGTHS) for blob in blobs[2:]]
        return Encoded(ids[0], lengths[0]), Encoded(ids[1], lengths[1])


def encoders_of(models: tuple[Path, Path]) -> tuple[Encoder, Encoder]:
    """Encoders for source and target; one, where they share a vocabulary."""
    source = Encoder(Tokenizer(models[0].read_bytes()))
    return source, source if models[0] == models[1] else Encoder(Tokenizer(models[1].read_bytes()))


def _killed() -> StoreError:
    return StoreError("a process that encodes the corpus was killed; the same command goes on where it was")


def _write(stream: IO[bytes], *blobs: bytes) -> None:
    for blob in blobs:
        stream.write(_SIZE.pack(len(blob)))
        stream.write(blob)
    stream.flush()


def _read(stream: IO[bytes]) -> bytes | None:
    """A blob; None where the stream has ended."""
    head = stream.read(_SIZE.size)
    if len(head) < _SIZE.size:
        return None
    size = _SIZE.unpack(head)[0]
    blob = stream.read(size)
    return blob if len(blob) == size else None


def main(source: str, target: str) -> None:
    """Work until standard input ends."""
    encoders = encoders_of((Path(source), Path(target)))
    while True:
        texts = [_read(sys.stdin.buffer) for _ in encoders]
        if None in texts:
            return
        found = [encoder((text or b"").decode().split("\n")) for encoder, text in zip(encoders, texts, strict=True)]
        lengths = [each.lengths.astype(_LENGTHS).tobytes() for each in found]
        _write(sys.stdout.buffer, *(each.ids.tobytes() for each in found), *lengths)


if __name__ == "__main__":
    main(*sys.argv[1:])
