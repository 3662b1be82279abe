"""Texts for a paper on a study: methods and checklists, and a page of LaTeX with its references."""

from __future__ import annotations

from ablate.analysis.outcome import Outcome
from ablate.publication.bibliography import bibtex, cited
from ablate.publication.compute import compute_of
from ablate.publication.methods import artifacts, environment, methods
from ablate.store import Results
from ablate.table.conclusion import conclusion
from ablate.table.latex import latex, latex_environment, note_text


def paper_files(outcome: Outcome, results: Results) -> dict[str, bytes]:
    """The files of a paper by their names.

    methods.md: models, data, training, evaluation, statistics, compute and limitations, with
        citations as Pandoc reads them.
    checklists.md: answers for NeurIPS and ACL.
    paper.tex: a page with the table, which pdflatex and bibtex compile; references.bib: the papers,
        corpora and software that it cites.
    """
    sections = methods(outcome, results)
    table, name = outcome.table, outcome.study.name
    templates = environment()
    versions = {"ablate2026": compute_of(outcome, results).versions["ablate"]}
    results_text = " ".join(map(note_text, conclusion(table)))
    paper = {"name": name, "table": latex_environment(table), "results": results_text}
    chapters = [f"# Methods of {name}"]
    chapters += [f"## {title}\n\n{text}" for title, text in sections.items()]
    texts = {
        "methods.md": "\n\n".join(chapters) + "\n",
        "checklists.md": templates.get_template("checklists.md").render(
            sections, artifacts=artifacts(outcome)
        ),
        "table.tex": latex(table),
        "paper.tex": templates.get_template("paper.tex").render(paper, sections=sections),
        "references.bib": bibtex(cited(sections.values()), versions),
    }
    return {file: text.encode() for file, text in texts.items()}
