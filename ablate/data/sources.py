"""Sources of records: the interface, and its implementations.

These are text files, tables, trees, the generated corpus, and splits that are downloaded when they
are first read.

Corpora known by name are in `ablate/config/translation_data.py`, `language_data.py` and
`parsing_data.py`.
"""

from __future__ import annotations

import bisect
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, Protocol

from ablate.config.data import TextFields
from ablate.data import toy
from ablate.data.hub import Repository
from ablate.data.io import signature, text_hash
from ablate.data.readers import Record, has_header, read_lines, read_rows, suffix_of
from ablate.data.trees import linearized, normalized, parse_brackets
from ablate.errors import DataError, did_you_mean, listed
from ablate.formatting import plural
from ablate.store.records import Origin

SACREBLEU = "sacrebleu:"  # before the name of a test set of sacreBLEU


class TextSource(Protocol):
    """The records of one split, as text."""

    repaired: Counter[str]  # repairs made by the last reading, by name

    def records(self) -> Iterator[Record]:
        """Records as (number from 1, texts by field); texts are stripped, and may be empty.

        Raises:
            DataError: the content cannot be used; with file and line.
        """

    def where(self, number: int, field: int) -> str:
        """File and line of one field of a record that was read, for messages."""

    def content(self) -> list[str]:
        """Hashes of the text, which the id of the prepared corpus is made from."""

    def signature(self) -> list[Any]:
        """A value that changes with the content, known without reading it."""

    def files(self) -> tuple[str, ...]:
        """Paths of the files, for messages."""

    def origin(self) -> Origin:
        """Origin of the text for the manifest, without paths of this machine."""


@dataclass
class Generated:
    """A split of the toy corpus: sentence pairs, or the sentences and their trees."""

    split: str
    generate: Callable[[], Mapping[str, Sequence[tuple[str, str]]]] = toy.generate
    repaired: Counter[str] = field(default_factory=Counter)

    def records(self) -> Iterator[Record]:
        """The generated pairs."""
        return enumerate(self.generate()[self.split], 1)

    def where(self, number: int, field: int) -> str:
        """The split and the record's number."""
        return f"toy {self.split}:{number}"

    def content(self) -> list[str]:
        """The generator's version; given by one split for the whole corpus."""
        return [f"toy {toy.VERSION}"] if self.split == "train" else []

    def signature(self) -> list[Any]:
        """The generator's version."""
        return ["toy", toy.VERSION]

    def files(self) -> tuple[str, ...]:
        """No files."""
        return ()

    def origin(self) -> Origin:
        """The generator's version."""
        return Origin(generated=f"toy {toy.VERSION}")


@dataclass
class Aligned:
    """Text files, one per field, or several per field that are read one after another; a line is a
    text.

    paths: the files of each field; the n-th files of all fields have equally many lines.
    """

    paths: Sequence[Sequence[str]]
    repaired: Counter[str] = field(default_factory=Counter)
    _starts: list[int] = field(
        default_factory=list
    )  # number of records before each file opened so far

    def records(self) -> Iterator[Record]:
        """The n-th lines of all fields together.

        Raises:
            DataError: files have different numbers of lines, or a line is not text.
        """
        self.repaired.clear()
        self._starts.clear()
        number = 0
        for files in zip(*self.paths, strict=True):
            self._starts.append(number)
            lines = (read_lines(file, self.repaired) for file in files)
            # zip_longest marks the end of a shorter file with None, where zip would drop the rest
            # silently.
            for texts in zip_longest(*lines):
                number += 1
                if None in texts:
                    raise DataError(_unequal(files))
                yield number, tuple(text.strip() for text in texts)

    def where(self, number: int, field: int) -> str:
        """File and line of this field."""
        index = bisect.bisect_left(self._starts, number) - 1
        return f"{self.paths[field][index]}:{number - self._starts[index]}"

    def content(self) -> list[str]:
        """The hash of each field's text."""
        return [_text_hash(files) for files in self.paths]

    def signature(self) -> list[Any]:
        """Signature of each file."""
        return [signature(file) for file in self.files()]

    def files(self) -> tuple[str, ...]:
        """The files of all fields."""
        return tuple(chain(*self.paths))

    def origin(self) -> Origin:
        """Names of the files."""
        return Origin(files=tuple(_name(file) for file in self.files()))


