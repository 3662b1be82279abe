"""Learn a vocabulary from text, by SentencePiece."""

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
from ablate.errors import DataError

# What stands for each reserved text in the pieces of an escaped vocabulary: the last private
# characters, which hardly any text uses.
_STAND_INS = dict(zip(RESERVED, map(chr, range(0x10FF00, 0x10FF00 + len(RESERVED))), strict=True))
_RESERVED_TEXT = re.compile("|".join(RESERVED))
T = TypeVar("T")
_LOSSLESS = {
    "byte_fallback": True,
    "add_dummy_prefix": False,
    "remove_extra_whitespaces": False,
    "user_defined_symbols": ["\n"],
}
# Empty `normalization_rule_tsv` of the fields 3 and 5 of SentencePiece's model: its normalizers.
_NO_PATHS = b"\x1a\x02\x32\x00" + b"\x2a\x02\x32\x00"
_TOO_LOW = re.compile(r"smaller than required_chars\. \d+ vs (\d+)")
SAMPLE_SEED = 20170612
_SIGNAL_CHECK = 0.1  # seconds between two chances for a signal handler to run


def random_sample(items: Iterable[T], size: int, seed: int = SAMPLE_SEED) -> tuple[list[T], int]:
    """At most `size` of the items, in order (Vitter, 1985), and the number of all items."""
    draw = random.Random(seed)
    kept: list[tuple[int, T]] = []
    count = 0
    for count, item in enumerate(items, 1):
        if count <= size:
            kept.append((count, item))
            continue
        index = int(draw.random() * count)
        if index < size:
            kept[index] = (count, item)
    kept.sort(key=itemgetter(0))
    return [item for _, item in kept], count


def has_reserved(text: str) -> bool:
    """Whether a text has what SentencePiece reserves: names of marks, U+2581, U+2585 or U+001F.

    A vocabulary must be escaped to learn such text. An escaped vocabulary reads and writes the text
    as it is; its file says how, so that other programs do, too.
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

    The pieces of the kind `word` are the most frequent words, between spaces; entries that the text
    has no words for are `<unused>`. Any other word is unknown.

    Text is not normalized, so that every character of a reference can be produced. Signal handlers
    run during training.

    Args:
        sentences: the text.
        vocab_size: V, with the marks.
        kind: the algorithm.
        byte_fallback: whether unknown characters are encoded as bytes.
        lossless: whether ids decode to the same text: spaces are kept, line ends are tokens,
            `byte_fallback` is set.
        symbols: words that are entries of the vocabulary whatever the text is; with `lossless`
            there are none.
        coverage: share of the text's characters, but spaces, that pieces are made of: the most
            frequent ones. The others are unknown.
        escaped: whether the text may have what SentencePiece reserves (`has_reserved`).

    Raises:
        DataError: the text has fewer possible pieces than `vocab_size`, or more characters.
    """
    settings: dict[str, Any] = {
        "model_type": kind,
        "vocab_size": vocab_size,
        "character_coverage": 1.0,
        "normalization_rule_name": "identity",
        "pad_id": PAD,
        "unk_id": UNK,
        "bos_id": BOS,
        "eos_id": EOS,
        "max_sentence_length": MAX_LINE_BYTES,
        "minloglevel": 2,
    }
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
        except RuntimeError as error:  # by which SentencePiece reports faults of the text
            why = _reason(str(error), vocab_size)
            if too_low := _TOO_LOW.search(str(error)):
                has_bytes = "byte_fallback" in settings
                missing = int(too_low[1]) - vocab_size + (0 if has_bytes else BYTE_VALUES)
                why += _with_bytes(texts, coverage, missing, byte_fallback or lossless)
            raise DataError(why) from None
    if escaped:
        import sentencepiece

        # Without the path of the rules, whose content the model has: a part of a message of
        # protobuf, appended, replaces the same part of the whole.
        whole = sentencepiece.SentencePieceProcessor(model_proto=model + _NO_PATHS)
        model = whole.serialized_model_proto()
    return Tokenizer(model)


