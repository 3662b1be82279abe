"""Sources that are downloaded when they are first read: data sets on the Hub, and sacreBLEU's test sets."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ablate.config.data import TextFields
from ablate.data.hub import Repository
from ablate.data.readers import Record
from ablate.data.sources import Aligned, Tables, TextSource
from ablate.errors import DataError, did_you_mean, listed
from ablate.store.records import Origin

SACREBLEU = "sacrebleu:"


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
        return Origin(hub=record.repository, commit=record.commit, licence=record.licence, files=tuple(files))

    def signature(self) -> list[Any]:
        """The commit, which determines every file's content, and the columns."""
        record = self.repository.record()
        return [record.repository, record.commit, self.prefix, self.fields.columns]


@dataclass
class SacrebleuSet(_Downloaded):
    """A test set of sacreBLEU, in sacreBLEU's cache. Only the first of several references is used."""

    name: str
    languages: tuple[str, ...]

    def __post_init__(self) -> None:
        """Check the name and the direction.

        Raises:
            DataError: sacreBLEU has no such test set, or the set has no such direction.
        """
        from sacrebleu.dataset import DATASETS

        if self.name not in DATASETS:
            raise DataError(f"{self.display_name}: sacreBLEU has no such test set{did_you_mean(self.name, DATASETS)}")
        self._set = DATASETS[self.name]
        self._pair = "-".join(self.languages)
        if self._pair not in self._set.langpairs:
            raise DataError(
                f"{self.display_name}: has no direction {self._pair}: must be {listed(sorted(self._set.langpairs))}"
            )

    @property
    def display_name(self) -> str:
        """The name as a study writes it."""
        return f"{SACREBLEU}{self.name}"

    def _download(self) -> TextSource:
        # sacreBLEU has no public name for the path of a cached file.
        wanted = [self._set._get_txt_file_path(self._pair, name) for name in self._set.fieldnames(self._pair)]
        if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0") and not all(Path(path).exists() for path in wanted):
            raise DataError(f"{self.display_name}: is not in sacreBLEU's cache, and downloads are disabled")
        try:
            source = self._set.get_source_file(self._pair)
            reference = self._set.get_reference_files(self._pair)[0]
        except (OSError, SystemExit, EOFError) as error:  # sacreBLEU exits on a wrong hash
            why = getattr(error, "reason", None) or error.__class__.__name__
            if isinstance(error, SystemExit):
                why = "the file has the wrong hash; remove it from sacreBLEU's cache and run again"
            raise DataError(f"{self.display_name}: sacreBLEU could not download it: {why}") from None
        return Aligned(((source,), (reference,)))

    def origin(self) -> Origin:
        """The test set's name."""
        return self._source.origin().updated(test_set=self.display_name)

    def signature(self) -> list[Any]:
        """Signatures of the files in sacreBLEU's cache."""
        return self._source.signature()
