"""The metrics log: lines on a disk that refuses them, and the log of a run that resumes."""

import errno
import hashlib
import os

import pytest

from ablate.training.metrics_log import MetricsLog

LINES = [
    b'{"step": 1, "loss": 2.5}\n',
    b'{"step": 2, "loss": 2.25}\n',
    b'{"step": 3, "ppl": 7.0}\n',
]


@pytest.fixture
def log(tmp_path):
    """A log of three lines."""
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.cut()
    log.append(step=1, loss=2.5)
    log.append(step=2, loss=2.25)
    log.append(step=3, ppl=7.0)
    yield log
    log.close()


def resumed(log):
    """The log as the next process opens it."""
    log.close()
    return MetricsLog(log.path)


def test_size_and_hash_are_those_of_the_file(log):
    content = log.path.read_bytes()
    assert content == b"".join(LINES)
    assert (log.size, log.sha256) == (len(content), hashlib.sha256(content).hexdigest())


def test_lines_that_a_full_disk_refused_are_in_the_file_after_a_flush(log, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "write", refuse)
        log.append(step=4, loss=2.0)
        with pytest.raises(OSError, match="No space left"):
            log.flush()
    assert log.path.read_bytes() == b"".join(LINES)
    log.flush()
    assert log.path.read_bytes() == b"".join([*LINES, b'{"step": 4, "loss": 2.0}\n'])
    assert log.size == len(log.path.read_bytes())


def test_a_log_is_cut_to_the_lines_of_a_checkpoint_and_goes_on(log):
    kept = b"".join(LINES[:2])
    again = resumed(log)
    assert again.cut(len(kept), hashlib.sha256(kept).hexdigest())
    assert again.path.read_bytes() == kept
    again.append(step=3, loss=2.125)
    assert (again.size, again.sha256) == (
        len(again.path.read_bytes()),
        hashlib.sha256(kept + b'{"step": 3, "loss": 2.125}\n').hexdigest(),
    )
    again.close()


@pytest.mark.parametrize("digest", [None, hashlib.sha256(b"".join(LINES)).hexdigest()])
def test_a_log_that_is_too_short_is_refused_and_stays(log, digest):
    again = resumed(log)
    assert not again.cut(len(b"".join(LINES)) + 1, digest)
    assert again.path.read_bytes() == b"".join(LINES)


def test_a_log_with_another_hash_is_refused_and_stays(log):
    again = resumed(log)
    size = len(LINES[0])
    assert not again.cut(size, hashlib.sha256(LINES[1]).hexdigest())
    assert again.path.read_bytes() == b"".join(LINES)
    assert again.cut(size, hashlib.sha256(LINES[0]).hexdigest())
    again.close()


def test_a_missing_log_is_refused(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    assert not log.cut(1)
    assert not log.path.exists()


def test_a_process_whose_log_was_cut_by_another_writes_no_line_into_it(log):
    other = MetricsLog(log.path)
    other.cut(len(LINES[0]))
    log.append(step=4, loss=9.0)
    assert log.path.read_bytes() == LINES[0]
    other.close()


def test_the_last_value_of_a_field(log):
    assert [log.last(name) for name in ("loss", "ppl", "bleu")] == [2.25, 7.0, None]


def test_a_line_after_the_close_waits_for_the_file_and_goes_nowhere_else(log, capfd):
    log.close()
    log.append(step=4, loss=2.0)
    assert capfd.readouterr().out == ""
    with pytest.raises(OSError, match="Bad file descriptor"):
        log.flush()


def test_a_cut_closes_the_file_before(log, monkeypatch):
    closed, close = [], os.close
    before = log._file
    monkeypatch.setattr(os, "close", lambda file: (closed.append(file), close(file)))
    log.cut()
    assert before in closed