@dataclass
class Tables:
    """Files with a column per field, read one after another."""

    paths: Sequence[str]
    fields: TextFields
    repaired: Counter[str] = field(default_factory=Counter)
    _starts: list[int] = field(default_factory=list)

    def records(self) -> Iterator[Record]:
        """The rows of all files, in order."""
        self.repaired.clear()
        self._starts.clear()
        before = number = 0
        for path in self.paths:
            self._starts.append(before)
            for row, texts in read_rows(path, self.fields, self.repaired):
                number = before + row
                yield number, texts
            before = max(before, number)  # a file without rows leaves `number` as it was

    def where(self, number: int, field: int) -> str:
        """File and row."""
        index = bisect.bisect_left(self._starts, number) - 1
        return f"{self.paths[index]}:{number - self._starts[index]}"

    def content(self) -> list[str]:
        """The hash of each field as lines of text, so that the same records in another format are
        the same corpus.

        A single TSV without chosen columns and without a header has the hash of its file, as in the
        first version.
        """
        if (
            len(self.paths) == 1
            and self.fields.columns is None
            and suffix_of(self.paths[0]) == ".tsv"
            and not has_header(self.paths[0], self.fields)
        ):
            return [text_hash(self.paths[0])]
        digests = [hashlib.sha256() for _ in self.fields.names]
        for path in self.paths:
            for _, texts in read_rows(path, self.fields, Counter()):
                for digest, text in zip(digests, texts, strict=True):
                    digest.update(f"{text}\n".encode())
        return [digest.hexdigest() for digest in digests]

    def signature(self) -> list[Any]:
        """The columns, and the signature of each file."""
        return [_listed(self.fields.columns), *(signature(path) for path in self.paths)]

    def files(self) -> tuple[str, ...]:
        """The files."""
        return tuple(self.paths)

    def origin(self) -> Origin:
        """Names of the files."""
        return Origin(files=tuple(_name(file) for file in self.paths))


@dataclass
class Treebank:
    """Files of trees in brackets, read one after another: sentences, and their linearized trees
    with tags.
    """

    paths: Sequence[str]
    repaired: Counter[str] = field(default_factory=Counter)

    def records(self) -> Iterator[Record]:
        """The sentences and trees, as `trees.normalized` reduces them; trees without words are left
        out and counted.
        """
        self.repaired.clear()
        return ((number, texts) for number, (_, texts) in enumerate(self._trees(self.repaired), 1))

    def _trees(self, repaired: Counter[str]) -> Iterator[tuple[str, tuple[str, str]]]:
        """(file and line, (sentence, tree)) of each tree with words."""
        for path in self.paths:
            for line, tree in parse_brackets(read_lines(path, repaired), path):
                kept = normalized(tree)
                if kept is None:
                    repaired["tree without words"] += 1
                    continue
                yield (
                    f"{path}:{line}",
                    (" ".join(leaf.word for leaf in kept.leaves()), linearized(kept)),
                )

    def where(self, number: int, field: int) -> str:
        """File and line of a tree; reads the files again."""
        return next(
            where for index, (where, _) in enumerate(self._trees(Counter()), 1) if index == number
        )

    def content(self) -> list[str]:
        """The hash of sentences and trees, so that the same trees in other files are the same
        corpus.
        """
        digest = hashlib.sha256()
        for _, texts in self._trees(Counter()):
            digest.update("".join(f"{text}\n" for text in texts).encode())
        return [digest.hexdigest()]

    def signature(self) -> list[Any]:
        """Signature of each file."""
        return [signature(path) for path in self.paths]

    def files(self) -> tuple[str, ...]:
        """The files."""
        return tuple(self.paths)

    def origin(self) -> Origin:
        """Names of the files."""
        return Origin(files=tuple(map(_name, self.paths)))


def _listed(columns: tuple[str | int, ...] | None) -> list[str | int] | None:
    """Columns as JSON stores them."""
    return None if columns is None else list(columns)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _text_hash(files: Sequence[str]) -> str:
    # One file has the hash of its bytes, as in the first version; several have that of their lines,
    # however they are divided.
    if len(files) == 1:
        return text_hash(files[0])
    digest = hashlib.sha256()
    for file in files:
        for line in read_lines(file, Counter()):
            digest.update(f"{line}\n".encode())
    return digest.hexdigest()


