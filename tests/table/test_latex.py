"""The table in LaTeX: groups, cells and escapes; pdflatex compiles it alone and within a
document.
"""

import re
import shutil
import subprocess

import pytest

from ablate.table.columns.layouts import full_layout, publication_layout
from ablate.table.conclusion import conclusion
from ablate.table.designs import design_effects, effects_layout
from ablate.table.latex import escaped, latex
from tests.report.fakes import SMALL

NO_LATEX = pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")


def body(text):
    """The lines of the tabular: a list of cells each, or "rule"."""
    inside = text.split(r"\begin{tabular}")[1].split(r"\end{tabular}")[0]
    rows = []
    for line in inside.splitlines()[1:]:
        if line.strip() in (r"\toprule", r"\midrule", r"\bottomrule"):
            rows.append("rule")
        elif line.strip():
            assert line.endswith(r"\\")
            rows.append([cell.strip() for cell in re.split(r"(?<!\\)&", line.removesuffix(r"\\"))])
    return rows


def test_rows_have_one_cell_per_column_and_groups_are_separated_by_rules(fake):
    table = fake().all_done().table()
    text = latex(table)
    rows = body(text)
    columns = re.search(r"\\begin\{tabular\}\{([lr]+)\}", text)[1]
    assert {len(row) for row in rows if row != "rule"} == {len(columns)}
    assert [row if row == "rule" else row[0] for row in rows] == [
        "rule", "", "row", "rule", "base", "rule", "A h=1", "A h=2", "rule", "D dropout=0.3",
        "decoding beam=1", "rule",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "lines"),
    [
        ("  X: {set: {h: 2}}\n  Y: {set: {h: 1}}\n", "base | X Y"),
        (
            "  X: {set: {h: 2}}\n  Y: {each: {h: [1, 8]}}\n  Z: {set: {h: 16}}\n",
            "base | X | Y Y | Z",
        ),
        ("  X: {set: {h: 2}}\nsizes: {s: {N: 1}, t: {N: 3}}\n", "s base | s X | t base | t X"),
    ],
)
def test_rules_are_below_each_base_and_between_groups_but_not_between_single_rows(
    fake, rows, lines
):
    table = fake(SMALL.partition("rows:")[0] + "rows:\n" + rows).table()
    found = []
    lines_of_body = body(latex(table))
    for line in lines_of_body[lines_of_body.index("rule", 1) + 1 : -1]:
        found.append("|" if line == "rule" else line[0].split(" h=")[0])
    assert " ".join(found) == lines


@pytest.mark.parametrize("wide", [False, True])
def test_cells_are_those_of_the_layout_and_the_best_is_bold(fake, wide):
    table = fake(SMALL + "judge: [ppl]\n").all_done().table()
    make = full_layout if wide else publication_layout
    layout = make(table, lambda text: f"*{text}", "bold:")
    rows = body(latex(table, wide=wide))[4:]
    for index, cells in enumerate(row for row in rows if row != "rule"):
        expected = [escaped(column.cells[index]) for column in layout.columns]
        plain = [re.sub(r"\\textbf\{(.*)\}", r"*\1", cell) for cell in cells]
        assert [cell.replace("$-$", "-") for cell in plain] == [
            cell.replace("$-$", "-") for cell in expected
        ]
    assert r"\textbf{5.02 $\times$$\div$1.002}" in latex(table, wide=wide)


def test_the_conclusion_and_the_tables_of_designs_are_there(fake):
    text = (
        SMALL.partition("rows:")[0] + "rows:\n  F: {factorial: {dropout: [0.1, 0.3], h: [4, 2]}}\n"
    )
    table = fake(text).all_done().table()
    found = latex(table, whole_legend=True)
    assert escaped(" ".join(conclusion(table))) in found.replace("$-$", "-")
    (_, main, effects) = found.split(r"\long\def\ablaterows")
    assert r"\label{tab:small}" in main
    assert r"\label{tab:small-1}" in effects
    (design,) = design_effects(table)
    layout = effects_layout(table, design)
    rows = [row for row in body(effects) if row != "rule"][2:]
    assert [row[0] for row in rows] == ["dropout", "h", r"dropout $\times$ h"]
    assert [len(row) for row in rows] == [len(layout.columns)] * 3
    assert all(escaped(line) in effects for line in layout.legend)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("50 % of a_b & c#d", r"50 \% of a\_b \& c\#d"),
        ("{x} $1 ~ ^", r"\{x\} \$1 \textasciitilde{} \textasciicircum{}"),
        ("a\\b", r"a\textbackslash{}b"),
        ("< > |", "$<$ $>$ $|$"),
        ("ΔBLEU ±1", r"$\Delta$BLEU $\pm$1"),
        ("naïve ß", "naïve ß"),
        ("λ_0, β₂ = 1, Ω", r"$\lambda$\_0, $\beta$2 = 1, $\Omega$"),
        ("木 \N{EM DASH} \x1b[2J", "? ?  [2J"),
    ],
)
def test_special_characters_are_escaped(text, expected):
    assert escaped(text) == expected


HOSTILE = SMALL.replace("study: small", "study: a_b.c").replace("  D: {each", "  D_1 +: {each")


