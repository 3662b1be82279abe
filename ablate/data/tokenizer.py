"""SentencePiece (section 5.1: byte-pair encoding, a vocabulary shared by both languages)."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterable
from functools import cached_property
from typing import Any, Literal

from ablate.data.lines import MAX_LINE_BYTES
from ablate.errors import DataError

PAD, UNK, BOS, EOS = 0, 1, 2, 3

Kind = Literal["bpe", "unigram"]
_ASK_AGAIN = 0.1  # seconds between two looks at whether a signal has come


class Tokenizer:
    """A trained vocabulary: text to ids and back."""

    def __init__(self, model: bytes) -> None:
        import sentencepiece

        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)

    @property
    def vocab_size(self) -> int:
        """V, the four control pieces included."""
        return int(self._processor.get_piece_size())

    @cached_property
    def kind(self) -> Kind:
        """How it was learned: a BPE's pieces are scored 0, -1, -2 ... in the order of its merges."""
        whole = [self._processor.get_score(id) for id in range(self.vocab_size) if not self._is_special(id)]
        return "bpe" if whole == [-float(rank) for rank in range(len(whole))] else "unigram"

    def _is_special(self, id: int) -> bool:
        pieces = self._processor
        return bool(pieces.is_control(id) or pieces.is_unknown(id) or pieces.is_byte(id))

    def encode(self, sentences: list[str]) -> list[list[int]]:
        """Ids of each sentence, without begin and end marks."""
        ids: list[list[int]] = self._processor.encode(sentences, out_type=int)
        return ids

    def decode(self, ids: list[list[int]]) -> list[str]:
        """Plain, detokenized text of each list of ids."""
        text: list[str] = self._processor.decode(ids) if ids else []  # of no sentences it would make one text
        return text

    def pieces(self, ids: list[int]) -> list[str]:
        """How each id is written: `▁` for a space before a word, marks as <s> and </s>."""
        pieces: list[str] = self._processor.id_to_piece(ids)
        return pieces


def train_tokenizer(
    sentences: Iterable[str], vocab_size: int, kind: Kind = "bpe", byte_fallback: bool = False
) -> Tokenizer:
    """Train a vocabulary of exactly `vocab_size` pieces.

    Text is taken as it is (no Unicode normalisation), so that every character of a reference can be produced.
    A signal is heeded while it works.

    Raises:
        DataError: the text does not hold that many pieces, or more characters than that.
    """
    import sentencepiece

    model = io.BytesIO()
    settings: dict[str, Any] = {
        "sentence_iterator": iter(sentences),
        "model_writer": model,
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
        **({"byte_fallback": True} if byte_fallback else {}),
    }
    failures: list[Exception] = []

    def work() -> None:
        try:
            sentencepiece.SentencePieceTrainer.train(**settings)
        except Exception as error:
            failures.append(error)

    worker = threading.Thread(target=work, daemon=True)  # it works without the interpreter: this thread hears signals
    worker.start()
    while worker.is_alive():
        worker.join(_ASK_AGAIN)
    if failures and not isinstance(failures[0], RuntimeError):
        raise failures[0]
    if failures:
        raise DataError(_reason(str(failures[0]), vocab_size))
    return Tokenizer(model.getvalue())


def _reason(message: str, vocab_size: int) -> str:
    too_high = re.search(r"Vocabulary size too high.*?<= (\d+)", message)
    if too_high:
        return f"data.vocab_size={vocab_size} is more than the training side has pieces for: at most {too_high[1]}"
    too_low = re.search(r"smaller than required_chars\. \d+ vs (\d+)", message)
    if too_low:
        return f"data.vocab_size={vocab_size} cannot hold every character of the training side: at least {too_low[1]}"
    return f"the vocabulary could not be trained with data.vocab_size={vocab_size}: {message.strip().splitlines()[-1]}"
