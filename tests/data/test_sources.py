"""Sources of sentence pairs: every format gives the same pairs; what is not found is named."""

import bz2
import codecs
import csv
import gzip
import hashlib
import json
import lzma
from collections import Counter
from dataclasses import replace

import pytest

from ablate.config.translation_data import TranslationData
from ablate.data.find_files import record_source
from ablate.data.resolve_sources import resolve_sources
from ablate.errors import DataError
from tests.data.small import FIELDS, SETTINGS, fault_line

PAIRS = [("a dog", "ein Hund"), ("a cat\u2028now", "eine Katze"), ("", "leer"), ("Ω", "ö")]


def pairs_of(source):
    return [record.texts for record in source.documents()]


def write_parquet(path, rows):
    from pyarrow import Table, parquet

    parquet.write_table(Table.from_pylist(rows), path)


def objects(pairs=PAIRS):
    return [{"id": i, "en": source, "de": target} for i, (source, target) in enumerate(pairs)]


def write(path, pairs=PAIRS):
    """The pairs in the container that the path's end asks for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    name = path.name.removesuffix(".gz")
    if name.endswith(".parquet"):
        return write_parquet(path, objects(pairs))
    if name.endswith(".jsonl"):
        text = "".join(json.dumps(row) + "\n" for row in objects(pairs))
    elif name.endswith(".tsv"):
        text = "".join(f"{source}\t{target}\n" for source, target in pairs)
    else:
        text = "".join(f"{pair[name.endswith('.de')]}\n" for pair in pairs)
    path.write_bytes(gzip.compress(text.encode()) if path.name.endswith(".gz") else text.encode())
    return None


@pytest.mark.parametrize("name", ["train", "train.tsv", "train.jsonl", "train.parquet"])
def test_every_file_format_gives_the_same_pairs(tmp_path, name):
    for file in ("train.en", "train.de") if name == "train" else (name,):
        write(tmp_path / file)
    assert pairs_of(record_source(str(tmp_path / name), FIELDS)) == PAIRS


@pytest.mark.parametrize("suffix", [".en .de", ".tsv", ".jsonl", ".parquet"])
def test_the_files_of_a_folder_are_read_in_order_of_name(tmp_path, suffix):
    parts = [PAIRS[:1], PAIRS[1:3], PAIRS[3:]]
    for number, part in enumerate(parts):
        for end in suffix.split():
            write(tmp_path / "train" / f"part-{number}{end}", part)
    (tmp_path / "train" / ".hidden.jsonl").write_text("not JSON")
    source = record_source(str(tmp_path / "train"), FIELDS)
    assert pairs_of(source) == PAIRS
    last = f"part-2{suffix.split()[-1]}"
    assert list(source.documents())[3].where(1).replace(f"{tmp_path}/", "") == f"train/{last}:1"


def test_a_folder_and_one_file_of_the_same_text_are_one_corpus(tmp_path):
    for end in (".en", ".de"):
        write(tmp_path / f"whole{end}")
        write(tmp_path / "train" / f"a{end}", PAIRS[:2])
        write(tmp_path / "train" / f"b{end}", PAIRS[2:])
    write(tmp_path / "whole.jsonl")
    contents = {
        tuple(record_source(str(tmp_path / name), FIELDS).content())
        for name in ("whole", "train", "whole.jsonl")
    }
    assert contents == {
        tuple(
            hashlib.sha256((tmp_path / f"whole{end}").read_bytes()).hexdigest()
            for end in (".en", ".de")
        )
    }


@pytest.mark.parametrize("name", ["train.en", "train.tsv"])
def test_line_ends_and_a_byte_order_mark_are_no_other_text(tmp_path, name):
    write(tmp_path / "train.de")
    write(tmp_path / name)
    path, whole = str(tmp_path / name.removesuffix(".en")), (tmp_path / name).read_bytes()
    plain = record_source(path, FIELDS)
    content, pairs = plain.content(), pairs_of(plain)
    assert hashlib.sha256(whole).hexdigest() in content  # the hash of the first version
    for other in (
        whole.replace(b"\n", b"\r\n"),
        whole.removesuffix(b"\n"),
        whole.replace(b"\n", b"\r\n").removesuffix(b"\n"),
        codecs.BOM_UTF8 + whole,
    ):
        (tmp_path / name).write_bytes(other)
        assert record_source(path, FIELDS).content() == content
        assert pairs_of(record_source(path, FIELDS)) == pairs
    for other in (whole + b"\n", whole.replace(b"dog", b"do\rg"), whole.replace(b"a", b"", 1)):
        (tmp_path / name).write_bytes(other)
        assert record_source(path, FIELDS).content() != content


ROWS = [{"en": source, "de": target} for source, target in PAIRS]
ARRAYS = {
    "in one line": json.dumps(ROWS),
    "indented": json.dumps(ROWS, indent=2),
    "with spaces": "\r\n [ \r\n" + json.dumps(ROWS)[1:],
    "with a mark": "\ufeff" + json.dumps(ROWS, ensure_ascii=False),
    "nested": json.dumps([{"translation": row} for row in ROWS]),
}


@pytest.mark.parametrize("form", ARRAYS)
def test_an_array_of_json_is_the_same_corpus_as_its_lines(tmp_path, form):
    (tmp_path / "train.json").write_bytes(ARRAYS[form].encode())
    write(tmp_path / "lines.jsonl")
    source = record_source(str(tmp_path / "train.json"), FIELDS)
    assert pairs_of(source) == PAIRS
    assert source.content() == record_source(str(tmp_path / "lines.jsonl"), FIELDS).content()


CSV = [("a dog, red", 'ein "Hund"'), ("two\nlines", "ö"), ("", "leer")]


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        (["en", "de"], None),
        (["Source", "target"], None),
        (["english", "german"], ("english", "german")),
        (["x", "y"], (1, 2)),
    ],
)
def test_csv_has_quoted_cells_and_a_header(tmp_path, header, columns):
    with (tmp_path / "train.csv").open("w", newline="") as file:
        csv.writer(file).writerows([header, *CSV])
    source = record_source(str(tmp_path / "train.csv"), replace(FIELDS, columns=columns))
    assert pairs_of(source) == [("a dog, red", 'ein "Hund"'), ("two lines", "ö"), ("", "leer")]


def test_the_header_of_a_csv_whose_columns_are_numbers_is_said(tmp_path):
    """A file without a header would lose its first record."""
    path = tmp_path / "train.csv"
    path.write_text("ein Hund,a dog\neine Katze,a cat\n")
    source = record_source(str(path), replace(FIELDS, columns=(2, 1)))
    assert pairs_of(source) == [("a cat", "eine Katze")]
    header = 'the first row, "ein Hund, a dog", is the header'
    assert source.column_order() == f"{header}; en is column 2, de is column 1"
    path.write_text("en,de\na,b\n")
    assert record_source(str(path), FIELDS).column_order() is None  # names say it


@pytest.mark.parametrize(("ending", "compress"), [("gz", gzip), ("xz", lzma), ("bz2", bz2)])
@pytest.mark.parametrize("name", ["train", "train.tsv", "train.jsonl", "folder"])
def test_compressed_files_are_the_same_corpus(tmp_path, ending, compress, name):
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    for folder in (plain, packed):
        write(folder / "train.en")
        write(folder / "train.de")
        write(folder / "train.tsv")
        write(folder / "train.jsonl")
        write(folder / "folder/a.en")
        write(folder / "folder/a.de")
    for file in [path for path in packed.rglob("*") if path.is_file()]:
        file.with_name(f"{file.name}.{ending}").write_bytes(compress.compress(file.read_bytes()))
        file.unlink()
    path = packed / (f"{name}.{ending}" if "." in name else name)
    source = record_source(str(path), FIELDS)
    assert pairs_of(source) == PAIRS
    assert source.content() == record_source(str(plain / name), FIELDS).content()
    for file in packed.rglob(f"*.{ending}"):
        file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(DataError, match=r"is not a complete (gzip|xz|bzip2) archive"):
        list(record_source(str(path), FIELDS).documents())


@pytest.mark.parametrize(
    ("name", "there", "line"),
    [
        ("train", "train.csv", 'train.en(.gz) not found; did you mean "train.csv"?'),
        ("train", "train.jsonl.xz", 'train.en(.gz) not found; did you mean "train.jsonl.xz"?'),
        ("train", "train.en.zst", "train.en(.gz) not found; its folder has train.en.zst"),
        ("train.xlsx", "train.xlsx", "train.xlsx: a file with columns must end in .tsv, .csv, "),
        ("train.tsv.zst", "train.tsv.zst", "train.tsv.zst: a file with columns must end in .tsv"),
    ],
)
def test_a_file_that_is_there_in_another_form_is_named(tmp_path, name, there, line):
    write(tmp_path / "training.en")
    write(tmp_path / "training.de")
    (tmp_path / there).write_bytes(b"")
    fault = fault_line(tmp_path, record_source, str(tmp_path / name), FIELDS)
    assert fault.startswith(line)


def test_addresses_are_opened_with_fsspec(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    for name in ("train.en", "train.de.gz"):
        write(tmp_path / name)
        system.pipe(f"/bucket/{name}", (tmp_path / name).read_bytes())
    source = record_source("memory://bucket/train", FIELDS)
    assert pairs_of(source) == PAIRS
    before = source.signature()
    system.pipe("/bucket/train.en", b"other\n")
    assert source.signature() != before
    with pytest.raises(
        DataError, match=r"memory://bucket/dev\.en\(\.gz\) not found; correct the address"
    ):
        record_source("memory://bucket/dev", FIELDS)
    with pytest.raises(DataError, match="cannot be opened: Protocol not known: nowhere"):
        record_source("nowhere://bucket/dev", FIELDS)


@pytest.mark.parametrize("name", ["a/dev", "a/dev.tsv", "a/dev.parquet"])
def test_any_error_of_a_package_for_a_protocol_is_one_line(tmp_path, monkeypatch, name):
    """Each protocol has its own exceptions; of local files, an unknown one is a fault of this
    program.
    """
    import fsspec

    class Broken(fsspec.AbstractFileSystem):
        protocol = "broken"

        def info(self, path, **kwargs):
            raise RuntimeError("no credentials\nand more")

        def isfile(self, path):
            raise LookupError(" no bucket\nand more")

    fsspec.register_implementation("broken", Broken, clobber=True)
    line = fault_line(tmp_path, record_source, f"broken://{name}", FIELDS)
    assert line.endswith("cannot be read: no bucket")
    monkeypatch.setattr("ablate.data.io.Path.is_file", lambda path: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        record_source(name, FIELDS)


@pytest.mark.parametrize(
    "protocol", ["reference", "github", "dir", "s3", "tar", "async_wrapper", "blockcache"]
)
def test_an_address_that_cannot_be_opened_is_one_line(tmp_path, protocol):
    pytest.importorskip("fsspec")
    line = fault_line(tmp_path, record_source, f"{protocol}://a/dev", FIELDS)
    assert line.startswith(f"{protocol}://a/dev.en: cannot be opened: ")


# Columns


def test_columns_are_chosen_by_number_or_by_name(tmp_path):
    (tmp_path / "train.tsv").write_text("id\tde\ten\n1\tein Hund\ta dog\n")
    named = record_source(str(tmp_path / "train.tsv"), replace(FIELDS, columns=("en", "de")))
    assert pairs_of(named) == [("a dog", "ein Hund")]
    numbered = record_source(str(tmp_path / "train.tsv"), replace(FIELDS, columns=(3, 2)))
    assert pairs_of(numbered) == [("a dog", "ein Hund")]
    write_parquet(tmp_path / "train.parquet", [{"x": "a dog", "y": "ein Hund"}])
    other = record_source(str(tmp_path / "train.parquet"), replace(FIELDS, columns=("x", "y")))
    assert pairs_of(other) == [("a dog", "ein Hund")]


def test_a_translation_column_holds_both_sides(tmp_path):
    rows = [{"translation": {"de": target, "en": source}} for source, target in PAIRS]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_parquet(tmp_path / "train.parquet", rows)
    for name in ("train.jsonl", "train.parquet"):
        assert pairs_of(record_source(str(tmp_path / name), FIELDS)) == PAIRS


def test_columns_for_plain_text_are_an_error(tmp_path):
    for end in (".en", ".de"):
        write(tmp_path / f"train{end}")
    fields = replace(FIELDS, columns=(1, 2))
    line = fault_line(tmp_path, record_source, str(tmp_path / "train"), fields)
    assert line.startswith("train: is plain text: data.source_column and data.target_column have")


# Folders


@pytest.mark.parametrize(
    ("given", "near"),
    [("trian", '"train"'), ("train.tvs", '"train.tsv"'), ("trian.txt", '"train"'), ("nothing", "")],
)
def test_a_missing_split_names_the_nearest_name_that_a_study_may_write(tmp_path, given, near):
    write(tmp_path / "train.en.gz")
    write(tmp_path / "train.de.gz")
    if given == "train.tvs":
        write(tmp_path / "train.tsv")
    line = fault_line(tmp_path, record_source, str(tmp_path / given), FIELDS)
    remedy = f"did you mean {near}?" if near else "correct the name or data.folder"
    assert line.endswith(f"(.gz) not found; {remedy}")


def test_a_split_in_other_languages_names_its_files(tmp_path):
    write(tmp_path / "train.deu.gz")
    write(tmp_path / "train.eng")
    write(tmp_path / "train.tsv")
    line = fault_line(tmp_path, record_source, str(tmp_path / "train"), FIELDS)
    assert line == "train.en(.gz) not found; its folder has train.deu.gz and train.eng"


def test_all_missing_splits_are_reported_together(tmp_path):
    (tmp_path / "dev.en").write_text("a\n")
    with pytest.raises(DataError) as caught:
        resolve_sources(
            TranslationData.resolve({**SETTINGS, "test": "sacrebleu:wmt41"}), tmp_path, tmp_path
        )
    train, dev, test = (line.replace(f"{tmp_path}/", "") for line in caught.value.lines)
    assert train == "train.en(.gz) not found; correct the name or data.folder"
    assert dev == "dev.de(.gz) not found; its folder has dev.en"
    assert test.startswith('sacrebleu:wmt41: sacreBLEU has no such test set; did you mean "wmt')


# Repairs


def test_repairs_are_counted(tmp_path):
    (tmp_path / "train.en").write_bytes("\ufeffa dog\r\na cat\r\nx\n".encode())
    (tmp_path / "train.de").write_bytes(b"ein Hund\neine Katze\nx\n")
    source = record_source(str(tmp_path / "train"), FIELDS)
    assert pairs_of(source) == [("a dog", "ein Hund"), ("a cat", "eine Katze"), ("x", "x")]
    assert source.repaired == Counter({"byte-order mark": 1, "CR LF line ends": 2})


def test_a_line_end_within_a_sentence_becomes_a_space_and_is_counted(tmp_path):
    rows = [{"en": "a\ndog", "de": "ein\r\nHund"}, {"en": "a", "de": "b"}]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = record_source(str(tmp_path / "train.jsonl"), FIELDS)
    assert pairs_of(source) == [("a dog", "ein Hund"), ("a", "b")]
    assert source.repaired == Counter({"line end within a sentence": 2})