def _train(texts: Iterable[str], settings: Mapping[str, Any]) -> bytes:
    import sentencepiece

    model = io.BytesIO()
    train = sentencepiece.SentencePieceTrainer.train
    _in_thread(partial(train, sentence_iterator=iter(texts), model_writer=model, **settings))
    return model.getvalue()


def _escaped(text: str) -> str:
    return _RESERVED_TEXT.sub(lambda match: _STAND_INS[match[0]], text)


def _rules(folder: Path) -> dict[str, str]:
    """Rules by which SentencePiece itself escapes a text, and writes it as it was.

    They are files of code points, one rule a line.
    """
    settings = {}
    rules = list(_STAND_INS.items())
    for name, pairs in (
        ("normalization_rule_tsv", rules),
        ("denormalization_rule_tsv", [(after, before) for before, after in rules]),
    ):
        lines = (
            "\t".join(" ".join(f"{ord(c):X}" for c in side) for side in pair) for pair in pairs
        )
        path = folder / name
        path.write_text("\n".join(lines) + "\n")
        settings[name] = str(path)
    return settings


def _unused_words(texts: Sequence[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The entries that a vocabulary of words has no words for."""
    # With a soft limit, it has the words that SentencePiece finds.
    found = Tokenizer(_train(texts, {**settings, "hard_vocab_limit": False})).vocab_size
    taken = set[str]()
    for text in texts:
        taken.update(re.findall(r"<unused\d+>", text))
    missing = settings["vocab_size"] - found
    names = map("<unused{}>".format, range(missing + len(taken)))
    unused = [name for name in names if name not in taken][:missing]
    return {"control_symbols": unused} if unused else {}


def _covered(texts: Sequence[str], coverage: float) -> Iterable[str]:
    """The texts without their rarest characters, at which no piece goes on."""
    ordered = [] if coverage == 1 else _characters(texts)
    if not ordered:
        return texts
    rare = [character for character, _ in ordered[_kept(ordered, coverage) :]]
    table = str.maketrans(dict.fromkeys(rare, BOUNDARY))
    return (text.translate(table) for text in texts)


def _characters(texts: Iterable[str]) -> list[tuple[str, int]]:
    """The characters but spaces, and how often each occurs; the most frequent first."""
    counts = Counter[str]()
    for text in texts:
        counts.update(text)
    del counts[" "]
    # Equally frequent ones in the order of their code points, whatever the order of the texts.
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _kept(ordered: Sequence[tuple[str, int]], coverage: float) -> int:
    """How many of the most frequent characters are at least this share of the text."""
    ends = np.cumsum([count for _, count in ordered])
    return int(np.searchsorted(ends, coverage * ends[-1])) + 1


def _with_bytes(texts: Sequence[str], coverage: float, missing: int, has_bytes: bool) -> str:
    """The largest coverage with which so many characters are bytes, for the end of a message."""
    ordered = _characters(texts)
    kept = _kept(ordered, coverage) - missing
    ends = np.cumsum([count for _, count in ordered])
    largest = int(ends[kept - 1] / ends[-1] * 100) / 100 if kept > 0 else 0.0
    if not largest:
        return ""
    also = "" if has_bytes else "data.byte_fallback=true and "
    return (
        f"; or set {also}data.character_coverage={largest:g}, to encode rarer characters as bytes"
    )


def _in_thread(train: Callable[[], None]) -> None:
    """Call a function that releases the GIL, so that this thread handles signals meanwhile."""
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


def _reason(message: str, vocab_size: int) -> str:
    if "sentences_.empty()" in message:
        return "the training split has no text that a vocabulary can be learned on"
    size = f"data.vocab_size={vocab_size}"
    if too_high := re.search(r"Vocabulary size too high.*?<= (\d+)", message):
        return f"{size} is too large for the training split: at most {too_high[1]}"
    if too_low := _TOO_LOW.search(message):
        least = f"at least {too_low[1]}"
        return f"{size} is too small for the characters of the training split: {least}"
    return f"the vocabulary could not be trained with {size}: {message.strip().splitlines()[-1]}"
