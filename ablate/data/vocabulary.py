"""Learn a vocabulary from text with SentencePiece."""

from __future__ import annotations

import io
import random
import re
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ablate.data.io import MAX_LINE_BYTES
from ablate.data.tokenizer import (
    BOS,
    BOUNDARY,
    BYTE_VALUES,
    EOS,
    PAD,
    RESERVED,
    SPACE,
    UNK,
    Kind,
    Tokenizer,
)
from ablate.errors import DataError, Fault

# The character for each reserved text in the pieces of an escaped vocabulary: private characters,
# the last of all, which hardly any text uses.
_STAND_INS = dict(zip(RESERVED, map(chr, range(0x10FF00, 0x10FF00 + len(RESERVED))), strict=True))
_RESERVED_TEXT = re.compile("|".join(RESERVED))
T = TypeVar("T")
_SETTINGS: dict[str, Any] = {
    "character_coverage": 1.0,
    "normalization_rule_name": "identity",
    "pad_id": PAD,
    "unk_id": UNK,
    "bos_id": BOS,
    "eos_id": EOS,
    "max_sentence_length": MAX_LINE_BYTES,
    "minloglevel": 2,
}
_LOSSLESS = {
    "byte_fallback": True,
    "add_dummy_prefix": False,
    "remove_extra_whitespaces": False,
    "user_defined_symbols": ["\n"],
}
# A message of protobuf: empty `normalization_rule_tsv` of the normalizers of SentencePiece's model,
# which are its fields 3 and 5.
_NO_PATHS = b"\x1a\x02\x32\x00" + b"\x2a\x02\x32\x00"
SAMPLE_SEED = 20170612
_SIGNAL_CHECK = 0.1  # seconds between two chances for a signal handler to run


def random_sample(items: Iterable[T], size: int, seed: int = SAMPLE_SEED) -> tuple[list[T], int]:
    """At most `size` random items, in order (Vitter, 1985), and the number of all items."""
    draw = random.Random(seed)
    sample: list[tuple[int, T]] = []
    count = 0
    for count, item in enumerate(items, 1):
        if count <= size:
            sample.append((count, item))
            continue
        index = int(draw.random() * count)
        if index < size:
            sample[index] = (count, item)
    sample.sort(key=itemgetter(0))
    return [item for _, item in sample], count


def has_reserved(text: str) -> bool:
    """Whether a text has what SentencePiece reserves: names of marks, U+2581, U+2585 or U+001F.

    Only an escaped vocabulary can learn such text. It encodes and decodes the text unchanged, by
    rules in its file, which other programs apply too.
    """
    return any(reserved in text for reserved in RESERVED)


def train_tokenizer(
    sentences: Iterable[str],
    vocab_size: int,
    kind: Kind = "bpe",
    byte_fallback: bool = False,
    lossless: bool = False,
    symbols: Sequence[str] = (),
    coverage: float = 1.0,
    escaped: bool = False,
) -> Tokenizer:
    """Train a vocabulary of exactly `vocab_size` pieces.

    The pieces of the kind `word` are the most frequent words between spaces; if the text has too
    few words, the other pieces are `<unused0>`, `<unused1>` and so on. Any other word of a text is
    unknown.

    Text is not normalized, so that every character of a reference can be produced. Signal handlers
    run during training.

    Args:
        sentences: the text.
        vocab_size: V, with the marks.
        kind: the algorithm.
        byte_fallback: whether unknown characters are encoded as bytes.
        lossless: whether ids decode to the same text: spaces are kept, line ends are tokens, and
            unknown characters are encoded as bytes.
        symbols: words that are entries of the vocabulary whatever the text is; empty with
            `lossless`.
        coverage: share of the text's characters, without spaces, that pieces are made of: its most
            frequent characters. Other characters are unknown.
        escaped: whether the text can have what SentencePiece reserves (`has_reserved`).

    Raises:
        DataError: the text has fewer possible pieces than `vocab_size`, or more characters.
    """
    settings = {**_SETTINGS, "model_type": kind, "vocab_size": vocab_size}
    if byte_fallback:
        settings["byte_fallback"] = True
    if symbols:
        settings["user_defined_symbols"] = [SPACE + symbol for symbol in symbols]
    if lossless:
        settings |= _LOSSLESS
    texts = list(map(_escaped, sentences) if escaped else sentences)
    with tempfile.TemporaryDirectory() as folder:
        if escaped:
            settings |= _rules(Path(folder))
        try:
            if kind == "word":
                settings |= _unused_words(texts, settings)
            model = _train(_covered(texts, coverage), settings)
        except RuntimeError as error:  # SentencePiece reports faults of the text by it
            raise DataError(_fault(str(error), texts, coverage, settings)) from None
    if escaped:
        import sentencepiece

        # Remove the paths of the rules, whose content is in the model. Fields that are appended to
        # a message of protobuf replace its earlier values.
        processor = sentencepiece.SentencePieceProcessor(model_proto=model + _NO_PATHS)
        model = processor.serialized_model_proto()
    return Tokenizer(model)


