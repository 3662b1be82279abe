"""Layouts of the table: the paper's columns, complete in every format and at every width."""

import csv
import io
import json
import re
from dataclasses import replace
from functools import cache

import pytest
from rich.console import Console

from ablate.analysis.missing_scores import score_missing
from ablate.config.decoding import DecodingConfig
from ablate.formatting import millions, thousands
from ablate.page.points import short_names
from ablate.publication.paper import paper_files
from ablate.store.records import Overlap, Provenance
from ablate.study import Selection, read_study, runs_of
from ablate.table.columns.column import Form
from ablate.table.columns.layouts import full_layout, table_columns, terminal_layout
from ablate.table.conclusion import conclusion
from ablate.table.latex import latex
from ablate.table.layout import MIN_LABEL, SETTING, total_width
from ablate.table.render import as_json, comma_separated, markdown, print_rich
from ablate.table.scores import Scores, mean_and_std
from ablate.tasks import Translation
from tests.records import CORPUS, a_manifest, change
from tests.report.fakes import SIGNATURE, SMALL, STUDIES, Fake


def starred(text):
    return f"{text}*"


def columns(table, against_paper=False):
    """Cells of each column of the full layout, by its head."""
    layout = full_layout(table, starred, "*", against_paper)
    return {column.head.replace("\n", " "): column.cells for column in layout.columns}


def legend(table, against_paper=False):
    return "\n".join(full_layout(table, starred, "*", against_paper).legend)


def shown(table, width=None, against_paper=False):
    """The printed table on a terminal of this width; piped if None."""
    out = io.StringIO()
    terminal = {"width": width, "force_terminal": True} if width else {"width": 80}
    print_rich(
        table, Console(file=out, color_system=None, legacy_windows=False, **terminal), against_paper
    )
    return out.getvalue()


def test_rows_have_their_labels_and_base_has_its_settings_in_the_legend(fake):
    table = fake(seeds="1").all_done().table()
    assert columns(table)["row"] == tuple(row.label for row in table.rows)
    assert legend(table).startswith(
        "base: N=2, d_model=64, d_ff=128, h=4, d_k=16, d_v=16, P_drop=0.1"
    )


LABELED = SMALL.replace(
    "rows:", "rows:\n  later: {set: {N: 1, norm: rmsnorm, norm_position: pre}, label: RMS & pre}"
)


def test_a_written_label_stands_for_the_changes_which_the_legend_names(fake):
    results = fake(LABELED, seeds="1").all_done()
    assert columns(results.table())["row"][1] == "RMS & pre"
    explained = "RMS & pre: n_layers=1, norm=rmsnorm, norm_position=pre."
    assert explained in legend(results.table())
    assert f"- {explained}" in markdown(results.table(), against_paper=False).splitlines()
    assert explained in " ".join(shown(results.table(), 80).split())
    assert "RMS \\& pre" in latex(results.table())
    labels = {"RMS & pre": "RMS & pre", "A h=1": "h=1"}
    assert short_names({"RMS & pre": "later", "A h=1": "A"}) == labels


PARTS = "{dropout: 0.3, modern: {norm: rmsnorm, norm_position: pre}}"
OF_PARTS = ("dropout of path: dropout=0.3.", "modern of path: norm=rmsnorm, norm_position=pre.")


@pytest.mark.parametrize(
    ("group", "labels"),
    [
        (f"{{add-one-in: {PARTS}}}", ("all", "+ dropout", "+ modern")),
        (f"{{leave-one-out: {PARTS}}}", ("all", "all - dropout", "all - modern")),
    ],
)
def test_the_label_of_a_row_on_a_path_is_in_every_format_and_the_legend_has_the_parts(
    fake, group, labels
):
    results = fake(f"{SMALL.split('rows:')[0]}rows:\n  path: {group}\n", seeds="1").all_done()
    table, labels = results.table(), tuple(f"path {label}" for label in labels)
    assert columns(table)["row"] == ("base", *labels)
    for text in (markdown(table, against_paper=False), latex(table).replace("\\_", "_")):
        assert all(label in text for label in labels)
    whole = latex(table, whole_legend=True)
    for text in (legend(table), whole.replace("\\_", "_"), shown(table)):
        assert all(text.count(line) == 1 for line in OF_PARTS)


def test_paths_and_sizes_share_a_line_of_the_legend_for_the_same_part(fake):
    head, sizes = SMALL.split("rows:")[0], "sizes: {small: {}, large: {N: 3}}\n"
    paths = f"[{{add-one-in: {PARTS}}}, {{leave-one-out: {PARTS}}}]"
    table = fake(f"{head}{sizes}rows:\n  path: {paths}\n", seeds="1").all_done().table()
    assert legend(table).count("dropout of small path, large path: dropout=0.3.") == 1
    assert legend(table).count("dropout=0.3") == 1


