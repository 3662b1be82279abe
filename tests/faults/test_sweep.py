"""A fixed part of the sweep: no traceback, nothing silently wrong, no study lost to one file."""

from tests.faults.sweep import LOST, QUICK_DAMAGES, QUICK_FILES, QUICK_VERBS, SILENT, TRACEBACK, sweep


def test_no_damaged_file_is_silently_wrong_or_takes_the_whole_study(tmp_path):
    outcomes = list(sweep(tmp_path, quick=True))
    assert {one.verb for one in outcomes} == set(QUICK_VERBS)
    assert len(outcomes) == len(QUICK_FILES) * len(QUICK_DAMAGES) * len(QUICK_VERBS)
    assert [one for one in outcomes if one.outcome.partition(":")[0] in (TRACEBACK, SILENT, LOST)] == []
    assert any(one.outcome == "said" for one in outcomes)
