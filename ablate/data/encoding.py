"""Text to token ids, many texts at once, in this process or in several.

A BPE vocabulary merges within words only, so a text's ids are its words' ids one after another, and
each word is encoded once: three times as fast as SentencePiece's batch encoder on Tatoeba (V=8000,
one core; benchmarks/prepare.py). A unigram vocabulary scores a text as a whole, so SentencePiece
encodes every text.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from ablate.data.tokenizer import SPACE, Tokenizer
from ablate.errors import StoreError

IDS = np.dtype("<u4")
# A limit, because the number of different words grows with the corpus.
MAX_WORDS = 500_000  # in an encoder's cache: about 100 MB

Chunk = Sequence[Sequence[str]]  # texts of each field, equally many


@dataclass(frozen=True)
class Encoded:
    """Token ids of many texts, concatenated, and the length of each text in tokens."""

    ids: NDArray[np.uint32]
    lengths: NDArray[np.int64]

    def only(self, keep: NDArray[np.bool_]) -> Encoded:
        """The texts selected by a mask."""
        if keep.all():
            return self
        return Encoded(self.ids[np.repeat(keep, self.lengths)], self.lengths[keep])


class TextEncoder:
    """Encodes texts with one vocabulary; caches the ids of words."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        # Two spaces in a row have an empty word between them.
        self.words: dict[str, bytes] = {"": b""}

    def __call__(self, texts: Sequence[str]) -> Encoded:
        """Token ids of the texts, without BOS and EOS."""
        encode = self._by_words if self.tokenizer.kind == "bpe" else self._whole
        encoded = encode(texts)
        lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded)) // IDS.itemsize
        return Encoded(np.frombuffer(b"".join(encoded), dtype=IDS), lengths)

    def _by_words(self, texts: Sequence[str]) -> list[bytes]:
        if len(self.words) > MAX_WORDS:  # bounds memory; frequent words are soon back in the cache
            self.words = {"": b""}
        encoded = list(map(self._lookup, texts))
        unknown = [index for index, ids in enumerate(encoded) if ids is None]
        self._add({word for index in unknown for word in texts[index].split(" ")})
        for index in unknown:
            encoded[index] = self._lookup(texts[index])
        return cast("list[bytes]", encoded)

    def _lookup(self, text: str) -> bytes | None:
        """The ids of a text, or None if one of its words is new."""
        if SPACE in text:  # SentencePiece divides words at it, too
            return self._whole([text])[0]
        try:
            return b"".join(map(self.words.__getitem__, text.split(" ")))
        except KeyError:
            return None

    def _add(self, words: set[str]) -> None:
        new = [word for word in words if word not in self.words]
        self.words.update(zip(new, self._whole(new), strict=True))

    def _whole(self, texts: Sequence[str]) -> list[bytes]:
        """Encode each text as a whole, with SentencePiece."""
        ids = self.tokenizer.encode(list(texts))
        ends = np.cumsum([0, *map(len, ids)]) * IDS.itemsize
        whole = np.fromiter(chain.from_iterable(ids), dtype=IDS).tobytes()
        return [whole[start:end] for start, end in itertools.pairwise(ends.tolist())]


def load_encoders(models: Sequence[Path]) -> list[TextEncoder]:
    """An encoder for each field's vocabulary file; fields that share a file share the encoder."""
    by_path = {path: TextEncoder(Tokenizer(path.read_bytes())) for path in set(models)}
    return [by_path[path] for path in models]


class EncoderPool:
    """Encodes chunks of records in order, in several processes, which start on entering the
    context; with `processes=1` in this one.
    """

    def __init__(self, models: Sequence[Path], processes: int) -> None:
        self.models, self.processes = list(models), processes
        self._pool: ProcessPoolExecutor | None = None
        self._exit = ExitStack()

    def __enter__(self) -> EncoderPool:
        if self.processes > 1:
            # Spawned and not forked: a fork would copy locks of the caller's threads in any state.
            context = multiprocessing.get_context("spawn")
            self._exit.enter_context(_spawning_without_current_folder())
            pool = ProcessPoolExecutor(self.processes, context, _start_worker, (self.models,))
            self._exit.callback(pool.shutdown, cancel_futures=True)
            self._pool = pool
        return self

    def __exit__(self, *exception: object) -> None:
        self._exit.close()

    def __call__(self, chunks: Iterable[Chunk]) -> Iterator[list[Encoded]]:
        """Encode chunks; yields for each, in order, the ids of every field.

        At most two chunks per process are read ahead, so that memory does not grow with the corpus.

        Raises:
            StoreError: a process was killed.
        """
        if self._pool is None:
            encoders = load_encoders(self.models)
            for chunk in chunks:
                yield _encode_fields(encoders, chunk)
            return
        pending: deque[Future[list[Encoded]]] = deque()
        try:
            for chunk in chunks:
                # One string per field is much faster to send than a list of strings.
                texts = ["\n".join(field).encode() for field in chunk]
                with _sigint_blocked():  # submit() may start a process, which inherits the mask
                    pending.append(self._pool.submit(_encode, texts))
                # The oldest first: the order of records must not depend on which process is faster.
                if len(pending) > 2 * self.processes:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except BrokenProcessPool:
            raise StoreError(
                "a process that encodes the corpus was killed; run the same command again to resume"
            ) from None


@contextmanager
def _spawning_without_current_folder() -> Iterator[None]:
    """Start processes without the current folder on their path: no file there is a module."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]


@contextmanager
def _sigint_blocked() -> Iterator[None]:
    """Block SIGINT in processes that start here: it must not reach them before `os.setsid`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_worker_encoders: list[TextEncoder] = []  # of a worker process; set once by _start_worker


def _start_worker(models: Sequence[Path]) -> None:
    """Initialize a worker process: load the vocabularies, and exit when the parent does."""
    # In a new session, Ctrl-C reaches the parent only; Linux shares CPU time by session, too.
    os.setsid()
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    _worker_encoders[:] = load_encoders(models)


def _exit_with_parent() -> None:
    """End this process when the parent is gone: a killed parent cannot shut its pool down."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    # Not sys.exit(), which would end only this thread.
    os._exit(1)


def _encode(texts: Sequence[bytes]) -> list[Encoded]:
    return _encode_fields(_worker_encoders, [field.decode().split("\n") for field in texts])


def _encode_fields(encoders: Sequence[TextEncoder], chunk: Chunk) -> list[Encoded]:
    """The ids of every field, by its encoder."""
    return [encoder(texts) for encoder, texts in zip(encoders, chunk, strict=True)]
