"""A run is executed as it began, except for micro-batches that turned out too large."""

import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from ablate.config.resolve import resolve_row
from ablate.errors import StoreError
from ablate.kernels import device as device_module
from ablate.report.run_text import _provenance
from ablate.store import RunFolder, checkpoints
from ablate.store.records import PACKAGES, Provenance
from ablate.workers import execution as execution_module
from ablate.workers.assignment import Assignment, RunRequest
from ablate.workers.execution import choose_execution, custom_packages
from tests.records import RUN, a_result, an_execution, save_checkpoint
from tests.training.conftest import logger_to

TEXT = "c" * 12
GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
ROW = resolve_row({})


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / RUN)


def executed(
    folder, config=ROW, training=TEXT, lines=None, devices=("cpu",), threads=1, tokens=1000,
    halve=False,
):  # fmt: skip
    """The execution of a new attempt; its log lines go to `lines`."""
    request = RunRequest(
        folder=folder.path, corpus=Path("/corpus"), test="test", decodings={}, settings={}
    )
    job = Assignment(
        run=request,
        devices=devices,
        threads=threads,
        micro_batch_tokens=tokens,
        halve_micro_batch=halve,
    )
    return choose_execution(
        folder, job, config, training, logger_to([] if lines is None else lines)
    )


def test_a_run_continues_with_the_threads_and_micro_batch_that_it_began_with(folder):
    begun = executed(folder, threads=3, tokens=1000)
    assert begun == an_execution(
        training=TEXT, threads=3, micro_batch_tokens=1000, precision="fp32"
    )
    assert executed(folder, threads=8, tokens=77) == begun
    assert folder.read_provenance().threads == 3


def test_a_run_keeps_the_number_of_parts_that_it_began_with(folder):
    """One for each process: another number would sum in another order."""
    assert executed(folder, devices=("cpu", "cpu")).parts == 2
    assert executed(folder).parts == 2


def test_after_a_kill_for_want_of_memory_the_micro_batch_is_halved_for_good(folder):
    lines = []
    executed(folder)
    assert executed(folder, halve=True, lines=lines).current_micro_batch_tokens == 500
    assert executed(folder, halve=True, lines=lines).current_micro_batch_tokens == 250
    assert executed(folder).current_micro_batch_tokens == 250
    assert lines == [
        f"the system ran out of memory: micro-batches of {n} tokens from here" for n in (500, 250)
    ]


def test_a_first_attempt_may_already_need_half_the_micro_batch(folder):
    """The worker was killed before it could write how the run is executed."""
    assert executed(folder, halve=True).current_micro_batch_tokens == 500
    assert executed(folder).current_micro_batch_tokens == 500


def test_the_micro_batch_of_the_study_takes_precedence_until_memory_runs_out(folder):
    config = resolve_row({"micro_batch_tokens": 600})
    executed(folder)
    assert executed(folder, config).current_micro_batch_tokens == 600
    assert executed(folder, config, halve=True).current_micro_batch_tokens == 300
    assert executed(folder, config).current_micro_batch_tokens == 300
    assert (
        executed(folder, resolve_row({"micro_batch_tokens": 400})).current_micro_batch_tokens == 400
    )


@pytest.mark.parametrize(("named", "message"), [
    ({"training": "d" * 12}, r"the training data has changed since this run began \(text c{12}, now d{12}\)"),
    ({"devices": ("cuda:0",)}, "began on cpu, and its random state cannot be used on cuda; use --device cpu"),
])  # fmt: skip
def test_other_data_and_another_kind_of_device_are_refused(folder, named, message):
    executed(folder)
    with pytest.raises(StoreError, match=message):
        executed(folder, **named)


def test_a_finished_run_may_be_decoded_on_another_kind_of_device(folder):
    begun = executed(folder)
    a_result().write(folder.result)
    assert executed(folder, devices=("cuda:0",)) == begun


@pytest.mark.parametrize("finished", [False, True])
def test_with_a_damaged_record_an_unfinished_run_starts_over_and_a_finished_one_keeps_its_weights(
    folder, finished
):
    lines = []
    executed(folder)
    save_checkpoint(folder.checkpoints, 4)
    if finished:
        a_result().write(folder.result)
    folder.execution.write_bytes(folder.execution.read_bytes()[:-3])
    assert executed(folder, threads=2, lines=lines).threads == 2
    assert [c.step for c in checkpoints.valid(folder.checkpoints)] == ([4] if finished else [])
    lines = [line for line in lines if not line.startswith("matrix products")]
    assert [line.endswith("; the run starts over") for line in lines] == (
        [] if finished else [True]
    )
    assert folder.execution.with_name("execution.json.damaged").exists()


def test_a_kill_while_a_run_starts_over_leaves_no_checkpoint_to_settings_of_which_nothing_is_known(
    folder, monkeypatch
):
    executed(folder)
    save_checkpoint(folder.checkpoints, 4)
    folder.execution.write_bytes(folder.execution.read_bytes()[:-3])
    for name in ("prune", "quarantine"):
        with monkeypatch.context() as patch:
            patch.setattr(
                execution_module.checkpoints if name == "prune" else execution_module, name, killed
            )
            with pytest.raises(Killed):
                executed(folder)
    executed(folder, threads=2)
    assert checkpoints.valid(folder.checkpoints) == []