@pytest.fixture
def awkward(fake):
    """A table whose names and notes have special characters of LaTeX."""
    results = fake(HOSTILE + "metrics: [bleu, chrf++]\n").all_done()
    results.folder("A h=1", 1).result.unlink()
    results.diverged("A h=1", 1, 5, r"50 % of #1 & {x}_2^3 \end{table} ~ $y$ 木")
    return results.table()


def test_names_and_notes_cannot_end_the_table(awkward):
    text = latex(awkward, against_paper=True, with_cost=True, wide=True, whole_legend=True)
    assert text.count(r"\end{\ablatetable}") == 1
    assert r"\textbackslash{}end\{table\}" in text
    assert r"D\_1 +" in text


def compiled(folder, name):
    words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", name]
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, errors="replace", check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


@NO_LATEX
def test_pdflatex_compiles_it_alone_and_within_a_paper(awkward, tmp_path):
    (tmp_path / "table.tex").write_text(
        latex(awkward, against_paper=True, with_cost=True, wide=True, whole_legend=True),
        encoding="utf-8",
    )
    log = compiled(tmp_path, "table.tex")
    assert "Output written on table.pdf (1 page" in log
    assert "Overfull" not in log
    head = r"\documentclass{article}\usepackage{booktabs,graphicx}\begin{document}"
    (tmp_path / "paper.tex").write_text(
        head + r"Before.\input{table.tex}After.\end{document}", encoding="utf-8"
    )
    assert "Output written on paper.pdf" in compiled(tmp_path, "paper.tex")


@NO_LATEX
@pytest.mark.parametrize(
    ("option", "page", "wide", "environment", "size", "turned"),
    [
        ("onecolumn", 400, False, "table", 9, False),
        ("onecolumn", 230, False, "table", 8, False),
        ("twocolumn", 600, False, "table", 9, False),
        ("twocolumn", 300, False, "table*", 9, False),
        ("twocolumn", 230, False, "table*", 8, False),
        ("twocolumn", 300, True, "table*", 8, True),
    ],
)
def test_a_table_is_as_wide_as_it_must_be_and_never_scaled_below_footnotesize(
    fake, tmp_path, option, page, wide, environment, size, turned
):
    text = latex(fake().all_done().table(), wide=wide)
    shown = r"\noalign{\typeout{SIZE=\csname f@size\endcsname}}\toprule"
    text = text.replace(r"\toprule", shown)
    (tmp_path / "table.tex").write_text(text, encoding="utf-8")
    head = (
        rf"\documentclass[{option}]{{article}}\usepackage{{booktabs,graphicx}}"
        rf"\setlength{{\textwidth}}{{{page}pt}}\setlength{{\columnsep}}{{10pt}}\begin{{document}}"
    )
    shown = r"\typeout{FLOAT=\ablatetable}\typeout{WIDTH=\the\wd\ablatebox}"
    (tmp_path / "paper.tex").write_text(
        rf"{head}A.\input{{table.tex}}{shown}\end{{document}}", encoding="utf-8"
    )
    log = compiled(tmp_path, "paper.tex")
    assert f"FLOAT={environment}\n" in log
    assert re.findall(r"SIZE=(\S+)", log)[-1] == str(size)
    width = float(re.search(r"WIDTH=([\d.]+)pt", log)[1])
    assert (width > page) == turned
    assert "Overfull" not in log


def test_the_table_of_a_paper_has_the_columns_of_the_verdicts_and_a_legend_for_readers(fake):
    """Its reader has neither the commands nor the study."""
    table = fake(SMALL + "judge: [ppl, bleu]\n").all_done().table()
    text = latex(table)
    heads = [row for row in body(text) if row != "rule"][:2]
    names = [" ".join(pair).strip() for pair in zip(*heads, strict=True)]
    assert names == [
        "row", "PPL (dev)", "BLEU (test)", r"verdict", r"$\Delta$PPL [95 \%]", r"$\Delta$BLEU [95 \%]",
    ]  # fmt: skip
    notes = text.split(r"\begin{minipage}")[-1]
    for meaning in (
        r"standard deviation over 3 seeds",
        "bold: best",
        "paired by seed, with its confidence interval of 95 \\% or more; of PPL: a ratio.",
        "Each of the 2 metrics is tested at 0.025 (Bonferroni).",
        "Holm-corrected over 4 rows",
        "cannot tell: not significant",
        "A, D and decoding are the groups of the study's rows.",
    ):
        assert meaning in notes
    for foreign in ("texttt", "eval\\_every", "base:", "nrefs", "p: "):
        assert foreign not in notes
    whole = latex(table, wide=True, whole_legend=True)
    assert r"\texttt{ablate compare}" in whole
    assert "nrefs" in whole


def test_notes_have_minus_signs_and_commands_as_code(fake):
    results = fake().all_done()
    for seed in (1, 2, 3):
        results.done("A h=1", seed, 8.0 + seed / 100, 5.0 + seed / 100)
    notes = latex(results.table(), wide=True, whole_legend=True).split(r"\begin{minipage}")[-1]
    assert "A h=1 ($-$" in notes
    assert r"\texttt{ablate compare}" in notes
    assert "`" not in notes
