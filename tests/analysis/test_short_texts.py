"""The remark on short translations names the surest cause, with its remedy."""

from ablate.analysis.outcome import outcome_of
from ablate.analysis.short_texts import cause_of
from tests.report.fakes import SMALL, Fake, study_from


def remarks(tmp_path, cut, base=""):
    """Those of a study whose base has short translations, of which some were cut."""
    text = SMALL.replace("base: {", f"base: {{{base}")
    results = Fake(tmp_path / "results", study_from(tmp_path, text, seeds="1,2"))
    for seed in (1, 2):
        results.done("base", seed, 5.0, 20.0)
        results.with_parts("base", seed, cut, brevity_penalty=0.4)
    return [
        line
        for line in outcome_of(
            results.planned, results.results
        ).table.experiment.notes.advised_remarks
        if line.startswith("Short")
    ]


def test_the_limit_of_length_comes_first_with_its_count(tmp_path):
    (line,) = remarks(tmp_path, {"max_extra_length": 1}, "early_stopping: true, ")
    assert "0.98): base (0.400, 2 of 6 translations cut)" in line
    assert line.endswith(
        "max_extra_length=50 has cut translations: raise it, unless they repeat the same words."
    )
    assert "alpha" not in line
    (line,) = remarks(tmp_path, {"max_positions": 1})
    assert "max_positions=1024 has cut translations" in line


def test_early_stopping_comes_second(tmp_path):
    (line,) = remarks(tmp_path, {}, "early_stopping: true, ")
    assert "Set early_stopping to false" in line
    assert "alpha" not in line


def test_alpha_comes_last(tmp_path):
    for cut, base in (({}, ""), (None, ""), ({}, "early_stopping: true, beam: 1, ")):
        (line,) = remarks(tmp_path, cut, base)
        assert "A larger alpha makes translations longer" in line
        assert "cut" not in line


def test_a_larger_alpha_is_no_remedy_where_dev_has_chosen_it(tmp_path):
    text = SMALL.replace("  decoding: {each: {beam: [1]}}\n", "")
    study = study_from(tmp_path, f"{text}tune: {{decoding: {{alpha: [0.0, 1.0]}}}}\n")
    (row, *_) = study.rows
    assert cause_of([], row, 0.02).remedy == "alpha=0.6 is the best value of the grid on dev."


def test_a_row_with_larger_faults_than_the_length_has_no_remark(tmp_path):
    results = Fake(tmp_path / "results", study_from(tmp_path, SMALL, seeds="1,2"))
    # Without the penalty of 0.5, these rows have a BLEU of 22 and of 18; half of base's is 20.
    for label, bleu, penalty in (("base", 40.0, 1.0), ("A h=1", 11.0, 0.5), ("A h=2", 9.0, 0.5)):
        for seed in (1, 2):
            results.done(label, seed, 5.0, bleu)
            results.with_parts(label, seed, {}, brevity_penalty=penalty)
    remarks = outcome_of(results.planned, results.results).table.experiment.notes.remarks
    (line,) = [remark for remark in remarks if remark.startswith("Short")]
    assert "0.98): A h=1 (0.500)." in line
