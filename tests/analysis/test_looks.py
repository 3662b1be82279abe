"""Looks of a study: the look that it is at, by its results alone; where it stops; its table, plan
and status.
"""

import json
import os
import zipfile

import pytest

from ablate.analysis.current_look import read_current_look
from ablate.analysis.judgments import earlier_judgments, record_judgment
from ablate.analysis.missing import on_some_host
from ablate.analysis.stages import execute_stages, next_stage
from ablate.plan.budget import fit
from ablate.plan.plan import plan_of
from ablate.plan.power import power_json, power_of
from ablate.stats.looks import planned_looks
from ablate.stats.power import detectable_difference
from ablate.stats.significance import LEVEL
from ablate.store.records import Judgments
from ablate.study import runs_of
from ablate.table.conclusion import conclusion
from tests.cli.inside import inside
from tests.records import a_failure
from tests.report.fakes import SMALL, Fake

LOOKS = SMALL.replace("[1, 2, 3]", "{looks: [3, 4, 6]}").replace(
    "  decoding: {each: {beam: [1]}}\n", ""
)
BASE = {1: 25.0, 2: 25.3, 3: 24.8, 4: 25.1, 5: 25.0, 6: 24.9}


def noise(index, seed):
    return (7 * (index + 1) * seed % 5) / 50


def finish(results: Fake, seeds, offset=-9.0, rows=None):
    """Finish runs: base with its scores, each other row `offset` away and a little noise."""
    for index, row in enumerate(results.study.rows):
        for seed in seeds:
            if rows is None or row.label in rows:
                value = BASE[seed] + (offset + noise(index, seed) if index else 0.0)
                results.done(row.label, seed, 5.0, value)


@pytest.fixture
def given(fake):
    results = fake(LOOKS)
    return results, (str(results.study.path), "--results", str(results.results.root))


def test_the_seeds_are_those_of_the_last_look_and_their_runs_those_of_a_list(fake):
    with_looks, listed = (
        fake(LOOKS).study,
        fake(LOOKS.replace("{looks: [3, 4, 6]}", "[1, 2, 3, 4, 5, 6]")).study,
    )
    assert with_looks.seeds.rows == listed.seeds.rows == (1, 2, 3, 4, 5, 6)
    assert [run.id for run in runs_of(with_looks)] == [run.id for run in runs_of(listed)]


def test_a_look_is_judged_only_once_all_of_its_runs_have_ended(given):
    results, _ = given
    assert read_current_look(results.planned, results.results).runs.seeds.rows == (1, 2, 3)
    finish(results, [1, 2, 3], rows=["base", "A h=1", "A h=2"])
    results.done("D dropout=0.3", 1, 5.0, 16.0)
    current = read_current_look(results.planned, results.results)
    assert (current.looks.judged, current.runs.seeds.rows) == ((), (1, 2, 3))
    assert current.looks.text == (
        "Look 1 of 3 (3 of 6 seeds): no row is judged before all of its runs have ended."
    )
    table = results.table()
    assert {one.word for row in table.rows for one in row.verdicts.values()} <= {"cannot tell", ""}
    assert "before the first look" in " ".join(conclusion(table))


def test_a_study_stops_at_the_look_that_settles_every_row(given):
    results, words = given
    finish(results, [1, 2, 3], offset=-60.0)
    current = read_current_look(results.planned, results.results)
    assert (current.looks.stopped_early, current.looks.next, current.runs.seeds.rows) == (
        True,
        None,
        (1, 2, 3),
    )
    table = results.table()
    assert {row.verdicts["bleu"].word for row in table.rows[1:]} == {"worse"}
    text = "Look 1 of 3 (3 of 6 seeds): every row is decided, and the study stops here."
    assert text in conclusion(table)
    assert "Error rate: 2.5 % of 5 % is used, 2.5 % of it at this look." in conclusion(table)
    assert inside("status", *words).out.splitlines()[-1] == text
    assert "12 runs: 12 done" in inside("status", *words).out
    assert text in inside("plan", *words).out
    assert json.loads(inside("plan", *words, "--format", "json").out)["totals"]["missing"] == 0
    content = json.loads(inside("table", *words, "--format", "json").out)
    assert content["looks"]["stopped_early"]
    assert content["looks"]["judged"] == [{"seeds": 3, "level": 0.025, "spent": 0.025}]
    assert content["rows"][1]["against_base"]["bleu"]["decided_at_look"] == 1
    assert content["rows"][1]["bleu"]["n"] == 3


