"""Profiles of clusters: read with the line of every fault, and turned into arguments of sbatch."""

import pytest

from ablate.cluster.profiles import find_profile, profile_file
from ablate.cluster.slurm import sbatch_arguments, to_slurm_time
from ablate.errors import StudyError, UsageError

GOOD = """\
gpu:
  engine: slurm
  workers: 8
  sbatch: {partition: gpu, time: 4h, gpus-per-node: 4, exclusive: true, hold: false}
  setup: [module load cuda]
  grace: 60
cpu: {engine: slurm}
"""


@pytest.fixture
def clusters(tmp_path, monkeypatch):
    """Write the file of profiles."""
    file = tmp_path / "clusters.yaml"
    monkeypatch.setenv("ABLATE_CLUSTERS", str(file))
    return lambda text: file.write_text(text) and file


def test_the_file_is_found_by_xdg_and_by_its_own_variable(tmp_path, monkeypatch):
    monkeypatch.delenv("ABLATE_CLUSTERS", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert profile_file() == tmp_path / ".config" / "ablate" / "clusters.yaml"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert profile_file() == tmp_path / "config" / "ablate" / "clusters.yaml"
    monkeypatch.setenv("ABLATE_CLUSTERS", str(tmp_path / "mine.yaml"))
    assert profile_file() == tmp_path / "mine.yaml"


@pytest.mark.parametrize("name", ["ABLATE_CLUSTERS", "XDG_CONFIG_HOME"])
def test_a_home_folder_that_is_not_known_is_named_with_its_variable(monkeypatch, name):
    monkeypatch.delenv("ABLATE_CLUSTERS", raising=False)
    monkeypatch.setenv(name, "~no-such-person/config")
    with pytest.raises(
        UsageError, match=f"^{name}: ~no-such-person/config: has no known home folder"
    ):
        profile_file()


def test_a_profile_has_its_settings_and_the_command_line_takes_precedence(clusters):
    clusters(GOOD)
    gpu = find_profile("gpu")
    assert (gpu.workers, gpu.grace, gpu.setup, gpu.sbatch["gpus-per-node"]) == (
        8,
        60,
        ["module load cuda"],
        4,
    )
    changed = find_profile("gpu", workers=2, options={"partition": "low", "mem": "8G"})
    assert (changed.workers, changed.sbatch["partition"], changed.sbatch["mem"]) == (2, "low", "8G")
    assert (find_profile("cpu").workers, find_profile("cpu").sbatch) == (1, {})


@pytest.mark.parametrize("text", ["", "\n", "# gpu: {engine: slurm}\n"])
def test_an_empty_file_has_no_profiles(clusters, text):
    clusters(text)
    assert find_profile("slurm").engine == "slurm"
    with pytest.raises(UsageError, match='unknown profile "gpu"'):
        find_profile("gpu")


def test_a_file_that_is_too_large_is_not_called_a_study(clusters):
    clusters("# long\n" * 200_000)
    with pytest.raises(StudyError, match=r"clusters.yaml: is too large; at most 1,048,576 bytes$"):
        find_profile("gpu")


def test_slurm_needs_no_file(tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATE_CLUSTERS", str(tmp_path / "missing.yaml"))
    assert find_profile("slurm", workers=3).workers == 3
    with pytest.raises(
        UsageError, match=r'missing.yaml: unknown profile "slurn"; did you mean "slurm"\?'
    ):
        find_profile("slurn")


def test_pilots_that_are_started_by_hand_have_no_options_of_slurm(tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATE_CLUSTERS", str(tmp_path / "missing.yaml"))
    assert find_profile("manual", workers=4).engine == "manual"
    with pytest.raises(UsageError, match="--time: manual does not start pilots by Slurm"):
        find_profile("manual", options={"time": "4h"})


def test_options_become_arguments(clusters):
    clusters(GOOD)
    assert sbatch_arguments(find_profile("gpu").sbatch) == [
        "--partition=gpu", "--time=240", "--gpus-per-node=4", "--exclusive",
    ]  # fmt: skip


def test_the_option_zero_is_given_and_only_false_and_null_are_left_out(clusters):
    """`mem: 0` asks for all memory of a node."""
    clusters(
        "gpu: {engine: slurm, sbatch: {mem: 0, nice: 0, hold: false, qos: null, reboot: true}}"
    )
    assert sbatch_arguments(find_profile("gpu").sbatch) == ["--mem=0", "--nice=0", "--reboot"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4h", "240"),
        ("90min", "90"),
        ("90 m", "90"),
        ("1d 12h", "2160"),
        ("1-12:00:00", "1-12:00:00"),
        (30, "30"),
    ],
)
def test_times_are_minutes_or_as_slurm_writes_them(text, expected):
    assert to_slurm_time(text) == expected


@pytest.mark.parametrize("text", ["soon", "4x", "-1", "", "1h30"])
def test_other_times_are_refused(text):
    with pytest.raises(ValueError, match="is not a time such as 4h"):
        to_slurm_time(text)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("- gpu\n", [":1:1: expected a mapping of names to profiles; got a list"]),
        ("gpu: 7\n", [':1:6: profile "gpu": 7 is not allowed: must be a mapping of engine, workers']),
        ("slurm: {engine: slurm}\n", [':1:1: "slurm" is the name of an engine; choose another name for the profile']),
        ("gpu:\n  engine: slurm\n  wokers: 3\n", [':3:3: unknown key "wokers"; did you mean "workers"?']),
        (
            "gpu: {engine: slrum}\n",
            [
                ':1:15: engine: "slrum" is not allowed: must be slurm, ray or manual; did you mean '
                '"slurm"?'
            ],
        ),
        ("gpu: {workers: 2}\n", [':1:6: profile "gpu" needs engine']),
        (
            "gpu:\n  engine: slurm\n  workers: 0\n  sbatch:\n    partitoin: x\n    time: soon\n    "
            "array: 0-3\n",
            [
                ":3:12: workers: 0 is not allowed: must be greater than or equal to 1",
                ':5:16: partitoin: not an option of sbatch; did you mean "partition"?',
                ':6:11: time: "soon" is not a time such as 4h, 90min, 1d 12h or 1-12:00:00',
                ":7:12: array: is set by ablate: `workers` is the number of pilots",
            ],
        ),
        ("gpu: {engine: slurm, sbatch: [a]}\n", [":1:30: sbatch: "]),
        ("gpu: {engine: manual, sbatch: {partition: x}}\n", [":1:23: sbatch: has no effect with the engine manual"]),
        ("gpu: {engine: slurm, grace: 1}\n", [":1:29: grace: 1 is not allowed"]),
        ("gpu: {engine: ray, each: {gpu: 1}}\n", [':1:27: unknown key "gpu"; did you mean "gpus"?']),
        ("gpu: {engine: ray, each: {memory: lots}}\n", [':1:35: memory: "lots" is not allowed']),
        ("gpu: {engine: ray, sbatch: {time: 4h}}\n", [":1:20: sbatch: has no effect with the engine ray"]),
        ("gpu: {engine: slurm, each: {cpus: 1}}\n", [":1:22: each: has no effect with the engine slurm"]),
        ("gpu: {engine: manual, node_wait: 60}\n", [":1:23: node_wait: has no effect with the engine manual"]),
    ],
)  # fmt: skip
def test_every_fault_of_the_file_is_reported_with_its_line(clusters, text, lines):
    file = clusters(text) or profile_file()
    with pytest.raises(StudyError) as error:
        find_profile("gpu")
    found = error.value.lines
    assert len(found) == len(lines)
    for line, expected in zip(found, lines, strict=True):
        assert line.startswith(f"{profile_file()}{expected}"), (line, file)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partitoin": "x"}, '--sbatch partitoin: not an option of sbatch; did you mean "partition"'),
        ({"output": "x"}, "--sbatch output: is set by ablate: logs are in the folder of the job"),
        ({"time": "x"}, '--time: "x" is not a time'),
    ],
)  # fmt: skip
def test_options_of_the_command_line_are_checked(clusters, options, message):
    clusters(GOOD)
    with pytest.raises(UsageError, match=message):
        find_profile("gpu", options=options)
