"""The gate for streams of proposals: the rule of the simulation, run by run, and its gain."""

import json
import random

import numpy as np
import pytest

from ablate.judging.judge import next_steps
from ablate.stats.proposals import (
    MAX_PROPOSALS,
    MIN_CHAIN_RUNS,
    SMALLEST_GAIN,
    Stream,
    log_evidence,
    proposal_level,
)
from benchmarks.streams import gate, greedy
from tests.cli.inside import inside


def night(gains, draw):
    """The stream of a night in which proposals of these gains are run until they are decided."""
    stream, true = Stream("base", more_is_better=True), {"base": 0.0}
    for number, gain in enumerate(gains):
        name, chain = f"p{number}", stream.chain[-1]
        true[name] = true[chain] + gain
        while name not in stream.proposals or stream.proposals[name].state == "open":
            stream.add(name, true[name] + draw.gauss(0, 1))
            while stream.proposals[name].state == "open" and stream.runs_missing(
                stream.proposals[name]
            ):
                stream.add(chain, true[chain] + draw.gauss(0, 1))
    for row in (stream.chain[0], stream.chain[-1]):
        for _ in range(MIN_CHAIN_RUNS):
            stream.add(row, true[row] + draw.gauss(0, 1))
    return stream, true


def test_the_evidence_is_the_logarithm_of_the_ratio_of_normal_densities():
    from scipy.stats import norm

    error = (1 / 7 + 1 / 24) ** 0.5
    expected = norm.logpdf(0.4, SMALLEST_GAIN, error) - norm.logpdf(0.4, 0.0, error)
    assert log_evidence(0.4, 7, 24) == pytest.approx(expected)


def test_the_levels_of_a_night_without_a_keep_sum_to_the_error():
    assert sum(proposal_level(0) for _ in range(100)) == pytest.approx(0.05)
    assert proposal_level(3) == 3 * proposal_level(1)


def test_the_gate_keeps_what_the_simulation_keeps():
    draw = random.Random(0)
    gains = [0.0] * 5 + [0.9] + [0.0] * 5
    kept = [night(gains, draw)[0].chain for _ in range(40)]
    found = sum("p5" in chain for chain in kept) / 40
    padded = np.zeros((400, 100))
    padded[:, 5] = 0.9
    simulated = gate(padded, np.random.default_rng(0))[0]
    assert found == pytest.approx(simulated[:, 5].mean(), abs=0.12)
    assert sum(len(chain) for chain in kept) - 40 - 40 * found <= 1  # false keeps


def test_the_gain_is_that_of_fresh_runs():
    draw, errors, covered = random.Random(1), [], []
    while len(errors) < 40:
        stream, _ = night([0.9], draw)
        if stream.gain:
            gain, low, high = stream.gain
            errors.append(gain - 0.9)
            covered.append(low < 0.9 < high)
    assert abs(sum(errors) / 40) < 3 * (2 / MIN_CHAIN_RUNS) ** 0.5 / 40**0.5
    assert sum(covered) >= 34


def test_greedy_keeps_are_mostly_false():
    gains = np.zeros((200, 100))
    gains[:, ::20] = 0.6
    kept, _ = greedy(gains, np.random.default_rng(0))
    assert kept[:, gains[0] == 0].sum() > 0.6 * kept.sum()


def test_a_lower_score_can_be_better_and_a_diverged_proposal_is_dropped():
    stream = Stream("base", more_is_better=False)
    draw = random.Random(2)
    for _ in range(MIN_CHAIN_RUNS):
        stream.add("base", 3 + draw.gauss(0, 0.01))
    for _ in range(40):
        stream.add("lower", 2.99 + draw.gauss(0, 0.01))
        stream.add("base", 3 + draw.gauss(0, 0.01))
    for score in (float("nan"), 2.9):
        stream.add("burst", score)
    assert stream.chain == ["base", "lower"]
    assert stream.proposals["burst"].state == "dropped"
    assert stream.ignored == 1


def test_a_proposal_after_those_that_spend_the_level_is_not_tested():
    stream = Stream("base", more_is_better=True)
    for score in (0.1, -0.1) * MIN_CHAIN_RUNS:
        stream.add("base", score)
    for number in range(MAX_PROPOSALS):
        stream.add(f"worse {number}", -5.0)
    stream.add("best", 9.0)
    states = [proposal.state for proposal in stream.proposals.values()]
    assert states == [*["dropped"] * MAX_PROPOSALS, "untested"]
    (step,) = next_steps(stream)
    assert step.startswith("The significance level is used up after 100 proposals")


def test_the_command_says_what_to_run_next(tmp_path):
    file, draw = tmp_path / "log.csv", random.Random(3)
    lines = [f"base,{draw.gauss(3, 0.1)}" for _ in range(MIN_CHAIN_RUNS)]
    lines += [f"worse,{draw.gauss(3.2, 0.1)}" for _ in range(9)]
    lines += [f"better,{draw.gauss(2.8, 0.1)}" for _ in range(20)]
    file.write_text("\n".join(["row,loss", *lines]))
    done = inside("judge", file, "--stream")
    assert done.code == 0, done.err
    assert "worse: dropped after" in done.out
    assert "better: kept after" in done.out
    assert "Chain: base -> better." in done.out
    assert "run after all proposals: 24 times base and 15 times better" in done.out
    assert inside("judge", file, "--stream", "--wide").code == 2
    assert inside("judge", file, "--stream", "--format", "csv").code == 2


def test_the_stream_in_json_says_what_the_sentences_say(tmp_path):
    file, draw = tmp_path / "log.csv", random.Random(3)
    lines = [f"base,{draw.gauss(3, 0.1)}" for _ in range(MIN_CHAIN_RUNS - 2)]
    lines += [f"open,{draw.gauss(3, 0.1)}" for _ in range(2)]
    content = "\n".join(["row,loss", *lines])
    file.write_text(content)
    found = json.loads(inside("judge", file, "--stream", "--format", "json").out)
    assert (found["metric"], found["chain"], found["gain"]) == ("loss", ["base"], None)
    (proposal,) = found["proposals"]
    assert (proposal["row"], proposal["state"], proposal["runs"]) == ("open", "open", 2)
    assert (found["run"], found["run_last"]) == ({"base": 2}, {})
    lines += [f"base,{draw.gauss(3, 0.1)}" for _ in range(9)]
    lines += [f"better,{draw.gauss(2.6, 0.1)}" for _ in range(20)]
    file.write_text("\n".join(["row,loss", *lines]))
    found = json.loads(inside("judge", file, "--stream", "--format", "json").out)
    assert found["chain"] == ["base", "better"]
    # Its runs after the keep are the new chain's.
    kept = next(one for one in found["proposals"] if one["row"] == "better")
    after = 20 - kept["runs"]
    assert found["run_last"] == {"base": MIN_CHAIN_RUNS, "better": MIN_CHAIN_RUNS - after}
    assert found["run"] == {}
