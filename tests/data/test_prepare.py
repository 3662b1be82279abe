"""Preparing a corpus: once, completely or not at all, identified by content, with concurrent and
killed processes.
"""

import gzip
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ablate.config.translation_data import TranslationData
from ablate.data import build, prepare_records, sources, text_preview, toy
from ablate.data import prepare as prepare_module
from ablate.data.prepare import prepare, text_faults
from ablate.data.text_preview import is_prepared_quickly
from ablate.data.tokenizer import UNK, encode
from ablate.errors import DataError, Interrupted
from ablate.store.corpora import warnings_in
from ablate.store.records import CorpusManifest
from ablate.tasks import Translation
from tests.data.small import PAIRS, SETTINGS, Files, fault_line
from tests.records import change

ROOT = Path(__file__).parents[2]
module = sys.modules["ablate.data.prepare"]


def fault(files, **settings):
    """The only error line, without the folder."""
    return fault_line(files.folder, files.prepare, **settings)


# The prepared corpus


def test_the_vocabulary_is_trained_on_the_training_split_only(files):
    corpus = files.write(dev=[("the dog ж", "kana")], test=[("the dog", "kana щ")]).prepare()
    assert UNK in corpus.split("dev")["source"][0]
    assert UNK in corpus.split("test")["target"][0]
    assert not any(UNK in corpus.split("train")["source"][i] for i in range(len(PAIRS["train"])))


def test_both_languages_share_the_vocabulary(files):
    corpus = files.write(train=[*PAIRS["train"], ("Ω", "ж")], dev=[("ж", "Ω")]).prepare()
    dev = corpus.split("dev")
    assert UNK not in [*dev["source"][0], *dev["target"][0]]


def test_the_toy_corpus_needs_no_files(tmp_path):
    corpus = prepare(
        TranslationData.resolve({"corpus": "toy", "vocab_size": 350}),
        tmp_path / "nowhere",
        tmp_path,
    )
    assert corpus.manifest.records == toy.SPLITS
    assert corpus.text("test", "target") == [target for _, target in toy.generate()["test"]]


@pytest.mark.parametrize("zipped", [("en",), ("en", "de")])
def test_a_named_corpus_is_found_under_the_file_names_of_its_release(tmp_path, zipped):
    """Multi30k as published: train, val and test_2016_flickr, one file per language, some
    compressed.
    """
    for split, name in (("train", "train"), ("dev", "val"), ("test", "test_2016_flickr")):
        for side, language in enumerate(("en", "de")):
            text = "".join(f"{pair[side]}\n" for pair in PAIRS[split]).encode()
            suffix, content = (".gz", gzip.compress(text)) if language in zipped else ("", text)
            (tmp_path / f"{name}.{language}{suffix}").write_bytes(content)
    data = TranslationData.resolve(
        {"corpus": "multi30k", "vocab_size": 80, "folder": str(tmp_path)}
    )
    corpus = prepare(data, tmp_path, tmp_path / "corpora")
    assert corpus.text("test", "target") == [target for _, target in PAIRS["test"]]
    backwards = prepare(
        TranslationData.resolve(
            {"corpus": "multi30k", "vocab_size": 80, "direction": "de-en", "folder": str(tmp_path)}
        ),
        tmp_path,
        tmp_path / "corpora",
    )
    assert backwards.text("test", "target") == [source for source, _ in PAIRS["test"]]
    assert backwards.id != corpus.id


# Its id


def test_the_same_content_in_another_folder_is_the_same_corpus(files, corpus, tmp_path):
    elsewhere = Files(tmp_path / "a" / "b", tmp_path / "c").write()
    assert elsewhere.prepare().id == corpus.id
    assert elsewhere.prepare(folder="/somewhere").id == corpus.id
    for name in corpus.manifest.files:
        assert (elsewhere.corpora / corpus.id / name).read_bytes() == (
            corpus.folder / name
        ).read_bytes()


