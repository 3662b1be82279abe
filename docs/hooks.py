"""MkDocs hooks: pages made at build time from files outside of docs/, and links to such files.

The gallery is made from the files in results/*/, as `ablate publish` writes them and git has them,
and the comment at the top of each study; the contributing guide and the changes from the files at
the top of the repository. The site holds what is listed and committed: a checkout also has studies
and results of its user's own. Documents link to each other as on disk, so that links work in a
checkout too; on_page_markdown points them to the pages of the site.
"""

from __future__ import annotations

import atexit
import functools
import json
import posixpath
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
COPIED = {
    "contributing.md": "CONTRIBUTING.md",
    "changes.md": "CHANGELOG.md",
}  # page of the site: file of the repository
# Studies of the repository whose results are not in it; the navigation lists the others.
WITHOUT_RESULTS = (
    "data-size",
    "iwslt2017",
    "quickstart",
    "quickstart-lm",
    "quickstart-mlm",
    "quickstart-parsing",
    "quickstart-recall",
    "table3",
    "table4",
    "wmt14-en-de",
    "wmt14-en-fr",
)
FIGURES = {
    "effects-*.svg": "Effects of a factorial, each with its interval",
    "over-*.svg": "Score of each training over the size of the test items",
    "sizes-*.svg": "Difference of each row from base, over the sizes of the model",
    "against-base-*.svg": "Difference of each row from base, with its interval",
    "learning-curves.svg": "Learning curves of all runs",
}  # pattern of a file among the results: caption
DECIDED = ("better", "worse")  # first words of the verdicts that say a direction
CODE = re.compile(r"`[^`]+`")
API_NAME = re.compile(r"\| `(ablate[\w.]+)` \|")
# Sections of api.md whose classes are used as they are.
WITHOUT_MEMBERS = ("### Built-in components", "### Settings, metrics and scores")
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!\w+:|#)([^)#\s]+)(#[^)]*)?\)")


@dataclass(frozen=True)
class Header:
    """Comment at the top of a study file: title, command, description, results and limits."""

    title: str
    command: str
    about: str
    shows: str
    limits: str


def read_header(path: Path) -> Header:
    """Read the comment at the top of a study file.

    Its first line is the title. Indented lines are commands. Paragraphs that begin with "Results:"
    and "Limits:" say what the study shows and what it cannot; all others describe it.
    """
    comment = path.read_text(encoding="utf-8").split("\nstudy:")[0]
    lines = [line.removeprefix("#").removeprefix(" ") for line in comment.splitlines()]
    title, *paragraphs = re.split(r"\n\n+", "\n".join(lines).strip())
    commands = [text for text in paragraphs if text.startswith("  ")]
    others = [" ".join(text.split()) for text in paragraphs if not text.startswith("  ")]
    shows = [text.removeprefix("Results: ") for text in others if text.startswith("Results: ")]
    limits = [text.removeprefix("Limits: ") for text in others if text.startswith("Limits: ")]
    about = [text for text in others if not text.startswith(("Results: ", "Limits: "))]
    command = "\n".join(re.sub(r"^  ", "", line) for text in commands for line in text.splitlines())
    return Header(
        " ".join(title.split()), command, *("\n\n".join(part) for part in (about, shows, limits))
    )


def published() -> list[str]:
    """Names of the studies with a page in the gallery, in the order of the navigation."""
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    return re.findall(r" gallery/(?!index)([\w-]+)\.md$", navigation, re.MULTILINE)


def studies() -> list[Path]:
    """The study files of the repository, without those of its user's own."""
    return [ROOT / f"studies/{name}.yaml" for name in sorted([*published(), *WITHOUT_RESULTS])]


@functools.cache
def results(root: Path = ROOT) -> Path:
    """The folder with the results that git has: committed, or added to be committed.

    The files in results/ change when a published study is run again. They are used as they are
    where git does not know them, as in an unpacked archive of the repository.
    """
    listed = b""
    if shutil.which("git"):
        command = ["git", "ls-files", "-z", "--", "results"]
        listed = subprocess.run(command, cwd=root, capture_output=True, check=False).stdout
    if not listed:
        return root / "results"
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    command = ["git", "checkout-index", "-z", "--stdin", f"--prefix={folder}/"]
    subprocess.run(command, cwd=root, input=listed, check=True)
    return Path(folder, "results")


def figures(name: str) -> dict[str, str]:
    """Captions of a study's published figures, by file."""
    folder = results() / name
    return {
        path.name: caption
        for pattern, caption in FIGURES.items()
        for path in sorted(folder.glob(pattern))
    }


