"""Locations of a split's text: files, a data set of the Hub, a test set of sacreBLEU, a generator.

A location downloads nothing until its files, its signature or its origin are asked for.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ablate.data.hub import Repository
from ablate.data.io import signature
from ablate.errors import DataError, Fault, listed, meant_name
from ablate.store.records import Origin

SACREBLEU = "sacrebleu:"  # before the name of a test set of sacreBLEU


class Location(ABC):
    """Where the text of a split is. `str` gives a name for messages."""

    def paths(self) -> Iterator[str]:
        """Paths of the files in order; downloads missing files."""
        return iter(())

    @abstractmethod
    def signature(self) -> list[Any]:
        """A value that changes with the content, computed without reading it."""

    @abstractmethod
    def origin(self) -> Origin:
        """Origin of the text for the manifest, without paths of this machine."""


@dataclass(frozen=True)
class Files(Location):
    """Files given by path or address."""

    names: tuple[str, ...]

    def paths(self) -> Iterator[str]:
        """The files."""
        return iter(self.names)

    def signature(self) -> list[Any]:
        """The signature of each file."""
        return list(map(signature, self.names))

    def origin(self) -> Origin:
        """Names of the files."""
        return Origin(files=tuple(path.rpartition("/")[2] for path in self.names))

    def __str__(self) -> str:
        return self.names[0]


@dataclass(frozen=True)
class HubFiles(Location):
    """The files of a split of a data set on the Hub.

    prefix: prefix of the names of the split's files.
    download_all: whether to download all files before the first is read; otherwise, each file is
        downloaded when its text is needed.
    """

    repository: Repository
    prefix: str
    download_all: bool

    def paths(self) -> Iterator[str]:
        """The downloaded files."""
        files = self.repository.files(self.prefix)
        if self.download_all:
            yield from self.repository.download(files)
            return
        for file in files:
            yield from self.repository.download([file])

    def signature(self) -> list[Any]:
        """The commit, which determines every file's content, and the prefix."""
        record = self.repository.record()
        return [record.repository, record.commit, self.prefix]

    def origin(self) -> Origin:
        """The data set, its commit, its license as stated, and the files' names."""
        record = self.repository.record()
        files = self.repository.files(self.prefix)
        return Origin(
            hub=record.repository, commit=record.commit, licence=record.licence, files=tuple(files)
        )

    def __str__(self) -> str:
        return self.repository.display_name


@dataclass(frozen=True)
class GeneratorVersion(Location):
    """A generator of this program, which has no files."""

    name: str
    version: int

    def signature(self) -> list[Any]:
        """Name and version."""
        return [str(self)]

    def origin(self) -> Origin:
        """Name and version."""
        return Origin(generated=str(self))

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


@dataclass
class SacrebleuSet(Location):
    """A test set of sacreBLEU, in its cache. Only the first of several references is used."""

    name: str
    languages: tuple[str, ...]

    def __post_init__(self) -> None:
        """Check the name and the direction.

        Raises:
            DataError: sacreBLEU has no such test set, or the set has no such direction.
        """
        from sacrebleu.dataset import DATASETS

        if self.name not in DATASETS:
            problem, meant = "sacreBLEU has no such test set", meant_name(self.name, DATASETS)
            raise DataError(Fault(problem, subject=str(self), meant=meant))
        self._set = DATASETS[self.name]
        self._pair = "-".join(self.languages)
        if self._pair not in self._set.langpairs:
            allowed = listed(sorted(self._set.langpairs))
            raise DataError(f"{self}: has no direction {self._pair}: must be {allowed}")

    def __str__(self) -> str:
        return f"{SACREBLEU}{self.name}"

    @cached_property
    def _files(self) -> Files:
        # sacreBLEU has no public name for the path of a cached file.
        names = self._set.fieldnames(self._pair)
        wanted = [Path(self._set._get_txt_file_path(self._pair, name)) for name in names]
        offline = os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0")
        if offline and not all(map(Path.exists, wanted)):
            raise DataError(f"{self}: is not in sacreBLEU's cache, and downloads are disabled")
        try:
            source = self._set.get_source_file(self._pair)
            reference = self._set.get_reference_files(self._pair)[0]
        except (OSError, SystemExit, EOFError) as error:  # sacreBLEU exits on a wrong hash
            why = getattr(error, "reason", None) or error.__class__.__name__
            if isinstance(error, SystemExit):
                why = "the file has the wrong hash; remove it from sacreBLEU's cache and run again"
            raise DataError(f"{self}: sacreBLEU could not download it: {why}") from None
        return Files((source, reference))

    def paths(self) -> Iterator[str]:
        """The source and the reference."""
        return self._files.paths()

    def signature(self) -> list[Any]:
        """The signatures of the files in sacreBLEU's cache."""
        return self._files.signature()

    def origin(self) -> Origin:
        """The test set's name."""
        return self._files.origin().model_copy(update={"test_set": str(self)})
