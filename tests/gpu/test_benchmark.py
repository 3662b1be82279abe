"""The parts of benchmarks/gpu.py that need no GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def bench(*words, code=0):
    """The lines of the benchmark as data, and all that it printed."""
    script = [sys.executable, str(ROOT / "benchmarks/gpu.py"), "--device", "cpu", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(script, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == code, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return lines, done.stdout


def test_a_failed_measurement_is_a_line_and_the_others_go_on_into_the_file(tmp_path):
    out = tmp_path / "gpu.jsonl"
    out.write_text('{"kind": "earlier"}\n')
    words = "--precision fp32 --sizes none XS --vocab 90 --beams 1 --sentences 3 --only decode"
    lines, _ = bench(*words.split(), "--out", str(out), code=1)
    assert [line["kind"] for line in lines] == ["failed", "decode"]
    assert lines[0]["size"] == "none"
    assert lines[0]["error"].startswith("KeyError")
    assert [json.loads(line) for line in out.read_text().splitlines()[1:]] == lines


def test_after_the_limit_measurements_are_named_and_left_out():
    words = "--precision fp32 --sizes XS --vocab 90 --beams 1 4 --only decode --limit -1"
    lines, _ = bench(*words.split())
    assert lines == [
        {"kind": "left_out", "measurement": "decode", "size": "XS", "beam": beam} for beam in (1, 4)
    ]


def test_the_benchmark_prints_a_line_for_each_measurement_and_a_table():
    words = "--precision fp32 --sizes XS --tokens 200 --jobs 2 --beams 1 --vocab 90 --seconds 0.01"
    lines, printed = bench(*words.split(), *["--new-shapes", "2", "--sentences", "5"])
    assert [line["kind"] for line in lines] == [
        "device", "ceiling", "train", "save", "jobs", "decode",
    ]  # fmt: skip
    ceiling, train, save, jobs, decode = lines[1:]
    assert ceiling["product_tflops"] > 0
    assert train["met_shape_ms"] > 0
    assert train["share_of_product"] > 0
    assert (train["mfu"], train["kernels"], train["peak_gib"]) == (None, None, None)  # of a GPU
    assert train["host_ms"] <= train["met_shape_ms"]
    assert train["estimated_gib"] > 0
    assert save["stopped_s"] > 0
    assert (jobs["jobs"], jobs["tokens_per_s"] > 0) == (2, True)
    assert decode["sentences_per_s"] > 0
    table = printed[printed.rindex("\ndecode\n") :]
    assert "sentences_per_s" in table
    assert "XS" in table