def test_results_of_seeds_beyond_the_look_that_stops_a_study_change_nothing(given):
    results, words = given
    finish(results, [1, 2, 3], offset=-60.0)
    before = inside("table", *words, "--format", "json").out
    finish(results, [4, 5, 6], offset=+60.0)
    assert inside("table", *words, "--format", "json").out == before


def test_rows_that_are_open_take_the_study_to_the_next_look_and_verdicts_of_the_last_one_stay(
    given,
):
    results, _ = given
    finish(results, [1, 2, 3], offset=-60.0, rows=["base", "A h=1", "A h=2"])
    for seed, value in ((1, 25.9), (2, 24.0), (3, 25.5)):
        results.done("D dropout=0.3", seed, 5.0, value)
    current = read_current_look(results.planned, results.results)
    assert (current.runs.seeds.rows, current.looks.undecided_rows) == (
        (1, 2, 3, 4),
        ("D dropout=0.3",),
    )
    assert (
        "1 row is undecided (D dropout=0.3); the study goes on with 4 seeds." in current.looks.text
    )
    results.done("base", 4, 5.0, 25.1)
    results.done("A h=1", 4, 5.0, 99.0)  # a look into the next look would see this
    table = results.table()
    verdict = table.rows[1].verdicts["bleu"]
    assert (verdict.word, verdict.n, verdict.look.number) == ("worse", 3, 1)
    assert table.rows[1].scores["bleu"].n == 4


def test_after_the_last_look_the_study_ends_with_rows_that_are_open(given):
    results, _ = given
    finish(results, range(1, 7), offset=0.0)
    for seed, value in BASE.items():
        results.done("D dropout=0.3", seed, 5.0, value + (-1) ** seed)
    current = read_current_look(results.planned, results.results)
    assert (
        len(current.looks.judged),
        current.looks.next,
        current.looks.stopped_early,
    ) == (3, None, False)
    assert current.looks.text.endswith("this was the last look.")


def test_a_failed_run_holds_no_other_row_back_but_its_study_does_not_stop(given):
    results, _ = given
    finish(results, [1, 2, 3], offset=-60.0, rows=["base", "A h=1", "A h=2"])
    finish(results, [1, 3], offset=-60.0, rows=["D dropout=0.3"])
    results.failed("D dropout=0.3", 2, "out of luck")
    current = read_current_look(results.planned, results.results)
    assert (current.runs.seeds.rows, current.looks.undecided_rows) == (
        (1, 2, 3, 4),
        ("D dropout=0.3",),
    )
    results.folder("D dropout=0.3", 2).failure.unlink()
    finish(results, [2], offset=-60.0, rows=["D dropout=0.3"])
    assert read_current_look(results.planned, results.results).looks.stopped_early


@pytest.mark.parametrize(("hosts", "is_over"), [((), False), (("a",), False), (("a", "b"), True)])
def test_for_pilots_a_failed_run_has_ended_once_no_host_would_try_it_again(given, hosts, is_over):
    results, _ = given
    finish(results, [1, 2, 3], rows=["base", "A h=1", "A h=2"])
    finish(results, [1, 3], rows=["D dropout=0.3"])
    results.failed("D dropout=0.3", 2, "out of luck")
    a_failure(hosts=hosts).write(results.folder("D dropout=0.3", 2).failure)
    current = read_current_look(results.planned, results.results, on_some_host)
    assert bool(current.looks.judged) == is_over


def simulated(results: Fake, offsets, log=lambda line: None, on_start=lambda seed: None):
    """Run a study with looks, where `execute` finishes the runs that are missing; returns the seeds
    of each part.
    """
    parts = []

    def execute(stage):
        part = stage.runs
        parts.append(part.seeds.rows)
        for seed in part.seeds.rows:
            for index, row in enumerate(part.rows):
                if not results.folder(row.label, seed).result.exists():
                    on_start(seed)
                    offset = offsets[index - 1] + noise(index, seed) if index else 0.0
                    is_open = index and not offsets[index - 1]
                    results.done(row.label, seed, 5.0, BASE[seed] + offset + is_open * (-1) ** seed)

    first = next_stage(results.study, results.results)
    execute_stages(first, results.results, execute, log)
    return parts


def test_looks_are_run_one_after_the_other_until_one_settles_every_row(fake):
    results, lines = fake(LOOKS), []
    assert simulated(results, (-60, -60, -60), lines.append) == [(1, 2, 3)]
    assert len(lines) == 1  # the conclusion has the outcome of the last look
    stops = "Look 1 of 3 (3 of 6 seeds): every row is decided, and the study stops here."
    assert conclusion(results.table()).count(stops) == 1


