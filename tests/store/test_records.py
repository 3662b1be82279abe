"""Records: what is written is read back, and faults name the file and the field."""

import json

import pytest
from pydantic import ValidationError

from ablate.config.identity import NOT_IDENTITY
from ablate.config.resolve import resolve_row
from ablate.errors import Damaged, StoreError
from ablate.store.files import read_json, write_json
from ablate.store.metrics_log import read_metrics
from ablate.store.records import (
    CheckpointHashes,
    CheckpointManifest,
    CodeVersion,
    CorpusPointer,
    FileHash,
    HubRevision,
    Memory,
    MetricsLine,
    Overlap,
    Result,
    RunRecord,
    Score,
    ScoreCache,
    ScoreSource,
)
from tests.records import (
    a_decoding,
    a_failure,
    a_manifest,
    a_measurement,
    a_progress,
    a_provenance,
    a_result,
    a_run,
    a_training_state,
    an_execution,
)

RECORDS = {
    "pointer": CorpusPointer(corpus="d" * 12, signature=["train.en", 5]),
    "run": a_run(seed=7, config=resolve_row({"dropout": 0.25, "n_heads": 2})),
    "execution": an_execution(halvings=3),
    "provenance": a_provenance(
        ablate=CodeVersion(version="0.3", revision="a" * 40, dirty=True),
        packages={"torch": "2.9", "numpy": None},
    ),
    "progress": a_progress(step=3, steps=None, loss=1 / 3, perplexity=0.1 + 0.2, memory=Memory(held=1, total=2)),
    "failure": a_failure(killed=True),
    "done": a_result(
        chosen_step=90,
        tokens=12,
        weights=FileHash(file="000000090.weights.safetensors", sha256="a" * 64),
        kept_steps=(80, 90),
        decodings={
            "abc": a_decoding(scores={"ppl": Score(value=2.0000000000000004)}),
            "def": a_decoding(beam=1),
        },
    ),
    "diverged": a_result(outcome="diverged", reason="the loss exploded to 31.4 nats a token"),
    "decoding without predictions": a_result(decodings={"abc": a_decoding(predictions=None, sha256=None)}),
    "manifest": CheckpointManifest(
        step=4,
        scheduled=True,
        sha256=CheckpointHashes(weights="a" * 64, state="b" * 64),
        info=a_training_state(4, best_perplexity=None),
    ),
    "corpus": a_manifest(),
    "scores": ScoreCache(source=ScoreSource(format=1, predictions_sha256="c" * 64, corpus="d" * 12), metrics={"bleu": a_measurement()}),
}  # fmt: skip


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_is_read_as_it_was_written(tmp_path, name):
    record, path = RECORDS[name], tmp_path / "record.json"
    record.write(path)
    assert type(record).read(path) == record
    first = path.read_bytes()
    type(record).read(path).write(path)
    assert path.read_bytes() == first


@pytest.mark.parametrize("name", RECORDS)
def test_unknown_keys_are_ignored(tmp_path, name):
    record, path = RECORDS[name], tmp_path / "record.json"
    write_json(path, {**record.model_dump(mode="json"), "a_field_of_the_future": {"x": [1]}})
    assert type(record).read(path) == record


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_cannot_be_changed(name):
    field = next(iter(type(RECORDS[name]).model_fields))
    with pytest.raises(ValidationError, match="frozen"):
        setattr(RECORDS[name], field, getattr(RECORDS[name], field))


# Fields that a file may lack, because the version that wrote it did not have them, and what they
# mean then.
ABSENT = {
    "run": {"task": "translation"},
    "execution": {"halvings": 0, "deterministic": False, "parts": 1},
    "provenance": {"ablate": None, "packages": {}, "precision": None, "processes": 1},
    "progress": {"time": 0.0, "threads": 1, "device": "cpu", "seconds": 0.0, "memory": None, "peak_memory": None},
    "failure": {"kind": "", "killed": False, "hosts": ()},
    "done": {"scheduled_checkpoints": 0, "chosen_step": None, "weights": None, "kept_steps": (), "decodings": {}},
    "corpus": {"fields": None, "repaired": {}, "legacy_warnings": [], "warnings": {}, "overlap": None, "dev_overlap": None, "sources": {}, "sizes": {}},
}  # fmt: skip


