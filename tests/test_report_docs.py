"""The examples in docs/report.md, docs/verdict.md, docs/statistics.md, docs/index.md and the
README agree with code and
results.
"""

import csv
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from ablate.config.resolve import field_names
from ablate.study import read_study
from docs import hooks
from tests.cli.inside import inside
from tests.page.conftest import Whole

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/report.md").read_text()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder that the page assumes: the study in studies/, and complete results in results/."""
    folder = tmp_path_factory.mktemp("docs")
    (folder / "studies").mkdir()
    shutil.copy(ROOT / "studies/anatomy.yaml", folder / "studies")
    results = Whole(folder / "results", read_study(folder / "studies/anatomy.yaml"))
    results.corpus(
        ["a b", "c d"], ["the old dog sleeps near a tree", "a king writes a long letter"]
    )
    for place, row in enumerate(results.study.rows):
        for seed in results.study.seeds.rows:
            results.done(row.label, seed, 2.0 + place + seed / 10, 30.0 - place - seed / 10)
            results.translated(
                row.label, seed, ["the old dog sleeps" + " near" * (place % 3), "a king writes"]
            )
            results.logged(
                row.label,
                seed,
                {"step": 5, "dev_perplexity": 3.0},
                {"step": 9, "dev_perplexity": 2.0},
            )
    for copy in (
        "unpacked",
        "again",
    ):  # as the archive of `publish` would be, and as the runs repeated
        shutil.copytree(folder / "results", folder / copy)
    return folder


@pytest.mark.parametrize(
    "line", re.findall(r"^ablate .*", "\n".join(re.findall(r"```sh\n(.*?)```", PAGE, re.S)), re.M)
)
def test_every_command_of_the_page_runs(folder, monkeypatch, line):
    monkeypatch.chdir(folder)
    words, _, file = line.partition(" > ")
    done = inside(*shlex.split(words)[1:])
    assert (done.code, done.err) == (0, "")
    assert done.out
    assert (file == "table.tex") == done.out.startswith("% Compiles as it stands")


def test_the_notebook_example_runs(folder):
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-"],
        input=example,
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "residual=false" in done.stdout
    assert re.search(r"^seed +1 +2 +3", done.stdout, re.M)


def test_the_page_names_existing_options_and_all_formats():
    from ablate.cli.formats import Format

    (formats,) = re.findall(r"^\| format \|.*\n\| --.*\n((?:\|.*\n)+)", PAGE, re.M)
    assert set(re.findall(r"^\| `(\w+)` \|", formats, re.M)) == {*get_args(get_args(Format)[0])}
    helps = "".join(
        inside(verb, "--help").out for verb in ("table", "report", "compare", "publish")
    )
    assert [option for option in set(re.findall(r"--[a-z]+", PAGE)) if option not in helps] == []


def example(document, study):
    """The cells of the excerpt from results/<study>/table.md that a document shows."""
    shown = (
        (ROOT / document).read_text().split(f"<!-- {study} -->")[1].split(f"<!-- /{study} -->")[0]
    )
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in shown.strip().splitlines()]


@pytest.mark.parametrize(
    ("document", "study"), [("docs/verdict.md", "anatomy"), ("docs/index.md", "multi30k")]
)
def test_the_example_shows_the_rows_of_the_study_with_the_published_numbers(document, study):
    rows = example(document, study)
    labels = [row.label for row in read_study(ROOT / f"studies/{study}.yaml").rows]
    assert [row[0] for row in rows[2:]] == labels
    table = [
        line
        for line in (hooks.results() / study / "table.md").read_text().splitlines()
        if line.startswith("|")
    ]
    published = [[cell.strip() for cell in line[1:-1].split("|")] for line in table]
    columns = [published[0].index(name) for name in rows[0]]
    assert columns == sorted(columns)
    assert rows[2:] == [[row[i] for i in columns] for row in published[2:]]


def test_the_table_of_the_readme_has_ten_rows_of_the_published_table_3():
    """In the layout of the paper, settings name a row, and a letter names a group. The verdicts of
    the README have no detectable differences.
    """
    study = "table3-multi30k"
    heads, _, *shown = example("README.md", study)
    table = (hooks.results() / study / "table.md").read_text().splitlines()
    lines = [line[1:-1].split("|") for line in table if line.startswith("|")]
    names, _, *published = [[cell.strip() for cell in line] for line in lines]
    columns = [names.index(head) for head in heads[1:]]
    assert columns == sorted(columns)
    found = [[row[place] for place in columns] for row in published]
    for row in found:
        row[-1] = row[-1].partition(" (")[0]
    assert heads[-1] == "verdict"
    places = [found.index(row[1:]) for row in shown]
    assert places == sorted({*places})
    assert len(places) == 10
    rows = json.loads((hooks.results() / study / "table.json").read_text())["rows"]
    groups = [rows[place].get("group") for place in places]
    for place, group, before, row in zip(places, groups, [None, *groups], shown, strict=False):
        assert row[0].startswith("base" if not place else "" if group == before else f"({group})")