def test_an_open_row_is_run_to_the_last_look_and_resuming_starts_where_it_was(fake):
    results, lines = fake(LOOKS), []
    assert simulated(results, (-60, -60, 0.0), lines.append) == [
        (1, 2, 3),
        (1, 2, 3, 4),
        (1, 2, 3, 4, 5, 6),
    ]
    assert [line[:11] for line in lines] == ["Look 1 of 3", "Look 1 of 3", "Look 2 of 3"]
    assert simulated(results, (-60, -60, 0.0)) == []
    results.folder("A h=1", 5).result.unlink()
    assert simulated(results, (-60, -60, 0.0)) == [(1, 2, 3, 4, 5, 6)]


def test_two_launchers_of_one_root_agree_and_none_starts_a_look_before_the_last_one_has_ended(fake):
    """The second launcher works in the middle of the first one's runs, and finds the same looks."""
    results, started = fake(LOOKS), []
    nested = []

    def on_start(seed):
        started.append(seed)
        look = 1 if seed <= 3 else 2 if seed == 4 else 3
        for count in (3, 4, 6)[: look - 1]:
            assert all(results.folder(row.label, one).result.exists() for row in results.study.rows
                       for one in range(1, count + 1))  # fmt: skip
        if len(started) == 3:
            nested.append(read_current_look(results.planned, results.results).runs.seeds.rows)
            nested.extend(simulated(results, (-60, -60, 0.0)))

    simulated(results, (-60, -60, 0.0), on_start=on_start)
    assert nested[0] == (1, 2, 3)
    assert nested[1:] == [(1, 2, 3), (1, 2, 3, 4), (1, 2, 3, 4, 5, 6)]


def test_the_plan_shows_what_each_look_finds_and_the_look_that_sees_a_difference(given):
    results, words = given
    (power,) = power_of(results.planned, results.results, spread=1.0)
    found = [
        detectable_difference(look.seeds, 3, 1.0, level=look.level)
        for look in planned_looks((3, 4, 6))
    ]
    assert [one["detectable"] for one in power_json(power)["looks"]] == found
    assert f"look 3 (6 seeds, level 0.0167) {found[2]:.1f} BLEU" in power.text
    between = (min(found[:2]) + found[2]) / 2
    assert power.seeds_needed(between) == 6
    assert power.seeds_text(between).endswith("is detected by the look with 6 seeds.")
    assert power.seeds_text(0.01).endswith("is detected by no look.")
    assert "every seed that may follow" in inside("plan", *words, "--spread", "1").out


def test_a_budget_takes_whole_looks(given):
    results, _ = given
    finish(results, [1])
    plan = plan_of(results.planned, results.results)
    each = next(iter(plan.seconds_by_run.values())) if plan.seconds_by_run else 0.0
    assert each > 0
    at_five = sum(plan.seconds_by_run.get(run.id, 0.0) for run in plan.planned if run.seed <= 5)
    assert fit(plan, at_five).runs.seeds.rows == (1, 2, 3, 4)


def test_every_size_must_be_settled(fake):
    text = LOOKS + "sizes: {small: {d_ff: 64}, large: {d_ff: 256}}\n"
    results = fake(text)
    for index, row in enumerate(results.study.rows):
        for seed in (1, 2, 3):
            far = 0.0 if row.is_base else -60.0 if row.size == "small" else (-1.0) ** seed
            results.done(row.label, seed, 5.0, BASE[seed] + far + noise(index, seed))
    current = read_current_look(results.planned, results.results)
    assert {label.split()[0] for label in current.looks.undecided_rows} == {"large"}


def test_effects_of_a_factorial_are_judged_at_the_look_with_its_level(fake):
    from ablate.table.designs import design_effects

    text = (
        LOOKS.partition("rows:")[0]
        + "rows:\n  F: {factorial: {dropout: [0.0, 0.2], beam: [1, 4]}}\n"
    )
    results = fake(text)
    for index, row in enumerate(results.study.rows):
        for seed in (1, 2, 3, 4):
            if seed < 4 or index == 1:  # one run of the second look
                value = BASE[seed] + index + 10 * noise(index, seed) + (seed == 4) * 50
                results.done(row.label, seed, 5.0, value)
    at_look = design_effects(results.table())[0]
    assert "At look 1 of 3 (3 of 6 seeds), at its level 0.025: intervals cover" in " ".join(
        at_look.notes
    )
    listed = fake(text.replace("{looks: [3, 4, 6]}", "[1, 2, 3]"))
    at_once = design_effects(listed.table())[0]
    for one, other in zip(at_look.by_metric["bleu"], at_once.by_metric["bleu"], strict=True):
        assert one.value == pytest.approx(other.value)  # the fourth seed is not looked at
        (low, high), (other_low, other_high) = one.interval, other.interval
        assert high - low > 1.1 * (other_high - other_low)
        assert one.p == pytest.approx(min(1.0, 2 * other.p))