@pytest.mark.parametrize("name", ABSENT)
def test_a_field_that_an_earlier_version_did_not_write_has_its_default(tmp_path, name):
    record, path = RECORDS[name], tmp_path / "record.json"
    required = {field for field, info in type(record).model_fields.items() if info.is_required()}
    write_json(
        path, {"format": 4, **record.model_dump(mode="json", by_alias=True, include=required)}
    )
    found = type(record).read(path)
    assert {field: getattr(found, field) for field in ABSENT[name]} == ABSENT[name]


@pytest.mark.parametrize("name", RECORDS)
def test_every_missing_field_without_a_default_is_refused_with_file_and_field(tmp_path, name):
    record, path = RECORDS[name], tmp_path / "record.json"
    content = record.model_dump(mode="json", by_alias=True)
    required = [
        info.alias or field
        for field, info in type(record).model_fields.items()
        if info.is_required()
    ]
    assert required
    for field in required:
        write_json(path, {key: value for key, value in content.items() if key != field})
        with pytest.raises(StoreError) as error:
            type(record).read(path)
        assert not isinstance(error.value, Damaged)
        assert error.value.lines == (
            f"{path}: written by another version of ablate ({field}: Field required); use that "
            "version, or another --results",
        )


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("run", "seed", "one"),
        ("run", "config.d_model", "wide"),
        ("execution", "threads", None),
        ("provenance", "machine.cores", "many"),
        ("progress", "phase", "asleep"),
        ("failure", "reason", 3),
        ("done", "outcome", "perhaps"),
        ("done", "kept_steps.0", 1.5),
        ("done", "decodings.abc.scores.ppl.value", "low"),
        ("manifest", "info.tokens", [1]),
        ("scores", "metrics.bleu.resamples", 1.0),
        ("done", "corpus", "../../elsewhere"),
        ("done", "decodings.abc.corpus", ".."),
        ("pointer", "corpus", "/etc"),
    ],
)
def test_a_mistyped_field_is_refused_with_file_and_field(tmp_path, name, path, value):
    record, file = RECORDS[name], tmp_path / "record.json"
    content = json.loads(record.model_dump_json())
    *folders, last = [int(part) if part.isdecimal() else part for part in path.split(".")]
    inner = content
    for part in folders:
        inner = inner[part]
    inner[last] = value
    write_json(file, content)
    with pytest.raises(StoreError) as error:
        type(record).read(file)
    (line,) = error.value.lines
    assert line.startswith(f"{file}: written by another version of ablate ({path}: ")


def test_the_id_of_a_decoding_leads_out_of_no_folder(tmp_path):
    content = a_result(decodings={"abc": a_decoding()}).model_dump(mode="json")
    content["decodings"] = {"../../abc": content["decodings"]["abc"]}
    write_json(tmp_path / "result.json", content)
    with pytest.raises(StoreError, match=r"another version of ablate \(decodings\.\.\./\.\./abc"):
        Result.read(tmp_path / "result.json")


@pytest.mark.parametrize("name", RECORDS)
def test_an_absent_file_is_none_and_a_changed_one_is_damaged(tmp_path, name):
    record, path = type(RECORDS[name]), tmp_path / "record.json"
    assert record.read(path) is None
    RECORDS[name].write(path)
    path.write_bytes(path.read_bytes().replace(b'": ', b'":  ', 1))
    with pytest.raises(Damaged, match="is damaged"):
        record.read(path)


def test_execution_settings_are_not_part_of_run_json(tmp_path):
    assert NOT_IDENTITY
    run = a_run(config=resolve_row({"checkpoint_minutes": 3.0}))
    run.write(tmp_path / "run.json")
    assert not set(NOT_IDENTITY) & read_json(tmp_path / "run.json")["config"].keys()
    again = RunRecord.read(tmp_path / "run.json")
    assert again.config == resolve_row({})


@pytest.mark.parametrize(
    ("halvings", "tokens"), [(0, 1001), (1, 501), (2, 251), (9, 2), (10, 1), (40, 1)]
)
def test_each_halving_halves_the_micro_batch_rounding_up(halvings, tokens):
    execution = an_execution(micro_batch_tokens=1001)
    for _ in range(halvings):
        execution = execution.halved()
    assert execution.current_micro_batch_tokens == tokens


