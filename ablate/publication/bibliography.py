"""Papers that the parts, data, measures, tests and software of a study come from: references.yaml
as BibTeX.

Texts cite as Pandoc's Markdown does: `[@vaswani2017attention]`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ablate.config.data import CorpusConfig
from ablate.formatting import enumeration
from ablate.table.latex import escaped

FILE = Path(__file__).with_name("references.yaml")
CITATION = re.compile(r" \[(@[\w; @]+)\]")  # with the space before it
_SPECIAL = re.compile(r"(?<!\\)[&%#]")


@dataclass(frozen=True)
class Reference:
    """A paper.

    key: key for citations.
    fields: fields of its BibTeX entry.
    uses: settings and words that cite the paper.
    """

    key: str
    fields: dict[str, str]
    uses: frozenset[str]

    @property
    def kind(self) -> str:
        """The type of its BibTeX entry."""
        if "booktitle" in self.fields:
            return "inproceedings"
        return "article" if "journal" in self.fields else "misc"

    def bibtex(self) -> str:
        """The BibTeX entry. Braces keep the capitals of the title."""
        fields = {**self.fields, "title": f"{{{self.fields['title']}}}"}
        if eprint := fields.pop("eprint", ""):
            fields |= {"eprint": eprint, "archiveprefix": "arXiv", "note": f"arXiv:{eprint}"}
        if self.kind == "misc" and (url := fields.pop("url", "")):  # plain styles print no `url`
            fields["howpublished"] = f"\\url{{{url}}}"
        lines = [f"@{self.kind}{{{self.key},"]
        for name, text in fields.items():
            escaped = _SPECIAL.sub(r"\\\g<0>", text)
            lines.append(f"  {name} = {{{escaped}}},")
        return "\n".join([*lines, "}"])


@cache
def references() -> dict[str, Reference]:
    """Every known paper by its key, in the order of the file."""
    papers = {}
    for key, entry in yaml.safe_load(FILE.read_text(encoding="utf-8")).items():
        fields = {name: str(value) for name, value in entry.items() if name != "uses"}
        papers[key] = Reference(key, fields, frozenset(entry["uses"]))
    return papers


def cite(*uses: str) -> str:
    """The citation of the papers for these uses, after a space; empty without a paper."""
    keys = [key for key, paper in references().items() if paper.uses.intersection(uses)]
    if not keys:
        return ""
    return f" [{'; '.join(f'@{key}' for key in keys)}]"


def cite_setting(name: str, value: Any) -> str:
    """The citation of the papers for a setting that differs from the original Transformer's."""
    return cite(name, f"{name}={value}")


def cite_corpus(data: CorpusConfig) -> str:
    """The citation of the papers for a corpus that is known by name, also if a study names its data
    set on the Hub; empty for other corpora.
    """
    name = data.corpus
    for known, corpus in data.catalogue.items():
        if data.hub and corpus.hub and data.hub.repository == corpus.hub.repository:
            name = known
    return cite(f"corpus={name}")


def cited(texts: Iterable[str]) -> list[Reference]:
    """The papers that texts cite, without duplicates, in the order of the file.

    Raises:
        KeyError: a text cites an unknown key.
    """
    keys: dict[str, None] = {}
    for text in texts:
        for citation in CITATION.findall(text):
            keys |= dict.fromkeys(re.findall(r"@(\w+)", citation))
    unknown = [key for key in keys if key not in references()]
    if unknown:
        raise KeyError(*unknown)
    return [paper for key, paper in references().items() if key in keys]


def bibtex(papers: Iterable[Reference], versions: Mapping[str, Collection[str]]) -> str:
    """A BibTeX file. The entry of a program has the versions by which `versions` maps its key."""
    entries = []
    for paper in papers:
        if numbers := enumeration(sorted(versions.get(paper.key, ()))):
            version = {"version": numbers, "note": f"Version {numbers}"}
            paper = replace(paper, fields={**paper.fields, **version})
        entries.append(paper.bibtex())
    return "\n\n".join(entries) + "\n"


def latex_text(text: str) -> str:
    """A text in LaTeX, with its citations as commands."""
    parts = []
    for index, part in enumerate(CITATION.split(text)):  # text and keys by turns
        if index % 2:
            parts.append(f"~\\cite{{{part.replace('@', '').replace('; ', ',')}}}")
        else:
            parts.append(escaped(part))
    return "".join(parts)
