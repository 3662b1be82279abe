"""Reading sentence pairs: line ends, compression, and errors with file and line."""

import gzip
from collections import Counter
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ablate.data.find_files import record_source
from ablate.data.io import MAX_LINE_BYTES, missing
from ablate.data.readers import read_rows
from tests.data.small import FIELDS, fault_line


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
    return partial(fault_line, tmp_path, pairs)


TWO = [(1, "a dog", "ein Hund"), (2, "a cat", "eine Katze")]


EN, DE = "a dog\na cat\n", "ein Hund\neine Katze\n"
TSV = "a dog\tein Hund\na cat\teine Katze\n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"en": EN, "de_gz": DE}, TWO),
        ({"en": "  a dog \n\ta cat\n", "de": "ein Hund\n eine Katze\n"}, TWO),
        ({"tsv": "a dog\t\n\tein Hund\n"}, [(1, "a dog", ""), (2, "", "ein Hund")]),
        ({"en": "a dog\n\n", "de": "ein Hund\nja\n"}, [(1, "a dog", "ein Hund"), (2, "", "ja")]),
        ({"en": "", "de": ""}, []),
        ({"en_gz": "", "de_gz": ""}, []),
    ],
)
def test_numbered_pairs_are_read_with_their_empty_sides_and_without_spaces_around(
    pairs, files, expected
):
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


UTF_8 = (
    "train.en:2: is not valid UTF-8 (byte 4 of the line); write the file in UTF-8: "
    "`iconv -f ENCODING -t UTF-8` converts it"
)
# What a source says of its files, by their names and contents; with columns chosen, or without
FAULTS = [
    ({"train.en": EN}, None, "train.de(.gz) not found; its folder has train.en"),
    ({"train.en/": "", "train.de": DE}, None, "train.en(.gz) not found; its folder has train.de"),
    ({"train.en": "1\n2\n3\n4\n", "train.de": "1\n2\n"}, None,
     "train.de: has 2 lines, but train.en has 4; each line needs its counterpart"),
    ({"train.en": "1\n2\n", "train.de": "1\n2\n3\n"}, None,
     "train.en: has 2 lines, but train.de has 3; each line needs its counterpart"),
    ({"train.en": "1\n", "train.de": ""}, None, "train.de: has 0 lines, but train.en has 1; each line needs its"),
    ({"train.en": "", "train.de": "1\n"}, None, "train.en: has 0 lines, but train.de has 1; each line needs its"),
    *(
        ({"train.en": b"a dog\nok " + bad + b"\n", "train.de": DE}, None, UTF_8)
        for bad in (b"\xff", b"\xc3(", b"\xed\xa0\x80", b"\xe2\x82")
    ),
    ({"train.en": EN.encode("utf-16"), "train.de": DE}, None,
     "train.en: is UTF-16, not UTF-8; `iconv -f UTF-16 -t UTF-8` converts it"),
    ({"train.en": EN.encode("utf-16-le"), "train.de": DE}, None, "train.en:1: contains a NUL byte: not text"),
    ({"train.en": EN, "train.de": b"ein Hund\neine\0Katze\n"}, None, "train.de:2: contains a NUL byte: not text"),
    ({"train/a.tsv": TSV, "train/b.jsonl": "{}"}, None,
     "train: holds files of several formats (.jsonl, .tsv); keep one, or choose a file"),
    ({"train/a.en": EN, "train/a.de": DE, "train/b.en": EN}, None, "train/b.en: has no counterpart b.de"),
    ({"train/readme.txt": EN}, None,
     "train: holds no file that ends in .tsv, .csv, .jsonl, .ndjson, .json, .parquet, .en, .de, or these"),
    ({"train.tsv": "a dog\tein Hund\na cat\n"}, None,
     "train.tsv:2: has no tab; each line must be SOURCE<tab>TARGET"),
    ({"train.tsv": "a dog\tein Hund\t0.9\n"}, None,
     "train.tsv:1: has 3 columns; choose those of source and target, for example data.source_column=1"),
    *(
        ({"train.tsv": "en\tde\ten\na\tb\tc\n"}, columns, 'train.tsv:1: has several columns "en"; choose one')
        for columns in (None, ("en", "de"))
    ),
    ({"train.tsv": "en\tde\na\tb\n"}, ("en", "fr"), 'train.tsv:1: has no column "fr"; its columns are en, de'),
    ({"train.tsv": "en\tde\na\tb\n"}, (1, 3), "train.tsv:2: has 2 columns, but the study uses column 3"),
    ({"train.csv": "a dog,ein Hund\n"}, None, 'train.csv:1: has no column "en"'),
    ({"train.csv": "en,de\na\n"}, None, "train.csv:2: has 1 column, but its header has 2"),
    ({"train.csv": "en,de\na,b,c\n"}, None, "train.csv:2: has 3 columns, but its header has 2"),
    ({"train.csv": "en;de\na;b\n"}, (1, 2), "train.csv:1: has 1 column, but the study uses column 2"),
    ({"train.csv": 'en,de\na,"b\n'}, None, "train.csv:2: is not CSV: unexpected end of data"),
    ({"train.csv": ""}, None, 'train.csv:1: has no column "en"'),
    ({"train.csv": "en,de,en\na,b,c\n"}, None, 'train.csv:1: has several columns "en"; choose one by its'),
    ({"train.csv": "x,y,x\na,b,c\n"}, ("y", "x"), 'train.csv:1: has several columns "x"; choose one by its'),
    ({"train.json": '[{"en": "a"}]'}, None, 'train.json, row 1: has no column "de"'),
    ({"train.json": '[{"en": "a", "de": "b"}, 3]'}, None, "train.json, row 2: is not a JSON object"),
    ({"train.json": '[{"en": "a", "de": "b"}'}, None, "train.json: is not JSON: Expecting"),
    ({"train.json": b'[{"en": "\xff"}]'}, None, "train.json: is not valid UTF-8; write the file"),
    ({"train.jsonl": '{"en": "a", "de": "b"}\n{"en": "a"}\n'}, None,
     'train.jsonl:2: has no column "de"; its columns are en; set data.source_column and data.target_column'),
    ({"train.jsonl": '{"en": "a", "de": 3}\n'}, None, 'train.jsonl:1: "de" is not text'),
    ({"train.jsonl": '{"en": "a", "de"\n'}, None, "train.jsonl:1: is not JSON: "),
    ({"train.jsonl": "[1]\n"}, None, "train.jsonl:1: is not a JSON object"),
    ({"train.jsonl": '{"en": "a\\u0000", "de": "b"}\n'}, None, "train.jsonl:1: contains a NUL character: not text"),
    ({"train.jsonl": '{"en": "a\\ud800", "de": "b"}\n'}, None, "train.jsonl:1: contains an unpaired surrogate"),
    ({"train.jsonl": b'{"en": "\xff", "de": "b"}\n'}, None,
     "train.jsonl:1: is not valid UTF-8 (byte 9 of the line); write the file in UTF-8: "),
    ({"train.parquet": b"PAR1 and no more"}, None, "train.parquet: is not a complete Parquet file: "),
]  # fmt: skip