def scores(name: str) -> str:
    """The published table of a study in Markdown, without its conclusion and its legend."""
    blocks = _published_table(name).split("\n\n")
    return next(block for block in blocks if block.startswith("|"))


def _published_table(name: str) -> str:
    return (results() / name / "table.md").read_text(encoding="utf-8")


def headline(name: str) -> str:
    """The main result of a study in words, from its published table: base's scores, and the
    row that differs most among the better and among the worse ones.
    """
    content = _table(name)
    heads, _, *lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in scores(name).splitlines()
    ]
    differences = [place for place, head in enumerate(heads) if head.startswith("Δ")]
    differences = differences[: len(content["judge"])]  # the judged metrics stand first
    metrics = [heads[place].removeprefix("Δ").partition(" [")[0] for place in differences]
    shown = [
        next(i for i, head in enumerate(heads) if head.startswith(f"{metric} ("))
        for metric in metrics
    ]
    rows = list(zip(content["rows"], lines, strict=True))
    bases = [line for row, line in rows if not row["against_base"]]
    judged = [row for row in content["rows"] if row["against_base"]]
    sizes = f" at {len(bases)} sizes" if len(bases) > 1 else ""
    reached = [
        f"{_series([line[place].strip('*') for line in bases])} {heads[place]}" for place in shown
    ]
    sentences = [f"Base reaches {_series(reached)}{sizes}."]
    unfinished = [row["row"] for row in judged if not row["verdict"]]
    verdicts = sorted({row["verdict"] for row in judged if row["verdict"].startswith(DECIDED)})
    for verdict in verdicts:
        found = [(row, line) for row, line in rows if row.get("verdict") == verdict]
        row, line = max(found, key=lambda pair: _difference(content, pair[0]))
        which = ", most of all" if len(found) > 1 else ":"
        verb = "is" if len(found) == 1 else "are"
        cells = [f"{line[i]} {metric}" for i, metric in zip(differences, metrics, strict=True)]
        sentences.append(
            f"{len(found)} of {len(judged)} rows {verb} {verdict}{which} **{row['row']}** "
            f"({', '.join(cells)})."
        )
    if not verdicts:
        sentences.append(f"None of {len(judged)} rows is shown to be worse or better.")
    if unfinished:
        sentences.append(f"Not finished: {_series(unfinished)}.")
    return " ".join(sentences)


def _difference(content: Any, row: Any) -> float:
    """The distance of a row from base in the main metric, in full precision."""
    return abs(row["against_base"][content["judge"][0]]["mean"])


def _table(name: str) -> Any:
    return json.loads((results() / name / "table.json").read_text(encoding="utf-8"))


def _series(texts: list[str]) -> str:
    return f"{', '.join(texts[:-1])} and {texts[-1]}" if len(texts) > 1 else texts[0]


def hours_of_studies() -> str:
    """A table of the published studies: question, runs, and hours on one CPU core."""
    lines = ["| study | question | runs | hours |", "| --- | --- | ---: | ---: |"]
    for name in published():
        title = read_header(ROOT / "studies" / f"{name}.yaml").title
        runs = _provenance(name)["runs"].values()
        hours = sum(run["seconds"] for run in runs) / 3600
        lines.append(
            f"| [{name}](../results/{name}/table.md) | {title} | {len(runs)} | {hours:.1f} |"
        )
    return "\n".join(lines)


def _provenance(name: str) -> Any:
    return json.loads((results() / name / "provenance.json").read_text(encoding="utf-8"))


def cost(name: str) -> str:
    """The runs behind a study's table: their number, time and machines."""
    made = _provenance(name)
    runs = made["runs"].values()
    hours = sum(run["seconds"] for run in runs) / 3600
    machines = Counter(_machine(made["carried_out"][run["carried_out"]]) for run in runs)
    return f"{len(runs)} runs, {hours:.1f} hours of work in all, on {', '.join(machines)}."


def _machine(provenance: dict[str, Any]) -> str:
    machine, threads = provenance["machine"], provenance["threads"]
    where = provenance["device"] if provenance["device"] != "cpu" else machine["processor"]
    return f"{where} ({threads} {'thread' if threads == 1 else 'threads'} a run)"


