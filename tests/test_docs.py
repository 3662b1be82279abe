"""The documentation agrees with the code, and the site builds."""

from __future__ import annotations

import inspect
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import kubernetes_validate
import pytest
import torch
import yaml

from ablate.cli.former import FORMER
from ablate.config import ModelConfig, TrainingConfig
from ablate.config.catalogue import PARALLEL_CORPORA, TEXTS, TREEBANKS
from ablate.config.language_data import LanguageData
from ablate.config.parsing_data import ParsingData
from ablate.config.presets import PRESETS
from ablate.config.resolve import resolve_row
from ablate.config.row import RowDataConfig
from ablate.config.synthetic_data import GENERATORS, SyntheticData
from ablate.config.training import SCHEDULES
from ablate.config.translation_data import TranslationData
from ablate.fields import facts_of
from ablate.model import build
from ablate.study import read_study, runs_of
from ablate.tasks import SequenceToSequence
from docs import hooks
from tests.cli.inside import inside
from tests.commands import PAGE, commands, page
from tests.config.test_inactive import INACTIVE
from tests.fields import ROW, SECTIONS, TABLES, choices, written
from tests.fields import page as page_of_fields

ROOT = Path(__file__).parent.parent
KUBERNETES = "1.31"
PAGES = [
    ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/LOG.md")
]
PAGES += sorted(ROOT.glob("docs/*.md"))
DOCUMENTS = [
    page for page in PAGES if page.name not in ("LOG.md", "CHANGELOG.md")
]  # without names of earlier versions
PUBLIC_OF_TASKS = (
    "Task", "SequenceToSequence", "Batch", "OutputTerms", "Sample", "CorpusConfig", "DataConfig", "SearchSettings",
    "Metric", "PPL", "Measurement", "Score", "Synthetic", "SyntheticData", "Generator",
)  # fmt: skip
COMMANDS = (
    "init", "plan", "run", "status", "table", "judge", "compare", "report", "publish", "predict",
    "attention",
    "export", "verify", "clean",
)  # fmt: skip
IN_GROUPS = ("data list", "data show", "data prepare", "cluster stop", "cluster check")
FIELDS = [(section, name) for section in SECTIONS for name in section.model_fields
          if (section, name) != (RowDataConfig, "vocab_size")]  # fmt: skip  # documented with the field of DataConfig


def documented_fields(path):
    """The default of each field in the tables of fields of a page."""
    tables = path.read_text().split("\n| field | default | allowed | meaning |\n")[1:]
    rows = [row for table in tables for row in ROW.finditer(table.split("\n\n")[0])]
    assert len({row[1] for row in rows}) == len(rows)
    return {row[1]: row[2] for row in rows}


def test_every_field_is_documented_once_with_its_default():
    documented = documented_fields(ROOT / "docs/fields.md")
    assert sorted(documented) == sorted(name for _, name in FIELDS)
    for section, name in FIELDS:
        field = section.model_fields[name]
        if not field.is_required():
            default = "unset" if field.default is None else f"`{written(field.default)}`"
            assert documented[name].partition(";")[0] == default, name


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.name)
def test_the_tables_of_fields_are_up_to_date(path):
    """Names and symbols, allowed values, meanings, and the settings that a field needs."""
    text = path.read_text()
    assert page_of_fields(text, TABLES[path]) == text, "`python -m tests.fields` writes it"


def test_every_condition_of_a_field_is_one_that_the_package_checks():
    """Each field that the page says to need another setting is refused without it: the oracle is
    the list of refused settings of test_inactive.py.
    """
    text = (ROOT / "docs/fields.md").read_text()
    conditional = {row[1] for row in ROW.finditer(text) if "Only with " in row[0]}
    assert {name for name, *_ in INACTIVE} <= conditional


def test_every_field_of_the_data_of_a_task_is_documented():
    texts, items = (
        documented_fields(ROOT / f"docs/{name}.md") for name in ("language-models", "synthetic")
    )
    assert set(texts) == set(LanguageData.model_fields)
    assert set(items) == set(SyntheticData.model_fields) - {"vocab_size", "folder"}
    page = (ROOT / "docs/language-models.md").read_text()
    assert all(f"| `{corpus}` |" in page for corpus in TEXTS)


