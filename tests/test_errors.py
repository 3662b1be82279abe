"""Messages of errors have no secrets."""

import pytest

from ablate.errors import DataError, StudyError, without_secrets
from ablate.run.worker import failure_reason
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
