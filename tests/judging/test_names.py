"""Numbers at the end of names: seeds of the runs of a row, or a part of its name."""

import pandas as pd
import pytest

import ablate
from ablate.errors import UsageError
from tests.cli.inside import inside

SCORES = (3.11, 3.14, 3.09, 3.01, 3.02, 3.00)


def frame_of(names, seeds=None):
    frame = pd.DataFrame({"row": names, "loss": SCORES[: len(names)]})
    return frame if seeds is None else frame.assign(seed=seeds)


def names_of(form, rows=("adam", "muon"), numbers=(42, 43, 44)):
    return [form.format(row, number) for row in rows for number in numbers]


EXPECTED = frame_of(["adam"] * 3 + ["muon"] * 3, [42, 43, 44] * 2)
ENDS = (
    "{}-{}", "{}_{}", "{} {}", "{}.{}", "{}/{}", "{}#{}", "{}@{}", "{}:{}", "{}__{}", "{} - {}",
    "{} ({})", "{}[{}]", "{}-s{}", "{}_s{}", "{}_S{}", "{} s{}", "{}.s{}", "{}-0{}",
)  # fmt: skip


@pytest.mark.parametrize("form", ENDS)
@pytest.mark.parametrize("seeds", [None, [42, 43, 44] * 2], ids=["names", "column"])
def test_numbers_that_can_only_be_seeds_are_read_as_seeds(form, seeds):
    found = ablate.judge(frame_of(names_of(form), seeds), base="adam")
    pd.testing.assert_frame_equal(found, ablate.judge(EXPECTED, base="adam"))
    first = names_of(form)[0]
    note = f'Read 6 names as 2 rows with 3 seeds each: the number in "{first}" is the seed.'
    assert note in found.attrs["remarks"]


@pytest.mark.parametrize("rows", [("base", "wide"), ("base", "B"), ("base", "layers")])
def test_base_with_the_word_s_needs_no_option(rows):
    """The word says what the number is, also after a letter or the name of a setting."""
    found = ablate.judge(frame_of(names_of("{}_s{}", rows, (1, 2, 3))))
    assert list(found.index) == list(rows)


def test_base_without_the_word_s_is_asked_for():
    with pytest.raises(UsageError, match=r"Give --base base \(base=.base. in Python\) if the numb"):
        ablate.judge(frame_of(names_of("{}-{}", ("base", "wide"), (1, 2, 3))))


def test_seeds_of_the_column_may_be_named_and_may_be_missing():
    names, seeds = names_of("{}_s{}"), ["s42", "s43", "s44"] * 2
    found = ablate.judge(frame_of(names, seeds), base="adam")
    pd.testing.assert_frame_equal(found, ablate.judge(EXPECTED, base="adam"))
    found = ablate.judge(frame_of(names[:5], [42, 43, 44, 42, 43]), base="adam")
    assert "Read 5 names as 2 rows with 2 to 3 seeds" in found.attrs["remarks"][0]


SETTINGS = (
    ["h=8", "h=4", "h=2"],
    ["h-8", "h-4", "d_ff-512", "d_ff-256"],
    ["d_ff-512", "d_ff-513", "d_model-512", "d_model-513"],
    ["lr-3", "lr-4", "wd-3", "wd-4"],
    ["layers_6", "layers_7", "heads_6", "heads_7"],
    ["numlayers-1", "numlayers-2", "numheads-1", "numheads-2"],
    ["adam-lr-3", "adam-lr-4", "muon-lr-3", "muon-lr-4"],
    ["lr=3e-4", "lr=3e-5", "wd=3e-4", "wd=3e-5"],
    ["3e-4", "3e-5", "1e-4", "1e-5"],
    ["v1.2", "v1.3", "w1.2", "w1.3"],
    ["adam-256", "adam-512", "muon-256", "muon-512"],
    ["enc-6", "enc-12", "dec-6", "dec-12"],
    ["gpt-2", "gpt-3", "bert-2"],
    ["A-1", "A-2", "B-1", "B-2"],
    ["trial-1", "trial-2", "exp-1", "exp-2"],
    ["adam-run1", "adam-run2", "muon-run1", "muon-run2"],
)


