"""Faults as values and as lines, which have no secrets."""

import pytest

from ablate.errors import (
    MAX_MESSAGE,
    DataError,
    Fault,
    Mark,
    StudyError,
    meant_name,
    not_allowed,
)
from ablate.formatting import without_secrets
from ablate.workers.worker import failure_reason
from tests.report.fakes import study_from

STUDY = """\
study: secret
data: {corpus: files, direction: en-de, vocab_size: 200, train: "TRAIN", dev: dev, test: test}
base: {N: 1, d_model: 16, d_ff: 32, h: 2, train_steps: 100}
"""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://me:pass@host:5000/a", "http://…@host:5000/a"),
        ("at 'https://ghp_token@host/a', again", "at 'https://…@host/a', again"),
        ("s3://key:p@ss@bucket/x and ftp://u:p@h", "s3://…@bucket/x and ftp://…@h"),
        ("https://h/a?X-Amz-Signature=ab%2F&n=1", "https://h/a?X-Amz-Signature=…&n=1"),
        ("abfs://c/x?sv=1&sig=Q==#top", "abfs://c/x?sv=1&sig=…#top"),
        ("https://h/a?access_token=b api_key=", "https://h/a?access_token=… api_key="),
        ("http://host:5000/#/runs/a@b", "http://host:5000/#/runs/a@b"),
        ("me@host: mail, key=3, a?b=c", "me@host: mail, key=3, a?b=c"),
    ],
)
def test_addresses_lose_passwords_and_keys(text, shown):
    assert without_secrets(text) == shown
    assert str(DataError(text)) == DataError(text).lines[0] == shown


def test_the_recorded_reason_of_a_failure_has_no_password():
    reason = failure_reason(RuntimeError("no answer of http://me:pass@host"), None)
    assert reason == "RuntimeError: no answer of http://…@host"


@pytest.mark.parametrize("train", ["https://me:pass@host/train", "https://host/train?token=pass"])
def test_a_study_with_a_password_in_an_address_is_refused_without_printing_it(tmp_path, train):
    with pytest.raises(StudyError, match="train: the address has a password or a key") as error:
        study_from(tmp_path, STUDY.replace("TRAIN", train))
    assert "pass@" not in str(error.value)
    study_from(tmp_path, STUDY.replace("TRAIN", "https://host/train"))


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("Train-Steps", "train_steps"),
        ("trainsteps", "train_steps"),
        ("warm_up", "warmup_steps"),
        ("warm-up", "warmup_steps"),
        ("RMSNorm", "norm=rmsnorm"),
        ("a-h=1", "A h=1"),
        ("dropuot", "dropout"),
        ("--Train_Steps", "train_steps"),
        ("d_q", "d_k"),
        ("cat", ""),
        ("_", ""),
        ("''", ""),
    ],
)
def test_case_spaces_hyphens_and_underscores_do_not_count_for_the_nearest_name(given, meant):
    names = ("train_steps", "warmup_steps", "norm=rmsnorm", "A h=1", "dropout", "d_k")
    assert meant_name(given, names) == meant


@pytest.mark.parametrize(
    ("given", "meant"),
    [("swish", "silu"), ("pos", "positional_encoding"), ("Pos", "positional_encoding")],
)
def test_words_of_other_tools_stand_for_the_names_here(given, meant):
    names = ["relu", "swiglu", "silu", "probes", "post", "positional_encoding", "max_positions"]
    assert meant_name(given, names) == meant


def test_a_fault_is_a_value_until_it_is_printed():
    fault = not_allowed('"reluu"', "relu or gelu", meant=meant_name("reluu", ["relu", "gelu"]))
    assert (fault.given, fault.allowed) == ('"reluu"', "relu or gelu")
    fault = fault.about("activation").located(Mark("s.yaml", 3, 7))
    said = 's.yaml:3:7: activation: "reluu" is not allowed: must be relu or gelu; did you mean'
    assert str(fault) == f'{said} "relu"?'
    assert StudyError(fault).faults == (fault,)
    assert StudyError(fault).lines == (str(fault),)


def test_an_option_that_causes_a_fault_of_a_file_stands_before_it():
    fault = Fault("no", place=Mark("s.yaml", 3, 7), causes=(Mark("--set h=3"), Mark("--set N=2")))
    assert str(fault) == "--set h=3 --set N=2: no (s.yaml:3:7)"
    assert fault.as_json("data") == {
        "code": "data",
        "message": "no",
        "place": "s.yaml:3:7",
        "causes": ["--set h=3", "--set N=2"],
        "problem": "no",
    }


@pytest.mark.parametrize(
    "text", ["a\nb", "a\rb", "a\u2028b", "\x1b[31m", "\x00", "\udcff", "\u202eb"]
)
def test_error_lines_are_single_and_printable(text):
    for line in (
        str(Fault(f'"{text}"', place=Mark("s.yaml", 1, 1))),
        str(Fault("no", place=Mark(f"a{text}.yaml", 1, 1))),
    ):
        assert line.isprintable()


def test_error_lines_are_limited_in_length():
    assert len(str(Fault("x" * 10**6, place=Mark("s.yaml", 1, 1)))) < MAX_MESSAGE + 50


def test_a_fault_as_data_has_no_secrets():
    address = "https://me:pass@host/train?token=pass"
    fault = Fault(f"no {address}", given=address, place=Mark(f"--set data.train={address}"))
    assert "pass" not in str(fault)
    assert "pass" not in str(fault.as_json("data"))
