"""Commands on stored files: `status RUN`, `verify --stored`, `clean`, and the log of a failed
run.
"""

import hashlib
import json

import pytest

from ablate.store.files import write_json
from tests.cli.inside import inside
from tests.records import CORPUS, a_manifest


def test_everything_known_about_a_run_is_shown(fake, given):
    fake.done("base", 1, 5.0, 25.0)
    folder = fake.folder("base", 1)
    write_json(folder.provenance, {
        "ablate": {"version": "0.2.0", "revision": "abc123", "dirty": True}, "python": "3.12", "device": "cpu",
        "packages": {"torch": "2.13.0"}, "machine": {"processor": "P", "cores": 2, "system": "S"}, "threads": 1,
    })  # fmt: skip
    write_json(folder.execution, {
        "training": "0123456789ab", "device": "cpu", "threads": 1, "micro_batch_tokens": 1000, "halvings": 2,
        "precision": "fp32",
    })  # fmt: skip
    folder.log.write_text("first\nlast\n")
    done = inside("status", folder.id[:6], *given[1:])
    assert (done.code, done.err) == (0, "")
    for line in (
        f"run {folder.id}: done",
        "  seed 1, corpus toy en-toy",
        "  training text 0123456789ab, on cpu, 1 thread, fp32",
        "  micro-batches of 250 padded tokens, halved 2 times after running out of memory",
        "  ablate 0.2.0, revision abc123, with uncommitted changes",
        "  Python 3.12, torch 2.13.0",
        "  P, 2 cores, S",
        "  done after 100 steps in 60 s",
        "  last",
    ):
        assert line in done.out.splitlines()
    known = json.loads(inside("status", folder.id, *given[1:], "--format", "json").out)
    assert (known["state"], known["log"], known["provenance"]["python"]) == (
        "done",
        ["first", "last"],
        "3.12",
    )


def test_damage_of_a_run_is_shown_with_the_rest(fake, given):
    fake.done("base", 1, 5.0, 25.0)
    folder = fake.folder("base", 1)
    folder.provenance.write_text("{}")
    done = inside("status", folder.id, *given[1:])
    assert done.code == 0
    assert f"{folder.provenance}: is damaged" in done.out
    assert "  done after 100 steps in 60 s" in done.out


def test_an_unknown_run_is_one_line(fake, given):
    fake.done("base", 1, 5.0, 25.0)
    done = inside("status", "fff", *given[1:])
    assert "no run with an id that begins with" in done.refusal


def test_the_end_of_a_failed_runs_log_is_shown(fake, given):
    fake.failed("A h=1", 2, "RuntimeError: out of luck")
    fake.folder("A h=1", 2).log.write_text("one\ntwo\nthree\n\nfour \x1b[2J\n")
    said = inside("status", *given).out
    assert said.endswith("A h=1 seed 2, end of its log:\n  two\n  three\n  four \\x1b[2J\n")
    runs = json.loads(inside("status", *given, "--format", "json").out)["runs"]
    assert {len(run["log"]) for run in runs if run["state"] != "failed"} == {0}


@pytest.mark.parametrize("words", [(), ("--yes",)])
def test_without_leftovers_there_is_nothing_to_clean(fake, given, words):
    fake.all_done()
    done = inside("clean", *given, *words)
    assert done.code == 0
    assert ("Nothing to clean" in done.out) == (not words)


def test_clean_lists_leftovers_and_removes_them_only_with_yes(fake, given):
    fake.all_done()
    left = fake.folder("base", 1).path / "result.json.damaged"
    left.write_bytes(b"x" * 2000)
    said = inside("clean", *given).out
    assert f"{left.parent}: 1 leftover, 2.00 KB\n" in said
    assert "2.00 KB can be freed with --yes" in said
    assert left.exists()
    assert "2.00 KB freed" in inside("clean", *given, "--yes").out
    assert not left.exists()


def test_verify_finds_damage_and_exits_with_1(fake, given):
    fake.failed("base", 1, "x")
    folder = fake.folder("base", 1)
    fake.done("base", 1, 5.0, 25.0)
    folder.result.unlink()
    whole = inside("verify", *given, "--stored")
    assert (whole.code, whole.out) == (
        0,
        "stored: 3 files of 1 run, of which 1 not finished, and 0 corpora: all unchanged\n",
    )
    folder.run.write_bytes(folder.run.read_bytes()[:-1])
    hurt = inside("verify", *given, "--stored")
    assert hurt.code == 1
    assert hurt.out == (
        f"{folder.run}: is damaged (it does not end with its hash: it was cut, changed by hand, "
        f"or written by an ablate before 0.2)\n"
        "stored: 3 files of 1 run, of which 1 not finished, and 0 corpora: 1 damaged\n"
    )


def test_verify_reads_no_file_outside_of_a_corpus_that_somebody_sent(fake, given, tmp_path):
    (tmp_path / "private").write_bytes(b"1234")
    name = "../../../private"
    fake.done("base", 1, 5.0, 25.0)
    file = fake.results.corpora / CORPUS / "corpus.json"
    a_manifest(files={name: hashlib.sha256(b"1234").hexdigest()}).write(file)
    assert (file.parent / name).read_bytes() == b"1234"
    done = inside("verify", *given, "--stored")
    assert f"{file}: lists a file outside its folder\n" in done.out
    assert done.out.count("private") == 0


def test_verify_checks_the_corpus_of_the_results_whose_pointer_is_lost(fake, given):
    """`corpora/<hash of settings>.json` names the corpus of a study's settings, until it is
    lost.
    """
    text = b"1234"
    manifest = a_manifest(files={"test.target.ids": hashlib.sha256(text).hexdigest()})
    fake.done("base", 1, 5.0, 25.0)
    folder = fake.results.corpora / CORPUS
    manifest.write(folder / "corpus.json")
    (folder / "test.target.ids").write_bytes(text)
    assert "and 1 corpus: " in inside("verify", *given, "--stored").out
    (folder / "test.target.ids").write_bytes(b"1235")
    hurt = inside("verify", *given, "--stored")
    assert hurt.code == 1
    assert f"{folder / 'test.target.ids'}: is damaged" in hurt.out
    fake.folder("base", 1).result.write_text("{")  # names no corpus
    assert "and 0 corpora: " in inside("verify", *given, "--stored").out
