"""What docs/programs.md promises: a scripted agent solves ten tasks with data alone, from exit codes and JSON."""

import json
import math
import re
from inspect import signature
from itertools import pairwise
from pathlib import Path

import pytest

import ablate
from ablate.errors import AblateError, Fault, Mark, StudyError
from ablate.programs import _error_of
from tests.cli.inside import inside
from tests.end_to_end.studies import TINY
from tests.end_to_end.studies import ablate as process
from tests.report.fakes import SMALL, Fake, study_from

ROOT = Path(__file__).parents[2]
KEYS = {
    "code",
    "message",
    "place",
    "causes",
    "fields",
    "subject",
    "given",
    "problem",
    "allowed",
    "meant",
    "remedy",
    "choices",
}


class Agent:
    """Reads exit codes and JSON, and no sentence."""

    def __init__(self, folder, results=None):
        self.study = folder / "study.yaml"
        self.results = results or folder / "results"

    def ask(self, verb, *words):
        """(Exit code, document) of a command on the study."""
        return self.call(verb, self.study, *words, "--results", self.results)

    def call(self, *words):
        done = inside(*words, "--format", "json")
        return done.code, json.loads(done.out)

    def events(self, *words):
        """(Exit code, events) of `run` in a process of its own."""
        words = ("run", self.study, *words, "--results", self.results, "--format", "json")
        done = process(*words, check=None)
        return done.returncode, list(map(json.loads, done.stdout.splitlines()))

    def corrected(self, fault):
        """Write the meant name at the place of a fault."""
        _, line, column = re.fullmatch(r"(.*):(\d+):(\d+)", fault["place"]).groups()
        lines = self.study.read_text().splitlines(keepends=True)
        text, start = lines[int(line) - 1], int(column) - 1
        word = re.match(r"[\w.-]+", text[start:])[0]
        lines[int(line) - 1] = text[:start] + fault["meant"] + text[start + len(word) :]
        self.study.write_text("".join(lines))


@pytest.fixture
def agent(tmp_path):
    (tmp_path / "study.yaml").write_text(TINY)
    return Agent(tmp_path)


@pytest.fixture
def results(tmp_path):
    """Results written by hand, and an agent who has them."""
    fake = Fake(tmp_path / "results", study_from(tmp_path, SMALL))
    return fake, Agent(tmp_path, fake.results.root)


def test_1_it_writes_a_study_and_reads_what_a_study_may_have(tmp_path):
    code, document = Agent(tmp_path).call("init", tmp_path / "new.yaml")
    (path,) = document["wrote"]
    assert (code, Path(path).is_file()) == (0, True)
    assert {"rows", "seeds", "base"} <= json.loads(inside("init", "--schema").out)[
        "properties"
    ].keys()


@pytest.mark.parametrize(
    ("right", "wrong"), [("dropout: 0.2", "dropuot: 0.2"), ("seeds:", "seed:"), ("{each:", "{eech:")]
)  # fmt: skip
def test_2_it_corrects_a_misspelled_name(agent, right, wrong):
    agent.study.write_text(TINY.replace(right, wrong, 1))
    code, error = agent.ask("plan")
    (fault,) = error["faults"]
    assert (code, error["error"], error["exit_code"], fault["code"]) == (
        2,
        "study",
        2,
        "unknown-name",
    )
    agent.corrected(fault)
    assert agent.study.read_text() == TINY
    assert agent.ask("plan")[0] == 0


def test_3_it_corrects_a_value_that_is_not_allowed(agent):
    agent.study.write_text(TINY.replace("N: 1", "N: 1\n  norm_position: prre"))
    code, error = agent.ask("plan")
    (fault,) = error["faults"]
    assert (code, fault["code"], fault["fields"]) == (2, "not-allowed", ["norm_position"])
    agent.corrected(fault)
    assert agent.ask("plan")[0] == 0


@pytest.mark.parametrize(
    ("words", "place", "given", "meant"),
    [
        (["plan", "STUDY", "--device", "gpu"], "--device", '"gpu"', "cuda"),
        (["plna", "STUDY"], "ablate", '"plna"', "plan"),
        (["plan", "STUDY", "--devise", "cpu"], "ablate plan", '"--devise"', "--device"),
        (["plan", "STUDY", "--rows", "A h=3"], "--rows", '"A h=3"', "A h=2"),
        (["data", "shwo"], "ablate data", '"shwo"', "show"),
    ],
)
def test_it_corrects_a_wrong_option_from_data_alone(results, words, place, given, meant):
    _, agent = results
    code, error = agent.call(*[agent.study if word == "STUDY" else word for word in words])
    (fault,) = error["faults"]
    assert (code, error["error"]) == (2, "usage")
    assert (fault["place"], fault["given"], fault["meant"]) == (place, given, meant)
    assert meant in fault["choices"]
    assert meant not in fault["problem"]