def test_a_language_with_another_tokenizer_of_bleu_has_another_corpus(tmp_path):
    for split, pairs in PAIRS.items():
        (tmp_path / f"{split}.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs))
    settings = {**SETTINGS, **{split: f"{split}.tsv" for split in PAIRS}}
    corpora = {}
    for direction in ("en-xx", "en-de", "en-zh"):
        data = TranslationData.resolve({**settings, "direction": direction})
        corpora[direction] = prepare(data, tmp_path, tmp_path / "corpora")
    assert corpora["en-xx"].id == corpora["en-de"].id != corpora["en-zh"].id
    assert corpora["en-xx"].training_hash == corpora["en-zh"].training_hash
    signature = Translation().measure("bleu", ["a"] * 20, corpora["en-zh"]).signature
    assert "tok:zh" in signature


def test_a_reused_split_is_warned_of_under_the_languages_of_the_study(tmp_path):
    for split, pairs in {**PAIRS, "dev": [("the dog", "ж ж ж")], "test": [("dog", "щ щ")]}.items():
        (tmp_path / f"{split}.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs))
    settings = {**SETTINGS, **{split: f"{split}.tsv" for split in PAIRS}}
    for language in ("zh", "xx"):  # of two tokenizers of BLEU, and so with two corpora
        data = TranslationData.resolve({**settings, "direction": f"en-{language}"})
        corpus = prepare(data, tmp_path, tmp_path / "corpora")
        found = [line.partition(": ")[0] for line in corpus.manifest.text_warnings]
        assert sorted(found) == [f"dev ({language})", f"test ({language})"]
    (line, _) = warnings_in(corpus.folder, ("en", "ja"))
    assert "(ja): " in line


@pytest.mark.parametrize("form", ["pairs of files", "tsv"])
@pytest.mark.parametrize("ending", ["\r\n", "\n"])
def test_a_corpus_whose_id_is_of_the_bytes_of_its_files_is_still_used(
    tmp_path, monkeypatch, form, ending
):
    """As earlier versions made it: results on it go on, also where the files are copied."""
    settings = {**SETTINGS, "max_length": 100}
    for split, pairs in PAIRS.items():
        texts = {
            f"{split}.{label}": [pair[side] for pair in pairs]
            for side, label in enumerate(("en", "de"))
        }
        if form == "tsv":
            texts = {f"{split}.tsv": [f"{source}\t{target}" for source, target in pairs]}
            settings[split] = f"{split}.tsv"
        for name, lines in texts.items():
            (tmp_path / name).write_bytes(ending.join(lines).encode())  # without a last line end
    data, corpora = TranslationData.resolve(settings), tmp_path / "corpora"
    with monkeypatch.context() as before:
        before.setattr(sources, "hash_lines", sources.bytes_hash)
        old = prepare(data, tmp_path, corpora)
    for path in tmp_path.glob("train.*"):
        path.touch()
    used = {old.folder: tuple(PAIRS)}
    assert text_preview.changed_files(data, tmp_path, corpora, used) == []
    assert prepare(data, tmp_path, corpora).id == old.id
    assert prepare(data, tmp_path, tmp_path / "others").id != old.id  # a new one has an id of lines


@pytest.mark.parametrize("split", list(PAIRS))
@pytest.mark.parametrize("side", [0, 1])
def test_one_changed_character_in_any_file_changes_the_corpus_id(files, corpus, split, side):
    first, *others = PAIRS[split]
    changed = tuple(text + "e" * (i == side) for i, text in enumerate(first))
    assert files.write(**{split: [changed, *others]}).prepare().id != corpus.id


@pytest.mark.parametrize(
    "setting",
    [
        {"vocab_size": 81},
        {"max_length": 100},
        {"direction": "de-en"},
        {"max_ratio": 100.0},
        {"drop_identical": True},
        {"drop_duplicates": True},
        {"tokenizer": "unigram", "vocab_size": 60},
        {"vocabulary": "separate"},
        {"byte_fallback": True, "vocab_size": 340},
        {"tokenizer_pairs": 150},
    ],
    ids=str,
)
def test_settings_change_the_corpus_id(files, corpus, setting):
    assert files.write().prepare(**setting).id != corpus.id


# Prepared once


def test_a_corpus_is_prepared_once(files, monkeypatch):
    first = files.write().prepare()
    stamps = {path: path.stat().st_mtime_ns for path in files.corpora.rglob("*") if path.is_file()}
    monkeypatch.setattr(module, "_build", None)
    assert files.prepare().id == first.id
    assert {
        path: path.stat().st_mtime_ns for path in files.corpora.rglob("*") if path.is_file()
    } == stamps


def test_changed_files_are_prepared_and_restored_files_reuse_the_old_corpus(files, monkeypatch):
    first = files.write().prepare()
    second = files.write(train=PAIRS["train"][:-1]).prepare()
    assert second.id != first.id
    monkeypatch.setattr(module, "_build", None)
    assert files.write().prepare().id == first.id


PRELUDE = """
import json, os, signal, sys
from pathlib import Path
from ablate.config.translation_data import TranslationData
from ablate.data.prepare import prepare
module = sys.modules["ablate.data.prepare"]
job = json.loads(sys.argv[1])

def make(corpora):
    return prepare(TranslationData.resolve(job["settings"]), Path(job["folder"]), Path(corpora))

def child(work, *given):  # a process with everything loaded
    pid = os.fork()
    if pid == 0:
        try:
            work(*given)
            os._exit(0)
        finally:
            os._exit(1)
    return pid

def ended(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


def in_processes(script, files, **job):
    """The JSON output of a script, which forks its processes itself so that modules are loaded
    once.
    """
    given = json.dumps(
        {"settings": SETTINGS, "folder": str(files.folder), "corpora": str(files.corpora), **job}
    )
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + script, given],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_several_processes_at_once_prepare_one_corpus(files):
    files.write()
    script = """
ready, go = os.pipe()
built = Path(job["corpora"]).parent / "built"
build = module._build
def noted(*given):
    with built.open("a") as file:
        file.write("once\\n")
    build(*given)
module._build = noted
def work():
    os.close(go)
    os.read(ready, 1)  # returns when the parent closes its end
    corpus = make(job["corpora"])
    corpus.verify()
    assert len(corpus.split("train")) == 200
pids = [child(work) for _ in range(4)]
os.close(go)
print(json.dumps({"codes": [ended(pid) for pid in pids], "built": built.read_text()}))
"""
    assert in_processes(script, files) == {"codes": [0, 0, 0, 0], "built": "once\n"}
    assert [path.name for path in files.corpora.iterdir() if path.is_dir()] == [files.prepare().id]


POINTS = ("vocabulary", "ids", "a commit", "manifest", "its place", "the pointer")


def test_a_killed_preparation_is_never_taken_for_a_corpus(files):
    """Kill a preparation at each point, in a new folder each time; the next preparation resumes and
    succeeds.
    """
    files.write()
    script = """
import pathlib
from ablate.data import build, prepare_records
prepare_records.CHUNK, prepare_records.RecordPreparation.commit_every = 7, 3
def die(*given, **named):
    os.kill(os.getpid(), signal.SIGKILL)
def die_after(times, function):
    calls = []
    return lambda *given: die() if len(calls) == times else (calls.append(1), function(*given))[1]
def die_at(point, corpora):
    if point == "vocabulary":
        prepare_records.train_tokenizer = die
    elif point == "ids":
        build.Build._write = die
    elif point == "a commit":
        build.SequenceWriter.commit = die_after(3, build.SequenceWriter.commit)
    elif point == "manifest":
        build.Build._write_manifest = die
    elif point == "its place":
        replace = pathlib.Path.replace
        pathlib.Path.replace = lambda self, to: die() if self.is_dir() else replace(self, to)
    else:
        module.remember = die
    make(corpora)
codes = {}
for point in job["points"]:
    codes[point] = ended(child(die_at, point, Path(job["corpora"]) / point))
print(json.dumps(codes))
"""
    codes = in_processes(script, files, points=POINTS)
    assert codes == dict.fromkeys(POINTS, -signal.SIGKILL)
    whole = files.prepare()
    for point in POINTS:
        corpora = files.corpora / point
        counts = [
            path.parent.name
            for path in corpora.glob("*/corpus.json")
            if not path.parent.name.startswith(".")
        ]
        assert counts == ([whole.id] if point == "the pointer" else []), point
        corpus = prepare(TranslationData.resolve(SETTINGS), files.folder, corpora)
        corpus.verify()
        assert corpus.id == whole.id
        assert corpus.manifest == whole.manifest, point
        assert [path.name for path in corpora.iterdir() if path.is_dir()] == [whole.id], point


def test_a_stopped_preparation_resumes_with_its_vocabulary_from_the_last_commit(files, monkeypatch):
    whole = files.write().prepare()
    monkeypatch.setattr(prepare_records, "CHUNK", 10)
    monkeypatch.setattr(prepare_records.RecordPreparation, "commit_every", 4)
    other = Files(files.folder, files.corpora / "other")
    encoded = []

    def stopped(tokenizer, sentences):
        encoded.append(len(sentences))
        if sum(encoded) > 2 * (20 + 20 + 100):  # dev, test and 10 of 20 times 10 pairs, both sides
            raise Interrupted
        return encode(tokenizer, sentences)

    monkeypatch.setattr(prepare_records, "encode", stopped)
    with pytest.raises(Interrupted):
        other.prepare()
    again = []

    def counted(tokenizer, sentences):
        again.append(len(sentences))
        return encode(tokenizer, sentences)

    monkeypatch.setattr(prepare_records, "encode", counted)
    monkeypatch.setattr(prepare_records, "train_tokenizer", None)
    corpus = other.prepare()
    assert corpus.manifest == whole.manifest
    assert sum(again) == 2 * (20 + 20 + 200 - 80)  # two commits of 40 pairs were kept


def test_a_failed_preparation_leaves_no_corpus(files, monkeypatch):
    files.write()

    def full(*given):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(build.SequenceWriter, "add", full)
    with pytest.raises(OSError, match="No space left") as failed:
        files.prepare()
    assert Path(failed.value.filename).parent == files.corpora
    assert list(files.corpora.glob("[!.]*/")) == []
    monkeypatch.undo()
    files.prepare().verify()


def test_a_folder_without_a_manifest_is_prepared_again(files):
    corpus = files.write().prepare()
    ids = corpus.folder / "train.source.ids"
    before = ids.read_bytes()
    (corpus.folder / "corpus.json").unlink()
    ids.write_bytes(b"")
    assert files.prepare().folder == corpus.folder
    assert ids.read_bytes() == before != b""


# Errors


LONG = " ".join(["the"] * 60)


def test_a_pair_of_exactly_the_maximum_length_is_kept(files):
    corpus = files.write().prepare()
    longest = corpus.manifest.longest - 1  # without the end mark
    assert files.prepare(max_length=longest).manifest.left_out == {}
    assert files.write(dev=PAIRS["train"]).prepare(max_length=longest).manifest.left_out == {}
    assert "too long" in files.write().prepare(max_length=longest - 1).manifest.left_out


SHORT = [("the", "kana")]
TOO_LONG = (
    "is longer than data.max_length=55 tokens; increase data.max_length, and set "
    "data.max_train_length=55 to train on the same records"
)
EVERY_RECORD = "train.en: every record is"


@pytest.mark.parametrize(
    ("splits", "settings", "line"),
    [
        *(({split: ("", "")}, {}, f"{split}.en: contains no records") for split in PAIRS),
        *(
            ({split: [SHORT[0], pair]}, {"max_length": 55}, f"{split}.{language}:2: {fault}")
            for split in ("dev", "test")
            for pair, language, fault in (
                (("", "kana"), "en", f"the source side is empty; {split} must be complete"),
                (("dog", ""), "de", f"the target side is empty; {split} must be complete"),
                ((LONG, "kana"), "en", TOO_LONG),
                (("dog", LONG), "de", TOO_LONG),
            )
        ),
        ({"train": ("\n\n", "\n\n")}, {}, f"{EVERY_RECORD} left out (empty: 2)"),
        (
            {"train": [("kana", "kana"), ("", "kana"), ("sune", "sune")]},
            {"drop_identical": True},
            f"{EVERY_RECORD} left out (identical sides: 2, empty: 1)",
        ),
        (
            {"train": [(LONG, "kana")] * 20, "dev": SHORT, "test": SHORT},
            {"vocab_size": 14, "max_length": 30},
            f"{EVERY_RECORD} longer than data.max_length=30 tokens",
        ),
        ({}, {"max_train_length": 2}, f"{EVERY_RECORD} longer than data.max_train_length=2 tokens"),
        (
            {"train": [("a " * 20, text) for text in "abcdefghij"], "dev": [("a", "b")], "test": [("a", "b")]},
            {"vocab_size": 16, "max_ratio": 2.0},
            f"{EVERY_RECORD} longer than data.max_length=256 tokens, or more uneven than data.max_ratio=2",
        ),
    ],
)  # fmt: skip
def test_text_that_cannot_be_used_is_one_line_with_its_place(files, splits, settings, line):
    assert fault(files.write(**splits), **settings) == line


@pytest.mark.parametrize("settings", [{}, {"tokenizer": "unigram"}, {"vocabulary": "separate"}])
@pytest.mark.parametrize("size", [5000, 8, 60])
def test_the_fault_of_a_vocabulary_size_is_known_without_preparing(files, size, settings):
    files.write()
    data = TranslationData.resolve({**SETTINGS, **settings, "vocab_size": size})
    planned = text_faults(data, files.folder, files.corpora)
    assert not files.corpora.exists()
    expected = [fault(files, **settings, vocab_size=size)] if size != 60 else []
    assert list(map(str, planned)) == expected
    assert not expected or list(files.corpora.iterdir()) == []


@pytest.mark.parametrize("line", ["", "\n"])
def test_faults_of_dev_and_test_are_known_without_preparing(files, line):
    files.write()
    test = files.folder / "test.de"
    test.write_text(line + test.read_text().partition("\n")[2])
    data = TranslationData.resolve(SETTINGS)
    planned = text_faults(data, files.folder, files.corpora)
    assert not files.corpora.exists()
    assert [str(one).replace(f"{files.folder}/", "") for one in planned] == [fault(files)]


def test_a_vocabulary_is_learned_beforehand_on_little_text_that_may_have_too_few_pieces(
    files, monkeypatch
):
    files.write()

    def learns(**settings):
        data = TranslationData.resolve({**SETTINGS, **settings})
        return is_prepared_quickly(data, files.folder, files.corpora)

    assert learns()
    monkeypatch.setattr(text_preview, "SMALL_TEXT", 1000)
    assert not learns()
    for size in (toy.PIECES, toy.PIECES + 1):
        data = TranslationData.resolve({"corpus": "toy", "vocab_size": size})
        assert is_prepared_quickly(data, files.folder, files.corpora) == (size > toy.PIECES)


# Another test split


def without_test(corpus):
    """All files except those of the test split, and the manifest without the test split."""
    names = [name for name in corpus.manifest.files if not name.startswith("test.")]
    facts = corpus.manifest.model_dump(include={"training", "left_out", "longest", "lengths"})
    return {name: (corpus.folder / name).read_bytes() for name in names}, facts


def test_reusing_a_corpus_for_a_new_test_split_equals_preparing_it_alone(
    files, tmp_path, monkeypatch
):
    first = files.write(other=PAIRS["test"][:7]).prepare(drop_identical=True)
    alone = Files(files.folder, tmp_path / "alone").prepare(test="other", drop_identical=True)
    with monkeypatch.context() as none:
        none.setattr(
            prepare_records, "train_tokenizer", None
        )  # the vocabulary is reused, not trained
        second = files.prepare(test="other", drop_identical=True)
    assert second.id == alone.id != first.id
    assert second.training_hash == first.training_hash
    assert without_test(second) == without_test(first) == without_test(alone)
    assert second.manifest.files == alone.manifest.files
    assert (
        second.manifest.records == alone.manifest.records == {**first.manifest.records, "test": 7}
    )
    assert second.text("test", "target") == [target for _, target in PAIRS["test"][:7]]
    first.verify(hash_large=True)


def test_a_damaged_or_differently_prepared_corpus_is_not_reused(files):
    first = files.write(other=PAIRS["test"][:7]).prepare()
    assert files.prepare(test="other", max_length=50).training_hash != first.training_hash
    (first.folder / "train.source.ids").write_bytes(b"\0" * 8)
    whole = files.prepare(test="other")
    whole.verify(hash_large=True)
    assert whole.training_hash == first.training_hash


def test_a_corpus_whose_manifest_names_no_sources_is_not_reused(files):
    first = files.write(other=PAIRS["test"][:7]).prepare()
    change(CorpusManifest, first.folder / "corpus.json", sources={})
    second = files.prepare(test="other")
    second.verify(hash_large=True)
    assert second.training_hash == first.training_hash


def test_a_file_shared_by_two_corpora_is_replaced_and_not_modified(files):
    first = files.write(other=PAIRS["test"][:7]).prepare()
    second = files.prepare(test="other")
    (second.folder / "corpus.json").write_text(
        "{}"
    )  # damaged: it is prepared again at the same path
    (first.folder / "corpus.json").rename(first.folder / "hidden")  # and nothing can be reused
    files.prepare(test="other").verify(hash_large=True)
    (first.folder / "hidden").rename(first.folder / "corpus.json")
    first.verify(hash_large=True)


@pytest.mark.parametrize("split", ["train", "test"])
def test_text_that_changes_while_it_is_prepared_is_refused(files, monkeypatch, split):
    """As when another program is still writing it: the id would be that of other text."""
    files.write()
    hashed = prepare_module._content

    def content(sources):
        result = hashed(sources)
        files.write(**{split: PAIRS[split][:-1]})
        return result

    with monkeypatch.context() as patch:
        patch.setattr(prepare_module, "_content", content)
        with pytest.raises(DataError, match="were changed while they were read"):
            files.prepare()
    assert not list(files.corpora.glob("*/corpus.json"))
    assert len(files.prepare().split(split)["source"]) == len(PAIRS[split]) - 1


def test_a_test_split_equal_to_the_training_split_is_a_warning(files):
    """Also if the rest is reused from another corpus, whose warnings about its own test split are
    dropped.
    """
    line = "100 % of the test records are also in the training split"
    files.write()
    assert files.prepare().manifest.all_warnings == []
    assert files.prepare(test="train").manifest.all_warnings == [line]
    files.write(other=PAIRS["test"][:7])
    assert files.prepare(test="other").manifest.all_warnings == []


def test_a_test_split_equal_to_a_dev_split_of_another_name_is_a_warning(files):
    files.write(copy=PAIRS["dev"])
    (line,) = files.prepare(test="copy").manifest.all_warnings
    assert line.startswith("test is the same text as dev: if `tune` or `patience` chooses by dev")


def test_the_tokenizer_of_scores_makes_another_corpus_of_the_same_training_text(files):
    """Runs go on with it, and their predictions are scored against references of its name."""
    default, other = files.write().prepare(), files.prepare(bleu_tokenizer="char")
    assert "bleu_tokenizer" not in default.manifest.data
    assert other.manifest.data["bleu_tokenizer"] == "char"
    assert other.id != default.id
    assert other.training_hash == default.training_hash
    changed = {"corpus.json"}
    for path in default.folder.iterdir():
        if path.name not in changed:
            assert (other.folder / path.name).read_bytes() == path.read_bytes()