def test_every_field_of_a_treebank_is_documented_there_or_with_translation():
    path = ROOT / "docs/parsing.md"
    page = path.read_text()
    shared = re.search(r"^((?:`\w+`[, and]*)+) are as for", page, re.MULTILINE)[1]
    documented = documented_fields(path).keys() | set(re.findall(r"\w+(?=`)", shared))
    assert documented == set(ParsingData.model_fields)
    assert all(f"| `{corpus}` |" in page for corpus in TREEBANKS)


def test_the_example_of_a_task_is_the_one_that_the_tests_train():
    for name, example in (("synthetic", "sorting"), ("own-task", "classification")):
        text = (ROOT / f"docs/{name}.md").read_text()
        codes = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        assert codes == [(ROOT / f"tests/tasks/{example}.py").read_text()]


def test_the_attributes_of_a_task_on_the_page_are_those_of_the_class():
    table = (ROOT / "docs/own-task.md").read_text().split("| attribute or method |")[1]
    rows = table.split("\n\n")[0].splitlines()[2:]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    annotated = {
        name for cls in SequenceToSequence.__mro__ for name in inspect.get_annotations(cls)
    }
    assert {"predict", "output_terms"} <= named
    assert named - annotated - set(dir(SequenceToSequence)) == set()


def test_the_calls_of_a_model_that_a_task_may_use_are_those_of_its_architecture():
    page = (ROOT / "docs/own-task.md").read_text()
    calls = dict(re.findall(r"^\| `(model.*?)` \| ([^|]+) \|", page, re.MULTILINE))
    tokens = torch.tensor([[1, 5, 4], [1, 6, 0]])
    for name in ("encoder-decoder", "decoder-only", "encoder-only"):
        model = build(
            resolve_row(
                {"architecture": name, "d_model": 8, "d_ff": 8, "n_heads": 2, "n_layers": 1}
            ),
            9,
            1,
        )
        values = {
            "model": model,
            "source": tokens,
            "target": tokens,
            "tokens": tokens,
            "states": torch.zeros(2, 3, 8),
        }
        for call, architectures in calls.items():
            if architectures != "all" and name not in architectures:
                with pytest.raises((NotImplementedError, AttributeError)):
                    eval(call, values)
                continue
            shape = eval(call, values).shape
            assert shape == {"model.output_matrix": (9, 8), "model.logits(states)": (2, 3, 9)}.get(
                call, (2, 3, 8)
            )


def test_the_source_of_each_variant_is_documented():
    """Except for the paper's base model, and for variants that leave a part out."""
    fields = {**ModelConfig.model_fields, **TrainingConfig.model_fields}
    text = (ROOT / "docs/variants.md").read_text().split("## Differences")[0]
    documented = set(
        re.findall(r"^\| `(\w+)` \| (?:`([\w-]+)` )?\|[^|]+\|[^|]+\|$", text, re.MULTILINE)
    )
    named = set()
    for name, field in fields.items():
        if name not in ("decay_schedule", "precision"):
            variants = {value for value in choices(field) if isinstance(value, str)}
            named |= {(name, variant) for variant in variants - {str(field.default)}}
    left_out = {pair for pair in named if pair[1] in ("none", "decoder", "constant")}
    assert named - left_out - {("schedule", "linear")} - documented == set()
    unknown = {
        pair for pair in documented
        if pair[0] not in {*fields, *RowDataConfig.model_fields}
        or (pair[1] and pair[1] not in map(str, choices(fields[pair[0]])))
    }  # fmt: skip
    assert unknown == set()