def test_a_cell_is_named_by_its_label_if_a_factor_is_a_group_of_fields(fake):
    modern = "{factorial: {dropout: [0.1, 0.3], modern: {norm: rmsnorm, norm_position: pre}}}"
    head = SMALL.split("rows:")[0]
    table = fake(f"{head}rows:\n  F: {modern}\n", seeds="1").all_done().table()
    assert columns(table)["row"][-1] == "F dropout=0.3 modern=on"
    assert "modern of F: norm=rmsnorm, norm_position=pre." in legend(table)
    assert "dropout of F" not in legend(table)


def test_a_custom_class_of_a_labeled_row_is_named_as_written(fake, tmp_path):
    (tmp_path / "mine.py").write_text("class Square: ...\n")
    text = SMALL.replace(
        "rows:", "rows:\n  own: {set: {activation: 'mine:Square'}, label: squared}"
    )
    assert "squared: activation=mine:Square." in legend(fake(text, seeds="1").all_done().table())


def test_the_main_metric_comes_first_as_on_a_terminal(fake):
    table = fake(seeds="1").all_done().table()
    assert list(columns(table)) == [
        "row", "BLEU (test)", "ΔBLEU (n = 1)", "PPL (dev)", "ΔPPL (n = 1)", "params (10^6)",
    ]  # fmt: skip
    assert full_layout(table, starred, "*") == terminal_layout(table, starred, False)


def test_best_value_of_each_metric_is_marked(fake):
    results = fake(seeds="1", rows=["A"])
    results.done("base", 1, 5.0, 25.0)
    results.done("A h=1", 1, 4.0, 24.0)
    results.done("A h=2", 1, 6.0, 26.0)
    table = columns(results.table())
    assert table["PPL (dev)"] == ("5.00", "4.00*", "6.00")
    assert table["BLEU (test)"] == ("25.0", "24.0", "26.0*")


def test_values_that_print_alike_are_both_marked(fake):
    results = fake(seeds="1", rows=["A"])
    results.done("base", 1, 4.0011, 25.04)
    results.done("A h=1", 1, 4.0013, 24.96)
    results.done("A h=2", 1, 4.0051, 24.94)
    table = columns(results.table())
    assert table["PPL (dev)"] == ("4.00*", "4.00*", "4.01")
    assert table["BLEU (test)"] == ("25.0*", "25.0*", "24.9")


def test_nothing_is_best_where_all_rows_print_the_same_score(fake):
    results = fake()
    for index, row in enumerate(results.study.rows):
        for seed in (1, 2, 3):
            results.done(row.label, seed, 5.0 + index, 0.001 * index)
    table = columns(results.table())
    assert table["BLEU (test)"] == ("0.0 ±0.0",) * 5
    assert [cell.endswith("*") for cell in table["PPL (dev)"]] == [True, False, False, False, False]
    for seed in (1, 2, 3):
        results.done("A h=2", seed, 6.0, 0.1)
    cells = columns(results.table())["BLEU (test)"]
    assert [cell for cell in cells if cell.endswith("*")] == ["0.1 ±0.0*"] == [cells[2]]


@pytest.mark.parametrize(
    ("ppl", "bleu", "looks", "expected"),
    [
        (0.01, 0.01, False, {"Δ": "paired by seed, with a confidence interval"}),
        (0.01, 0.0, False, {"ΔPPL": "with a confidence interval", "ΔBLEU": "because the differences show no spread in BLEU"}),
        (0.0, 0.01, False, {"ΔBLEU": "excludes 0", "ΔPPL": "because the differences show no spread in PPL"}),
        (0.0, 0.0, False, {"Δ": "no interval, because the differences show no spread in PPL and BLEU."}),
        (0.01, 0.01, True, {"Δ": "no interval, because look 1 of 2 (4 of 6 seeds) is not complete"}),
    ],
)  # fmt: skip
def test_differences_without_an_interval_name_their_metric_and_the_reason(
    fake, ppl, bleu, looks, expected
):
    results = fake(SMALL.replace("[1, 2, 3]", "{looks: [4, 6]}") if looks else SMALL)
    for index, row in enumerate(results.study.rows):
        for seed in (1, 2, 3):
            noise = index * seed % 3
            results.done(row.label, seed, 5.0 + index + ppl * noise, 25.0 - index - bleu * noise)
    table = results.table()
    lines = [
        line.partition(": ")
        for line in full_layout(table, starred, "*").legend
        if line.startswith("Δ")
    ]
    assert {head for head, _, _ in lines} == expected.keys()
    for head, _, text in lines:
        assert expected[head] in text
    heads = columns(table)
    assert ("ΔBLEU [95 %]" in heads) == bool(bleu and not looks)
    assert ("ΔPPL [95 %]" in heads) == bool(ppl and not looks)


