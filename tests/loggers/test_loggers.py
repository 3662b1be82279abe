"""Each logger with its real library and a local folder, read back with that library."""

import json
import math
import resource
import struct
import threading
import time
from pathlib import Path

import pytest

from ablate.analysis.stages import next_stage
from ablate.loggers.dashboards import LoggedRun, RecordFolder, folder_name
from tests.loggers.conftest import ONE, Logged

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"
)


@pytest.fixture(autouse=True)
def local(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")


def read(kind, folder, name):
    """The (step, value) pairs of each metric of a run, in the order of the log."""
    if kind == "mlflow":
        return of_mlflow(folder, name)
    return {"tensorboard": of_tensorboard, "wandb": of_wandb}[kind](folder, folder_name(name))


def of_tensorboard(folder, name):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard" / name)).Reload()
    return {
        tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]
    }


def of_mlflow(folder, name):
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=(folder / "mlflow").as_uri())
    experiment = client.get_experiment_by_name("logged").experiment_id
    (run,) = (run for run in client.search_runs([experiment]) if run.info.run_name == name)
    histories = {key: client.get_metric_history(run.info.run_id, key) for key in run.data.metrics}
    return {key: sorted((m.step, m.value) for m in history) for key, history in histories.items()}


def of_wandb(folder, name):
    from wandb.proto import wandb_internal_pb2

    (file,) = (folder / "wandb" / name).glob("wandb/offline-run-*/*.wandb")
    found = {}
    for record in finished(file, wandb_internal_pb2.Record):
        items = {
            "".join(item.nested_key) or item.key: json.loads(item.value_json)
            for item in record.history.item
        }
        for key, value in items.items():
            if not key.startswith("_"):
                found.setdefault(key, []).append((items["_step"], value))
        for item in record.summary.update:
            key = "".join(item.nested_key) or item.key
            if key.startswith(("final", "ablate")):
                found[key] = [(100, json.loads(item.value_json))]
    return found


def finished(file, record, seconds=60):
    """The records of a W&B file, once its last one is there: W&B's process may still write it after
    `finish`.
    """
    end = time.monotonic() + seconds
    while True:
        read = [record.FromString(data) for data in records(file.read_bytes())]
        if read and read[-1].HasField("exit"):
            return read
        assert time.monotonic() < end, f"{file} has no end"
        time.sleep(0.1)


def records(content):
    """The records of a W&B file: LevelDB's log format, after a head of 7 bytes."""
    at, parts = 7, []
    while at + 7 <= len(content):
        if 32768 - at % 32768 < 7:  # no record header begins in the last bytes of a block
            at += 32768 - at % 32768
        length, kind = struct.unpack_from("<HB", content, at + 4)
        parts.append(content[at + 7 : at + 7 + length])
        at += 7 + length
        if kind in (1, 4):  # FULL or LAST
            yield b"".join(parts)
            parts = []


def test_every_point_is_logged_once_although_the_run_was_interrupted(logged, kind):
    logged.write("base", 40)
    with logged.mirror(kind):
        pass
    logged.write(
        "base", 30, half='{"step": 40, "lo'
    )  # cut back to a checkpoint and partly written again
    with logged.mirror(kind):
        pass
    logged.write("base", 100)
    logged.fake.done("base", 1, 5.5, 25.5)
    for _ in range(2):  # the second launch finds a complete record
        with logged.mirror(kind):
            pass
    assert logged.printed == []
    found = read(kind, logged.folder, "base")
    assert found["loss"] == logged.points("base", "loss")
    assert found["lr"] == logged.points("base", "lr")
    assert found["dev_perplexity"] == logged.points("base", "dev_perplexity")
    assert found["final_ppl"] == [(100, pytest.approx(5.5))]
    assert found["final_bleu"] == [(100, pytest.approx(25.5))]
    names = {"loss", "lr", "dev_perplexity", "final_ppl", "final_bleu"}
    assert found.keys() - {"ablate.outcome"} == names


def test_the_scores_of_every_decoding_are_logged(tmp_path, kind):
    logged = Logged(tmp_path, ONE.replace("rows: {", "rows: {greedy: {set: {beam: 1}}, "))
    logged.write("base", 20)
    logged.fake.done("base", 1, 5.5, 25.5)
    logged.fake.done("greedy beam=1", 1, 5.5, 24.5)  # the same run, decoded in another way
    with logged.mirror(kind):
        pass
    assert logged.printed == []
    found = {
        name: points for name, points in read(kind, logged.folder, "base").items() if "bleu" in name
    }
    (other,) = found.keys() - {"final_bleu"}
    assert other.startswith("final_bleu beam")
    assert [found["final_bleu"][0][1], found[other][0][1]] == [
        pytest.approx(25.5),
        pytest.approx(24.5),
    ]


def test_decodings_that_differ_in_any_setting_have_scores_of_their_own(tmp_path):
    rows = "rows: {E: {set: {early_stopping: true}}, short: {set: {max_extra_length: 3}}, "
    logged = Logged(tmp_path, ONE.replace("rows: {", rows))
    logged.fake.done("base", 1, 5.5, 25.5)
    logged.fake.done("E early_stopping=true", 1, 5.5, 24.5)
    logged.fake.done("short max_extra_length=3", 1, 5.5, 23.5)
    sent = {}

    class Kept:
        def log(self, points):
            pass

        def finish(self, scores, outcome):
            sent.update(scores or {})

    with logged.mirror(loggers={"kept": lambda folder, run: Kept()}):
        pass
    assert {name: value for name, value in sent.items() if "bleu" in name} == {
        "final_bleu": 25.5,
        "final_bleu early_stopping=true": 24.5,
        "final_bleu max_extra_length=3": 23.5,
    }


