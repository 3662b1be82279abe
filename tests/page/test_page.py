"""The page is complete and accessible, and shows text of a corpus as text."""

import base64
import itertools
import re
from html import unescape

import pytest

from ablate.page.page import Attention, divided
from ablate.store.machine import machine
from ablate.table.layout import (
    DIFFERENCE,
    FURTHER,
    P_VALUE,
    ROW,
    SCORE,
    VERDICT,
    Layout,
    TextColumn,
)
from tests.page.conftest import REFERENCES, SOURCES
from tests.page.test_html import Tags

NAMES = re.compile(r"(?:src|href)\s*=\s*[\"']([^\"']*)|url\(([^)]*)\)|@import")


@pytest.fixture(scope="module")
def tags(text):
    body = re.sub(r"<(style|script)>.*?</\1>", "", text, flags=re.S)
    return Tags(re.sub(r"<(meta|link)[^>]*>", "", body).replace("<!DOCTYPE html>", ""))


def test_the_page_loads_no_external_resource(text):
    """Every address is an anchor of the page itself or the table as CSV, and a policy forbids all
    others.
    """
    found = [one or other for one, other in NAMES.findall(text)]
    tables = [address for address in found if address.startswith("data:text/csv;")]
    assert len(tables) == 1
    found.remove(tables[0])
    assert all(address.startswith("#") for address in found)
    assert "default-src 'none'" in text