def test_only_the_intervals_of_the_main_metric_agree_with_the_verdicts_and_other_rows_are_named(
    fake,
):
    results = fake()
    for index, row in enumerate(results.study.rows):
        for seed in (1, 2, 3):
            noise = 0.01 * (index * seed % 3)
            results.done(row.label, seed, 5.0 + index + noise, 25.0 + 5 * noise)
    table = results.table()
    assert not any(row.verdicts["bleu"].is_different for row in table.rows[1:])
    assert any(
        row.verdicts["ppl"].is_different for row in table.rows[1:]
    )  # outside of its interval, but no verdict
    rule = " The interval of ΔBLEU excludes 0 if and only if the verdict is worse or better"
    assert f"{rule}." in legend(table)
    for seed in (1, 2):
        results.done("A h=1", seed, 5.0, 60.0 + seed / 100)
    results.folder("A h=1", 3).result.unlink()
    results.diverged("A h=1", 3, 50, "loss is nan")
    table = results.table()
    (test,) = [row.verdicts["bleu"].seed_test for row in table.rows if row.label == "A h=1"]
    assert test.low > 0
    exception = "exceptions, where diverged seeds or an earlier look decided: A h=1"
    assert f"{rule} ({exception})." in legend(table)


def test_single_row_is_not_marked_nor_explained(fake):
    results = fake(seeds="1")
    results.done("base", 1, 5.0, 25.0)
    table = results.table()
    assert columns(table)["BLEU (test)"] == ("25.0", "", "", "", "")
    assert "best" not in legend(table)


def test_incomplete_row_shows_its_number_of_seeds_and_no_row_is_marked_while_it_is_better(fake):
    results = fake(rows=["A"])
    for seed in (1, 2, 3):
        results.done("base", seed, 5.0, 25.0)
        results.done("A h=1", seed, 6.0, 24.0)
    results.done("A h=2", 1, 1.0, 90.0)
    results.done("A h=2", 2, 2.0, 92.0)
    table = columns(results.table())
    assert table["PPL (dev)"] == ("5.00 ×÷1.000", "6.00 ×÷1.000", "1.41 ×÷1.633 (2/3)")
    assert table["BLEU (test)"] == ("25.0 ±0.0", "24.0 ±0.0", "91.0 ±1.4 (2/3)")
    assert "2 of 3 seeds done, the others pending: A h=2." in legend(results.table())


def test_the_legend_says_why_a_difference_is_not_that_of_the_shown_means(fake):
    """Base's further seeds count less in the difference if scores follow the seed."""
    texts = {}
    for seeds in ("[1, 2, 3]", "{rows: 3, base: 5}"):
        results = fake(SMALL.replace("[1, 2, 3]", seeds)).all_done()
        for seed in results.planned.seeds.rows:
            for row in results.study.rows:
                results.done(row.label, seed, 5.0, 20.0 + seed + 0.01 * len(row.label) * (seed % 2))
        for seed in (4, 5) if "base" in seeds else ():
            results.done("base", seed, 5.0, 25.0)
        table = results.table()
        row = table.by_label["A h=1"]
        means = row.scores["bleu"].mean - table.by_label["base"].scores["bleu"].mean
        texts[seeds] = legend(table)
        differs = abs(row.verdicts["bleu"].mean - means) > 0.05
        assert differs == ("Δ then differs from the difference of the shown means." in texts[seeds])
    assert ["then differs" in text for text in texts.values()] == [False, True]


@pytest.mark.parametrize(
    ("values", "seeds", "text"),
    [([], 3, ""), ([25.0], 1, "25.0"), ([25.0], 3, "25.0 (1/3)"), ([25.0, 26.0], 2, "25.5 ±0.7")],
)
def test_standard_deviation_needs_two_seeds(values, seeds, text):
    assert mean_and_std(Scores(dict(enumerate(values))), 1, seeds) == text


@pytest.mark.parametrize(
    ("steps", "text"),
    [(None, "?"), (100, "100"), (9000, "9000"), (10_500, "10500"), (100_000, "100K")],
)
def test_steps_are_abbreviated_only_if_exact(steps, text):
    assert thousands(steps) == text


@pytest.mark.parametrize(
    ("params", "text"),
    [
        (8576, "0.00858"), (230_000, "0.230"), (254_336, "0.254"), (36_200_000, "36.2"),
        (213_900_000, "214"),
    ],
)  # fmt: skip
def test_parameters_are_in_millions(params, text):
    assert millions(params) == text


def test_one_seed_brings_a_warning(fake):
    assert "One seed (n = 1): the variance over seeds is unknown" in legend(
        fake(seeds="1").all_done().table()
    )
    assert "One seed" not in legend(fake().all_done().table())
    assert "over 3 seeds" in legend(fake().all_done().table())


def test_mixed_corpora_bring_a_warning(fake):
    results = fake(seeds="1").all_done()
    assert "WARNING" not in legend(results.table())
    results.done("A h=1", 1, 5.0, 25.0, corpus="ba9876543210")
    for text in (
        legend(results.table()),
        shown(results.table(), 80),
        markdown(results.table(), against_paper=False),
    ):
        assert re.search(r"WARNING: these results mix corpora\s0123456789ab,\sba9876543210", text)


