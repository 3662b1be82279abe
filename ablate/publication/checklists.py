"""Answers to the checklists of NeurIPS and ACL, as far as a study and its records know them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ablate.publication.methods import Section


class Item(NamedTuple):
    """An item of a checklist; `sections`: titles of the sections that answer it."""

    title: str
    sections: tuple[str, ...]


# NeurIPS Paper Checklist (2025): the other items are left to the authors.
NEURIPS = (
    Item("2. Limitations", ("Limitations",)),
    Item("4. Experimental result reproducibility", ("Models", "Training", "Evaluation")),
    Item("6. Experimental setting/details", ("Data", "Training")),
    Item("7. Experiment statistical significance", ("Statistics",)),
    Item("8. Experiments compute resources", ("Compute",)),
)
# Responsible NLP Checklist of ACL Rolling Review: likewise.
ACL = (
    Item("A1. Limitations", ("Limitations",)),
    Item("B6. Statistics of the data", ("Data",)),
    Item("C1. Parameters, computational budget and infrastructure", ("Models", "Compute")),
    Item("C2. Experimental setup and hyper-parameter search", ("Training",)),
    Item("C3. Descriptive statistics", ("Statistics",)),
    Item("C4. Parameters for existing packages", ("Evaluation",)),
)
_LEFT = (
    "Left to the authors: claims, theory, ethics, broader impacts, safeguards, licences of data "
    "and code, human subjects, and the use of assistants."
)


def checklists(sections: Sequence[Section]) -> str:
    """Both checklists in Markdown, with answers from the sections of the methods."""
    by_title = {section.title: section for section in sections}
    blocks = ["# Checklists", _LEFT]
    for name, items in (("NeurIPS", NEURIPS), ("ACL", ACL)):
        blocks.append(f"## {name}")
        for item in items:
            blocks.append(f"### {item.title}")
            for title in item.sections:
                blocks += by_title[title].paragraphs
    return "\n\n".join(blocks) + "\n"
