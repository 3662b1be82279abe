"""The study of each task, trained once for all files that read its results."""

import pytest

from tests.tasks.studies import STUDIES
from tests.trained import Trained


@pytest.fixture(scope="session")
def trained(once):
    """Return a function that gives the trained study of a task. Tests must not change its results."""

    def trained(task):
        def train(folder):
            text, write = STUDIES[task]
            (folder / "study.yaml").write_text(text)
            write(folder)
            Trained(folder / "study.yaml", folder / "results").answer("run", "--device", "cpu")

        folder = once(f"trained-{task}", train)
        return Trained(folder / "study.yaml", folder / "results")

    return trained