@pytest.mark.parametrize(
    ("match", "words"),
    [
        ("{flops: train_steps, tokens: 12}", "training FLOPs within 1 % of base's, counted for sentences of 12 tokens."),
        ("{params: d_model, within: 0.2}", "parameters within 20 % of base's."),
    ],
)  # fmt: skip
def test_matched_flops_name_the_length_that_they_are_counted_for(fake, match, words):
    table = fake(f"""\
study: matched
data: {{corpus: toy, vocab_size: 350}}
base: {{N: 2, d_model: 64, d_ff: 256, h: 4, train_steps: 300, batch_tokens: 1024}}
rows: {{C: {{match: {match}, each: {{d_ff: [512]}}}}}}
""").table()
    assert (
        f"matched: the field that brings the row's {words}"
        in full_layout(table, starred, "*").legend
    )


def test_parameters_that_a_token_meets_are_told_apart_from_those_of_all_experts(fake):
    assert not [head for head in columns(fake(SMALL).table()) if "active" in head]
    experts = SMALL.replace(
        "rows:", "rows:\n  moe: {set: {n_experts: 4, experts_per_token: 1}, label: moe}"
    )
    of_all = columns(fake(experts).table())
    assert of_all["params (10^6)"][0] == of_all["active (10^6)"][0]
    assert float(of_all["active (10^6)"][1]) < float(of_all["params (10^6)"][1])


def test_legend_has_every_signature(fake):
    results = fake(seeds="1").all_done()
    other = SIGNATURE.replace("2.6.0", "2.5.1")
    results.done("A h=1", 1, 5.0, 25.0, signature=other)
    assert SIGNATURE in legend(results.table())
    assert other in legend(results.table())


# Studies of this repository, with one seed or three, finished or not: all four of the smallest, and
# two of the others.
STUDIES_WITH_RESULTS = [
    pytest.param(name, seeds, whole, id=f"{name} seeds={seeds} {'whole' if whole else 'partly'}")
    for name in ("quickstart", "table3", "anatomy")
    for seeds, whole in (("1", True), ("1-3", False), ("1", False), ("1-3", True))
    if name == "quickstart" or whole == (seeds == "1")
]


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """The table of a study by its name and seeds, with all results or some."""

    @cache
    def filled(name, seeds, whole):
        study = read_study(STUDIES / f"{name}.yaml", Selection(seeds=seeds))
        results = Fake(tmp_path_factory.mktemp(name), study).all_done(ppl=105.123)
        if not whole:
            labels = [row.label for row in study.rows]
            for label in labels[1:4]:
                results.folder(label, study.seeds.rows[-1]).result.unlink()
            results.at(labels[1], study.seeds.rows[-1], 12_345, alive=False)
            results.diverged(
                labels[2], study.seeds.rows[-1], 12_345, "the loss exploded to 31.4 nats a token"
            )
            results.failed(labels[3], study.seeds.rows[-1], "out of luck")
        return results.table()

    return filled


@pytest.mark.parametrize("with_cost", [False, True], ids=["", "cost"])
@pytest.mark.parametrize("against_paper", [False, True], ids=["", "against paper"])
@pytest.mark.parametrize(("name", "seeds", "whole"), STUDIES_WITH_RESULTS)
@pytest.mark.parametrize("width", [80, 140, 200])
def test_a_terminal_shows_the_most_important_columns_and_names_the_others(
    filled, name, seeds, whole, width, against_paper, with_cost
):
    table = filled(name, seeds, whole)
    everything = terminal_layout(table, starred, against_paper, with_cost)
    layout = terminal_layout(table, starred, against_paper, with_cost, width)
    if layout.columns[1].name == "N":  # the columns of the paper, which have their own test
        assert total_width(layout.columns) <= width
        return
    priorities = [column.priority for column in layout.columns]
    assert priorities == sorted(priorities)
    several = seeds != "1"
    titles = [metric.title for metric in table.judged_metrics]
    wanted = ["row", *titles]
    if len(titles) == 1:  # the differences of two metrics need more space than a terminal may have
        wanted += ["ΔBLEU", *(["verdict"] if several else [])]
    if with_cost and not several and len(titles) == 1:
        wanted += ["tokens/s", "time", "FLOPs"]
    assert [column.name for column in layout.columns][: len(wanted)] == wanted
    shown_names = [column.name for column in layout.columns]
    # With labels there are no columns of settings.
    columns = [column.name for column in everything.columns if column.priority != SETTING]
    left_out = [name for name in columns if name not in shown_names]
    command = f"`{table.experiment.setup.command} --wide`"
    lines = [line for line in layout.legend if line.startswith("Left out")]
    assert bool(lines) == bool(left_out)
    for line in lines:  # the paper's table has the same columns in another order
        names = line.removeprefix(f"Left out at {width} columns: ")
        names = names.removesuffix(f"; {command} shows all.")
        assert set(names.split(", ")) == set(left_out)
    for column in layout.columns:  # whole, however folded
        if not any(column.cells):  # the paper's table has no such columns
            continue
        (cells,) = [one.cells for one in everything.columns if one.name == column.name]
        if column.name == "row":
            cells = [row.label for row in table.rows]
        folded = [cell.replace("\n", "").replace(" ", "") for cell in column.cells]
        assert folded == [cell.replace(" ", "") for cell in cells]
    out = io.StringIO()
    print_rich(
        table,
        Console(file=out, color_system=None, width=width, force_terminal=True),
        against_paper,
        with_cost,
    )
    assert max(map(len, out.getvalue().splitlines())) <= width
    assert "…" not in out.getvalue()