def test_headings_are_in_order_and_every_section_is_named_by_one(tags):
    levels = [int(name[1]) for name, _, _ in tags.found if re.fullmatch(r"h\d", name)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    ids = [attributes["id"] for attributes, _ in tags.all("h2")]
    assert ids == [
        "table", "differences", "curves", "cost", "speed-up", "samples", "settings", "provenance",
    ]  # fmt: skip
    assert [attributes["aria-labelledby"] for attributes, _ in tags.all("section")] == ids
    links = [attributes["href"] for attributes, _ in tags.all("a")]
    assert links[: len(ids) + 1] == ["#table", *(f"#{id}" for id in ids)]


def test_ids_are_unique_and_the_page_has_a_language_and_a_title(tags, text):
    ids = [attributes["id"] for _, attributes, _ in tags.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert tags.all("html")[0][0]["lang"] == "en"
    assert tags.all("title")[0][1] == "small: ablation study"
    assert '<meta name="viewport"' in text


def test_every_drawing_has_a_description_and_only_finite_numbers(tags, text):
    drawings = tags.all("svg")
    # Differences from base; curves of A and D along three axes; speed-up in FLOPs.
    assert len(drawings) == 2 + 2 * 3 + 1
    assert all(
        attributes["role"] == "img" and attributes["aria-label"] for attributes, _ in drawings
    )
    assert not re.search(r"\b(nan|inf|None)\b", "".join(re.findall(r"<svg.*?</svg>", text, re.S)))


def test_every_row_is_marked_wherever_it_is_shown_so_that_it_can_be_hidden(whole, tags):
    marked = [attributes["data-row"] for _, attributes, _ in tags.found if "data-row" in attributes]
    labels = [row.label for row in whole.table().rows]
    assert set(marked) == set(labels)
    assert all(marked.count(label) >= 5 for label in labels[1:])


def test_text_of_a_corpus_or_of_a_failure_stays_text(text):
    assert text.count("<script>") == 1  # the page's own
    assert "document.title='taken'" in unescape(text)
    assert "<b>" not in text
    assert "the loss exploded &lt;/section&gt;" in text


def test_samples_are_spread_over_the_test_set_and_every_row_has_its_prediction(tags):
    titles = [text for _, text in tags.all("summary") if text.startswith("Sample ")]
    assert titles == [f"Sample {i + 1}: {SOURCES[i]}" for i in (0, 1, 2)]
    cells = [text for _, text in tags.all("td")]
    assert f"{REFERENCES[0].replace('dog', 'x')}" in cells


def test_words_that_differ_from_the_reference_are_marked_and_sentences_have_scores(text, whole):
    assert "the old <mark>x</mark> sleeps near the river" in text  # A h=1
    assert "the old <del>dog</del> sleeps near the river" in text  # base has no word there
    task, corpus = whole.study.task, whole.prepared_corpus()
    for row in whole.study.rows:
        lines = whole.folder(row.label, 1).predictions(row.decoding).read_text().splitlines()
        score = task.measure_items("bleu", lines, corpus)[0]
        label = unescape(row.label)
        assert (
            f'<tr data-row="{label}"><th scope="row">{label}</th><td '
            f'class="number">{score:.1f}</td>' in text
        )


def test_the_csv_of_the_page_is_that_of_the_table(text, whole):
    from ablate.table.render import comma_separated

    (content,) = re.findall(r'href="data:text/csv;charset=utf-8;base64,([^"]+)"', text)
    assert base64.b64decode(content).decode() == comma_separated(whole.table())


def test_every_row_is_linked_to_its_runs_and_every_run_is_listed(tags, whole):
    ids = {attributes["id"]: attributes for _, attributes, _ in tags.found if "id" in attributes}
    labels = [row.label for row in whole.table().rows]
    links = [
        attributes["href"][1:]
        for attributes, _ in tags.all("a")
        if attributes["href"].startswith("#runs-")
    ]
    assert [ids[link]["data-row"] for link in links] == labels
    cells = [text for _, text in tags.all("td")]
    for row in whole.study.rows:
        for run in whole.planned.of(row):
            assert run.id in cells
    assert cells.count("diverged") >= 1


def test_notes_are_folded_and_warnings_are_not(fake):
    from ablate.page.study_page import study_page

    results = fake(seeds="1").all_done()
    results.done("A h=1", 1, 5.0, 25.0, corpus="ba9876543210")
    text = study_page(results.outcome(), results.results, [], [])
    caption = text.split("<figcaption>")[1].split("</figcaption>")[0]
    shown, folded = caption.split("<details>")
    assert "WARNING: these results mix corpora" in shown
    assert text.count("WARNING: these results mix corpora") == 1
    assert "How to read this table" in folded
    assert "plain negative log-likelihood" in folded


def test_columns_that_do_not_fit_are_further_columns_in_their_order():
    def column(name, width, priority):
        return TextColumn(name, True, ("x" * width,), priority=priority)

    def shown(*widths):
        names = ("row", "score", "difference", "verdict", "p", "q", "time")
        priorities = (ROW, SCORE, DIFFERENCE, VERDICT, P_VALUE, P_VALUE, FURTHER)
        layout = Layout(tuple(map(column, names, widths, priorities)), ("legend",))
        main, further = divided(layout)
        assert main.legend == ("legend",)
        return [one.name for one in main.columns], [one.name for one in further]

    first = ["row", "verdict", "score", "difference"]
    assert shown(9, 9, 9, 9, 9, 9, 9) == ([*first, "p", "q", "time"], [])
    assert shown(9, 9, 9, 9, 9, 9, 150) == ([*first, "p", "q"], ["time"])
    # Columns of one priority stay together, and no later column stands before them.
    assert shown(9, 9, 9, 9, 9, 150, 9) == (first, ["p", "q", "time"])
    assert shown(900, 9, 9, 9, 9, 9, 9) == ([*first, "p", "q", "time"], [])  # labels are folded


def test_settings_and_provenance_are_shown(whole, text):
    shown = unescape(text)
    assert whole.study.source.text in shown
    assert "label_smoothing" in shown
    assert "nrefs:1|case:mixed" in shown
    assert all(run.id in shown for run in whole.planned)


def test_what_runs_of_several_revisions_share_is_told_once(fake):
    from ablate.page.study_page import study_page
    from ablate.store.records import CodeVersion
    from tests.records import a_provenance

    results = fake().all_done()
    for seed, revision in enumerate(("a" * 40, "b" * 40), 1):
        made = a_provenance(
            ablate=CodeVersion(version="0.2", revision=revision),
            python="3.11",
            packages={"torch": "2"},
        )
        made.write(results.folder("A h=1", seed).provenance, durable=False)
    table = (
        study_page(results.outcome(), results.results, [], [])
        .split("How the numbers were made")[1]
        .split("</table>")[0]
    )
    kinds = re.findall(r'<th scope="row">(code|packages|machine)</th>', table)
    assert kinds == ["code", "code", "packages", "machine"]


def test_the_same_results_give_the_same_page(whole, text):
    assert whole.page() == text


def test_attention_is_a_picture_with_a_description(whole):
    seen = Attention(
        "base", "0123456789ab", 'a "dog"', b"<svg xmlns='http://www.w3.org/2000/svg'/>"
    )
    text = whole.page(attention=seen)
    assert 'src="data:image/svg+xml;base64,' in text
    assert "for the sentence: a &#34;dog&#34;" in text


@pytest.mark.parametrize("selection", [{"seeds": "1"}, {"rows": ["base"]}])
def test_a_study_without_results_has_a_page(fake, selection):
    from ablate.page.study_page import study_page

    results = fake(**selection)
    text = study_page(results.outcome(), results.results, [], [])
    assert "Base has no score yet." in text
    assert "<svg" not in text


def test_a_page_is_made_without_the_provenance_of_a_run(fake):
    from ablate.page.study_page import study_page

    results = fake().all_done()
    results.folder("base", 1).provenance.write_text("damaged")
    results.folder("A h=1", 1).provenance.unlink()
    text = unescape(study_page(results.outcome(), results.results, [], []))
    assert f">{results.folder('base', 1).id}<" in text
    assert machine().processor in text  # of the other runs