def listed(count):
    return LOOKS.replace("{looks: [3, 4, 6]}", str(list(range(1, count + 1))))


def test_looks_that_are_changed_after_one_was_judged_raise_the_error_of_the_table(fake):
    results = fake(LOOKS)
    simulated(results, (-60, -60, 0.0))  # to the last look
    table = results.table()
    assert table.experiment.error_rate == LEVEL
    assert not table.experiment.notes.remarks
    changed = fake(LOOKS.replace("[3, 4, 6]", "[3, 6]")).table()
    assert changed.experiment.error_rate == 2 * LEVEL
    (remark,) = changed.experiment.notes.remarks
    assert remark == (
        "Earlier versions of the study have verdicts: by bleu, with 3, 4 and 6 seeds, without a margin. "
        "If no row differs from base, the probability of at least one false verdict "
        "in all versions together is at most 10 %, not 5 %."
    )
    words = " ".join(conclusion(changed))
    assert "Error rate: 5 % of 10 % is used" in words
    assert "about 10 % of such studies" in words
    assert fake(LOOKS).table().experiment.error_rate == LEVEL


def test_seeds_that_are_added_to_a_list_after_a_verdict_raise_the_error(fake):
    first = fake(listed(3))
    finish(first, [1, 2, 3], offset=-60.0)
    record_judgment(first.planned, first.results)
    assert first.table().experiment.error_rate == LEVEL
    more = fake(listed(4))
    assert earlier_plans(more.study, more.results) == [(3,)]
    assert more.table().experiment.error_rate == pytest.approx(0.1)
    record_judgment(
        more.planned, more.results
    )  # seed 4 is missing: nothing is judged with four seeds yet
    assert fake(listed(3)).table().experiment.error_rate == LEVEL
    finish(more, [4], offset=-60.0)
    record_judgment(more.planned, more.results)
    assert earlier_plans(fake(listed(5)).study, more.results) == [(3,), (4,)]
    content = json.loads(
        inside(
            "table", str(more.study.path), "--results", str(more.results.root), "--format", "json"
        ).out
    )
    assert content["error"] == pytest.approx(0.15)


def test_a_trial_after_a_verdict_names_the_study_and_with_one_seed_says_nothing(fake):
    whole = fake(listed(3))
    finish(whole, [1, 2, 3], offset=-60.0)
    record_judgment(whole.planned, whole.results)
    root = str(whole.results.root)
    trial = inside("table", whole.study.path, "--seeds", "1-2", "--results", root)
    (line,) = (line for line in trial.out.splitlines() if "a selection by --set" in line)
    assert line.startswith(
        "Earlier versions of the study have verdicts: by bleu, with 3 seeds, without a margin"
    )
    assert f"`ablate table {whole.study.path} --results {root}`" in line
    single = fake(listed(3), rows=["A*"], seeds="1").table()
    assert (single.experiment.error_rate, single.experiment.notes.remarks) == (LEVEL, ())
    assert (
        fake(listed(3)).table().experiment.error_rate,
        fake(listed(3)).table().experiment.notes.remarks,
    ) == (LEVEL, ())


def earlier_plans(study, results):
    return [judgment.seeds_per_look for judgment in earlier_judgments(runs_of(study), results)]


def judged_by(results, text, before):
    """A table of a study after a verdict with another text."""
    earlier = results(before)
    finish(earlier, [1, 2, 3], offset=-60.0)
    record_judgment(earlier.planned, earlier.results)
    return results(text)


@pytest.mark.parametrize(
    ("before", "after", "error", "line"),
    [
        ("", "judge: [ppl]", 0.1, "by bleu, with 3 seeds, without a margin. If no row"),
        ("judge: [bleu, ppl]", "judge: [ppl]", 0.1, "by bleu and ppl, with 3 seeds, without a margin. If no row"),
        ("margin: 0.5", "margin: 1", 0.05, 'by bleu, with 3 seeds, with a margin of 0.5 bleu. "As good as base" is a claim'),
        ("", "margin: 0.5", 0.05, 'by bleu, with 3 seeds, without a margin. "As good as base" is a claim'),
    ],
)  # fmt: skip
def test_metrics_and_margins_that_are_changed_after_a_verdict_are_remarked_everywhere(
    fake, before, after, error, line
):
    results = judged_by(fake, f"{listed(3)}{after}\n", f"{listed(3)}{before}\n")
    table = results.table()
    assert table.experiment.error_rate == pytest.approx(error)
    (remark,) = table.experiment.notes.remarks
    assert remark.startswith(f"Earlier versions of the study have verdicts: {line}")
    path, root = str(results.study.path), str(results.results.root)
    assert f"note: {remark}" in inside("plan", path, "--results", root).err
    assert fake(f"{listed(3)}{before}\n").table().experiment.notes.remarks == ()


