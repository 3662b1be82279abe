"""Reading sentence pairs: line ends, compression, and errors with file and line."""

import gzip
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ablate.data.find_files import record_source
from ablate.data.io import MAX_LINE_BYTES
from ablate.data.readers import read_rows
from ablate.errors import DataError
from tests.data.small import FIELDS


@pytest.fixture
def pairs(tmp_path):
    """The pairs of a split made of these files; a name that ends in .gz is compressed."""

    def pairs(name="train", **files):
        for suffix, content in files.items():
            path = tmp_path / f"{name}.{suffix.replace('_', '.')}"
            content = content if isinstance(content, bytes) else content.encode()
            path.write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
        tsv = next(
            (f"{name}.{suffix.replace('_', '.')}" for suffix in files if suffix.startswith("tsv")),
            name,
        )
        return [
            (record.number, *record.texts)
            for record in record_source(str(tmp_path / tsv), FIELDS).documents()
        ]

    return pairs


@pytest.fixture
def fault(pairs, tmp_path):
    """The only error line for such a split, without the folder."""

    def fault(name="train", **files):
        with pytest.raises(DataError) as caught:
            pairs(name, **files)
        (line,) = caught.value.lines
        assert "\n" not in line
        return line.replace(f"{tmp_path}/", "")

    return fault


TWO = [(1, "a dog", "ein Hund"), (2, "a cat", "eine Katze")]


EN, DE = "a dog\na cat\n", "ein Hund\neine Katze\n"
TSV = "a dog\tein Hund\na cat\teine Katze\n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"en": EN, "de": DE}, TWO),
        ({"en": EN.rstrip(), "de": DE}, TWO),  # no line feed at the end
        ({"en": EN, "de_gz": DE}, TWO),
        ({"en_gz": EN, "de_gz": DE}, TWO),
        ({"tsv": TSV}, TWO),
        ({"tsv_gz": TSV}, TWO),
        ({"en": EN.replace("\n", "\r\n"), "de": DE.replace("\n", "\r\n")}, TWO),
        ({"tsv": TSV.replace("\n", "\r\n")}, TWO),
        ({"en": f"\ufeff{EN}", "de": f"\ufeff{DE}"}, TWO),
        ({"en": "  a dog \n\ta cat\n", "de": "ein Hund\n eine Katze\n"}, TWO),
        ({"tsv": "a dog\t\n\tein Hund\n"}, [(1, "a dog", ""), (2, "", "ein Hund")]),
        ({"en": "a dog\n\n", "de": "ein Hund\nja\n"}, [(1, "a dog", "ein Hund"), (2, "", "ja")]),
        ({"en": "", "de": ""}, []),
        ({"en_gz": "", "de_gz": ""}, []),
    ],
)
def test_pairs_are_read_whatever_the_form_of_their_files(pairs, files, expected):
    assert pairs(**files) == expected


def test_a_header_of_the_fields_names_is_no_record(pairs, tmp_path):
    lines = "a dog\tein Hund\na cat\teine Katze\n"
    read = [(2, "a dog", "ein Hund"), (3, "a cat", "eine Katze")]
    assert pairs("fields", tsv=f"Source\tTarget\n{lines}") == read
    assert pairs("languages", tsv=f"\ufeffen\tde\n{lines}") == read
    assert pairs("swapped", tsv="id\tde\ten\n1\tein Hund\ta dog\n") == [read[0]]
    numbered = replace(FIELDS, columns=(2, 1))
    (tmp_path / "numbered.tsv").write_text(f"de\ten\n{lines}")
    numbered_rows = read_rows(str(tmp_path / "numbered.tsv"), numbered, Counter())
    assert [texts for _, texts in numbered_rows] == [
        ("ein Hund", "a dog"),
        ("eine Katze", "a cat"),
    ]


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\r"])
def test_only_a_line_feed_ends_a_line(pairs, mark):
    assert pairs(en=f"a{mark}dog\n", de="ein Hund\n") == [(1, f"a{mark}dog", "ein Hund")]


def test_a_missing_tsv_is_named(tmp_path):
    with pytest.raises(
        DataError, match=r"/train\.tsv\.gz not found; correct the name or data\.folder"
    ):
        record_source(str(tmp_path / "train.tsv.gz"), FIELDS)