def test_it_learns_what_is_allowed_where_nothing_is_near(results):
    _, agent = results
    (fault,) = agent.ask("plan", "--device", "npu9")[1]["faults"]
    assert (fault["code"], fault["choices"]) == ("not-allowed", ["auto", "cpu", "cuda"])
    (fault,) = agent.call("plan", agent.study.with_name("nowhere.yaml"))[1]["faults"]
    assert fault["code"] == "no-such-file"
    assert "meant" not in fault
    (fault,) = agent.call("plan", agent.study.with_name("stdy.yaml"))[1]["faults"]
    assert fault["meant"] == str(agent.study)


def test_4_it_tells_missing_text_from_a_wrong_study(agent):
    files = "{corpus: files, direction: a-b, train: no, dev: no, test: no, vocab_size: 200}"
    agent.study.write_text(TINY.replace("{corpus: toy, vocab_size: 200}", files))
    code, plan = agent.ask("plan")
    assert (code, {fault["code"] for fault in plan["faults"]}) == (3, {"no-such-file"})
    assert (plan["error"], plan["exit_code"], len(plan["rows"])) == ("data", 3, 3)
    code, error = agent.call("data", "prepare", agent.study)
    assert (code, error["error"], error["exit_code"]) == (3, "data", 3)


def test_5_it_asks_for_as_many_seeds_as_the_effect_needs(results):
    _, agent = results
    code, plan = agent.ask("plan", "--spread", "1", "--difference", "2")
    assert (code, plan["seeds_needed"]["difference"]) == (0, 2)
    few, many = (
        plan["seeds_needed"]["seeds"],
        agent.ask("plan", "--spread", "1", "--difference", "1")[1],
    )
    assert 2 < few < many["seeds_needed"]["seeds"]


def test_6_it_follows_a_run_by_its_events_and_finds_the_same_verdicts_in_the_table(fresh):
    agent = Agent(fresh.file.parent, fresh.root)
    agent.study = fresh.file
    selected = ("--rows", "base", "--seeds", "1")
    code, events = agent.events(*selected)
    kinds = [event["event"] for event in events]
    assert (code, kinds[0], kinds[-1], events[-1]["exit_code"]) == (0, "stage", "end", 0)
    (started,) = [event for event in events if event["event"] == "started"]
    assert events[0]["missing"] == [started["run"]]
    losses = [event["loss"] for event in events if "loss" in event]
    assert losses[-1] < losses[0]
    steps = [event["step"] for event in events if event["event"] == "metrics"]
    assert all(before <= after for before, after in pairwise(steps))
    (result,) = [event for event in events if event["event"] == "result"]
    table = agent.ask("table", *selected)[1]
    assert result["run"] == started["run"]
    assert result["scores"]["ppl"] == pytest.approx(table["rows"][0]["ppl"]["mean"])
    rows = [event for event in events if event["event"] == "row"]
    assert [(row["row"], row["verdict"]) for row in rows] == [("base", None)]
    again = agent.events(*selected)[1]  # nothing is missing
    assert [event["event"] for event in again] == ["stage", "result", "row", "end"]
    assert again[1] == result


def test_7_it_keeps_what_is_better_and_no_noise(tmp_path):
    lines = ["row,seed,metric,value"]
    for seed, noise in enumerate((-0.1, 0.0, 0.1, 0.05, -0.05)):
        values = {
            "base": 20 + noise,
            "good": 23 - noise,
            "lucky": 20.1 - 2 * noise,
            "bad": 15 + noise,
        }
        lines += [f"{row},{seed},bleu,{value}" for row, value in values.items()]
    (tmp_path / "scores.csv").write_text("\n".join(lines) + "\n")
    code, table = Agent(tmp_path).call("judge", tmp_path / "scores.csv", "--base", "base")
    verdicts = {row["row"]: row["verdict"] for row in table["rows"]}
    assert code == 0
    assert [row for row, verdict in verdicts.items() if verdict == "better"] == ["good"]
    assert verdicts["lucky"] == "cannot tell"
    lucky = next(row for row in table["rows"] if row["row"] == "lucky")["against_base"]["bleu"]
    assert lucky["low"] < 0 < lucky["high"]
    assert lucky["minimum_detectable"] > 0


def test_8_it_finds_why_a_run_has_failed(results):
    fake, agent = results
    fake.failed("A h=2", 1, "out of luck")
    fake.diverged("D dropout=0.3", 1, 50, "the loss is not a finite number")
    code, status = agent.ask("status")
    states = {(run["row"], run["seed"]): run for run in status["runs"]}
    failed = states["A h=2", 1]
    assert (code, failed["state"], failed["reason"]) == (0, "failed", "out of luck")
    assert states["D dropout=0.3", 1]["state"] == "diverged"
    assert states["D dropout=0.3", 1]["steps"] == 50


def test_9_it_computes_progress_from_numbers(results):
    fake, agent = results
    fake.done("base", 1, 5.0, 25.0)
    fake.at("A h=1", 1, 5, alive=True)
    runs = agent.ask("status")[1]["runs"]
    (running,) = [run for run in runs if run["state"] == "running"]
    assert 0 < running["step"] / running["steps"] < 1
    (done,) = [run for run in runs if run["state"] == "done"]
    assert math.isfinite(done["seconds"])