def test_whole_lines_of_a_metrics_log_are_read(tmp_path):
    path = tmp_path / "metrics.jsonl"
    assert read_metrics(path) == []
    path.write_bytes(
        b'{"step": 1, "tokens": 7, "loss": 2.5, "lr": 0.1}\n'
        b'{"step": 1, "tokens": 7, "dev_perplexity": 9.5}\n'
        b'\xff\n[1]\n{"step": "x", "tokens": 7}\n{"step": 2, "tokens": 9}\n{"step": 3, "tok'
    )
    assert read_metrics(path) == [
        MetricsLine(step=1, tokens=7, loss=2.5, lr=0.1),
        MetricsLine(step=1, tokens=7, dev_perplexity=9.5),
        MetricsLine(step=2, tokens=9),
    ]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("params", 10**400), ("params", -1), ("steps", 2**63), ("seconds", 1e308),
        ("seconds", "NaN"), ("seconds", "-Infinity"), ("kept_steps", [2**64]),
    ],
)  # fmt: skip
def test_a_number_out_of_bounds_is_damage(tmp_path, field, value):
    path = tmp_path / "result.json"
    write_json(path, {**a_result().model_dump(mode="json"), field: value})
    with pytest.raises(Damaged, match=rf"{path}: is damaged \({field}"):
        Result.read(path)


@pytest.mark.parametrize("value", [1e101, -1e308, "NaN", "Infinity"])
def test_a_score_out_of_bounds_is_damage(tmp_path, value):
    path = tmp_path / "result.json"
    content = a_result(decodings={"abcdef012345": a_decoding()}).model_dump(mode="json")
    content["decodings"]["abcdef012345"]["scores"]["bleu"] = {"value": value}
    write_json(path, content)
    with pytest.raises(Damaged, match=r"scores\.bleu"):
        Result.read(path)


@pytest.mark.parametrize("format", [1, 2, 3, 5, "4", None])
def test_any_other_format_is_refused(tmp_path, format):
    path = tmp_path / "result.json"
    write_json(path, {**a_result().model_dump(mode="json"), "format": format})
    with pytest.raises(
        StoreError, match=r"another version of ablate \(format: Input should be 4\)"
    ):
        Result.read(path)


def test_a_recorded_revision_of_the_hub_keeps_its_keys(tmp_path):
    file = {"size": 5, "sha256": None, "git": "ab" * 20}
    content = {
        "repository": "a/b",
        "revision": "main",
        "commit": "c" * 40,
        "licence": "mit",
        "files": {"x": file},
    }
    write_json(tmp_path / "a--b@main.json", content)
    revision = HubRevision.read(tmp_path / "a--b@main.json")
    assert revision.files["x"].verified is None
    revision.write(tmp_path / "again.json")
    again = read_json(tmp_path / "again.json")
    assert {**again, "files": {"x": file}} == content
    assert again["files"]["x"] == {**file, "verified": None}


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("execution", {"training"}),
        ("corpus", {"training", "pairs"}),
        ("scores", {"of"}),
    ],
)
def test_a_renamed_field_keeps_its_key_in_files(tmp_path, name, keys):
    path = tmp_path / "record.json"
    RECORDS[name].write(path)
    assert keys <= read_json(path).keys()
    assert not {"training_hash", "records", "source"} & read_json(path).keys()


def test_nested_fields_keep_their_keys_in_files(tmp_path):
    RECORDS["done"].write(tmp_path / "result.json")
    RECORDS["scores"].write(tmp_path / "scores.json")
    decoding = read_json(tmp_path / "result.json")["decodings"]["abc"]
    assert "predictions" in decoding
    assert "n_predictions" not in decoding
    source = read_json(tmp_path / "scores.json")["of"]
    assert source == {"format": 1, "translations": "c" * 64, "corpus": "d" * 12}


@pytest.mark.parametrize(
    ("fields", "shares"),
    [
        ({"text": 3}, {"text": 0.3}),
        ({"source": 3, "target": 5}, {"source": 0.3, "target": 0.5, "whole records": 0.2}),
    ],
)
def test_shares_of_an_overlap_name_whole_records_only_with_several_fields(fields, shares):
    assert Overlap(by_field=fields, records=2).shares(10) == shares


def test_resampled_scores_take_eight_bytes_each_and_are_written_as_before():
    measured = a_measurement(resamples=(24.0, 26.5))
    assert memoryview(measured.resamples).nbytes == 16
    assert json.loads(measured.model_dump_json())["resamples"] == [24.0, 26.5]
    assert measured.model_dump(mode="json")["resamples"] == [24.0, 26.5]
