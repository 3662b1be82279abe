"""Corpora on the Hugging Face Hub that studies know by name, as far as what is published is known.

A revision or a hash stands here only where it is certain; elsewhere the revision that a first download finds is
recorded beside the prepared corpora, and kept to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Published:
    """A data set on the Hub.

    repository: `owner/name`.
    revision: a commit, or the branch that is followed until a commit of it is recorded.
    splits: by the study's name of a split, how its files begin; `{config}` is the direction's.
    configs: by direction, the data set's name for it.
    sha256: of files, where they are known.
    parquet: whether its files are.
    """

    repository: str
    revision: str
    splits: Mapping[str, str]
    configs: Mapping[str, str] = field(default_factory=dict)
    sha256: Mapping[str, str] = field(default_factory=dict)
    parquet: bool = False


def _both_ways(pairs: Mapping[str, str]) -> dict[str, str]:
    """The same files for `en-de` and `de-en`."""
    return {**pairs, **{"-".join(reversed(pair.split("-"))): config for pair, config in pairs.items()}}


NAMED = {
    "multi30k": Published(
        "bentrevett/multi30k",
        "main",
        {"train": "train", "val": "val", "test_2016_flickr": "test"},
        sha256={
            "train.jsonl": "de8a1bb324fcf14c44b17b2baee60304c9aba9e5f5889da8a955ffffebc71abb",
            "val.jsonl": "f23e04140ebb001299365cd1d041da54c6cdd970b6eba64b7124242580f05e52",
            "test.jsonl": "0b997c04e05614fdca57c7997bb42822db69b4177d6dc96d80a5a6af8a758588",
        },
    ),
    "wmt14": Published(
        "wmt/wmt14",
        "b199e406369ec1b7634206d3ded5ba45de2fe696",
        {"train": "{config}/train", "newstest2013": "{config}/validation", "newstest2014": "{config}/test"},
        _both_ways({"en-de": "de-en", "en-fr": "fr-en"}),
        parquet=True,
    ),
    "iwslt2017": Published(
        "IWSLT/iwslt2017",
        "refs/convert/parquet",
        {"train": "{config}/train", "dev2010": "{config}/validation", "tst2010-2015": "{config}/test"},
        {pair: f"iwslt2017-{pair}" for pair in ("en-de", "de-en", "en-fr", "fr-en")},
        parquet=True,
    ),
}