@pytest.mark.parametrize(
    ("files", "line"),
    [
        ({"en": EN}, "train.de(.gz) not found; its folder has train.en"),
        ({"en": "1\n2\n3\n4\n", "de": "1\n2\n"}, "train.de: has 2 lines, but train.en has 4; each line needs its counterpart"),
        ({"en": "1\n2\n", "de": "1\n2\n3\n"}, "train.en: has 2 lines, but train.de has 3; each line needs its counterpart"),
        ({"en": "1\n", "de": ""}, "train.de: has 0 lines, but train.en has 1; each line needs its counterpart"),
        ({"en": "", "de": "1\n"}, "train.en: has 0 lines, but train.de has 1; each line needs its counterpart"),
        *(
            ({"en": b"a dog\nok " + bad + b"\n", "de": DE}, "train.en:2: is not valid UTF-8 (byte 4 of the line)")
            for bad in (b"\xff", b"\xc3(", b"\xed\xa0\x80", b"\xe2\x82")
        ),
        ({"en": EN.encode("utf-16-le"), "de": DE}, "train.en:1: contains a NUL byte: not text"),
        ({"en": EN, "de": b"ein Hund\neine\0Katze\n"}, "train.de:2: contains a NUL byte: not text"),
        ({"tsv": "a dog\tein Hund\na cat\n"}, "train.tsv:2: has no tab; each line must be SOURCE<tab>TARGET"),
        ({"tsv": "a dog\tein Hund\t0.9\n"},
         "train.tsv:1: has 3 columns; choose those of source and target, for example data.source_column=1"),
    ],
)  # fmt: skip
def test_a_fault_names_file_and_line(fault, files, line):
    assert fault(**files).startswith(line)


def test_a_folder_in_place_of_a_file_is_an_error(fault, tmp_path):
    (tmp_path / "train.en").mkdir()
    assert fault(de="ein Hund\n") == "train.en(.gz) not found; its folder has train.de"


@pytest.mark.parametrize("end", ["\n", ""])
def test_a_line_just_within_the_limit_is_read_and_one_at_the_limit_is_not(pairs, fault, end):
    line = "x" * (MAX_LINE_BYTES - 1)
    assert pairs(en=line + end, de="x\n") == [(1, line, "x")]
    assert fault(en=line + "x" + end, de="x\n").startswith("train.en:1: is longer than")


CELLS = {
    "x": "x" * MAX_LINE_BYTES, "é": "é" * (MAX_LINE_BYTES // 2), "eight megabytes": "a b" * (8 << 20),
}  # fmt: skip


@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
@pytest.mark.parametrize("column", ["en", "de"])
def test_a_cell_of_a_megabyte_in_parquet_is_an_error_too(tmp_path, cell, column):
    path = tmp_path / "train.parquet"
    texts = {"en": ["a dog", "b"], "de": ["ein Hund", "c"]}
    pq.write_table(pa.table({**texts, column: ["a dog", cell]}), path)
    with pytest.raises(DataError) as caught:
        list(record_source(str(path), FIELDS).documents())
    assert caught.value.lines == (
        f"{path}:2: is longer than {MAX_LINE_BYTES} bytes: not a sentence",
    )
    pq.write_table(pa.table({**texts, column: ["a dog", cell[: MAX_LINE_BYTES // 2 - 1]]}), path)
    assert len(list(record_source(str(path), FIELDS).documents())) == 2


def test_invalid_utf_8_in_parquet_is_one_line(tmp_path):
    path = tmp_path / "train.parquet"
    bad = pa.array([b"a", b"\xff"]).view(pa.string())
    pq.write_table(pa.table({"en": bad, "de": ["a", "b"]}), path)
    with pytest.raises(
        DataError, match=r"train\.parquet, rows from 1 on: a value is not valid UTF-8"
    ):
        list(record_source(str(path), FIELDS).documents())


WHOLE = gzip.compress(b"".join(b"%d a dog\n" % i for i in range(1000)))


@pytest.mark.parametrize(
    "content",
    [
        b"not an archive\n",
        WHOLE[:-12],
        WHOLE[:200],
        WHOLE[:60] + bytes([WHOLE[60] ^ 255]) + WHOLE[61:],
    ],
    ids=["text", "no end", "cut short", "flipped byte"],
)
def test_a_broken_archive_is_named(tmp_path, content):
    (tmp_path / "train.en.gz").write_bytes(content)
    (tmp_path / "train.de").write_text("ein Hund\n" * 1000)
    with pytest.raises(DataError) as caught:
        list(record_source(str(tmp_path / "train"), FIELDS).documents())
    assert caught.value.lines == (f"{tmp_path}/train.en.gz: is not a complete gzip archive",)
