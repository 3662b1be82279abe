"""The parts of benchmarks/gpu.py that need no GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_benchmark_prints_a_line_for_each_measurement_and_a_table():
    words = (
        "--device cpu --precision fp32 --sizes XS --tokens 200 --jobs 2 --beams 1 --vocab 90 "
        "--seconds 0.01"
    )
    more = "--new-shapes 2 --sentences 5"
    script = [sys.executable, str(ROOT / "benchmarks/gpu.py"), *words.split(), *more.split()]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(script, capture_output=True, text=True, env=environment, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [line["kind"] for line in lines] == [
        "device",
        "ceiling",
        "train",
        "save",
        "jobs",
        "decode",
    ]
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
    table = done.stdout[done.stdout.rindex("\ndecode\n") :]
    assert "sentences_per_s" in table
    assert "XS" in table
