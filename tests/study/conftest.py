"""Reading a study from its text, as the command line would."""

import pytest

from ablate.errors import AblateError
from ablate.study import Selection, read_study


@pytest.fixture(scope="session")
def study_file(tmp_path_factory):
    return tmp_path_factory.mktemp("studies") / "table3.yaml"


@pytest.fixture(scope="session")
def read(study_file):
    """Read a study from text or bytes; the keywords are those of Selection."""

    def read(content, **selection):
        study_file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_study(study_file, Selection(**selection))

    return read


@pytest.fixture(scope="session")
def faults(read, study_file):
    """The error lines for a study, with the file named without its folder."""

    def faults(content, **selection):
        with pytest.raises(AblateError) as caught:
            read(content, **selection)
        return [line.replace(f"{study_file.parent}/", "") for line in caught.value.lines]

    return faults
