r"""The table in LaTeX, with booktabs, grouped as Table 3 of the paper.

The file can be compiled by pdflatex, or included in another document with `\input{table.tex}`.
That document needs `\usepackage{booktabs,graphicx}`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import replace

from ablate.table.columns.layouts import full_layout, publication_layout
from ablate.table.conclusion import conclusion
from ablate.table.layout import Layout, TextColumn
from ablate.table.render import further_tables
from ablate.table.table import Table

_TOP = r"""% Compiles as it stands. In a paper: \usepackage{booktabs,graphicx} and \input this file.
\ifdefined\tablename % a class is loaded: this is a part of another document
  \def\ablateend{}
\else
  \documentclass[10pt]{article}
  \IfFileExists{lmodern.sty}{\usepackage[T1]{fontenc}\usepackage{lmodern}}{}
  \usepackage[utf8]{inputenc}
  \usepackage{booktabs,graphicx}
  \usepackage[a4paper,landscape,margin=15mm]{geometry}
  \pagestyle{empty}
  \def\ablateend{\end{document}}
  \begin{document}
\fi
"""
# The width of a table is known to LaTeX only. It is set in \small or else in \footnotesize, in a
# column or else over both, or else on a page of its own, turned by 90 degrees. All columns, which
# `--wide` requests, may be wider than a page is high: only then they are scaled.
_FIT = r"""\makeatletter
\ifdefined\ablatebox\else\newsavebox\ablatebox\fi
\def\ablateset#1{\sbox\ablatebox{#1\setlength{\tabcolsep}{3pt}\ablaterows}}
\def\ablatefit{%
  \def\ablatetable{table}\ablateset\small
  \ifdim\wd\ablatebox>\columnwidth \ablateset\footnotesize \fi
  \if@twocolumn \ifdim\wd\ablatebox>\columnwidth
    \def\ablatetable{table*}\ablateset\small
    \ifdim\wd\ablatebox>\textwidth \ablateset\footnotesize \fi
  \fi\fi}