def test_the_worked_example_of_a_verdict_follows_from_the_published_scores():
    from math import inf, sqrt
    from statistics import fmean

    from ablate.stats.distributions import critical_t
    from ablate.stats.noise import seed_noise

    text = " ".join(
        (ROOT / "docs/statistics.md")
        .read_text()
        .split("### Worked example")[1]
        .split("### Intervals")[0]
        .split()
    )
    base, *rows = json.loads((hooks.results() / "anatomy/table.json").read_text())["rows"]
    by_seed = [list(row["bleu"]["values"]) for row in (base, *rows)]
    differences = [
        {seed: a - b for seed, (a, b) in enumerate(zip(row, by_seed[0], strict=True))}
        for row in by_seed[1:]
    ]
    noise = seed_noise(differences)
    names = [row["row"].split()[-1] for row in rows]
    scale, dropout = names.index("attention_scale=1"), names.index("dropout=0.0")
    assert {names[index - 1] for index in noise.outliers} == {
        "attention_scale=1",
        "label_smoothing=0.0",
    }
    smaller = sum(
        row["against_base"]["bleu"]["p"] < rows[scale]["against_base"]["bleu"]["p"] for row in rows
    )
    assert (smaller, len(rows)) == (3, 8)

    own, pooled, n = noise.row_variances[scale + 1], noise.pooled, 5
    t, t_pooled, z = (critical_t(0.05 / 5, df) for df in (own.df, pooled.df, inf))
    half = rows[scale]["against_base"]["bleu"]["high"] - rows[scale]["against_base"]["bleu"]["mean"]
    sentences = (half**2 - (t**2 * own.value + t_pooled**2 * pooled.value) / n) / z**2
    assert f"a variance of {own.value:.2f} with {own.df} degrees" in text
    assert f"have the pooled variance {pooled.value:.2f} with {pooled.df}." in text
    seeds = f"{t:.2f}² {own.value:.2f} / {n} + {t_pooled:.2f}² {pooled.value:.2f} / {n}"
    assert f"sqrt( {seeds} + {z:.2f}² {sentences:.2f} ) = {half:.1f}" in text
    assert f"{fmean(differences[scale].values()):.1f} ± {half:.1f}" in text

    variances = (noise.row_variances[dropout + 1].value, noise.row_variances[0].value)
    t, z = critical_t(0.05 / 3, 4), critical_t(0.05 / 3, inf)
    against = rows[dropout]["against_base"]["bleu"]
    half = against["mean"] - against["low"]  # the other end is clipped: base is near 100
    sentences = (half**2 - t**2 * sum(variances) / n) / z**2
    shared = noise.pooled_components(dropout + 1, n)
    first = sqrt(
        sum(critical_t(0.05 / 4, part.df) ** 2 * part.value for part in shared) / n
        + critical_t(0.05 / 4, inf) ** 2 * sentences
    )
    assert f"must exceed {first:.1f} in the pooled test" in text
    assert f"variances {variances[0]:.2f} and {variances[1]:.2f}" in text
    assert (
        f"sqrt( {t:.2f}² {sum(variances):.2f} / {n} + {z:.2f}² {sentences:.2f} ) = {half:.1f}"
        in text
    )
    error = sqrt(sum(part.value for part in shared) / n + sentences)
    quantile = critical_t(0.4, n - 1)
    assert against["minimum_detectable"] == pytest.approx(half + quantile * error)
    assert f"the d of {half + quantile * error:.1f} is {quantile:.2f} standard errors above" in text


def test_the_error_of_the_page_is_that_of_the_log():
    log = (ROOT / "benchmarks/LOG.md").read_text().split("| sd of base | rows |")[1]
    cells = re.findall(r"0\.\d{3}", log.split("\n\n")[0])
    assert len(cells) == 105
    page = " ".join((ROOT / "docs/statistics.md").read_text().split())
    assert f"at most {max(map(float, cells)):.3f} in these 105 cases" in page


def test_every_verdict_of_the_example_is_explained():
    page, rows = (ROOT / "docs/verdict.md").read_text(), example("docs/verdict.md", "anatomy")
    explained = set(re.findall(r"^\| ([a-z, ()]+) \| ", page.split("## Verdicts")[1], re.M))
    words = {word for text in explained for word in re.sub(r" \(d\)", "", text).split(", ")}
    verdict = rows[0].index("verdict")
    assert {re.sub(r" \(.*\)", "", row[verdict]) for row in rows[3:]} <= words