def gallery_page(name: str) -> str:
    """Page of one study: question, conclusions, table, figures, limits, command, description, cost
    and the study.
    """
    study = ROOT / "studies" / f"{name}.yaml"
    header = read_header(study)
    table = scores(name)
    notes = _published_table(name).replace(table, "")
    drawn = "\n\n".join(
        f"<figure "
        f"markdown>\n![{caption}]({name}/{file})\n<figcaption>{caption}.</figcaption>\n</figure>"
        for file, caption in figures(name).items()
    )
    body = study.read_text(encoding="utf-8").split("\nstudy:")[1]
    return "\n\n".join(
        [
            "---\nhide: [toc]\n---",
            f"# {header.title}",
            f"## What it shows\n\n{header.shows}",
            f'## Table\n\n<div class="results" markdown>\n\n{table}\n\n</div>',
            f'<details class="results" markdown><summary>Conclusion, settings, and how to read '
            f"the columns</summary>"
            f"\n\n{notes}\n</details>",
            *([f"## Figures\n\n{drawn}"] if drawn else []),
            f"## What it cannot show\n\n{header.limits}",
            f"## How it was made\n\n```sh\n{header.command}\n```\n\n{header.about}\n\n{cost(name)}",
            f"## Study file\n\n```yaml\nstudy:{body}```",
        ]
    )


def gallery_index() -> str:
    """Overview of all committed studies: a card with the main result of each published one, and a
    list of the others.

    The cards have the order of the navigation.
    """
    return "\n".join(
        [
            "---\nhide: [toc]\n---",
            "# Gallery",
            "",
            "Studies whose results are in the repository, with their main result. Each page has "
            "the table with a",
            "verdict for each row, the figures, the conclusions in words, the cost, the command "
            "that repeats it,",
            "and what it cannot show.",
            "",
            '<div class="grid cards" markdown>',
            "",
            *map(_card, published()),
            "</div>",
            "",
            "## Studies without results here",
            "",
            "`studies/` has more studies, to run on your own machine or as examples.",
            "",
            "| study | question |",
            "| --- | --- |",
            *(
                f"| `{name}.yaml` | {read_header(ROOT / f'studies/{name}.yaml').title} |"
                for name in WITHOUT_RESULTS
            ),
            "",
        ]
    )


def _card(name: str) -> str:
    title = read_header(ROOT / "studies" / f"{name}.yaml").title
    drawn = [f"![{caption}]({name}/{file})" for file, caption in figures(name).items()][:1]
    return "\n\n".join(
        [
            f"-   [{title}]({name}.md)",
            *(f"    {part}" for part in (*drawn, headline(name), cost(name))),
            "",
        ]
    )


def site_path(path: str) -> str | None:
    """Page of the site for a file of the repository; None if the site has no such page."""
    folder, _, name = path.partition("/")
    if folder == "docs":
        return name
    if folder in ("studies", "results"):
        study = re.split(r"[/.]", name)[0]
        return f"gallery/{study if study in published() else 'index'}.md"
    return {"README.md": "index.md", **{file: page for page, file in COPIED.items()}}.get(path)


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages to the files of the site."""
    from mkdocs.structure.files import File  # here, since tests read this file without MkDocs

    pages = {f"gallery/{name}.md": gallery_page(name) for name in published()}
    for name in published():
        for figure in figures(name):
            path = results() / name / figure
            files.append(File.generated(config, f"gallery/{name}/{figure}", abs_src_path=str(path)))
    pages["gallery/index.md"] = gallery_index()
    pages |= {page: (ROOT / file).read_text(encoding="utf-8") for page, file in COPIED.items()}
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Point links between files of the repository to pages of the site; name files that are not
    part of it.

    Tables on GitHub need a backslash before a pipe in code, which Python-Markdown would show.
    """
    here = page.file.src_uri
    if here == "api.md":
        markdown = api_reference(markdown)
    source = COPIED.get(here, f"docs/{here}")

    def link(match: re.Match[str]) -> str:
        text, target, anchor = match.group(1), match.group(2), match.group(3) or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        uri = site_path(path)
        if uri is None:
            return f"{text} (`{path}`)" if f"`{path}`" != text else text
        return f"[{text}]({posixpath.relpath(uri, posixpath.dirname(here) or '.')}{anchor})"

    lines = (
        CODE.sub(_plain_pipes, line) if line.startswith("|") else line
        for line in markdown.split("\n")
    )
    return LINK.sub(link, "\n".join(lines))


def api_reference(markdown: str) -> str:
    """The page of the Python API with the reference of each name in the place of its tables, which
    are for readers of the file.
    """
    lines: list[str] = []
    section = ""
    for line in markdown.split("\n"):
        if line.startswith("#"):
            section = line
        named = API_NAME.match(line)
        if named is None:
            if not line.startswith("|"):
                lines.append(line)
            continue
        level = len(section.partition(" ")[0]) + 1
        lines += ["", f"::: {named[1]}", "    options:", f"      heading_level: {level}"]
        if section in WITHOUT_MEMBERS:
            lines.append("      members: []")
    return "\n".join(lines)


def _plain_pipes(code: re.Match[str]) -> str:
    return code.group().replace("\\|", "|")