@pytest.mark.parametrize("names", SETTINGS, ids=str)
def test_numbers_that_may_be_settings_stay_in_the_name(names):
    """Each name is a row, and without its number it is none."""
    found = ablate.judge(frame_of(names), base=names[0])
    assert list(found.index) == names
    with pytest.raises(UsageError, match="which row is base"):
        ablate.judge(frame_of(names))
    row = names[0].rstrip("0123456789").rstrip("-_.=")
    with pytest.raises(UsageError, match="unknown row"):
        ablate.judge(frame_of(names), base=row)


@pytest.mark.parametrize("names", [SETTINGS[4], SETTINGS[14], SETTINGS[3]], ids=str)
def test_settings_that_equal_the_seed_stay_in_the_name(names):
    seeds = [int(name[-1]) for name in names]
    with pytest.raises(UsageError, match=r"no seed in common|unknown row"):
        ablate.judge(frame_of(names, seeds), base=names[0])
    with pytest.raises(UsageError, match="unknown row"):
        ablate.judge(frame_of(names, seeds), base=names[0][:-2])


def test_a_whole_name_as_base_and_several_runs_of_a_name_leave_the_names_as_they_are():
    names = names_of("{}-{}")
    assert list(ablate.judge(frame_of(names), base="adam-42").index) == names
    twice = pd.concat([frame_of(names), frame_of(names).assign(loss=[x + 1 for x in SCORES])])
    assert list(ablate.judge(twice, base="adam-42").index) == names
    seeds = [1, 2, 3, 4, 5, 6]
    both = pd.concat([frame_of([name] * 6, seeds) for name in ("adam-1", "adam-2", "muon-1")])
    assert list(ablate.judge(both, base="adam-1").index) == ["adam-1", "adam-2", "muon-1"]


@pytest.mark.parametrize("form", ["{}{}", "{}_run_{}", "s{1}_{0}", "{1}-{0}", "{}-rep{}"])
def test_names_that_contain_base_are_proposed_as_its_runs(form):
    names = names_of(form)
    first, second, third = names[:3]
    remedy = (
        f'if "{first}", "{second}", "{third}" are runs of one row, write adam in the column row '
        "of each, and its seed in a column seed"
    )
    for seeds in (None, [1, 2, 3, 1, 2, 3]):
        with pytest.raises(UsageError) as caught:
            ablate.judge(frame_of(names, seeds), base="adam")
        (fault,) = caught.value.faults
        assert (fault.given, fault.remedy) == ('"adam"', remedy)


def test_seeds_beside_other_numbers_are_proposed_and_a_misspelt_row_is_corrected():
    names = names_of("{}-{}", numbers=(1, 2, 3))
    with pytest.raises(UsageError, match=r'no seed in common with adam-1.* if "adam-1", "adam-2"'):
        ablate.judge(frame_of(names, [42, 43, 44] * 2), base="adam-1")
    with pytest.raises(UsageError, match='unknown row "adm"; did you mean "adam"'):
        ablate.judge(frame_of(names), base="adm")


def test_unfinished_runs_are_counted_by_row():
    frame = frame_of(names_of("{}-{}"), [42, 43, 44] * 2).assign(state="finished")
    frame.loc[5, "state"] = "crashed"
    found = ablate.judge(frame, base="adam")
    assert "Lines left out, because not finished: muon 1 (crashed)." in found.attrs["remarks"]
    assert not [remark for remark in found.attrs["remarks"] if remark.startswith("Rows left")]


def test_proposals_of_a_stream_may_be_numbered(tmp_path):
    file = tmp_path / "log.csv"
    names = ["base-1"] * 24 + ["base-2", "try-1", "try-2"]
    lines = [f"{name},{3 + index / 100}\n" for index, name in enumerate(names)]
    file.write_text("row,loss\n" + "".join(lines))
    out = inside("judge", file, "--stream").out
    assert "Chain: base-1" in out
    assert "try-2: " in out