@pytest.mark.parametrize("width", [20, 40, 60])
def test_a_very_narrow_terminal_shows_rows_and_scores_and_the_verdicts_below(filled, width):
    table = filled("quickstart", "1-3", True)
    layout = terminal_layout(table, starred, against_paper=False, width=width)
    assert layout.columns[0].full_width >= MIN_LABEL
    names = [column.name for column in layout.columns]
    assert names[0] == "row"
    assert names == [name for name in ("row", "BLEU", "ΔBLEU", "verdict") if name in names]
    verdicts = [line for line in layout.legend if line.startswith(("worse: ", "cannot tell"))]
    assert bool(verdicts) == ("verdict" not in names)


def test_what_match_has_chosen_stays_longer_than_the_parameters(fake):
    text = SMALL.replace(
        "A: {each: {h: [1, 2]}}", "A: {set: {n_kv_heads: 1}, match: {params: d_ff}}"
    )
    table = fake(text, seeds="1,2").all_done().table()
    everything = terminal_layout(table, starred, against_paper=False)
    names = [column.name for column in everything.columns]
    assert names.index("matched") < names.index("params")


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(("name", "seeds", "whole"), STUDIES_WITH_RESULTS)
def test_a_pipe_and_a_wide_table_get_every_column_uncut(filled, name, seeds, whole, wide):
    table, out = filled(name, seeds, whole), io.StringIO()
    print_rich(
        table,
        Console(file=out, color_system=None, width=80, force_terminal=wide),
        against_paper=True,
        wide=wide,
        whole_legend=True,
    )
    lines = out.getvalue().splitlines()
    layout = terminal_layout(table, starred, against_paper=True)
    assert "…" not in "".join(lines)
    assert not any(line.startswith("Left out") for line in lines)
    for cells in zip(*(column.cells for column in layout.columns), strict=True):
        row = r"\s+".join(re.escape(cell) for cell in cells if cell)
        assert any(re.fullmatch(rf"\s*{row}\s*", line) for line in lines), cells
    assert [line for line in layout.legend if line not in lines] == []


def test_the_table_has_one_p_value_and_it_never_contradicts_the_verdict(fake):
    results = fake(rows=["A", "D"])
    lines = [f"a sentence of number {i} in the test set" for i in range(60)]
    results.corpus(lines, lines)
    for row, share in (("base", 0), ("A h=1", 60), ("A h=2", 1), ("D dropout=0.3", 0)):
        for seed in (1, 2, 3):
            results.done(row, seed, 5.0 + share, 90.0 - share + 0.01 * seed * (1 if share else -1))
            results.translated(
                row, seed, ["wrong words" if i < share else line for i, line in enumerate(lines)]
            )
    score_missing(results.planned, results.results)
    table = results.table()
    found = columns(table)
    assert [head for head in found if head.startswith("p ") or head == "p"] == ["p (adj.)"]
    words, values = found["verdict"], found["p (adj.)"]
    assert "worse" in words
    assert any(word.startswith("cannot tell") for word in words)
    for row, word, text in zip(table.rows[1:], words[1:], values[1:], strict=True):
        verdict = row.verdicts["bleu"]
        assert verdict.bootstrap is not None
        if word == "no difference":
            assert text == ""
            continue
        assert float(text.lstrip("<")) == pytest.approx(verdict.p_adjusted, abs=1e-3)
        assert (word in ("worse", "better")) == (float(text.lstrip("<")) < 0.05)


def test_narrow_terminal_lists_unfinished_rows_below_the_table(fake):
    results = fake(seeds="1")
    results.done("base", 1, 5.0, 25.0)
    results.diverged("A h=1", 1, 50, "the loss exploded to 31.4 nats a token")
    text = " ".join(shown(results.table(), 40).split())
    assert "pending: A h=2, D dropout=0.3. trained, still to be decoded: decoding beam=1." in text
    assert "diverged at step 50: the loss exploded to 31.4 nats a token: A h=1." in text