def test_without_a_record_an_unfinished_run_starts_over(folder):
    lines = []
    executed(folder)
    save_checkpoint(folder.checkpoints, 4)
    folder.execution.unlink()
    assert executed(folder, threads=2, lines=lines).threads == 2
    assert checkpoints.valid(folder.checkpoints) == []
    assert lines[0] == f"{folder.execution}: is missing; the run starts over"


class Killed(BaseException):
    """The end of the process."""


def killed(*given, **named):
    raise Killed


@pytest.mark.parametrize(("setting", "has_bf16", "precision", "note"), [
    (None, True, "fp32", None),
    ("auto", True, "bf16", None),
    ("auto", False, "fp32", None),
    ("bf16", True, "bf16", None),
    ("bf16", False, "bf16", "this processor has no bf16 instructions"),
    ("tf32", True, "fp32", "an effect on GPUs only"),
    ("fp32", True, "fp32", None),
])  # fmt: skip
def test_the_precision_is_chosen_by_the_device_recorded_and_kept(
    folder, monkeypatch, setting, has_bf16, precision, note
):
    lines, config = [], resolve_row({"precision": setting})
    monkeypatch.setattr(execution_module, "has_bf16", lambda device: has_bf16)
    monkeypatch.setattr(device_module, "has_bf16", lambda device: has_bf16)
    assert executed(folder, config, lines=lines).precision == precision
    assert folder.read_provenance().precision == precision
    assert lines[0] == f"matrix products in {precision} on cpu"
    assert (note in lines[1]) if note else len(lines) == 1
    monkeypatch.setattr(
        device_module, "has_bf16", lambda device: not has_bf16
    )  # goes on on another machine
    assert executed(folder, config).precision == precision


def test_a_run_keeps_the_determinism_that_it_began_with(folder):
    lines = []
    assert executed(folder, resolve_row({"deterministic": True})).deterministic
    assert executed(folder, lines=lines).deterministic
    assert lines == ["the run began with deterministic=True, and keeps it"]


def test_versions_of_the_packages_of_own_classes_are_recorded(folder):
    """By the name of the distribution, which may differ from that of the module."""
    executed(folder)
    assert folder.read_provenance().packages.keys() == set(PACKAGES)
    for optimizer in ("yaml:Mine@0123456789ab", "yaml.nodes.Mine(a=1)"):
        assert custom_packages(resolve_row({"optimizer": optimizer})) == {
            "pyyaml": version("pyyaml")
        }
    assert custom_packages(resolve_row({"optimizer": "beside_the_study:Mine@0123456789ab"})) == {}


def test_the_provenance_has_the_packages_of_own_classes(folder):
    executed(folder, resolve_row({"optimizer": "yaml:Mine@0123456789ab"}))
    assert folder.read_provenance().packages["pyyaml"] == version("pyyaml")


def test_a_run_that_is_resumed_with_another_version_has_both_in_its_provenance(folder, monkeypatch):
    executed(folder)
    begun = folder.provenance.read_bytes()
    executed(folder)
    assert folder.provenance.read_bytes() == begun
    versions = {"torch": "9.9.9"}
    monkeypatch.setattr(execution_module, "_version", lambda name: versions.get(name, "1"))
    for _ in range(2):
        executed(folder)
    first, second = folder.read_provenance().all_parts
    assert (first.packages["torch"], second.packages["torch"]) == (version("torch"), "9.9.9")
    assert " ".join(_provenance(folder.read_provenance())).count("torch") == 2


def test_a_kill_between_provenance_and_settings_loses_neither(folder, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Provenance, "write", killed)
        with pytest.raises(Killed):
            executed(folder)
    executed(folder)
    assert folder.read_provenance() is not None


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_uncommitted_changes_have_a_hash_of_their_files(tmp_path, monkeypatch):
    package = tmp_path / "checkout" / "ablate"
    package.mkdir(parents=True)
    for name in ("__init__.py", "a.py", "b.py"):
        (package / name).write_text("1\n")
    (tmp_path / "checkout" / ".gitignore").write_text("ignored\n")

    def git(*words):
        subprocess.run([*GIT, *words], cwd=package.parent, check=True, capture_output=True)

    monkeypatch.setattr(execution_module.ablate, "__file__", str(package / "__init__.py"))

    def made():
        code = execution_module._code_version()
        return code.dirty, code.changes

    git("init")
    git("add", "--all")
    git("commit", "-m", "1")
    assert made() == (False, None)
    (package / "ignored").write_text("x")
    (package.parent / "beside").write_text("x")  # not of the package
    assert made() == (False, None)
    hashes = {}

    def changed(kind):
        dirty, hashes[kind] = made()
        assert dirty
        assert len(hashes[kind]) == 12

    (package / "a.py").write_text("2\n")
    changed("changed")
    git("add", "ablate/a.py")
    assert made() == (True, hashes["changed"])  # whether it is staged or not
    git("config", "diff.context", "9")
    git("config", "diff.noprefix", "true")
    assert made() == (True, hashes["changed"])
    (package / "a.py").write_text("3\n")
    changed("changed otherwise")
    (package / "b.py").unlink()
    changed("and one deleted")
    (package / "new ü.py").write_text("1\n")
    changed("and one new")
    (package / "new ü.py").write_text("2\n")
    changed("and one new, otherwise")
    assert len(set(hashes.values())) == len(hashes)
    git("add", "--all")
    git("commit", "-m", "2")
    assert made() == (False, None)
