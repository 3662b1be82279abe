"""Splits that are downloaded: of a data set on the Hub, and sacreBLEU's own test sets."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ablate.data.columns import Names, Row
from ablate.data.hub import Repository
from ablate.data.sources import Aligned, Source, Tables
from ablate.errors import DataError, did_you_mean, listed

SACREBLEU = "sacrebleu:"


@dataclass
class _Fetched:
    """A split that is in files once it was downloaded; that happens when it is first read."""

    repaired: Counter[str] = field(default_factory=Counter, init=False)

    def _fetch(self) -> Source:
        raise NotImplementedError

    @cached_property
    def _source(self) -> Source:
        source = self._fetch()
        source.repaired = self.repaired
        return source

    def pairs(self) -> Iterator[Row]:
        """As the files have them."""
        return self._source.pairs()

    def where(self, number: int, side: int) -> str:
        """The file and row of a pair."""
        return self._source.where(number, side)

    def content(self) -> list[str]:
        """The hash of each side."""
        return self._source.content()

    def files(self) -> tuple[str, ...]:
        """The downloaded files."""
        return self._source.files()


@dataclass
class OnHub(_Fetched):
    """A split of a data set on the Hub."""

    repository: Repository
    beginning: str
    names: Names | None
    languages: tuple[str, str]

    def _fetch(self) -> Source:
        files = self.repository.files(self.beginning)
        paths = self.repository.download(files)
        return Tables(paths, self.names, self.languages)

    def about(self) -> dict[str, Any]:
        """The data set, its commit, its licence as stated, and the files."""
        record = self.repository.record()
        files = self.repository.files(self.beginning)
        return {
            "hub": record["repository"], "commit": record["commit"], "licence": record["licence"], "files": files,
        }  # fmt: skip

    def signature(self) -> list[Any]:
        """The commit, which fixes every file's content."""
        record = self.repository.record()
        return [record["repository"], record["commit"], self.beginning, self.names]


@dataclass
class TestSet(_Fetched):
    """One of sacreBLEU's test sets, in its own cache; its first reference, where there are several."""

    name: str
    languages: tuple[str, str]

    def __post_init__(self) -> None:
        """Refuse a name that sacreBLEU does not know, and a direction that the test set does not have.

        Raises:
            DataError: saying what there is.
        """
        from sacrebleu.dataset import DATASETS

        if self.name not in DATASETS:
            raise DataError(f"{self.shown}: sacreBLEU has no such test set{did_you_mean(self.name, DATASETS)}")
        self._set = DATASETS[self.name]
        self._pair = "-".join(self.languages)
        if self._pair not in self._set.langpairs:
            raise DataError(f"{self.shown}: has no {self._pair}; it has {listed(sorted(self._set.langpairs))}")

    @property
    def shown(self) -> str:
        """As a study writes it."""
        return f"{SACREBLEU}{self.name}"

    def _fetch(self) -> Source:
        wanted = [self._set._get_txt_file_path(self._pair, name) for name in self._set.fieldnames(self._pair)]
        if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0") and not all(Path(path).exists() for path in wanted):
            raise DataError(f"{self.shown}: is not in sacreBLEU's cache, and this is offline")
        try:
            source = self._set.get_source_file(self._pair)
            reference = self._set.get_reference_files(self._pair)[0]
        except (OSError, SystemExit, EOFError) as error:  # a hash that differs makes sacreBLEU leave
            why = getattr(error, "reason", None) or error.__class__.__name__
            if isinstance(error, SystemExit):
                why = "what came is not what sacreBLEU expects; remove it from its cache and run again"
            raise DataError(f"{self.shown}: sacreBLEU could not fetch it: {why}") from None
        return Aligned(((source,), (reference,)))

    def about(self) -> dict[str, Any]:
        """The test set's name."""
        return {"test set": self.shown, **self._source.about()}

    def signature(self) -> list[Any]:
        """The files, as they lie in sacreBLEU's cache."""
        return self._source.signature()
