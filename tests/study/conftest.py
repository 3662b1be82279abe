"""Reading a study from its text, as the command line would."""

import pytest

from ablate.errors import AblateError
from ablate.study import Selection, read_study


@pytest.fixture(scope="session")
def study_file(tmp_path_factory):
    return tmp_path_factory.mktemp("studies") / "table3.yaml"


@pytest.fixture(scope="session")
def read(study_file):
    """Text or bytes to a study; the keywords are those of Selection."""

    def read(content, **selection):
        study_file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_study(study_file, Selection(**selection))

    return read


@pytest.fixture(scope="session")
def faults(read, study_file):
    """The lines that a study is refused with, with the file named as if it lay here."""

    def faults(content, **selection):
        with pytest.raises(AblateError) as caught:
            read(content, **selection)
        return [line.replace(f"{study_file.parent}/", "") for line in caught.value.lines]

    return faults