def test_every_verdict_is_explained():
    from typing import get_args

    from ablate.stats.verdict import Word

    page = (ROOT / "docs/verdict.md").read_text().split("## Verdicts")[1]
    assert [word for word in get_args(Word) if word and word not in page] == []


# The verdicts that docs/synthetic.md states of published orders: study, word, rows.
ORDERS = [
    ("recall", "worse", [f"mixers mixer={mixer} positional_encoding=none"
                         for mixer in ("lstm", "mamba2", "gated_linear_attention")]),
    ("length", "worse", ["mixers at 24 mixer=lstm positional_encoding=none",
                         "at 24 positional_encoding=sinusoidal", "at 24 positional_encoding=learned"]),
    ("length", "better", ["at 24 positional_encoding=relative"]),
    ("state", "better", ["mixers mixer=lstm", "lengths of mixers mixer=lstm eval_length=128"]),
    ("state", "worse", ["64 bits eval_length=64", "lengths eval_length=128"]),
    ("state", "worse", [f"at 64 bits mixer={mixer} eval_length=64" for mixer in ("mamba2", "gated_linear_attention")]),
    ("grokking", "cannot tell", ["weight_decay=0.0"]),
    ("permutations", "better", ["mixers mixer=lstm", "lengths of mixers mixer=lstm eval_length=48",
                                "lengths of mixers mixer=gru eval_length=48"]),
    ("permutations", "worse", ["lengths eval_length=48", "lengths of mixers mixer=mamba2 eval_length=48"]),
    ("selective-copy", "better", ["mixers mixer=gated_linear_attention"]),
    ("dyck", "worse", ["depth N=1"]),
]  # fmt: skip


@pytest.mark.parametrize(("study", "word", "rows"), ORDERS)
def test_published_orders_come_out_as_the_page_of_synthetic_tasks_says(study, word, rows):
    with (hooks.results() / study / "table.csv").open() as file:
        verdicts = {line["row"]: line["verdict_accuracy"] for line in csv.DictReader(file)}
    assert {row: verdicts[row] for row in rows} == dict.fromkeys(rows, word)


def test_the_table_of_power_is_that_of_the_plan():
    from ablate.stats.power import detectable_difference

    page = (ROOT / "docs/verdict.md").read_text()
    (head,) = re.findall(r"^\| seeds \| (2 .*) \|$", page, re.M)
    (found,) = re.findall(r"^\| detectable difference \| (.*) \|$", page, re.M)
    assert found.split(" | ") == [
        f"{detectable_difference(int(seeds), 13, 1.0):.1f}" for seeds in head.split(" | ")
    ]


@pytest.mark.parametrize(
    ("page", "name"), [("README.md", "anatomy"), ("docs/index.md", "multi30k")]
)
def test_what_a_model_learns_nothing_without_is_said_of_the_study_that_shows_it(page, name):
    parts = {"residual connections": {"residual": False}, "warm-up": {"warmup_steps": 1}}
    text = " ".join((ROOT / page).read_text().split())
    (sentence,) = (part for part in re.split(r"[.:] ", text) if "learns nothing" in part)
    table = json.loads((ROOT / f"results/{name}/table.json").read_text())
    learned_nothing = [row["changed"] for row in table["rows"] if row["bleu"]["mean"] < 1]
    assert [change for words, change in parts.items() if words in sentence] == learned_nothing
    base = read_study(ROOT / f"studies/{name}.yaml").base.config
    assert ("post-norm" in sentence) == (base.norm_position == "post")


@pytest.mark.parametrize("study", ["since-gpt2", "multi30k"])
def test_every_column_of_csv_that_is_no_setting_is_described(study):
    section = PAGE.partition("The columns of `csv`")[2].partition("`--cost` adds")[0]
    described = set()
    for line in section.splitlines():
        for name in re.findall(r"`(\w+)`", line.split("|")[1]) if line.startswith("| `") else ():
            described.add(name)
            if name.startswith("_"):  # after the first name of the line
                described.add(re.findall(r"`(\w+_bpb)_", line)[0] + name)
    with (ROOT / f"results/{study}/table.csv").open(newline="") as file:
        columns = set(next(csv.reader(file)))
    columns -= set(field_names())
    unknown = {re.sub("ppl_char|ppl|bleu", "bpb", name) for name in columns} - described
    assert unknown == set()


def test_the_first_page_has_the_hours_of_every_published_study():
    page = (ROOT / "docs/index.md").read_text()
    assert f"<!-- hours -->\n{hooks.hours_of_studies()}\n<!-- /hours -->" in page
    assert f"{len(hooks.published())} published studies" in (ROOT / "README.md").read_text()