def test_10_it_finds_a_damaged_file_and_what_can_be_removed(results):
    fake, agent = results
    fake.failed("base", 1, "x")
    fake.done("base", 1, 5.0, 25.0)
    folder = fake.folder("base", 1)
    folder.result.unlink()
    assert agent.ask("verify", "--stored")[1]["stored"]["damaged"] == []
    folder.run.write_bytes(folder.run.read_bytes()[:-1])
    (folder.path / "result.json.damaged").write_bytes(b"x" * 2000)
    code, document = agent.ask("verify", "--stored")
    assert (code, len(document["stored"]["damaged"])) == (1, 1)
    code, document = agent.ask("clean")
    assert (code, document["bytes"], document["removed"]) == (0, 2000, False)
    assert agent.ask("clean", "--yes")[1]["removed"]


def test_an_error_has_the_documented_keys_and_comes_back_in_python(agent):
    agent.study.write_text(TINY.replace("dropout: 0.2", "dropuot: 0.2, h: 3"))
    code, error = agent.ask("plan", "--set", "d_model=-1")
    assert all(set(fault) <= KEYS for fault in error["faults"])
    raised = _error_of(error)
    assert (type(raised), raised.exit_code) == (StudyError, code)
    assert "\n".join(raised.lines) + "\n" == inside("plan", agent.study, "--set", "d_model=-1").err


@pytest.mark.parametrize(
    "fault",
    [
        Fault("is wrong", ("h",), "h", "3", "even", "set h"),
        Fault(
            "is unknown", meant="dropout", place=Mark("s.yaml", 3, 4), causes=(Mark("--set h=3"),)
        ),
    ],
)
def test_a_fault_survives_the_way_through_json(fault):
    (again,) = _error_of(StudyError(fault).as_json()).faults
    assert str(again) == str(fault)
    assert again.place == fault.place


def test_every_kind_of_error_has_a_code_of_its_own_and_a_documented_exit_code():
    page = (ROOT / "docs/programs.md").read_text()
    kinds = {AblateError}
    while further := {kind for known in kinds for kind in known.__subclasses__()} - kinds:
        kinds |= further
    kinds = {kind for kind in kinds if kind.__module__ == "ablate.errors"}
    codes = [kind.code for kind in kinds]
    assert len(set(codes)) == len(kinds)
    assert all(f"`{code}`" in page for code in codes if code != "error")
    assert all(f"| {kind.exit_code} |" in page for kind in kinds)


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("plan", []),
        ("plan", ["--spread", "1", "--difference", "2"]),
        ("status", []),
        ("table", []),
        ("compare", ["base", "A*"]),
        ("data list", None),
        ("data show", []),
        ("data prepare", []),
    ],
)
def test_the_page_names_every_key_of_a_document(calm, verb, words):
    page = (ROOT / "docs/programs.md").read_text()
    (cell,) = re.findall(rf"^\| `{verb}(?: STUDY)?`.* \| (.*) \|$", page, re.M)
    cell = re.sub(r"\(.*?\)", "", cell)
    always, sometimes = (re.findall(r"`(\w+)`", part) for part in f"{cell};".split(";")[:2])
    given = [] if words is None else [calm.file, *words]
    code, document = Agent(calm.file.parent).call(*verb.split(), *given, "--results", calm.root)
    assert code == 0
    assert document.keys() - set(sometimes) == set(always)


def test_python_runs_a_study_and_raises_what_the_command_refuses(calm):
    events = []
    frame = ablate.run(calm.file, calm.root, device="cpu", on_event=events.append)
    assert list(frame["state"]) == ["done"] * 3
    assert [event["event"] for event in events].count("result") == 4
    selected = {"rows": frame.index[1], "seeds": [1], "set": {"dropout": 0.15}}
    with pytest.warns(UserWarning, match="no run of this study has a result"):
        part = ablate.load(calm.file, calm.root, **selected)
    assert list(part.index) == list(frame.index[:2])
    assert list(part["state"]) == ["pending"] * 2  # with this dropout, nothing is trained
    with pytest.raises(AblateError) as error:
        ablate.run(calm.file, calm.root, **selected | {"seeds": "9-1"})
    assert error.value.faults[0].place == Mark("seeds")
    with pytest.raises(AblateError) as error:
        ablate.run(calm.file, calm.root, budget="soon")
    assert error.value.code == "usage"
    assert "soon" in str(error.value)


def test_the_page_for_agents_is_short_and_in_the_package():
    page = (ROOT / "ablate/SKILL.md").read_text()
    assert len(page.splitlines()) <= 60
    assert (ROOT / "SKILL.md").resolve() == ROOT / "ablate/SKILL.md"
    assert '"SKILL.md"' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize("name", ["run", "load", "judge"])
def test_the_page_names_the_arguments_of_each_function(name):
    page = (ROOT / "docs/programs.md").read_text()
    (cell,) = re.findall(rf"^\| `{name}` \| (`(?:study|frame)`.*) \|$", page, re.M)
    arguments = re.sub(r" \([^)]*\)", "", cell).replace("`", "").split(", ")
    assert arguments == list(signature(getattr(ablate, name)).parameters)