def markdown_table(text):
    """Rows of cells as a Markdown parser splits them, and the lines after the table."""
    above, _, text = text.partition("\n\n")
    assert all(line.startswith("- ") for line in above.splitlines())  # the conclusion
    lines = text.splitlines()
    end = lines.index("")
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[:end]]
    return [[cell.replace("\\|", "|") for cell in row] for row in rows], lines[end + 1 :]


@pytest.mark.parametrize("against_paper", [False, True], ids=["", "against paper"])
@pytest.mark.parametrize(("name", "seeds", "whole"), STUDIES_WITH_RESULTS)
def test_markdown_is_a_table_with_a_list_below(filled, name, seeds, whole, against_paper):
    table = filled(name, seeds, whole)
    rows, below = markdown_table(markdown(table, against_paper))
    layout = full_layout(table, lambda text: f"**{text}**", "**bold**:", against_paper)
    assert len({len(row) for row in rows}) == 1
    assert rows[0] == [column.head.replace("\n", " ") for column in layout.columns]
    assert all(re.fullmatch(r"-+:?", cell) for cell in rows[1])
    assert [tuple(row) for row in rows[2:]] == list(
        zip(*(column.cells for column in layout.columns), strict=True)
    )
    assert all(line.startswith("- ") for line in below)
    assert any("**bold**: best" in line for line in below)


def test_the_records_of_a_stranger_add_no_markup_and_no_line_to_a_markdown_table(fake):
    """A site of documentation shows the table as it is."""
    results = fake(seeds="1")
    results.done("base", 1, 5.0, 25.0)
    change(
        Provenance,
        results.folder("base", 1).provenance,
        device="<img src=x>\n# [Title](javascript:x)\x1b[2J",
    )
    results.diverged("A h=1", 1, 50, "bad\n\n</td><script>x</script>")
    lines = markdown(results.table(), against_paper=False).splitlines()
    assert "device: &lt;img src=x> # [Title]\\(javascript:x)\\x1b[2J: base" in "\n".join(lines)
    assert "- diverged at step 50: bad  &lt;/td>&lt;script>x&lt;/script>: A h=1." in lines
    assert all(not line or line.startswith(("- ", "| ")) for line in lines)


def test_pipes_in_a_markdown_cell_are_escaped(fake):
    table = fake(seeds="1").all_done().table()
    last = replace(table.rows[-1], label="one | two || three")
    text = markdown(replace(table, rows=(*table.rows[:-1], last)), against_paper=False)
    rows, _ = markdown_table(text)
    assert len({len(row) for row in rows}) == 1
    assert rows[-1][0] == "one | two || three"


def test_csv_has_all_changes_of_a_row(fake):
    rows = list(csv.DictReader(io.StringIO(comma_separated(fake(seeds="1").table()))))
    assert [row["changed"] for row in rows] == ["", "n_heads=1 d_k=64 d_v=64", "n_heads=2 d_k=32 d_v=32",
                                                "dropout=0.3", "beam=1"]  # fmt: skip
    assert [row["n_heads"] for row in rows] == ["4", "1", "2", "4", "4"]


def test_csv_writes_changes_as_a_study_does(fake, tmp_path):
    (tmp_path / "mine.py").write_text("class Square: pass\n")
    text = SMALL.replace(
        "rows:",
        "rows:\n  Z: {each: {residual: [false], activation: ['mine:Square'], clipping: [0.5]}}",
    )
    text = text.replace("clipping", "gradient_clipping")
    rows = list(csv.DictReader(io.StringIO(comma_separated(fake(text, seeds="1").table()))))
    assert [row["changed"] for row in rows][1:4] == [
        "residual=false", "activation=mine:Square", "gradient_clipping=0.5",
    ]  # fmt: skip


def test_the_paper_s_table_has_the_paper_s_columns_where_they_fit(tmp_path):
    study = read_study(STUDIES / "table3-multi30k.yaml")
    results = Fake(tmp_path, study).all_done()
    table = results.table()
    columns = terminal_layout(table, starred, against_paper=False, width=140).columns
    assert [column.name for column in columns] == [
        "row", "N", "d_model", "d_ff", "h", "d_k", "d_v", "P_drop", "eps_ls", "steps",
        "PPL", "BLEU", "params", "verdict",
    ]  # fmt: skip
    rows = list(zip(*(column.cells for column in columns), strict=True))
    assert rows[0][:10] == ("base", "3", "128", "512", "8", "16", "16", "0.1", "0.1", "4000")
    assert rows[1][:7] == ("(A)", "", "", "", "1", "128", "128")  # blank as base, as in the paper
    assert [row[0] for row in rows if row[0]] == [
        "base", "(A)", "(B)", "(C)", "(narrow)", "(wide)", "(D)", "(E) learned", "(big)", "(post-norm)",
    ]  # fmt: skip
    narrow = terminal_layout(table, starred, against_paper=False, width=80).columns
    assert [column.name for column in narrow][:4] == ["row", "PPL", "BLEU", "verdict"]
    document = full_layout(table, starred, "*").columns
    assert [column.name for column in document][:12] == [column.name for column in columns][:12]
    assert document[0].cells == columns[0].cells
    sortable = full_layout(table, starred, "*", is_sortable=True).columns
    assert sortable[0].cells == tuple(row.label for row in table.rows)
    assert "$N$ & $d_{\\mathrm{model}}$ & $d_{\\mathrm{ff}}$ & $h$ & $d_k$ & $d_v$" in latex(table)
    paper = paper_files(results.outcome(), results.results)["paper.tex"].decode()
    assert "; blank: as base." in paper


