"""What is known of a prepared corpus without opening it."""

from dataclasses import asdict

from ablate.config import resolve_data
from ablate.config.cost import Lengths
from ablate.store.corpora import known_lengths, lengths_in, remember
from ablate.store.files import write_json

LENGTHS = Lengths(2, 30, 34, 36, 500, 520, 600)
DATA = resolve_data({"corpus": "multi30k", "vocab_size": 8000})


def prepared(corpora, id="0123456789ab", lengths=LENGTHS):
    write_json(corpora / id / "corpus.json", {"lengths": asdict(lengths)})
    return id


def test_nothing_is_known_of_a_corpus_that_was_never_prepared(tmp_path):
    assert known_lengths(DATA, tmp_path / "corpora") is None
    assert lengths_in(tmp_path / "corpora", "0123456789ab") is None


def test_what_was_prepared_last_from_the_same_settings_is_known(tmp_path):
    remember(DATA, tmp_path, prepared(tmp_path))
    assert known_lengths(DATA, tmp_path) == LENGTHS
    later = Lengths(3, 1, 1, 1, 1, 1, 1)
    remember(DATA, tmp_path, prepared(tmp_path, "ba9876543210", later))
    assert known_lengths(DATA, tmp_path) == later
    assert lengths_in(tmp_path, "0123456789ab") == LENGTHS


def test_the_folder_of_the_files_has_no_part_in_the_settings(tmp_path):
    remember(DATA, tmp_path, prepared(tmp_path))
    assert known_lengths(DATA.model_copy(update={"folder": "/elsewhere"}), tmp_path) == LENGTHS
    assert known_lengths(DATA.model_copy(update={"vocab_size": 4000}), tmp_path) is None


def test_a_corpus_that_was_removed_is_not_known(tmp_path):
    remember(DATA, tmp_path, "0123456789ab")
    assert known_lengths(DATA, tmp_path) is None


def test_remembering_again_writes_nothing(tmp_path):
    remember(DATA, tmp_path, "0123456789ab")
    (pointer,) = tmp_path.iterdir()
    before = pointer.stat()
    remember(DATA, tmp_path, "0123456789ab")
    assert (pointer.stat().st_ino, pointer.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
