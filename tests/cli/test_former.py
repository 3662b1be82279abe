"""Former names of commands and options work, with one line on standard error."""

import pytest

from ablate.cli.former import FORMER, present_words

CASES = [
    ("logs s.yaml base", "status --logs s.yaml base"),
    ("stop s.yaml --now", "cluster stop s.yaml --now"),
    ("schema", "init --schema"),
    ("verify --filesystem results", "cluster check results"),
    ("verify --filesystem=results", "cluster check results"),
    ("plan s.yaml --to-see 2", "plan s.yaml --difference 2"),
    ("plan s.yaml --to-see=2", "plan s.yaml --difference=2"),
    ("publish s.yaml --to out", "publish s.yaml --out out"),
    ("judge s.csv --row lr --row seed", "judge s.csv --by lr --by seed"),
    ("attention 3f2a --sentence dog", "attention 3f2a --text dog"),
    ("attention 3f2a --pairs 9", "attention 3f2a --records 9"),
    ("translate 3f2a --beam 2", "predict 3f2a --beam 2"),
    ("generate 3f2a --prompt=dog", "predict 3f2a --text=dog"),
    ("fill s.yaml a<mask>", "predict s.yaml --text a<mask>"),
    ("table s.yaml --format rich", "table s.yaml --format text"),
    ("table s.yaml --format=rich", "table s.yaml --format=text"),
]


@pytest.mark.parametrize(("former", "present"), CASES)
def test_a_former_name_stands_for_the_present_one_and_says_so(capsys, former, present):
    assert present_words(former.split()) == present.split()
    notes = capsys.readouterr().err.splitlines()
    assert notes
    assert all(note.startswith("note: `") for note in notes)


@pytest.mark.parametrize("present", sorted({present for _, present in CASES}))
def test_a_present_name_is_left_alone_without_a_note(capsys, present):
    assert present_words(present.split()) == present.split()
    assert capsys.readouterr().err == ""


def test_every_former_name_has_a_case():
    words = [former.replace("=", " ").split() for former, _ in CASES]
    assert [name for name in FORMER if not any(set(name.split()) <= {*case} for case in words)] == [
        "predict --prompt"  # of generate
    ]