def _unequal(files: Sequence[str]) -> str:
    """Error message for files with different numbers of lines; counts the lines of each."""
    counts = {file: sum(1 for _ in read_lines(file, Counter())) for file in files}
    short, long = min(files, key=counts.__getitem__), max(files, key=counts.__getitem__)
    return (
        f"{short}: has {plural(counts[short], 'line')}, but {long} has {counts[long]}; each line "
        f"needs its counterpart"
    )


# Downloaded splits


@dataclass
class _Downloaded:
    """A split that is downloaded to files when it is first read."""

    repaired: Counter[str] = field(default_factory=Counter, init=False)

    def _download(self) -> TextSource:
        raise NotImplementedError

    @cached_property
    def _source(self) -> TextSource:
        source = self._download()
        source.repaired = self.repaired
        return source

    def records(self) -> Iterator[Record]:
        """The records of the downloaded files."""
        return self._source.records()

    def where(self, number: int, field: int) -> str:
        """File and row of one field of a record."""
        return self._source.where(number, field)

    def content(self) -> list[str]:
        """The hash of each field."""
        return self._source.content()

    def files(self) -> tuple[str, ...]:
        """The downloaded files."""
        return self._source.files()


@dataclass
class HubSplit(_Downloaded):
    """A split of a data set on the Hub."""

    repository: Repository
    prefix: str  # of the names of the split's files
    fields: TextFields

    def _download(self) -> TextSource:
        files = self.repository.files(self.prefix)
        paths = self.repository.download(files)
        return Tables(paths, self.fields)

    def origin(self) -> Origin:
        """The data set, its commit, its license as stated, and the files' names."""
        record = self.repository.record()
        files = self.repository.files(self.prefix)
        return Origin(
            hub=record.repository, commit=record.commit, licence=record.licence, files=tuple(files)
        )

    def signature(self) -> list[Any]:
        """The commit, which determines every file's content, and the columns."""
        record = self.repository.record()
        return [record.repository, record.commit, self.prefix, _listed(self.fields.columns)]


@dataclass
class SacrebleuSet(_Downloaded):
    """A test set of sacreBLEU, in sacreBLEU's cache. Only the first of several references is
    used.
    """

    name: str
    languages: tuple[str, ...]

    def __post_init__(self) -> None:
        """Check the name and the direction.

        Raises:
            DataError: sacreBLEU has no such test set, or the set has no such direction.
        """
        from sacrebleu.dataset import DATASETS

        if self.name not in DATASETS:
            raise DataError(
                f"{self.display_name}: sacreBLEU has no such test "
                f"set{did_you_mean(self.name, DATASETS)}"
            )
        self._set = DATASETS[self.name]
        self._pair = "-".join(self.languages)
        if self._pair not in self._set.langpairs:
            raise DataError(
                f"{self.display_name}: has no direction {self._pair}: must be "
                f"{listed(sorted(self._set.langpairs))}"
            )

    @property
    def display_name(self) -> str:
        """The name as a study writes it."""
        return f"{SACREBLEU}{self.name}"

    def _download(self) -> TextSource:
        # sacreBLEU has no public name for the path of a cached file.
        wanted = [
            self._set._get_txt_file_path(self._pair, name)
            for name in self._set.fieldnames(self._pair)
        ]
        if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0") and not all(
            Path(path).exists() for path in wanted
        ):
            raise DataError(
                f"{self.display_name}: is not in sacreBLEU's cache, and downloads are disabled"
            )
        try:
            source = self._set.get_source_file(self._pair)
            reference = self._set.get_reference_files(self._pair)[0]
        except (OSError, SystemExit, EOFError) as error:  # sacreBLEU exits on a wrong hash
            why = getattr(error, "reason", None) or error.__class__.__name__
            if isinstance(error, SystemExit):
                why = "the file has the wrong hash; remove it from sacreBLEU's cache and run again"
            raise DataError(
                f"{self.display_name}: sacreBLEU could not download it: {why}"
            ) from None
        return Aligned(((source,), (reference,)))

    def origin(self) -> Origin:
        """The test set's name."""
        return self._source.origin().updated(test_set=self.display_name)

    def signature(self) -> list[Any]:
        """Signatures of the files in sacreBLEU's cache."""
        return self._source.signature()
