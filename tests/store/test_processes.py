"""Processes are told apart by host, id and start."""

import os
import socket

import psutil
import pytest

from ablate.store import processes as module
from ablate.store.records import ProcessMark


@pytest.mark.parametrize(
    ("host", "born", "last_report", "works"),
    [
        ("here", 1001.5, 0.0, True), ("here", 998.5, 0.0, True), ("here", 1002.0, 5000.0, False),
        ("here", 998.0, 5000.0, False), ("here", None, 5000.0, False),
        ("there", None, 4880.5, True), ("there", 1000.0, 4880.0, False), ("there", 1000.0, 5010.0, True),
        ("there", 1000.0, 5120.0, False),
    ],
)  # fmt: skip
def test_a_process_works_by_its_start_here_and_by_its_report_elsewhere(
    monkeypatch, host, born, last_report, works
):
    """The process started at 1000; it is 5000 now."""
    monkeypatch.setattr(socket, "gethostname", lambda: "here")
    monkeypatch.setattr(module.time, "time", lambda: 5000.0)
    monkeypatch.setattr(module, "start_time", lambda pid: 1000.0 if pid == 7 else None)
    mark = ProcessMark(host=host, pid=7, born=born)
    assert module.is_working(mark, last_report) is works
    if host == "here":
        assert not module.is_working(mark.model_copy(update={"pid": 8}), last_report)


def test_a_process_is_marked_by_its_host_id_and_start():
    started = psutil.Process().create_time()
    assert module.process_mark() == ProcessMark(
        host=socket.gethostname(),
        pid=os.getpid(),
        born=started,
        namespace=module.PID_NAMESPACE.stat().st_ino,
    )
    assert module.start_time(os.getpid()) == started
    assert module.start_time(2**22 + 1) is None
    assert module.start_time(-1) is None
