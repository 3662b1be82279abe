"""A study with everything that the page shows, written by hand."""

import pytest

from ablate.analysis.curves import curves_of
from ablate.analysis.missing_scores import score_missing
from ablate.data.corpus import Corpus
from ablate.page.study_page import samples, study_page
from tests.report.conftest import fake  # noqa: F401
from tests.report.fakes import CORPUS, SMALL, Fake, study_from

# A sentence that would be markup, if the page let it.
SOURCES = ["<b>a</b> & \"b\" <script>document.title='taken'</script>", "c", "d", "e"]
REFERENCES = [
    "the old dog sleeps near the river",
    "a king writes",
    "two birds sing in the tree",
    "a letter is long",
]
WORDS = ("dog", "king", "birds", "letter")


class Whole(Fake):
    """Results of three seeds with logs, translations and scores; row D has diverged once."""

    def fill(self):
        self.corpus(SOURCES, REFERENCES)
        for place, row in enumerate(self.study.rows):
            for seed in self.study.seeds.rows:
                worse = place / 10 + seed / 100 + place * (seed % 3) / 10_000
                self.done(row.label, seed, 5 + worse, 25 - worse, seconds=60.0 + 20 * place)
                lines = [
                    text.replace(word, "x" * place)
                    for text, word in zip(REFERENCES, WORDS, strict=True)
                ]
                self.translated(row.label, seed, lines)
                points = (
                    {"step": step, "dev_perplexity": 900.0 / step + place + seed / 10}
                    for step in (50, 100)
                )
                self.logged(row.label, seed, *points)
        self.folder("D dropout=0.3", 2).result.unlink()
        self.diverged(
            "D dropout=0.3", 2, 50, "the loss exploded </section><script>alert(1)</script>"
        )
        score_missing(self.planned, self.results)
        return self

    def prepared_corpus(self):
        return Corpus(self.results.corpus(CORPUS))

    def page(self, **more):
        outcome = self.outcome()
        shown = samples(outcome, self.results, self.prepared_corpus(), 3)
        return study_page(outcome, self.results, curves_of(outcome, self.results), shown, **more)


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    return Whole(folder / "results", study_from(folder, SMALL + "metrics: [bleu, chrf]\n")).fill()


@pytest.fixture(scope="session")
def text(whole):
    return whole.page()
