"""Preparation of a corpus: time and peak memory by number of pairs, compared with SentencePiece's
batch encoder.

    python benchmarks/prepare.py --text DIR --pairs 100000 1000000 5000000

DIR contains train.en and train.de (or .gz). Its pairs are repeated as often as needed. From the
second repetition on, one word per side is changed, so that sentences differ and the number of
distinct words grows. Each measurement is a separate process; its peak memory is the resident set of
the process and its children, sampled 20 times a second. Phases begin at the log lines of the
preparation. The first batch is the median of several processes in a worker's environment.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from ablate.config.data import TextFields
from ablate.config.translation_data import TranslationData
from ablate.data.corpus import Corpus
from ablate.data.find_files import record_source
from ablate.data.prepare import prepare
from ablate.launch.devices import worker_environment
from ablate.store.machine import cores

LANGUAGES = ("en", "de")
FIELDS = TextFields(("source", "target"), LANGUAGES)
CHUNK = 10_000  # records
HELD = 1000  # pairs of dev and of test


def perturbed(folder: Path, pairs: int) -> Iterator[tuple[str, str]]:
    """The folder's pairs, repeated to this number, with a word changed at random from the second
    time on.
    """
    draw = random.Random(1)
    originals = [
        record.texts for record in record_source(str(folder / "train"), FIELDS).documents()
    ]
    for number in range(pairs):
        pair = originals[number % len(originals)]
        if number >= len(originals):
            pair = tuple(_changed(text, originals[int(draw.random() * len(originals))][side], draw)
                         for side, text in enumerate(pair))  # fmt: skip
        yield pair[0], pair[1]


def _changed(text: str, other: str, draw: random.Random) -> str:
    """Replace a random word by a word of another sentence or by a number."""
    words, others = text.split(), other.split()
    word = (
        others[int(draw.random() * len(others))]
        if draw.random() < 0.9
        else str(int(draw.random() * 1_000_000))
    )
    words[int(draw.random() * len(words))] = word
    return " ".join(words)


def write(folder: Path, text: Path, pairs: int) -> None:
    """Write a corpus of this many training pairs as files."""
    folder.mkdir()
    for split, size in (("train", pairs), ("dev", HELD), ("test", HELD)):
        files = [
            (folder / f"{split}.{language}").open("w", encoding="utf-8") for language in LANGUAGES
        ]
        with files[0], files[1]:
            for pair in perturbed(text, size):
                for file, sentence in zip(files, pair, strict=True):
                    file.write(f"{sentence}\n")


def settings(folder: Path, vocab_size: int) -> dict[str, object]:
    names = {split: split for split in ("train", "dev", "test")}
    return {
        "corpus": "files",
        "direction": "en-de",
        "folder": str(folder),
        "vocab_size": vocab_size,
        **names,
    }


def ours(folder: Path, vocab_size: int) -> dict[str, float]:
    """Prepare the corpus; returns seconds in total, of each phase, and of opening it again."""
    log: list[tuple[float, str]] = []
    began = time.monotonic()
    pairs = prepare(
        TranslationData.resolve(settings(folder, vocab_size)), folder, folder / "corpora",
        log=lambda line: log.append((time.monotonic(), line.partition(" ")[0].strip(":"))),
    ).manifest.records["train"]  # fmt: skip
    end = time.monotonic()
    starts = [(began, "hashing"), *log, (end, "")]
    phases = {name: 0.0 for _, name in starts if name}
    for (start, name), (stop, _) in itertools.pairwise(starts):
        phases[name] += stop - start
    again = time.monotonic()
    prepare(TranslationData.resolve(settings(folder, vocab_size)), folder, folder / "corpora")
    return {"seconds": end - began, **phases, "again": time.monotonic() - again,
            "pairs": pairs}  # fmt: skip


def first_batch(folder: Path) -> dict[str, float]:
    """Seconds from opening a prepared corpus to its first batch of 25,000 tokens, imports left
    out.
    """
    from ablate.data.batches import BatchOrder, collate

    (folder_of_corpus,) = (path.parent for path in (folder / "corpora").glob("*/corpus.json"))
    began = time.monotonic()
    corpus = Corpus(folder_of_corpus)
    train = corpus.split("train")
    collate(train, BatchOrder(train, 25_000, seed=1).at(1), "source", "target")
    return {"first_batch": time.monotonic() - began}


def sentencepiece(folder: Path, threads: int) -> dict[str, float]:
    """Seconds in which SentencePiece's batch encoder encodes the training split, without reading
    it.
    """
    from sentencepiece import SentencePieceProcessor

    (model,) = (folder / "corpora").glob("*/tokenizer.model")
    encoder = SentencePieceProcessor(model_file=str(model))
    seconds, texts = 0.0, [[], []]

    def encode() -> None:
        nonlocal seconds
        for side in texts:
            began = time.monotonic()
            encoder.encode(side, out_type=int, num_threads=threads)
            seconds += time.monotonic() - began
            side.clear()

    for record in record_source(str(folder / "train"), FIELDS).documents():
        for side, text in zip(texts, record.texts, strict=True):
            side.append(text)
        if len(texts[0]) == CHUNK:
            encode()
    encode()
    return {"sentencepiece": seconds}


WORK = {"ours": ours, "first_batch": first_batch, "sentencepiece": sentencepiece}


def in_a_process(work: str, *given: object) -> dict[str, float]:
    """Run a measurement in a new process; returns its values and peak memory in megabytes,
    including children.

    The first batch is measured in a worker's environment; everything else in the current one, as in
    a launcher.
    """
    command = [sys.executable, __file__, "--work", work, *map(str, given)]
    environment = worker_environment(cores()) if work == "first_batch" else dict(os.environ)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        watched, peak = psutil.Process(process.pid), 0
        while process.poll() is None:
            with suppress(psutil.NoSuchProcess):
                tree = [watched, *watched.children(recursive=True)]
                peak = max(peak, sum(each.memory_info().rss for each in tree))
            time.sleep(0.05)
        assert process.stdout is not None
        found = json.loads(process.stdout.read())
    return {**found, f"{work}_mb": peak / 2**20}


def measure(
    text: Path, scratch: Path, pairs: int, vocab_size: int, threads: int, rounds: int
) -> None:
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        folder = Path(name) / "corpus"
        write(folder, text, pairs)
        found = in_a_process("ours", folder, vocab_size)
        found |= in_a_process("sentencepiece", folder, threads)
        first = statistics.median(
            in_a_process("first_batch", folder)["first_batch"] for _ in range(rounds)
        )
    rate, theirs = pairs / found["encoding"], pairs / found["sentencepiece"]
    print(
        f"| {pairs:,} | {found['seconds']:.1f} | {found['hashing']:.1f} | {found['reading']:.1f} "
        f"| {found['learning']:.1f} | {found['encoding']:.1f} | {found['ours_mb']:.0f} | "
        f"{rate:,.0f} | {theirs:,.0f} "
        f"| {rate / theirs:.2f} | {found['again']:.2f} | {first:.2f} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", type=Path, required=True, metavar="DIR")
    parser.add_argument("--pairs", type=int, nargs="+", default=[100_000, 250_000, 1_000_000])
    parser.add_argument("--vocab-size", type=int, default=8000)
    parser.add_argument("--threads", type=int, default=2, help="of SentencePiece's own encoder")
    parser.add_argument("--rounds", type=int, default=5, help="of the first batch")
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()))
    given = parser.parse_args()
    print("| pairs | seconds | hashing | reading | learning | encoding | peak MB | encoded pairs/s "
          "| SentencePiece's | ratio | again s | first batch s |")  # fmt: skip
    print("|" + " ---: |" * 12)
    for pairs in given.pairs:
        measure(given.text, given.scratch, pairs, given.vocab_size, given.threads, given.rounds)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work, folder, *rest = sys.argv[2:]
        print(json.dumps(WORK[work](Path(folder), *map(int, rest))))
    else:
        main()
