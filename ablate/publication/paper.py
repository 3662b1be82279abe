"""Texts for a paper on a study: methods and checklists, and a page of LaTeX with its references."""

from __future__ import annotations

from collections.abc import Sequence

from ablate.analysis.outcome import Outcome
from ablate.publication.bibliography import CITATION, bibtex, cited
from ablate.publication.checklists import checklists
from ablate.publication.methods import Section, methods
from ablate.store import Results
from ablate.table.conclusion import conclusion
from ablate.table.latex import escaped, latex, latex_environment
from ablate.table.table import Table

_TOP = r"""\documentclass[10pt]{article}
\IfFileExists{lmodern.sty}{\usepackage[T1]{fontenc}\usepackage{lmodern}}{}
\usepackage[utf8]{inputenc}
\usepackage{booktabs,graphicx,multicol,url}
\usepackage[numbers]{natbib}
\usepackage[a4paper,margin=15mm]{geometry}
\setlength{\parskip}{2pt}\setlength{\parindent}{0pt}\setlength{\intextsep}{4pt}\setlength{\bibsep}{1pt}
\pagestyle{empty}
"""
_NOTE = (
    "Mean ± standard deviation over seeds; PPL: geometric. Δ: difference from base with its "
    "interval of 95 % or more. Bold: best; blank: as base."
)


def paper_files(outcome: Outcome, results: Results) -> dict[str, bytes]:
    """The files of a paper by their names.

    methods.md: models, data, training, evaluation, statistics, compute and limitations, with
        citations as Pandoc reads them.
    checklists.md: answers for NeurIPS and ACL.
    paper.tex: a page with the table, which pdflatex and bibtex compile; references.bib: the papers
        that it cites.
    """
    sections = methods(outcome, results)
    name = outcome.study.name
    paragraphs: list[str] = []
    for section in sections:
        paragraphs += section.paragraphs
    texts = {
        "methods.md": _markdown(name, sections),
        "checklists.md": checklists(sections),
        "table.tex": latex(outcome.table),
        "paper.tex": _latex(outcome.table, sections),
        "references.bib": bibtex(cited(paragraphs)),
    }
    return {file: text.encode() for file, text in texts.items()}


def _markdown(name: str, sections: Sequence[Section]) -> str:
    blocks = [f"# Methods of {name}"]
    for section in sections:
        blocks += [f"## {section.title}", *section.paragraphs]
    return "\n\n".join(blocks) + "\n"


def _latex(table: Table, sections: Sequence[Section]) -> str:
    lines = [
        r"\begin{document}\scriptsize",
        f"\\section*{{Ablation study {escaped(table.experiment.name)}}}",
        latex_environment(table, [" ".join(conclusion(table)), _NOTE]),
        r"\begin{multicols}{2}",
    ]
    for section in sections:
        text = " ".join(section.paragraphs)
        lines.append(f"\\paragraph{{{section.title}.}} {_with_citations(text)}")
    lines += [
        r"\bibliographystyle{abbrvnat}",
        r"\bibliography{references}",
        r"\end{multicols}",
        r"\end{document}",
    ]
    return _TOP + "\n".join(lines) + "\n"


def _with_citations(text: str) -> str:
    """A text in LaTeX, with its citations as commands."""
    parts = CITATION.split(text)  # text and keys by turns
    shown = []
    for place, part in enumerate(parts):
        if place % 2:
            shown.append(f"~\\cite{{{part.replace('@', '').replace('; ', ',')}}}")
        else:
            shown.append(escaped(part))
    return "".join(shown)