@pytest.mark.parametrize(("files", "columns", "line"), FAULTS)
def test_a_fault_names_file_and_line(tmp_path, files, columns, line):
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        if name.endswith("/"):
            path.mkdir()
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
    tables = [name for name in files if name.startswith("train.") and name[6:8] not in ("en", "de")]
    split = str(tmp_path / (tables[0] if tables else "train"))
    fields = replace(FIELDS, columns=columns)
    fault = fault_line(tmp_path, lambda: list(record_source(split, fields).documents()))
    assert fault.startswith(line)


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
    line = fault_line(tmp_path, lambda: list(record_source(str(path), FIELDS).documents()))
    assert line == f"train.parquet:2: is longer than {MAX_LINE_BYTES} bytes: not a sentence"
    pq.write_table(pa.table({**texts, column: ["a dog", cell[: MAX_LINE_BYTES // 2 - 1]]}), path)
    assert len(list(record_source(str(path), FIELDS).documents())) == 2


def test_invalid_utf_8_in_parquet_is_one_line(tmp_path):
    path = tmp_path / "train.parquet"
    bad = pa.array([b"a", b"\xff"]).view(pa.string())
    pq.write_table(pa.table({"en": bad, "de": ["a", "b"]}), path)
    line = fault_line(tmp_path, lambda: list(record_source(str(path), FIELDS).documents()))
    assert line == "train.parquet, rows from 1 on: a value is not valid UTF-8"


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
    source = record_source(str(tmp_path / "train"), FIELDS)
    line = fault_line(tmp_path, lambda: list(source.documents()))
    assert line == "train.en.gz: is not a complete gzip archive"


def test_a_missing_file_with_an_ending_is_not_taken_for_a_folder(tmp_path):
    (tmp_path / "text").mkdir()
    path = str(tmp_path / "test.en")
    assert "did you mean" not in str(missing(path))
    (tmp_path / "tests.en").touch()
    assert str(missing(path)).endswith('did you mean "tests.en"?')
    assert 'did you mean "text"?' in str(missing(str(tmp_path / "test")))