\long\def\ablateplace#1{%
  \ifdim\wd\ablatebox>\linewidth
    \rotatebox{90}{\begin{minipage}{.98\textheight}#1\end{minipage}}%
  \else #1\fi}
\def\ablateuse{%
  \ifdim\wd\ablatebox>\linewidth \resizebox{\linewidth}{!}{\usebox\ablatebox}%
  \else \usebox\ablatebox \fi}
\makeatother
"""

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": r"$|$",
    '"': "''",
    "±": r"$\pm$",
    "\N{MINUS SIGN}": "$-$",
    "×": r"$\times$",
    "÷": r"$\div$",
}
# LaTeX has no commands for omicron and for capitals that look like Latin letters.
_GREEK = {
    "αβγδεζηθικλμν": "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu",
    "ξπρςστυφχψω": "xi pi rho varsigma sigma tau upsilon phi chi psi omega",
    "ΓΔΘΛΞΠΣΥΦΨΩ": "Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega",
}
for letters, names in _GREEK.items():
    for letter, name in zip(letters, names.split(), strict=True):
        _SPECIAL[letter] = f"$\\{name}$"
# Heads of columns that are symbols of the paper.
_SYMBOLS = {
    "N": "$N$",
    "d_model": r"$d_{\mathrm{model}}$",
    "d_ff": r"$d_{\mathrm{ff}}$",
    "h": "$h$",
    "d_k": "$d_k$",
    "d_v": "$d_v$",
    "P_drop": r"$P_{\mathrm{drop}}$",
    "eps_ls": r"$\epsilon_{\mathrm{ls}}$",
}
_BOLD = "\N{START OF HEADING}"  # marks the best value until its cell is escaped


def latex(
    table: Table,
    against_paper: bool = False,
    with_cost: bool = False,
    wide: bool = False,
    whole_legend: bool = False,
) -> str:
    """The table in LaTeX with a short legend, then the tables over sizes and of designs. With
    `wide`, it has all columns, and with `whole_legend`, the conclusion and all lines of the legend.
    """
    layout = _layout(table, against_paper, with_cost, wide, whole_legend)
    name, label = escaped(table.experiment.name), _label(table)
    notes = [conclusion(table), layout.legend] if whole_legend else [layout.legend]
    tables = [_results(table, layout, notes)]
    for number, (title, further) in enumerate(further_tables(table), 1):
        caption = f"Ablation study {name}: {escaped(title)}."
        legend = further.legend if whole_legend else further.short_legend
        tables.append(_environment(further, caption, f"{label}-{number}", (), [legend]))
    return "\n".join([_TOP + _FIT + "\n".join(tables), r"\ablateend"]) + "\n"


def latex_environment(table: Table) -> str:
    """The float of the results with its short legend, for a document that is being written."""
    layout = _layout(table)
    return _FIT + _results(table, layout, [layout.legend])


def _layout(
    table: Table,
    against_paper: bool = False,
    with_cost: bool = False,
    wide: bool = False,
    whole_legend: bool = False,
) -> Layout:
    table = table.with_notes(replace(table.experiment.notes, advice={}))
    mark = f"{_BOLD}{{}}".format
    options = (table, mark, "bold:", against_paper, with_cost)
    if not wide:
        return publication_layout(*options, whole_legend=whole_legend)
    layout = full_layout(*options)
    if whole_legend:
        return layout
    short = publication_layout(*options)
    return replace(layout, legend=short.legend)


def _results(table: Table, layout: Layout, notes: Sequence[Sequence[str]]) -> str:
    name = escaped(table.experiment.name)
    state = " (unfinished)" if table.missing_runs else ""
    caption = f"Ablation study {name}{state}: each row equals base except for the settings shown."
    if not table.experiment.is_study:
        caption = f"Scores of {name}."
    return _environment(layout, caption, _label(table), table.rules, notes)


def _label(table: Table) -> str:
    return f"tab:{re.sub(r'[^A-Za-z0-9-]', '-', table.experiment.name)}"


def _environment(
    layout: Layout,
    caption: str,
    label: str,
    rules: Collection[int],
    notes: Sequence[Sequence[str]],
) -> str:
    """A table environment: caption, table with a rule above the rows of the indices `rules`, and
    below it a paragraph for each list of notes, because a page has no room for a line for each
    note.
    """
    alignment = "".join("lr"[column.numeric] for column in layout.columns)
    paragraphs = []
    for paragraph in notes:
        if paragraph:
            paragraphs.append(f"    {' '.join(map(note_text, paragraph))}\\par")
    lines = [
        r"\long\def\ablaterows{%",
        f"  \\begin{{tabular}}{{{alignment}}}",
        r"    \toprule",
        *_heads(layout),
        *_body(layout, rules),
        r"    \bottomrule",
        r"  \end{tabular}}",
        r"\ablatefit",
        r"\begin{\ablatetable}[htbp]\ablateplace{%",
        r"  \centering\setlength{\belowcaptionskip}{4pt}",
        f"  \\caption{{{caption}}}",
        f"  \\label{{{label}}}",
        r"  \ablateuse",
        r"  \par\medskip",
        r"  \begin{minipage}{\linewidth}\footnotesize\raggedright",
        *paragraphs,
        r"  \end{minipage}}",
        r"\end{\ablatetable}",
    ]
    return "\n".join(lines)


def _heads(layout: Layout) -> list[str]:
    """The heads, in two lines if a head has two."""
    upper, lower = [], []
    for column in layout.columns:
        head = (
            column.latex
            or _SYMBOLS.get(column.head)
            or "\n".join(map(escaped, column.head.split("\n")))
        )
        above, _, below = head.rpartition("\n")
        upper.append(above)
        lower.append(below)
    rows = [_row(upper)] if any(upper) else []
    return [*rows, _row(lower), r"    \midrule"]


def _body(layout: Layout, rules: Collection[int]) -> list[str]:
    """The lines of the rows, with a rule above the rows of these indices."""
    lines = []
    for index, cells in enumerate(layout.rows):
        if index in rules:
            lines.append(r"    \midrule")
        lines.append(_row(list(map(_cell, layout.columns, cells))))
    return lines


def _cell(column: TextColumn, text: str) -> str:
    latex = escaped(text.removeprefix(_BOLD))
    if column.numeric:
        latex = _replace_minus(latex)
    if text.startswith(_BOLD):
        return rf"\textbf{{{latex}}}"
    return latex


def note_text(text: str) -> str:
    """A line below the table, with text between backticks as code. It ends in a full stop, because
    other lines follow in the same paragraph.
    """
    pieces = []
    if not text.endswith("."):
        text += "."
    for index, piece in enumerate(re.split(r"`([^`]+)`", text)):
        is_code = index % 2 == 1
        if is_code:
            pieces.append(rf"\texttt{{{escaped(piece)}}}")
        else:
            pieces.append(_replace_minus(escaped(piece)))
    return "".join(pieces)


def _replace_minus(text: str) -> str:
    """Replace the hyphens of negative numbers by minus signs; not in ranges and exponents."""
    return re.sub(r"(?<![\w.])-(?=\d)", "$-$", text)


def _row(cells: list[str]) -> str:
    if cells[0].startswith(("[", "*")):  # LaTeX would read \\[...] as an argument of \\
        cells = ["{}" + cells[0], *cells[1:]]
    # An empty last cell would leave two blanks.
    return f"    {' & '.join(cells)} \\\\".replace("  \\\\", " \\\\")


def escaped(text: str) -> str:
    """Escape text for LaTeX. Letters that are not Latin-1, Greek or reducible to ASCII become
    question marks.
    """
    return "".join(_SPECIAL.get(character) or _plain(character) for character in text)


def _plain(character: str) -> str:
    if character.isascii():
        return character if character.isprintable() else " "
    if character.isalpha() and ord(character) < 256:
        return character
    decomposed = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return "".join(_SPECIAL.get(letter, letter) for letter in decomposed) or "?"