def test_the_legend_explains_a_difference_beside_cannot_tell_where_one_is_shown(tmp_path):
    study = read_study(STUDIES / "table3-multi30k.yaml")
    results = Fake(tmp_path, study)
    for place, row in enumerate(study.rows):
        for seed in runs_of(study).seeds_of(row):
            noise = (place * 3 + seed * (place + 2)) % 5
            results.done(row.label, seed, 6.0 + noise / 10, 30.0 + noise)
    table = results.table()
    for width, shown in ((140, False), (100, True)):
        layout = terminal_layout(table, starred, against_paper=False, width=width)
        (verdict,) = [column for column in layout.columns if column.name == "verdict"]
        assert any("cannot tell (" in cell for cell in verdict.cells) == shown
        assert (
            any("cannot tell (d): not significant; d is" in line for line in layout.legend) == shown
        )


def test_a_study_without_a_row_of_the_paper_s_table_has_its_own_columns(fake):
    text = (
        (STUDIES / "table3-multi30k.yaml")
        .read_text()
        .replace("C: {each: {N: [1, 2, 4]", "C: {each: {N: [1, 2]")
    )
    table = fake(text).all_done().table()
    for width in (140, None):
        columns = terminal_layout(table, starred, against_paper=False, width=width).columns
        assert [column.name for column in columns][:2] == ["row", "PPL"]


def test_paper_s_numbers_are_shown_on_request(fake):
    table = fake(seeds="1").all_done().table()
    assert not any("paper" in head for head in columns(table))
    paper = columns(table, against_paper=True)
    # Two heads of four are four of eight; no row of the paper has a quarter of base's heads.
    assert paper["paper PPL"] == ("4.92", "", "5.00", "", "")
    assert paper["paper BLEU"] == ("25.8", "", "25.5", "", "")
    assert paper["paper params"] == ("65", "", "", "", "")
    assert "not the paper's: compare the order of rows" in legend(table, against_paper=True)


def test_paper_s_base_on_its_corpus_is_compared_without_a_warning(tmp_path):
    study = read_study(STUDIES / "table3.yaml")
    assert "not the paper's" not in legend(
        Fake(tmp_path, study).all_done().table(), against_paper=True
    )


def test_every_changed_field_of_decoding_is_shown(fake):
    fields = {
        "beam": 2, "alpha": 0.9, "length_penalty": "length", "max_extra_length": 10, "early_stopping": "true", "average_checkpoints": 3,
    }  # fmt: skip
    assert fields.keys() == DecodingConfig.model_fields.keys() - Translation().unused_fields.keys()
    text = "study: s\ndata: {corpus: toy, vocab_size: 200}\nrows: {decoding: {set: %s}}\n"
    table = columns(fake(text % str(fields).replace("'", "")).table())
    label = " ".join(f"{name}={value}" for name, value in fields.items())
    assert table["row"][1] == f"decoding {label}"


# Test text in the training data


def with_overlap(results, overlap, dev=None):
    records = {"train": 1, "dev": 50, "test": 200}
    manifest = a_manifest(pairs=records, overlap=overlap, dev_overlap=dev)
    manifest.write(results.results.corpora / CORPUS / "corpus.json", durable=False)
    return results.all_done().table()


def test_one_line_under_the_table_gives_the_share_of_test_text_in_the_training_data(fake):
    table = with_overlap(fake(), Overlap(by_field={"source": 5, "target": 0}, records=0))
    line = (
        "Test text that also occurs in the training data: source 2.5 %, target 0.0 %, whole records "
        "0.0 %."
    )
    assert full_layout(table, starred, "*").legend.count(line) == 1
    assert terminal_layout(table, starred, False, width=80).legend.count(line) == 1
    assert line in as_json(table)
    assert "Test text" not in comma_separated(table)


def test_one_line_gives_the_share_of_dev_text_in_the_training_data(fake):
    table = with_overlap(fake(), None, dev=Overlap(by_field={"text": 5}, records=5))
    line = "Dev text that also occurs in the training data: text 10.0 %."
    assert full_layout(table, starred, "*").legend.count(line) == 1


