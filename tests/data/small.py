"""Corpora small enough to be written by hand, as files and as arrays."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from ablate.config.data import TextFields
from ablate.config.translation_data import TranslationData
from ablate.data import toy
from ablate.data.corpus import Split, TokenSequences
from ablate.data.prepare import prepare
from ablate.errors import DataError

FIELDS = TextFields(("source", "target"), ("en", "de"))
_TOY = toy.generate()
PAIRS = {"train": _TOY["train"][:200], "dev": _TOY["dev"][:20], "test": _TOY["test"][:20]}
SETTINGS = {
    "corpus": "files", "direction": "en-de", "train": "train", "dev": "dev", "test": "test", "vocab_size": 80,
}  # fmt: skip


@dataclass
class Files:
    """A corpus as text files, and the folder that it is prepared in."""

    folder: Path
    corpora: Path

    def write(self, **splits):
        """Write splits, given as pairs or as (text of source, text of target); the others as in
        PAIRS.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        for split, content in {**PAIRS, **splits}.items():
            if isinstance(content, list):
                content = tuple("".join(f"{pair[side]}\n" for pair in content) for side in (0, 1))
            for language, text in zip(("en", "de"), content, strict=True):
                (self.folder / f"{split}.{language}").write_bytes(text.encode())
        return self

    def prepare(self, **settings):
        return prepare(TranslationData.resolve({**SETTINGS, **settings}), self.folder, self.corpora)


def fault_line(folder, call, *arguments, **settings):
    """The only error line of a call, without the folder."""
    with pytest.raises(DataError) as caught:
        call(*arguments, **settings)
    (line,) = caught.value.lines
    assert "\n" not in line
    return line.replace(f"{folder}/", "")


def split_of(sources, targets):
    """A split of these token ids, with the fields of sentence pairs."""
    return split_of_fields(source=sources, target=targets)


def split_of_fields(**fields):
    """A split of these token ids, by field."""
    return Split({field: _sequences(lists) for field, lists in fields.items()})


def split_of_lengths(pairs, seed=0):
    """A split of random ids with these (source, target) lengths, the end mark counted as
    everywhere.
    """
    ids = np.random.default_rng(seed)
    return split_of(
        *([ids.integers(4, 1000, n - 1) for n in side] for side in zip(*pairs, strict=True))
    )


def _sequences(sentences):
    offsets = np.cumsum([0, *map(len, sentences)])
    return TokenSequences(
        np.array([int(token) for sentence in sentences for token in sentence], dtype=np.uint32),
        offsets,
    )
