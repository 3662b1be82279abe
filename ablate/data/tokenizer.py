"""Tokenizers: text to ids and back, with a vocabulary of SentencePiece (section 5.1), of bytes or
of symbols.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Literal

import numpy as np
from numpy.typing import NDArray

PAD, UNK, BOS, EOS = 0, 1, 2, 3  # EOS equals config's END_MARK, which must not import this module
MASK = UNK  # of masked language models: lossless vocabularies have no unknown token

Kind = Literal["bpe", "unigram", "word", "bytes", "symbols"]
_MARKS = ("<pad>", "<unk>", "<s>", "</s>")
FIRST_TOKEN = len(_MARKS)  # the smallest id of a token of the text
SPACE = "\u2581"  # stands for a space in the pieces of SentencePiece
BOUNDARY = "\x1f"  # ends a piece of SentencePiece, and is in none
RESERVED = (*_MARKS, SPACE, "\u2585", BOUNDARY)  # U+2585 is its unknown character
BYTE_VALUES = 256
IDS = np.dtype("<u4")  # of token ids


class Tokenizer:
    """A trained vocabulary: text to ids and back."""

    def __init__(self, model: bytes) -> None:
        import sentencepiece

        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.vocab_size = int(self._processor.get_piece_size())  # V, with the marks

    @cached_property
    def kind(self) -> Kind:
        """The algorithm that the vocabulary was trained with."""
        # The model file does not name it, but BPE scores its pieces 0, -1, -2 ... by their merges.
        rank = 0
        for id in range(self.vocab_size):
            if self._is_special(id):
                continue
            score = self._processor.get_score(id)
            if score:  # given symbols have the score 0, as the first merge of BPE has
                rank += 1
                if score != -float(rank):
                    return "unigram"
        return "bpe"

    @cached_property
    def is_escaped(self) -> bool:
        """Whether private characters stand for what SentencePiece reserves (`has_reserved`)."""
        return BOUNDARY not in self._processor.normalize(BOUNDARY)

    def _is_special(self, id: int) -> bool:
        pieces = self._processor
        return bool(pieces.is_control(id) or pieces.is_unknown(id) or pieces.is_byte(id))

    def encode(self, sentences: list[str]) -> list[list[int]]:
        """Token ids of each sentence, without BOS and EOS."""
        if self._is_lossless and any(SPACE in sentence for sentence in sentences):
            return list(map(self._encode_exactly, sentences))
        ids: list[list[int]] = self._processor.encode(sentences, out_type=int)
        return ids

    def unknown(self, sentence: str) -> list[str]:
        """The text of each unknown token of a sentence, in order: characters that the vocabulary
        does not have, or a word without a token.
        """
        (ids,) = self.encode([sentence])
        if UNK not in ids:
            return []
        pieces: list[str] = self._processor.encode(sentence, out_type=str)
        unknown = [piece for piece, id in zip(pieces, ids, strict=True) if id == UNK]
        return [piece.replace(SPACE, " ").strip() for piece in unknown]

    @cached_property
    def _is_lossless(self) -> bool:
        # Only lossless vocabularies have line ends as tokens.
        return int(self._processor.piece_to_id("\n")) != UNK

    def _encode_exactly(self, text: str) -> list[int]:
        """Encode a text with U+2581, which SentencePiece takes for a space, as bytes."""
        mark = self._processor.piece_to_id([f"<0x{byte:02X}>" for byte in SPACE.encode()])
        ids: list[int]
        ids, *segments = self._processor.encode(text.split(SPACE), out_type=int)
        for segment in segments:
            ids += [*mark, *segment]
        return ids

    def decode(self, ids: list[list[int]]) -> list[str]:
        """Detokenized text of each list of ids."""
        if not ids:  # for which SentencePiece returns one text
            return []
        texts: list[str] = self._processor.decode(ids)
        return texts

    def pieces(self, ids: list[int]) -> list[str]:
        """The piece of each id; `▁` is a space before a word, <s> and </s> are BOS and EOS."""
        pieces: list[str] = self._processor.id_to_piece(ids)
        return pieces

    def byte_lengths(self) -> NDArray[np.int64]:
        """Bytes of UTF-8 that each id stands for: 0 for marks."""
        return np.array([len(text.encode()) for text in self.texts()])

    def texts(self) -> list[str]:
        """The text of each id: empty for a mark, `x` for a byte that is part of a character."""
        return list(map(self._text_of, range(self.vocab_size)))

    def _text_of(self, id: int) -> str:
        if self._processor.is_byte(id):
            return "x"
        if self._is_special(id):
            return ""
        return str(self._processor.id_to_piece(id)).replace(SPACE, " ")


class NamedTokenizer(Tokenizer):
    """A vocabulary of names, whose ids begin with 4."""

    def __init__(self, model: bytes, kind: Kind, names: Iterable[str]) -> None:
        self.model = model
        self.kind = kind
        self.names = (*_MARKS, *names)
        self.is_escaped = False  # nothing is reserved
        self.vocab_size = len(self.names)

    def pieces(self, ids: list[int]) -> list[str]:
        """The name of each id."""
        return [self.names[id] for id in ids]


class ByteTokenizer(NamedTokenizer):
    """The vocabulary of bytes: byte b has id b + 4, and an ASCII byte the name of its character."""

    MODEL = b"bytes\n"  # content of its file

    def __init__(self) -> None:
        super().__init__(self.MODEL, "bytes", map(_byte_name, range(256)))

    def encode(self, sentences: list[str]) -> list[list[int]]:
        """The bytes of each text in UTF-8, as ids."""
        encoded = (np.frombuffer(text.encode(), np.uint8) for text in sentences)
        return [(ids + np.int64(FIRST_TOKEN)).tolist() for ids in encoded]

    def decode(self, ids: list[list[int]]) -> list[str]:
        """The text of each list of ids, without marks; bytes that are not UTF-8 become U+FFFD."""
        texts = []
        for sequence in ids:
            content = bytes(id - FIRST_TOKEN for id in sequence if id >= FIRST_TOKEN)
            texts.append(content.decode(errors="replace"))
        return texts

    def _text_of(self, id: int) -> str:
        if id < FIRST_TOKEN:
            return ""
        byte = id - FIRST_TOKEN
        return chr(byte) if byte < 128 else "x"


def _byte_name(byte: int) -> str:
    return chr(byte) if 32 <= byte < 127 else f"<0x{byte:02X}>"


class SymbolTokenizer(NamedTokenizer):
    """The vocabulary of generated items: given names, divided by spaces."""

    HEAD = b"symbols\n"  # first line of its file

    def __init__(self, model: bytes) -> None:
        super().__init__(model, "symbols", model.removeprefix(self.HEAD).decode().split())

    @staticmethod
    def of(names: Iterable[str]) -> SymbolTokenizer:
        """The vocabulary with these names."""
        return SymbolTokenizer(SymbolTokenizer.HEAD + " ".join(names).encode() + b"\n")

    def encode(self, sentences: list[str]) -> list[list[int]]:
        """The ids of the names in each text; any other word is unknown."""
        ids = dict(zip(self.names, range(self.vocab_size), strict=True))
        return [[ids.get(word, UNK) for word in text.split()] for text in sentences]

    def unknown(self, sentence: str) -> list[str]:
        """The words of a sentence that are no names."""
        return [word for word in sentence.split() if word not in self.names]

    def decode(self, ids: list[list[int]]) -> list[str]:
        """The names of each list of ids, without marks."""
        texts = []
        for sequence in ids:
            texts.append(" ".join(self.pieces([id for id in sequence if id >= FIRST_TOKEN])))
        return texts


def load_tokenizer(model: bytes) -> Tokenizer:
    """The vocabulary in a file with this content: a model of SentencePiece, bytes or symbols."""
    if model.startswith(SymbolTokenizer.HEAD):
        return SymbolTokenizer(model)
    if model == ByteTokenizer.MODEL:
        return ByteTokenizer()
    return Tokenizer(model)


@dataclass(frozen=True)
class Encoded:
    """Token ids of many texts, concatenated, and the length of each text in tokens."""

    ids: NDArray[np.uint32]
    lengths: NDArray[np.int64]

    def select(self, keep: NDArray[np.bool_]) -> Encoded:
        """The texts where a mask is true."""
        if keep.all():
            return self
        return Encoded(self.ids[np.repeat(keep, self.lengths)], self.lengths[keep])


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> Encoded:
    """Token ids of many texts, without BOS and EOS."""
    ids = tokenizer.encode(list(texts))
    lengths = np.fromiter(map(len, ids), dtype=np.int64, count=len(ids))
    return Encoded(np.fromiter(chain.from_iterable(ids), dtype=IDS), lengths)
