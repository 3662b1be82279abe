"""The table as an element of a web page."""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablate.page.html import Best, environment, table_context, table_html, word_differences
from ablate.table.columns.layouts import full_layout
from ablate.table.conclusion import conclusion
from ablate.table.designs import design_effects, effects_layout
from tests.report.fakes import SMALL


class Tags(HTMLParser):
    """Every tag with its attributes and its text; fails if tags do not match."""

    EMPTY = ("br", "input", "meta", "wbr")

    def __init__(self, text):
        super().__init__()
        self.open, self.found = [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        entry = [tag, dict(attrs), ""]
        self.found.append(entry)
        if tag not in self.EMPTY:
            self.open.append(entry)

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        for entry in self.open:
            entry[2] += data

    def all(self, tag):
        return [(attributes, text) for name, attributes, text in self.found if name == tag]


def test_every_row_and_cell_is_shown_and_heads_are_marked_as_such(fake):
    table = fake().all_done().table()
    tags = Tags(table_html(table))
    layout = full_layout(table, lambda text: text, "*")
    assert [text for _, text in tags.all("th")[: len(layout.columns)]][1:] == [
        column.head.replace("\n", "") for column in layout.columns[1:]
    ]
    scopes = [attributes["scope"] for attributes, _ in tags.all("th")]
    assert scopes == ["col"] * len(layout.columns) + ["row"] * len(table.rows)
    cells = [text for _, text in tags.all("td")]
    assert cells == [
        column.cells[i] for i in range(len(table.rows)) for column in layout.columns[1:]
    ]
    assert [attributes["data-row"] for attributes, _ in tags.all("tr")[1:]] == [
        row.label for row in table.rows
    ]
    assert len(tags.all("tbody")) == 3  # base; A; D and decoding, each with a single row
    legend = [line.replace("* best", "bold: best").replace("`", "") for line in layout.legend]
    assert [text for _, text in tags.all("li")] == [*conclusion(table), *legend]


@pytest.mark.parametrize(
    ("match", "words"), [("", ""), (", match: {params: d_ff}", " and those chosen for it")]
)
def test_the_caption_says_whether_rows_have_chosen_settings(fake, match, words):
    results = fake(SMALL.partition("rows:")[0] + f"rows: {{A: {{each: {{N: [1]}}{match}}}}}\n")
    text = table_html(results.table())
    assert f"except for the settings it names{words}.</caption>" in text


def test_rows_of_the_page_have_their_whole_labels_and_their_links(fake):
    table = fake().all_done().table()
    links = {row.label: f"run-{index}" for index, row in enumerate(table.rows) if index % 2}
    context = table_context(table, full_layout(table, Best, "bold:"), is_page=True, links=links)
    tags = Tags(environment().get_template("table.html").render(context))
    names = [text for attributes, text in tags.all("th") if attributes["scope"] == "row"]
    assert names == [row.label for row in table.rows]
    assert [attributes["href"] for attributes, _ in tags.all("a")] == [
        f"#{link}" for link in links.values()
    ]


def test_best_values_are_strong_and_verdicts_have_their_class(fake):
    results = fake(rows=["A"])
    for seed, low in ((1, 20.0), (2, 20.1), (3, 20.05)):
        results.done("base", seed, 5.0, 25.0)
        results.done("A h=1", seed, 6.0, low)
        results.done("A h=2", seed, 4.0, 25.0)
    tags = Tags(table_html(results.table()))
    assert [text for _, text in tags.all("strong")] == ["25.0 ±0.0", "25.0 ±0.0", "4.00 ×÷1.000"]
    assert [text for attributes, text in tags.all("td") if attributes.get("class") == "worse"] == [
        "worse"
    ]


def test_the_conclusion_and_the_tables_of_designs_are_around_the_table(fake):
    text = (
        SMALL.partition("rows:")[0] + "rows:\n  F: {factorial: {dropout: [0.1, 0.3], h: [4, 2]}}\n"
    )
    table = fake(text).all_done().table()
    tags = Tags(table_html(table))
    assert [text for _, text in tags.all("li")][: len(conclusion(table))] == conclusion(table)
    assert [attributes["id"] for attributes, _ in tags.all("figure")] == [
        "scores-small",
        "scores-small-1",
    ]
    (design,) = design_effects(table)
    cells = [text for _, text in tags.all("td")]
    columns = effects_layout(table, design).columns[1:]
    assert cells[-3 * len(columns) :] == [
        column.cells[index] for index in range(3) for column in columns
    ]


@pytest.mark.parametrize(
    ("text", "reference", "parts"),
    [
        ("a b c", "a b c", [("same", "a b c")]),
        ("a x c", "a b c", [("same", "a"), ("other", "x"), ("same", "c")]),
        ("a c", "a b c", [("same", "a"), ("missing", "b"), ("same", "c")]),
        ("a x y c", "a c", [("same", "a"), ("other", "x y"), ("same", "c")]),
        ("a x", "a b c", [("same", "a"), ("other", "x"), ("missing", "c")]),
        ("", "a b", [("missing", "a b")]),
    ],
)
def test_words_are_compared_with_those_of_a_reference(text, reference, parts):
    assert word_differences(text, reference) == parts


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abc")))
def test_a_word_difference_holds_every_word_of_the_text(ours, theirs):
    parts = word_differences(" ".join(ours), " ".join(theirs))
    assert " ".join(words for kind, words in parts if kind != "missing").split() == ours
    same = [word for kind, words in parts if kind == "same" for word in words.split()]
    rest = iter(theirs)
    assert all(word in rest for word in same)  # in the reference, in this order