def test_base_that_is_decoded_on_dev_is_logged_as_itself_without_scores_on_dev(tmp_path):
    tuned = ONE.replace("rows:", "tune: {decoding: {alpha: [0.6, 1.0]}}\nrows:")
    logged = Logged(tmp_path, tuned)
    stage = next_stage(logged.fake.study, logged.fake.results)
    assert stage.runs.split == "dev"
    assert [run.id for run in stage.runs] == [logged.fake.planned.of(stage.planned.base)[0].id]
    assert [row.label for row in stage.logged.rows] == ["base", "A h=1"]
    assert all(not run.decodings for run in stage.logged)


def test_runs_with_similar_or_long_labels_are_logged_apart(tmp_path, kind):
    many = dict.fromkeys(
        ("dropout", "attention_dropout", "activation_dropout", "label_smoothing", "alpha"), 0.25
    )
    many |= {
        "attention_bias": True,
        "positional_encoding": "relative",
        "relative_clip": 8,
        "d_model": 32,
        "d_ff": 64,
    }
    rows = {
        "a": {"set": {"d_ff": 8}, "label": "δ"},
        "b": {"set": {"d_ff": 16}, "label": "β"},
        "L": {
            "set": {
                **many,
                "feed_forward_bias": False,
                "norm_position": "pre",
                "average_checkpoints": 2,
                "max_positions": 512,
            }
        },
    }
    logged = Logged(tmp_path, ONE.partition("rows:")[0] + f"rows: {json.dumps(rows)}\n")
    labels = [row.label for row in logged.fake.study.rows[1:]]
    assert len(labels[-1]) > 255
    for number, label in enumerate(labels):
        logged.write(label, 20)
        logged.fake.done(label, 1, 5.0, 20.0 + number)
    with logged.mirror(kind):
        pass
    assert logged.printed == []
    for number, label in enumerate(labels):
        assert read(kind, logged.folder, label)["final_bleu"][0][1] == pytest.approx(20.0 + number)


def test_a_run_that_has_diverged_is_told_from_a_finished_one(logged, kind):
    logged.write("base", 20)
    logged.fake.diverged("base", 1, 20, "the loss exploded")
    logged.write("A h=1", 20)
    logged.fake.done("A h=1", 1, 5.0, 25.0)
    for _ in range(2):  # the second launch finds complete records
        with logged.mirror(kind):
            pass
    assert logged.printed == []
    if kind == "tensorboard":
        assert math.isnan(read(kind, logged.folder, "base")["final_bleu"][0][1])
    if kind == "wandb":
        ((_, outcome),) = read(kind, logged.folder, "base")["ablate.outcome"]
        assert outcome == "diverged"
    if kind == "mlflow":
        from mlflow.tracking import MlflowClient

        client = MlflowClient(tracking_uri=(logged.folder / "mlflow").as_uri())
        experiment = client.get_experiment_by_name("logged").experiment_id
        found = {
            run.info.run_name: (run.info.status, run.data.tags["ablate.outcome"])
            for run in client.search_runs([experiment])
        }
        assert found == {"base": ("FAILED", "diverged"), "A h=1": ("FINISHED", "done")}


@pytest.mark.parametrize("kind", ["tensorboard", "wandb"])
def test_what_stands_in_the_place_of_a_record_is_written_again(logged, kind):
    logged.write("base", 20)
    logged.fake.done("base", 1, 5.0, 25.0)
    folder = logged.folder / kind
    folder.mkdir(parents=True)
    (folder / "base").write_text("a file")
    with logged.mirror(kind):
        pass
    assert logged.printed == []
    assert read(kind, logged.folder, "base")["final_bleu"][0][1] == pytest.approx(25.0)


def test_a_full_disk_is_one_line_and_no_complete_record(logged, monkeypatch):
    """A file that may not grow stands in for the disk."""
    pytest.importorskip("tensorboard")
    tracebacks = []
    monkeypatch.setattr(threading, "excepthook", tracebacks.append)
    logged.write("base", 20)
    logged.fake.done("base", 1, 5.0, 25.0)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with logged.mirror("tensorboard"):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    (line,) = logged.printed
    assert tracebacks == []
    assert line.endswith("File too large; training goes on without it")
    assert not list(logged.folder.glob("tensorboard/*/complete-*"))


@pytest.mark.parametrize("label", [".", ".."])
def test_the_folder_of_a_run_is_inside_that_of_its_logger(tmp_path, label):
    """A folder is made anew for each record: `..` is that of the study, with its published
    table.
    """
    table = tmp_path / "study" / "table.md"
    root = table.parent / "tensorboard"
    other = Path(RecordFolder(root, _named("base")).clear()) / "events"
    for file in (table, other):
        file.write_text("kept")
    made = Path(RecordFolder(root, _named(label)).clear())
    assert made.resolve().parent == root
    assert [file.read_text() for file in (table, other)] == ["kept", "kept"]


def _named(label):
    return LoggedRun("id", "study", label, label, 1, {}, ())