# An example of each combination that docs/fields.md says to be refused, in the order of the page.
DECODER = {"architecture": "decoder-only", "positional_encoding": "none"}
INVALID = [
    {"d_model": 511, "h": 1},
    {"d_k": 7, "positional_encoding": "rope"},
    {**DECODER, "stream_scale": True, "embedding_skip": True},
    {"h": 3, "d_model": 510, "attention": "differential", "positional_encoding": "none"},
    {"attention": "differential", "positional_encoding": "relative"},
    {**DECODER, "sublayers": "parallel", "feed_forward": "none", "norm_position": "pre"},
    {"kv_rank": 16, "n_kv_heads": 1},
    {**DECODER, "value_residual": True, "d_v": [16, 32]},
    {"attention": ["full", "local", "full", "local", "full", "full", "full"]},
    {**DECODER, "positional_encoding": ["sinusoidal", "rope"]},
    {**DECODER, "sublayers": "parallel", "norm_position": "post"},
    {**DECODER, "sublayers": "parallel_shared_norm", "norm_position": "sandwich"},
    {"n_experts": 2, "experts_per_token": 3},
    {"n_kv_heads": 3},
    {"architecture": "decoder-only", "mixer": "lstm", "positional_encoding": "rope"},
    {"attention": "linear", "positional_encoding": "rope"},
    {"d_model": 511, "h": 1, "mixer": "lstm", "positional_encoding": "none"},
    {"mixer": "mamba2", "positional_encoding": "none"},
    {"architecture": "decoder-only", "tied_embeddings": "decoder"},
    {"schedule": "cosine", "train_steps": None, "patience": 3},
    {"batch_growth": 2, "epochs": 3},
    {"optimizer": "schedule_free"},
    {"optimizer": "schedule_free", "schedule": "constant", "cautious_updates": True},
    {"optimizer": "mine:Optimizer", "cautious_updates": True},
    {"parametrization": "mup"},
    {"parametrization": "completep", "learning_rate": 0.1, "residual_scale": "depth"},
    {"output_initialization": "zero", "residual_scale": "rezero"},
    {"schedule": "wsd", "decay_fraction": 0.001, "train_steps": 100, "warmup_steps": 10},
    {"optimizer": "adamw"},
]


def test_every_combination_that_is_said_to_be_invalid_is_refused():
    """The rest of the table concerns the lengths of data and custom classes."""
    table = (ROOT / "docs/fields.md").read_text().split("| combination | reason |")[1]
    rows = table.split("\n\n")[0].strip().splitlines()[1:]
    assert rows[len(INVALID)].startswith("| `max_length` too long")
    for row, settings in zip(rows, INVALID, strict=False):
        with pytest.raises(ValueError, match=r"."):
            print(row, resolve_row(settings, written=list(settings)))


def test_the_page_of_parts_counts_the_fields_that_take_a_list():
    per_layer = [name for name, facts in facts_of(ModelConfig).items() if facts.per_layer]
    row = (ROOT / "docs/parts.md").read_text().split("| patterns over layers")[1].split("\n")[0]
    shown = [name for name in per_layer if f"`{name}: [" in row]
    assert shown
    assert f"; {len(per_layer) - len(shown)} other fields" in row


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_has_its_formula(schedule):
    page = (ROOT / "docs/fields.md").read_text()
    assert f"\n| {schedule} |" in page.split("| schedule | s ≤ w |")[1].split("\n\n")[0]


def test_every_preset_and_corpus_is_documented():
    table = (ROOT / "docs/study.md").read_text().split("| preset | content |")[1].split("\n\n")[0]
    named = []
    for row in table.strip().splitlines()[1:]:
        named += re.findall(r"`([\w-]+)`", row.split("|")[1])
    assert sorted(named) == sorted(PRESETS)
    page = (ROOT / "docs/fields.md").read_text()
    assert all(f"| `{name}` |" in page for name in TranslationData.corpora())


