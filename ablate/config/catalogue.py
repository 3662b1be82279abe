"""The corpora known by name: their splits and the data sets with their files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

GENERATED = "generated"


@dataclass(frozen=True)
class HubData:
    """A data set on the Hugging Face Hub.

    repository: `owner/name`.
    revision: a commit or a branch. The first download of a branch records its commit, and later
        downloads use it. The catalogue has a commit only where it is known for certain.
    files: name of a split -> beginning of the names of its files; None: they begin with the name of
        the split. `{config}` stands for the configuration of a direction.
    sha256: name of a file -> its SHA-256, where it is known for certain.
    """

    repository: str
    revision: str = "main"
    files: Mapping[str, str] | None = None
    sha256: Mapping[str, str] = field(default_factory=dict)

    @property
    def display_name(self) -> str:
        """`hf:owner/name@revision`."""
        return f"hf:{self.repository}@{self.revision}"


@dataclass(frozen=True)
class NamedCorpus:
    """A corpus known by name.

    splits: names in the literature of the training, development and test split; or shares of the
        training split, such as `5%`.
    hub: data set on the Hub; None for generated and licensed corpora.
    origin: origin of the corpus, if it is not on the Hub.
    defaults: defaults of further data settings.
    directions: directions of a parallel corpus, the default first -> configuration on the Hub,
        empty if the data set has only one.
    """

    splits: tuple[str, str, str]
    hub: HubData | None = None
    origin: str = GENERATED
    defaults: Mapping[str, Any] = field(default_factory=dict)
    directions: Mapping[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, Any]:
        """The data settings that follow from the name, unless a study sets them."""
        train, dev, test = self.splits
        settings = {"train": train, "dev": dev, "test": test, **self.defaults}
        if self.directions:
            settings["direction"] = next(iter(self.directions))
        return settings

    @property
    def is_generated(self) -> bool:
        """Whether this program generates it."""
        return self.hub is None and self.origin == GENERATED


_TOY = ("train", "dev", "test")
_HUB_SPLITS = ("train", "validation", "test")

PARALLEL_CORPORA = {
    "toy": NamedCorpus(_TOY, defaults={"vocab_size": 350}, directions={"en-toy": ""}),
    "multi30k": NamedCorpus(
        ("train", "val", "test_2016_flickr"),
        HubData(
            "bentrevett/multi30k",
            files={"train": "train", "val": "val", "test_2016_flickr": "test"},
            sha256={
                "train.jsonl": "de8a1bb324fcf14c44b17b2baee60304c9aba9e5f5889da8a955ffffebc71abb",
                "val.jsonl": "f23e04140ebb001299365cd1d041da54c6cdd970b6eba64b7124242580f05e52",
                "test.jsonl": "0b997c04e05614fdca57c7997bb42822db69b4177d6dc96d80a5a6af8a758588",
            },
        ),
        directions={"en-de": "", "de-en": ""},
    ),
    "iwslt2017": NamedCorpus(
        ("train", "dev2010", "tst2010-2015"),
        HubData(
            "IWSLT/iwslt2017",
            "refs/convert/parquet",
            {
                "train": "{config}/train",
                "dev2010": "{config}/validation",
                "tst2010-2015": "{config}/test",
            },
        ),
        directions={
            "en-de": "iwslt2017-en-de",
            "de-en": "iwslt2017-de-en",
            "en-fr": "iwslt2017-en-fr",
            "fr-en": "iwslt2017-fr-en",
        },
    ),
    "wmt14": NamedCorpus(
        ("train", "newstest2013", "newstest2014"),
        HubData(
            "wmt/wmt14",
            "b199e406369ec1b7634206d3ded5ba45de2fe696",
            {
                "train": "{config}/train",
                "newstest2013": "{config}/validation",
                "newstest2014": "{config}/test",
            },
        ),
        # The same files serve both directions.
        directions={"en-de": "de-en", "de-en": "de-en", "en-fr": "fr-en", "fr-en": "fr-en"},
    ),
}


def _wikitext(configuration: str) -> NamedCorpus:
    """WikiText with rare words in place of `<unk>` (Merity et al., 2016), a line in each row."""
    files = {split: f"{configuration}/{split}" for split in _HUB_SPLITS}
    hub = HubData("Salesforce/wikitext", files=files)
    return NamedCorpus(_HUB_SPLITS, hub, defaults={"rows": "pieces"})


TEXTS = {
    "toy": NamedCorpus(_TOY),
    "wikitext-2": _wikitext("wikitext-2-raw-v1"),
    "wikitext-103": _wikitext("wikitext-103-raw-v1"),
    "text8": NamedCorpus(
        _HUB_SPLITS,
        HubData(
            "afmck/text8", files={"train": "train", "validation": "validation", "test": "test"}
        ),
    ),
    # The first 90 million bytes are for training, as in the literature.
    "enwik8": NamedCorpus(
        ("train", "5%", "5%"),
        HubData("LTCB/enwik8", "refs/convert/parquet", {"train": "enwik8-raw/train"}),
    ),
    "fineweb-edu-sample": NamedCorpus(
        ("train", "0.1%", "0.1%"),
        HubData("HuggingFaceFW/fineweb-edu", files={"train": "sample/10BT"}),
    ),
}

TREEBANKS = {
    "toy": NamedCorpus(_TOY, defaults={"vocab_size": 150}),
    # The splits and the vocabulary of section 6.3.
    "wsj": NamedCorpus(
        ("02-21", "22", "23"),
        origin="licensed (LDC99T42): set data.folder",
        defaults={"vocab_size": 16_000},
    ),
}