@pytest.mark.parametrize(
    ("before", "after", "removed"),
    [
        ("h: [1, 2]", "h: [1]", "1 row"),
        ("h: [1, 2]", "h: [4]", "2 rows"),
        ("h: [1]", "h: [1, 2]", None),
        ("  A: ", "  other name: ", None),
    ],
)
def test_rows_that_are_removed_after_a_verdict_raise_the_error(fake, before, after, removed):
    """Holm's correction counts only the rows that are left."""
    start = listed(3).replace("h: [1, 2]", before) if "h:" in before else listed(3)
    table = judged_by(fake, start.replace(before, after), start).table()
    if removed is None:
        assert (table.experiment.error_rate, table.experiment.notes.remarks) == (LEVEL, ())
    else:
        (remark,) = table.experiment.notes.remarks
        assert remark == (
            f"Earlier versions of the study have verdicts: by bleu, with 3 seeds, without a margin, "
            f"with {removed} changed (settings or code) or removed since then. If no row differs from "
            "base, the probability of at least one false verdict in all versions together is at most "
            "10 %, not 5 %."
        )
        assert table.experiment.error_rate == 2 * LEVEL


def test_rows_that_an_option_leaves_out_are_not_removed(fake):
    judged_by(fake, listed(3), listed(3))
    assert fake(listed(3), rows=["A"]).table().experiment.notes.remarks == ()


def test_an_old_record_says_nothing_of_metrics_and_margins(fake):
    results = judged_by(fake, f"{listed(3)}judge: [ppl]\nmargin: 0.5\n", listed(3))
    path = results.results.judged("small")
    old = [
        version.model_copy(update={"metrics": None, "margins": None})
        for version in Judgments.read(path).versions
    ]
    Judgments(versions=tuple(old)).write(path)
    assert (results.table().experiment.error_rate, results.table().experiment.notes.remarks) == (
        LEVEL,
        (),
    )


def test_the_start_of_a_run_and_the_published_archive_say_it_too(fake, tmp_path):
    results = judged_by(fake, f"{listed(3)}judge: [ppl]\n", listed(3))
    path, root = str(results.study.path), str(results.results.root)
    line = "Earlier versions of the study have verdicts: by bleu, with 3 seeds"
    started = inside("run", path, "--results", root, "--device", "cpu")
    assert f"note: {line}" in started.err
    assert inside("publish", path, "--results", root, "--out", tmp_path / "published").code == 0
    with zipfile.ZipFile(tmp_path / "published/records.zip") as archive:
        archive.extractall(tmp_path / "unpacked")
    read = inside("table", path, "--results", tmp_path / "unpacked")
    assert line in " ".join(read.out.split())


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("d_ff: 128", "d_ff: 256"),  # other runs
        lambda text: text.replace("study: small", "study: other"),
    ],
)
def test_another_study_has_no_part_in_the_error(fake, change):
    first = fake(listed(3))
    finish(first, [1, 2, 3])
    record_judgment(first.planned, first.results)
    other = fake(change(listed(4)))
    assert earlier_plans(other.study, other.results) == []


def test_neither_one_seed_nor_a_part_of_a_study_nor_base_alone_is_a_judgment(fake):
    for results in (
        fake(listed(1)),
        fake(listed(3), seeds="1-2"),
        fake(listed(3).partition("rows:")[0]),
    ):
        finish(results, results.study.seeds.rows)
        record_judgment(results.planned, results.results)
    assert not results.results.judged("small").exists()


@pytest.mark.parametrize(
    "damage", [lambda path: path.write_text('{"versions": []}'), os.mkfifo, os.mkdir]
)
def test_a_damaged_record_is_a_remark_and_is_made_anew(fake, damage):
    results = fake(listed(3))
    finish(results, [1, 2, 3])
    path = results.results.judged("small")
    path.parent.mkdir()
    damage(path)
    (fault,) = results.table().experiment.notes.faults
    assert fault.startswith(f"{path}: ")
    assert fault.endswith("it is not known whether the study was changed after a verdict")
    record_judgment(results.planned, results.results)
    assert results.table().experiment.notes.faults == ()
