"""A table over several vocabularies, which compares perplexity per character."""

import json

from ablate.table.columns.layouts import full_layout
from ablate.table.render import as_json
from tests.report.fakes import Fake, study_from

STUDY = """\
study: vocabularies
data: {corpus: toy, vocab_size: 350}
base: {N: 2, d_model: 64, d_ff: 128, h: 4, train_steps: 100}
rows: {V: {each: {vocab_size: [150]}}}
"""


def filled(tmp_path, text=STUDY):
    fake = Fake(tmp_path / "results", study_from(tmp_path, text))
    for index, row in enumerate(fake.study.rows):
        corpus = f"{index:012d}"  # each vocabulary has its own corpus
        fake.done(
            row.label,
            1,
            5.0 + index / 10,
            25.0 - index / 10,
            corpus=corpus,
            ppl_char=1.5 - index / 10,
        )
    return fake


def heads(table):
    layout = full_layout(table, lambda text: f"*{text}", "*")
    return {column.head.replace("\n", " "): column.cells for column in layout.columns}, " ".join(
        layout.legend
    )


def test_best_is_marked_in_perplexity_per_character_only(tmp_path):
    columns, legend = heads(filled(tmp_path).table())
    assert columns["PPL/char (dev)"] == ("1.500", "*1.400")
    assert not any(cell.startswith("*") for cell in columns["PPL (dev)"])
    assert (
        "Vocabularies differ: compare PPL/char, the perplexity per character, and not PPL."
        in legend
    )
    assert "vocab_size=150, 350" in legend
    assert "WARNING" not in legend


def test_one_vocabulary_has_no_column_of_perplexity_per_character(tmp_path):
    columns, legend = heads(filled(tmp_path, STUDY.replace("vocab_size: [150]", "h: [2]")).table())
    assert "PPL/char (dev)" not in columns
    assert any(cell.startswith("*") for cell in columns["PPL (dev)"])
    assert "Vocabularies differ" not in legend


def test_parameters_depend_on_the_row_s_vocabulary(tmp_path):
    from ablate.plan.plan import plan_of

    fake = filled(tmp_path)
    base, row = plan_of(fake.planned, fake.results).rows
    assert base.params - row.params == (350 - 150) * 64  # one tied matrix


def test_json_always_has_perplexity_per_character(tmp_path):
    content = json.loads(as_json(filled(tmp_path).table()))
    assert content["metrics"] == ["ppl", "ppl_char", "bleu"]
    assert content["rows"][1]["ppl_char"]["mean"] == 1.4


def test_a_language_model_has_no_difference_in_perplexity_between_vocabularies(tmp_path):
    text = STUDY.replace("toy, ", "toy, tokenizer: bpe, ").replace(
        "data:", "task: language-model\ndata:"
    )
    table = filled(tmp_path, text + "metrics: [bpb, new_loss]\n").table()
    assert [metric.name for metric in table.compared_metrics] == ["bpb"]
    _, legend = heads(table)
    assert "Vocabularies differ: compare bits/byte and not PPL." in legend


def test_with_vocabularies_of_words_no_perplexity_is_compared(tmp_path):
    """A smaller vocabulary has more unknown words, which are easy to predict."""
    table = filled(tmp_path, STUDY.replace("toy,", "toy, tokenizer: word,")).table()
    assert [metric.name for metric in table.compared_metrics] == ["bleu"]
    columns, legend = heads(table)
    assert "PPL/char (dev)" not in columns
    assert "Vocabularies differ: compare BLEU and not PPL." in legend
