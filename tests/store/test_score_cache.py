"""Predictions are used only if they are those that were made, and scores only if they are of these
predictions.
"""

import hashlib
import re

import pytest

from ablate.errors import Damaged
from ablate.store import RunFolder, files
from ablate.store.records import ScoreSource
from ablate.store.score_cache import (
    fault_in_predictions,
    is_archived,
    read_measurements,
    read_predictions,
    score_source,
    verified_predictions,
    write_scores,
)
from tests.records import RUN, a_decoding, a_measurement

ID = "abcdef012345"
TEXT = "kana uno\nkana\u2028due\n\n".encode()
DECODING = a_decoding(sha256=hashlib.sha256(TEXT).hexdigest())
UNDECODED = a_decoding(sha256=None)


@pytest.fixture
def run(tmp_path):
    """A run with predictions."""
    run = RunFolder(tmp_path / RUN)
    path = run.predictions(ID)
    path.parent.mkdir(parents=True)
    path.write_bytes(TEXT)
    return run


def test_a_line_feed_alone_ends_a_prediction(run):
    assert read_predictions(run, ID, DECODING) == ["kana uno", "kana\u2028due", ""]


def test_a_decoding_without_predictions_has_none_and_no_damage(run):
    """As of a language model."""
    run.predictions(ID).unlink()
    assert verified_predictions(run, ID, UNDECODED) == b""
    assert read_predictions(run, ID, UNDECODED) == []
    assert fault_in_predictions(run, ID, UNDECODED) is None


@pytest.mark.parametrize(("content", "state"), [
    (TEXT[:-1], "is damaged (its SHA-256 is not the one written)"),
    (b"", "is damaged (its SHA-256 is not the one written)"),
    (None, "is missing"),
])  # fmt: skip
def test_other_predictions_are_damage_that_decoding_heals(run, content, state):
    path = run.predictions(ID)
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(Damaged, match=re.escape(state)):
        read_predictions(run, ID, DECODING)
    damage = fault_in_predictions(run, ID, DECODING)
    assert damage.problem == f"{path}: {state}"
    assert damage.remedy == "`ablate run` decodes it again"


def test_predictions_that_cannot_be_read_are_no_reason_to_decode_again(run, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(files, "open_file", refuse)
    expected = f"{run.predictions(ID)}: cannot be read: Permission denied"
    assert str(fault_in_predictions(run, ID, DECODING)) == expected


def test_scores_are_those_of_the_predictions_and_the_corpus(run):
    scores = {"bleu": a_measurement()}
    assert read_measurements(run, ID, DECODING) == {}
    write_scores(run, ID, score_source(DECODING.sha256, DECODING.corpus), scores)
    assert read_measurements(run, ID, DECODING) == scores
    for other in ({"sha256": "0" * 64}, {"corpus": "f" * 12}, {"sha256": None}):
        assert read_measurements(run, ID, DECODING.model_copy(update=other)) == {}
    run.scores(ID).write_text("{")
    with pytest.raises(Damaged):
        read_measurements(run, ID, DECODING)


@pytest.mark.parametrize(("format", "counts"), [(1, False), (2, True), (3, False)])
def test_scores_count_if_they_are_of_this_format(run, format, counts):
    """Published archives have format 2."""
    source = ScoreSource(format=format, predictions_sha256=DECODING.sha256, corpus=DECODING.corpus)
    write_scores(run, ID, source, {"bleu": a_measurement()})
    assert bool(read_measurements(run, ID, DECODING)) is counts


def test_an_archived_run_has_scores_and_neither_predictions_nor_checkpoints(run):
    assert not is_archived(run, ID)
    write_scores(run, ID, score_source(DECODING.sha256, DECODING.corpus), {})
    assert not is_archived(run, ID)
    run.predictions(ID).unlink()
    run.predictions(ID).parent.rmdir()
    assert is_archived(run, ID)
    assert fault_in_predictions(run, ID, DECODING) is None
    assert not is_archived(run, "0" * 12)
    run.checkpoints.mkdir()
    assert not is_archived(run, ID)