def _train(texts: Iterable[str], settings: Mapping[str, Any]) -> bytes:
    import sentencepiece

    model = io.BytesIO()
    train = sentencepiece.SentencePieceTrainer.train
    _call_in_thread(partial(train, sentence_iterator=iter(texts), model_writer=model, **settings))
    return model.getvalue()


def _escaped(text: str) -> str:
    return _RESERVED_TEXT.sub(lambda match: _STAND_INS[match[0]], text)


def _rules(folder: Path) -> dict[str, str]:
    """Write the rules by which SentencePiece escapes a text and restores it.

    Each line of these files is a rule, in code points.
    """
    settings = {}
    escapes = list(_STAND_INS.items())
    for name, pairs in (
        ("normalization_rule_tsv", escapes),
        ("denormalization_rule_tsv", [(character, text) for text, character in escapes]),
    ):
        lines = (
            "\t".join(" ".join(f"{ord(c):X}" for c in side) for side in pair) for pair in pairs
        )
        path = folder / name
        path.write_text("\n".join(lines) + "\n")
        settings[name] = str(path)
    return settings


def _unused_words(texts: Sequence[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that fill a vocabulary of words if the text has too few."""
    # With a soft limit, the vocabulary has only the words of the text.
    n_words = Tokenizer(_train(texts, {**settings, "hard_vocab_limit": False})).vocab_size
    words = set[str]()
    for text in texts:
        words.update(re.findall(r"<unused\d+>", text))
    missing = settings["vocab_size"] - n_words
    names = map("<unused{}>".format, range(missing + len(words)))
    unused = [name for name in names if name not in words][:missing]
    return {"control_symbols": unused} if unused else {}


def _covered(texts: Sequence[str], coverage: float) -> Iterable[str]:
    """The texts with BOUNDARY in the place of rare characters, so that no piece has these."""
    ordered = [] if coverage == 1 else _characters(texts)
    if not ordered:
        return texts
    rare = [character for character, _ in ordered[_n_covered(ordered, coverage) :]]
    table = str.maketrans(dict.fromkeys(rare, BOUNDARY))
    return (text.translate(table) for text in texts)


def _characters(texts: Iterable[str]) -> list[tuple[str, int]]:
    """The characters without spaces, and the number of each, the most frequent first."""
    counts = Counter[str]()
    for text in texts:
        counts.update(text)
    del counts[" "]
    # With equal numbers by code point, so that the order of the texts does not matter.
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _n_covered(ordered: Sequence[tuple[str, int]], coverage: float) -> int:
    """The smallest number of most frequent characters that are at least this share of the text."""
    ends = np.cumsum([count for _, count in ordered])
    return int(np.searchsorted(ends, coverage * ends[-1])) + 1


def _coverage_remedy(texts: Sequence[str], coverage: float, missing: int, has_bytes: bool) -> str:
    """The largest coverage that makes `missing` more characters bytes, for the end of a message."""
    ordered = _characters(texts)
    n_pieces = _n_covered(ordered, coverage) - missing
    ends = np.cumsum([count for _, count in ordered])
    largest = int(ends[n_pieces - 1] / ends[-1] * 100) / 100 if n_pieces > 0 else 0.0
    if not largest:
        return ""
    also = "" if has_bytes else "data.byte_fallback=true and "
    return (
        f"; or set {also}data.character_coverage={largest:g}, to encode rarer characters as bytes"
    )


def _call_in_thread(train: Callable[[], None]) -> None:
    """Call a function that releases the GIL, while this thread handles signals."""
    failures: list[Exception] = []

    def call() -> None:
        try:
            train()
        except Exception as error:
            failures.append(error)

    worker = threading.Thread(target=call, daemon=True)
    worker.start()
    while worker.is_alive():
        worker.join(_SIGNAL_CHECK)
    if failures:
        raise failures[0]


def _fault(
    message: str, texts: Sequence[str], coverage: float, settings: Mapping[str, Any]
) -> Fault:
    """The fault of a text in the words of a study, from a message of SentencePiece."""
    if "sentences_.empty()" in message:
        return Fault("the training split has no text that a vocabulary can be learned on")
    vocab_size, named = settings["vocab_size"], ("vocab_size",)
    if too_high := re.search(r"Vocabulary size too high.*?<= (\d+)", message):
        problem = f"{vocab_size} is too large for the training split: at most {too_high[1]}"
        return Fault(problem, named)
    if too_low := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        has_bytes = "byte_fallback" in settings
        missing = int(too_low[1]) - vocab_size + (0 if has_bytes else BYTE_VALUES)
        least = f"at least {too_low[1]}{_coverage_remedy(texts, coverage, missing, has_bytes)}"
        problem = f"{vocab_size} is too small for the characters of the training split: {least}"
        return Fault(problem, named)
    problem = f"no vocabulary of {vocab_size} could be learned: {message.strip().splitlines()[-1]}"
    return Fault(problem, named)