@pytest.mark.parametrize(
    ("split", "count", "metrics"),
    [("test", 9, ""), ("test", 200, "BLEU does"), ("dev", 2, ""), ("dev", 50, "PPL does")],
)
def test_a_large_share_of_text_in_the_training_data_is_said_of_the_metrics_of_its_split(
    fake, split, count, metrics
):
    overlap = Overlap(by_field={"source": count, "target": count}, records=count)
    overlaps = {"overlap": None, "dev": None, {"test": "overlap"}.get(split, split): overlap}
    sentences = conclusion(with_overlap(fake(), **overlaps))
    is_leak = bool(metrics)
    expected = (
        f"100 % of the {split} records are also in the training split: {metrics} not show the "
        "quality on new text."
    )
    assert (expected in sentences) == is_leak
    assert ("training split" in " ".join(sentences)) == is_leak


@pytest.mark.parametrize("overlap", [None, Overlap(by_field={"source": 0, "target": 0}, records=0)])
def test_without_overlap_the_table_is_as_before(fake, overlap):
    assert "training data" not in legend(with_overlap(fake(), overlap))


def test_scripts_and_people_read_the_same_columns(fake):
    """One declaration: what JSON, CSV and the table show of a row are the same numbers."""
    table = fake().all_done().table()
    rows = json.loads(as_json(table))["rows"]
    lines = list(csv.DictReader(io.StringIO(comma_separated(table))))
    cells = columns(table)
    assert list(rows[0])[:3] == list(lines[0])[:3] == ["row", "verdict", "group"]
    for index, (row, line) in enumerate(zip(rows, lines, strict=True)):
        for name in ("ppl", "bleu", "delta_bleu"):
            assert line[f"{name}_mean"] == (
                "" if row[name]["mean"] is None else repr(row[name]["mean"])
            )
        assert cells["BLEU (test)"][index].startswith(f"{row['bleu']['mean']:.1f} ")
        assert line["verdict_bleu"] == row["against_base"].get("bleu", {}).get("verdict", "")
        assert float(line["flops"]) == row["cost"]["flops"]
        assert (line["params"], line["state"]) == (str(row["params"]), row["state"])
    declared = table_columns(table, Form())
    keys = [column.key for column in declared if column.value]
    assert len(keys) == len(set(keys))
    assert all(column.value or column.text for column in declared)


def test_a_verdict_for_scripts_names_metrics_that_do_not_agree(fake):
    results = fake(SMALL + "judge: [ppl, bleu]\n")
    for seed, noise in ((1, -0.2), (2, 0.0), (3, 0.2)):
        results.done("base", seed, 5.0 + noise / 20, 25.0 + noise)
        results.done("A h=1", seed, 9.0 + noise / 10, 25.0 - noise)
        results.done("A h=2", seed, 9.0 + noise / 10, 5.0 - noise)
    rows = {row["row"]: row["verdict"] for row in json.loads(as_json(results.table()))["rows"]}
    assert rows == {
        "base": None, "A h=1": "worse by PPL", "A h=2": "worse", "D dropout=0.3": "",
        "decoding beam=1": "",
    }  # fmt: skip


def test_two_metrics_have_one_verdict_together_and_a_p_value_each(fake):
    results = fake(SMALL + "judge: [ppl, bleu]\n")
    results.all_done()
    table = results.table()
    text = markdown(table, against_paper=False)
    head = next(line for line in text.splitlines() if line.startswith("| "))
    for name in ("ΔPPL [95 %]", "p PPL (adj.)", "ΔBLEU [95 %]", "p BLEU (adj.)"):
        assert head.count(f"| {name} |") == 1, name
    assert head.startswith("| row | PPL (dev) | BLEU (test) | verdict |")
    assert "Each of these 2 metrics is tested at 0.025" in text
    for metric, equal in (("PPL", 1), ("BLEU", 0)):
        interval = f"The interval of Δ{metric} excludes {equal}"
        assert f"{interval} if and only if the verdict by {metric} is worse or better" in text
    assert "- Of 4 rows, 4 are worse than base by PPL and BLEU: " in text
    content = json.loads(as_json(table))
    assert (content["judge"], content["log_scale"]) == (["ppl", "bleu"], ["ppl"])
    plain = fake().table()
    for alone, both in zip(plain.rows[1:], table.rows[1:], strict=True):
        for metric in ("ppl", "bleu"):
            p, doubled = alone.verdicts[metric].p_adjusted, both.verdicts[metric].p_adjusted
            assert doubled == (None if p is None else pytest.approx(min(1.0, 2 * p)))


def test_a_difference_without_a_verdict_stands_beside_its_score(fake):
    rows = "rows:\n  M: {set: {N: 1}, match: {params: d_ff}}\n"
    table = fake(f"{SMALL.split('rows:')[0]}metrics: [bleu, chrf]\n{rows}").all_done().table()
    for layout in (
        full_layout(table, starred, "*"),
        terminal_layout(table, starred, False),
        terminal_layout(table, starred, False, width=200),
    ):
        names = [column.name for column in layout.columns]
        assert names.index("ΔPPL") == names.index("PPL") + 1
        assert names.index("matched") > names.index("ΔPPL")