def test_every_generator_is_documented_with_its_settings_and_named_in_the_template():
    page = (ROOT / "docs/synthetic.md").read_text()
    table = page.split("<!-- generators -->")[1].split("<!-- /generators -->")[0]
    documented = {}
    for name, settings in re.findall(r"^\| `([a-z-]+)` \| ([^|]*) \|", table, re.MULTILINE):
        documented[name] = {
            setting: int(value) for setting, value in re.findall(r"`(\w+)` (\d+)", settings)
        }
    assert documented == {name: dict(entry.settings) for name, entry in GENERATORS.items()}
    template = (ROOT / "ablate/cli/templates/synthetic.yaml").read_text()
    first, others = re.search(r"^  corpus: (\S+) +# or (.*)$", template, re.MULTILINE).groups()
    assert (first, *others.split(", ")) == tuple(GENERATORS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_resolves(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.name)
def test_every_file_of_the_repository_that_is_named_exists(page):
    """Paths from the top of the repository, and names of modules: `ablate/model/norms.py`,
    `norms.py`.
    """
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    paths = re.findall(r"`((?:ablate|tests|benchmarks|docs|studies)/[\w./-]*)`", text)
    assert [path for path in paths if not (ROOT / path).exists()] == []
    modules = {
        path.name
        for folder in ("ablate", "tests", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
    }
    names = set(re.findall(r"`(\w+\.py)`", text)) - {
        "cosine.py",
        "mine.py",
        "classification.py",
    }  # of the user, in docs/components.md and docs/own-task.md
    assert names - modules == set()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_in_the_readme(command):
    assert f"| `ablate {command}" in (ROOT / "README.md").read_text()


def test_the_application_has_exactly_these_commands():
    assert tuple(commands()) == (*COMMANDS, *IN_GROUPS, "work")


@pytest.mark.parametrize("command", ["list", "show", "prepare"])
def test_the_data_commands_are_in_the_readme_and_on_their_page(command):
    assert f"`ablate data {command}" in (ROOT / "docs/data.md").read_text()
    assert "| `ablate data" in (ROOT / "README.md").read_text()


def test_the_pinned_revisions_of_the_hubs_data_sets_are_on_the_page():
    page = (ROOT / "docs/data.md").read_text()
    hubs = [named.hub for named in PARALLEL_CORPORA.values() if named.hub]
    pinned = [hub for hub in hubs if hub.revision != "main"]
    assert pinned
    assert all(hub.repository in page and hub.revision in page for hub in pinned)


@pytest.mark.parametrize("study", hooks.studies(), ids=lambda path: path.stem)
def test_every_study_reads_and_its_comment_has_a_title_its_command_and_limits(study):
    assert read_study(study).rows
    header = hooks.read_header(study)
    assert f"ablate run studies/{study.name}" in header.command.replace("run  ", "run ")
    assert header.title
    assert header.about
    assert header.limits


def published(name, file):
    return (hooks.results() / name / file).read_text(encoding="utf-8")


def test_the_site_lists_every_study_and_every_table_that_is_committed():
    done = subprocess.run(
        ["git", "ls-files", "studies/*.yaml", "results/*/table.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        pytest.skip("not a git checkout")
    listed = [f"studies/{path.name}" for path in hooks.studies()]
    assert {*listed, *(f"results/{name}/table.md" for name in hooks.published())} == set(
        done.stdout.split()
    )


def test_the_site_shows_the_results_that_git_has_and_none_of_a_user(tmp_path):
    published, own = tmp_path / "results/published/table.md", tmp_path / "results/own/table.md"
    for path in (published, own):
        path.parent.mkdir(parents=True)
        path.write_text("as published\n")
    assert (
        hooks.results.__wrapped__(tmp_path) == tmp_path / "results"
    )  # as of an archive without git
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", published], cwd=tmp_path, check=True)
    published.write_text("repeated by a user\n")
    results = hooks.results.__wrapped__(tmp_path)
    assert [path.read_text() for path in results.rglob("*.md")] == ["as published\n"]


@pytest.mark.parametrize("name", hooks.published())
def test_a_gallery_page_shows_the_table_the_figures_and_the_cost(name):
    page = hooks.gallery_page(name)
    for block in published(name, "table.md").split("\n\n"):
        assert block in page
    assert hooks.read_header(ROOT / f"studies/{name}.yaml").shows
    seconds = [
        run["seconds"] for run in json.loads(published(name, "provenance.json"))["runs"].values()
    ]
    assert f"{len(seconds)} runs, {sum(seconds) / 3600:.1f} hours of work in all, on " in page
    for figure in (hooks.results() / name).glob("*.svg"):
        assert f"]({name}/{figure.name})" in page


@pytest.mark.parametrize("name", hooks.published())
def test_the_first_table_of_a_gallery_page_has_each_rows_scores_and_verdict(name):
    """The oracle is table.json, which has the same numbers by name."""
    content = json.loads(published(name, "table.json"))
    header, _, *lines = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in hooks.scores(name).splitlines()
    )
    if "N" not in header:  # with the columns of the paper, settings name the rows
        assert [line[0] for line in lines] == [row["row"] for row in content["rows"]]
    judged = content["judge"]
    first = next(
        place for place, head in enumerate(header) if re.fullmatch(r".+ \((dev|test)\)", head)
    )
    assert header[first + len(judged)].startswith("Δ")
    for line, row in zip(lines, content["rows"], strict=True):
        cells = dict(zip(header, line, strict=True))
        for place, metric in enumerate(judged, first):
            if row[metric]["n"]:
                shown = float(line[place].strip("*").split()[0])
                assert shown == pytest.approx(row[metric]["mean"], abs=0.051)
            else:
                assert line[place] == ""
            p = row["against_base"].get(metric, {}).get("p_adjusted")
            (column,) = (
                name
                for name in header
                if re.fullmatch(r"p (\S+ )?\(adj\.\)", name)
                and (len(judged) == 1 or header[place].startswith(name.split()[1]))
            )
            assert cells[column] == ("" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}")
        verdict = row.get("verdict") or ""
        assert cells["verdict"].startswith(verdict)
        assert bool(verdict) == bool(cells["verdict"])


gallery_index = cache(hooks.gallery_index)


@pytest.mark.parametrize("name", hooks.published())
def test_the_gallery_shows_the_main_result_of_a_published_study(name):
    """The oracle is table.json: its verdicts, and its conclusion in words."""
    content, text = json.loads(published(name, "table.json")), hooks.headline(name)
    judged = {row["row"]: row for row in content["rows"] if row["against_base"]}
    main = content["judge"][0]
    words = {row["verdict"] for row in judged.values()} | {"worse", "better"}
    for word in words - {"", "cannot tell", "as good as base", "no difference"}:
        means = {
            name: row["against_base"][main]["mean"]
            for name, row in judged.items()
            if row["verdict"] == word
        }
        found = re.search(
            rf"(\d+) of (\d+) rows (?:is|are) {word}(?:, most of all|:) \*\*(.+?)\*\* \((\S+) \[",
            text,
        )
        assert bool(found) == bool(means)
        if found:
            assert (int(found[1]), int(found[2])) == (len(means), len(judged))
            assert abs(means[found[3]]) == max(map(abs, means.values()))
            assert any(f"{found[3]} ({found[4]} " in line for line in content["conclusion"])
    for metric in content["judge"]:
        bases = [row[metric]["mean"] for row in content["rows"] if row["row"] not in judged]
        shown = re.findall(r"([\d.]+) [±×]", text.partition(". ")[0])
        for base in bases:
            assert any(float(score) == pytest.approx(base, abs=0.051) for score in shown)
    unfinished = [name for name, row in judged.items() if not row["verdict"]]
    assert (f"Not finished: {unfinished[0]}" in text) if unfinished else ("finished" not in text)
    page = gallery_index()
    assert text in page
    assert f"]({name}.md)" in page
    assert f"]({name}/{next(iter(hooks.figures(name)))})" in page
    assert hooks.read_header(ROOT / f"studies/{name}.yaml").title.endswith("?")


@pytest.mark.parametrize("name", hooks.published())
def test_a_published_study_decides_something(name):
    """One that decides nothing says nothing to a reader, and leaves the gallery."""
    content = json.loads(published(name, "table.json"))
    verdicts = {(row["verdict"] or "").split(" by ")[0] for row in content["rows"]}
    assert verdicts & {"worse", "better", "as good as base"}


DERIVED = {
    "shakespeare": lambda value: value * math.log(2),  # nats
    "table3-multi30k": lambda value: math.exp(min(value, 9)),  # ratios of perplexities
}  # study -> a quantity in its comment that is computed from one in its table
SIGNED_OR_DECIMAL = re.compile(r"(?<![\w.-])[-+]?\d+\.\d+(?![\w.])|(?<![\w.])[-+]\d+(?![\w.])")


@pytest.mark.parametrize("name", hooks.published())
def test_the_numbers_in_the_results_of_a_studys_comment_are_those_of_its_table(name):
    numbers = list(numbers_in(json.loads(published(name, "table.json"))))
    pool = numbers + [DERIVED[name](value) for value in numbers if name in DERIVED]
    for text in SIGNED_OR_DECIMAL.findall(hooks.read_header(ROOT / f"studies/{name}.yaml").shows):
        half_a_digit = 0.5 * 10.0 ** -len(text.partition(".")[2])
        assert any(
            abs(abs(value) - abs(float(text))) <= 1.000001 * half_a_digit for value in pool
        ), text


def numbers_in(content):
    """Every number in parsed JSON."""
    if isinstance(content, dict | list):
        for each in content.values() if isinstance(content, dict) else content:
            yield from numbers_in(each)
    elif isinstance(content, int | float):
        yield float(content)


def test_the_site_builds_without_warnings_and_without_a_network(tmp_path):
    """mkdocs.yml turns broken links and anchors, and pages missing from the navigation, into
    warnings.
    """
    pytest.importorskip(
        "material", reason="mkdocs-material is not installed: pip install -e '.[docs]'"
    )
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    for proxy in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        environment[proxy] = "http://127.0.0.1:9"  # refuses every connection
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    # With --quiet, --strict would not see a link to an anchor that does not exist.
    assert (done.returncode, "WARNING" in done.stderr) == (0, False), done.stderr
    pages = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.html")}
    assert {"index.html", "api.html", "contributing.html", "gallery/anatomy.html"} <= pages
    fetched = [
        (page, address)
        for page in pages
        for address in re.findall(
            r'<(?:script|link|img)[^>]+(?:src|href)="(https?:[^"]+)', (tmp_path / page).read_text()
        )
    ]
    assert fetched == []


def test_the_glossary_has_at_most_15_entries():
    entries = (
        (ROOT / "docs/glossary.md").read_text().split("| --- | --- |\n")[1].strip().splitlines()
    )
    assert 1 <= len(entries) <= 15


def test_every_public_name_is_in_the_api_reference():
    import ablate
    from ablate import components, errors
    from ablate.tasks import helpers

    page = (ROOT / "docs/api.md").read_text()
    rows = re.findall(r"^\| `(ablate\S+)` \| \S.+ \|$", page, re.MULTILINE)
    documented = set(re.findall(r"^::: (\S+)$", hooks.api_reference(page), re.MULTILINE))
    assert sorted(rows) == sorted(documented)
    names = {f"ablate.{name}" for name in ablate.__all__}
    names |= {
        f"ablate.errors.{name}"
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    names |= {"ablate.errors.Fault"}
    names |= {f"ablate.components.{name}" for name in components.__all__}
    names |= {f"ablate.tasks.{name}" for name in PUBLIC_OF_TASKS}
    names |= {f"ablate.tasks.helpers.{name}" for name in helpers.__all__}
    assert documented == names


def test_every_study_in_a_document_can_be_read(tmp_path):
    from ablate.study import read_study

    blocks = [
        b for page in PAGES for b in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)
    ]
    studies = [block for block in blocks if block.startswith("study:")]
    assert len(studies) >= 3
    (tmp_path / "cosine.py").write_text(
        "class Cosine: pass\n"
    )  # the class of docs/components.md, which end_to_end/test_own.py trains
    shutil.copy(
        ROOT / "tests/tasks/classification.py", tmp_path
    )  # of docs/own-task.md, which test_own_task.py trains
    for text in studies:
        path = tmp_path / "study.yaml"
        path.write_text(text)
        assert read_study(path).rows


def test_the_study_in_the_readme_has_the_runs_and_rows_of_the_published_one(tmp_path):
    from ablate.study import read_study

    (text,) = re.findall(r"```yaml\n(study:.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "study.yaml").write_text(text)
    shown, published = (
        read_study(path) for path in (tmp_path / "study.yaml", ROOT / "studies/quickstart.yaml")
    )
    assert [run.id for run in runs_of(shown)] == [run.id for run in runs_of(published)]
    assert [row.label for row in shown.rows] == [row.label for row in published.rows]


def test_the_table_in_the_readme_has_every_row_of_the_quickstart():
    from ablate.study import read_study

    shown = (ROOT / "README.md").read_text()
    shown = shown.split("<!-- quickstart -->")[1].split("<!-- /quickstart -->")[0]
    assert len(shown.strip().splitlines()) < 20
    for row in read_study(ROOT / "studies/quickstart.yaml").rows:
        assert re.search(rf"^{re.escape(row.label)} +\d", shown, re.M), row.label


def test_the_page_of_commands_is_up_to_date():
    assert PAGE.read_text() == page(), "run python -m tests.commands"


def test_a_default_that_is_one_of_the_choices_is_code():
    (line,) = [line for line in PAGE.read_text().splitlines() if line.startswith("| `--template ")]
    assert "| `quickstart` |" in line


def command_lines(text):
    """The arguments of every `ablate ...` command in a document: in shell blocks and in inline
    code.
    """
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    lines += re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    for line in lines:
        for part in re.split(r"&&|\|(?!\|)|\s#\s", line.replace(".venv/bin/", "")):
            words = (
                shlex.split(re.split(r"\s[<>]", part)[0])
                if part.strip().startswith("ablate ")
                else []
            )
            if words and not words[1].isupper():
                yield words[1:]


@pytest.mark.parametrize("file", PAGES, ids=lambda page: page.name)
def test_every_command_line_in_a_document_has_an_existing_command_and_options(file):
    known = commands()
    groups = {name.partition(" ")[0] for name in known if " " in name}
    for command, *words in command_lines(file.read_text()):
        if command.startswith("-"):
            assert command in ("--install-completion", "--show-completion", "--help", "--version")
            continue
        if command in groups:
            if not words:
                continue  # the group itself is named
            command = f"{command} {words.pop(0)}"
        former = {command, *(f"{command} {word}" for word in words)}
        if former & FORMER.keys() and file.name in ("CHANGELOG.md", "compatibility.md"):
            continue  # these pages name former commands, too
        assert command in known, command
        options = {name for parameter in known[command].params for name in parameter.opts} | {
            "--help",
            "-h",
        }
        assert {word.partition("=")[0] for word in words if word.startswith("-")} <= options, (
            command,
            words,
        )


@pytest.fixture
def no_training(monkeypatch):
    """Replace training, which end_to_end tests, by a launch that reports every run as done."""

    done = Counter({"done": 1})
    monkeypatch.setattr("ablate.cli.run.launch", lambda *_, **__: None)
    monkeypatch.setattr("ablate.cli.run.outcome_of_launch", lambda *_: done)


def test_the_command_lines_of_the_guides_run_in_order(tmp_path, monkeypatch, no_training):
    monkeypatch.chdir(tmp_path)
    pytest.importorskip("tensorboard")
    ran = Counter()
    for name in ("getting-started", "own-data", "running", "loggers"):
        text = (ROOT / f"docs/{name}.md").read_text()
        for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
            for line in block.splitlines():
                words = shlex.split(line)
                if (
                    words[0] == "ablate" and words[-1] != "--watch"
                ):  # which ends when the study does: test_live.py
                    done = inside(*(word.replace("/tmp", str(tmp_path)) for word in words[1:]))
                    # Nothing is known of the machine for a budget, and nothing is trained for a table.
                    is_unknown = "--budget" in words or "has a result" in done.err
                    assert done.code == 0 or is_unknown, (line, done)
                    ran[words[1]] += 1
    assert ran["run"] >= 6
    assert {"init", "plan", "run", "status", "table"} <= set(ran)


def test_plans_are_printed_as_the_pages_show(tmp_path, monkeypatch):
    """A page may leave out columns and rows."""
    monkeypatch.chdir(tmp_path)
    designs = (ROOT / "docs/designs.md").read_text()
    shown = []
    for study, output in re.findall(
        r"```yaml\n(study:(?:(?!```).)*)```(?:(?!```yaml).)*?```text\n(.*?)```", designs, re.DOTALL
    ):
        name = f"study-{len(shown)}.yaml"
        Path(name).write_text(study)
        shown.append((("plan", name), output))
    (power,) = re.findall(
        r"```text\n(Expected.*?)```", (ROOT / "docs/verdict.md").read_text(), re.DOTALL
    )
    arguments = ("plan", str(ROOT / "studies/anatomy.yaml"), "--seeds", "1-2")
    assert len(shown) == 2
    for words, output in [*shown, (arguments, power)]:
        printed = [line.split() for line in inside(*words).out.splitlines()]
        for line in output.splitlines():
            assert any(is_part_of(line.split(), other) for other in printed), line


def test_scores_of_other_code_are_judged_as_the_page_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/judge.md").read_text()
    scores, command, output = re.findall(r"```(?:text|bash)\n(.*?)```", page, re.DOTALL)[:3]
    Path("scores.csv").write_text(scores)
    # The page folds long lines, as a terminal does.
    assert output.split() == inside(*command.split()[1:]).out.split()


def is_part_of(words, line):
    """Whether a line has these words in this order, with or without others between them."""
    rest = iter(line)
    return all(word in rest for word in words)


def test_the_live_table_in_the_guide_has_the_current_legend():
    from ablate.report.live_table import COMMON_STEP, RATIOS, STILL_TRAINING

    legend = f"{STILL_TRAINING}; {RATIOS}, {COMMON_STEP}"
    assert f"\n{legend}\n" in (ROOT / "docs/getting-started.md").read_text()


def test_the_kubernetes_manifests_fit_the_schema_of_kubernetes():
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/kubernetes.md").read_text(), re.DOTALL)
    manifests = [yaml.safe_load(block) for block in blocks if "apiVersion:" in block]
    for manifest in manifests:
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
    claim, job = manifests
    (volume,) = job["spec"]["template"]["spec"]["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    job["spec"]["completion_mode"] = job["spec"].pop("completionMode")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, KUBERNETES, strict=True)
