"""Several ranks give the bytes of one: training, evaluation and decoding. Here, the ranks are
threads of a process.
"""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

from ablate.config import DecodingConfig
from ablate.config.resolve import resolve_row
from ablate.data.batches import BatchOrder, divide
from ablate.decoding.translate import BATCH_TOKENS, translate_ids
from ablate.errors import Interrupted
from ablate.kernels.ranks import ONLY_RANK, Ranks, use_ranks
from ablate.metrics.token_scores import score_text
from ablate.model import build
from ablate.tasks import Translation
from ablate.training import Diverged
from ablate.training.gradient_tree import GradientTree, part_seed, rank_parts
from tests.model.small import small_model
from tests.training.conftest import TINY
from tests.training.in_memory import corpus_of

CPU = torch.device("cpu")


class Board:
    """Where threads put values for each other."""

    def __init__(self, size):
        self.barrier, self.values = threading.Barrier(size, timeout=60), [None] * size


class ThreadRanks(Ranks):
    """One of several threads; sums by the definition of the tree, without any library."""

    def __init__(self, index, size, board):
        self.index, self.size, self.board = index, size, board

    def _all(self, value):
        self.board.values[self.index] = value
        self.board.barrier.wait()
        found = list(self.board.values)
        self.board.barrier.wait()
        return found

    def vote(self, flags):
        return [any(votes) for votes in zip(*self._all(list(flags)), strict=True)]

    def sum_in_tree(self, values):
        found = self._all(values.clone())
        while len(found) > 1:
            found = [found[i] + found[i + 1] for i in range(0, len(found), 2)]
        values.copy_(found[0])

    def all_gather_objects(self, value):
        return [json.loads(text) for text in self._all(json.dumps(value))]


def together(size, work):
    """The results of `work(ranks)` in as many threads, by rank."""
    board = Board(size)

    def one(index):
        ranks = ThreadRanks(index, size, board) if size > 1 else ONLY_RANK
        try:
            with use_ranks(ranks):
                return work(ranks)
        except BaseException:
            board.barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(one, range(size)))


@pytest.fixture
def trained(training):
    """Train with some ranks in a folder; returns the training of each rank, and how it ended."""

    def trained(name, size, *, on_one=None, **fields):
        def work(ranks):
            run = training(name, parts=4, ranks=ranks, batch_tokens=200, **fields)
            for key, value in ((on_one or {}) if ranks.index == size - 1 else {}).items():
                setattr(run, key, value)
            try:
                run.fit()
            except (Interrupted, Diverged) as error:
                return run, type(error)
            return run, None

        runs, ends = zip(*together(size, work), strict=True)
        assert len(set(ends)) == 1  # all ranks end in the same way
        return runs[0], ends[0]

    return trained


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"optimizer": "sgd", "gradient_clipping": 0.1, "micro_batch_tokens": 30},
        {"optimizer": "normuon", "ema_decay": 0.8, "cautious_updates": True, "batch_growth": 2},
    ],
)
def test_any_number_of_ranks_gives_the_same_bytes(trained, settings):
    (one, _), (two, _), (four, _) = (trained(f"{size}", size, **settings) for size in (1, 2, 4))
    assert one.outcome() == two.outcome() == four.outcome()
    assert one.outcome()["newest"] == 12


def test_parts_change_the_masks_and_the_last_digits_and_nothing_else(training):
    """Without dropout, the sum over parts is the gradient of the whole batch."""
    for dropout, is_close in ((0.0, True), (0.3, False)):
        runs = [
            training(f"{dropout} {parts}", parts=parts, dropout=dropout, batch_tokens=200)
            for parts in (1, 4)
        ]
        for run in runs:
            run.fit()
        (one, four) = (dict(run.trainer.model.named_parameters()) for run in runs)
        assert all(torch.allclose(one[name], four[name], atol=1e-4) for name in one) == is_close
        if not is_close:
            assert runs[0].metrics.read_bytes() != runs[1].metrics.read_bytes()
        assert runs[0].trainer.last_loss == pytest.approx(
            runs[1].trainer.last_loss, rel=1e-5 if is_close else 0.5
        )


def test_a_run_resumes_on_another_number_of_ranks_with_the_same_bytes(trained):
    whole, _ = trained("whole", 1)
    for size, stop in ((2, 3), (1, 7)):
        _, end = trained("cut", size, stop_after=(stop,))
        assert end is Interrupted
    cut, end = trained("cut", 4)
    assert end is None
    assert cut.log_lines == ["resumed at step 7"]
    assert cut.outcome() == whole.outcome()
    again, _ = trained("cut", 2)  # the training has ended
    assert again.reports == []


def test_a_request_to_stop_on_any_rank_ends_all_after_the_same_step(trained):
    run, end = trained("run", 4, on_one={"stop_after": (5,)})
    assert end is Interrupted
    assert run.outcome()["newest"] == 6  # asked after step 5, and agreed on in step 6


def failing_once(at):
    """Raises out of memory in the loss with this number."""
    calls = [0]

    def before_loss():
        calls[0] += 1
        if calls[0] == at:
            raise torch.OutOfMemoryError("CUDA out of memory")

    return before_loss


def test_out_of_memory_on_one_rank_halves_the_micro_batch_of_all(trained):
    """With 4 ranks, the last one has one loss a step; alone, a process has four."""
    four, _ = trained("four", 4, on_one={"before_loss": failing_once(3)}, micro_batch_tokens=100)
    one, _ = trained("one", 1, before_loss=failing_once(12), micro_batch_tokens=100)
    assert four.smaller == one.smaller == [50]
    assert four.outcome() == one.outcome()


def test_all_ranks_notice_divergence(trained):
    run, end = trained(
        "run", 2, learning_rate=100.0, schedule="constant", optimizer="sgd", warmup_steps=1
    )
    assert end is Diverged
    assert len(run.reports) == 2  # noticed at the first line of the log, after step 3


# --- the tree ---


def tree_sums(size, gradients, losses):
    """The gradients of two parameters and the loss, from `GradientTree` on some ranks; one row of
    gradients a part.
    """

    def work(ranks):
        parameters = [
            nn.Parameter(torch.zeros(3, 2)),
            nn.Parameter(torch.zeros(5)),
            nn.Parameter(torch.zeros(1)),
        ]
        tree = GradientTree(parameters, ranks)
        for part in rank_parts(len(losses), ranks):
            for parameter, gradient in zip(parameters, gradients[part], strict=True):
                parameter.grad = None if gradient is None else gradient.clone()
            tree.add(losses[part])
        tree.gradient_flags = ranks.vote(tree.gradient_flags)
        return [tree.sum_gradients(), *(parameter.grad for parameter in parameters)]

    return together(size, work)


def test_the_sum_is_that_of_the_tree_whatever_the_number_of_ranks():
    drawn = torch.Generator().manual_seed(1)
    losses = torch.tensor([1e8, 1.0, -1e8, 1.0, 1.0, 1.0, 1.0, 1.0])  # 1e8 + 1 is 1e8 in fp32
    # The second parameter has a gradient in one part only, and the third one in none.
    second = [torch.randn(5, generator=drawn) if part == 5 else None for part in range(8)]
    gradients = [(torch.randn(3, 2, generator=drawn), second[part], None) for part in range(8)]
    assert sum(losses) == 5.0  # from left to right
    for size in (1, 2, 4, 8):
        for loss, first, other, absent in tree_sums(size, gradients, losses):
            assert loss == 4.0
            assert torch.allclose(
                first, torch.stack([gradient for gradient, _, _ in gradients]).sum(0)
            )
            assert torch.equal(other, second[5])
            assert absent is None


def test_masks_differ_between_seeds_steps_and_parts():
    seeds = [
        part_seed(seed, step, part) for seed in (1, 2) for step in range(1, 50) for part in range(8)
    ]
    assert len(set(seeds)) == len(seeds)


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_a_batch_is_divided_into_neighbors_of_about_as_many_tokens(toy, count):
    split = toy.split("train")
    longest = int(split.lengths(np.arange(len(split))).max())
    for batch in BatchOrder(split, 400, seed=1).epoch(0)[:20]:
        parts = divide(split, batch, count)
        assert len(parts) == count
        assert np.array_equal(np.concatenate(parts), batch)
        sizes = [int(split.lengths(part).max(axis=0).sum()) if len(part) else 0 for part in parts]
        assert max(sizes) - min(sizes) <= 2 * longest


def test_a_batch_of_few_records_leaves_some_parts_empty(training):
    corpus = corpus_of([([5, 6, 7, 8], [8, 7, 6])] * 9, 13)
    runs = [
        training(f"{parts}", corpus=corpus, batch_tokens=10, parts=parts, dropout=0.0)
        for parts in (1, 8)
    ]
    for run in runs:
        run.fit()
    assert runs[0].trainer.last_loss == pytest.approx(runs[1].trainer.last_loss, rel=1e-5)


# --- evaluation and decoding ---


@pytest.fixture(scope="module")
def model(toy):
    return build(resolve_row(TINY), toy.tokenizer.vocab_size, seed=1).eval()


def test_perplexity_and_translations_are_those_of_one_rank(toy, model, monkeypatch):
    monkeypatch.setattr("ablate.metrics.evaluation.EVAL_TOKENS", 200)
    monkeypatch.setitem(BATCH_TOKENS, "cpu", 150)
    split, test = toy.split("dev"), toy.split("test")["source"]
    sentences = [test[i].tolist() for i in range(30)]
    evaluated, translated = [], []

    def work(ranks):
        task, batches = Translation(), []
        collate = task.collate
        task.collate = lambda *args: batches.append(args) or collate(*args)
        value = task.nats_per_token(model, split, CPU)
        found = translate_ids(
            model, sentences, DecodingConfig(beam=2), CPU, lambda: translated.append(ranks.index)
        )
        evaluated.append(len(batches))
        return value, found

    (expected,) = together(1, work)
    for size in (2, 4):
        translated.clear()
        assert together(size, work) == [expected] * size
        assert set(translated) == set(range(size))  # each rank has decoded something
    assert min(evaluated) > 4


def test_an_evaluation_starts_over_on_all_ranks_if_one_runs_out_of_memory(toy, model, monkeypatch):
    monkeypatch.setattr("ablate.metrics.evaluation.EVAL_TOKENS", 256)
    monkeypatch.setattr("ablate.metrics.evaluation.FEWEST_EVAL_TOKENS", 128)
    split = toy.split("dev")

    def work(ranks):
        task = Translation()
        terms, calls = task.output_terms, []

        def output_terms(model, batch):
            calls.append(batch)
            if ranks.index == ranks.size - 1 and len(calls) == 2:
                raise torch.OutOfMemoryError
            return terms(model, batch)

        task.output_terms = output_terms
        return task.nats_per_token(model, split, CPU)

    assert together(4, work) == together(1, work) * 4


def test_the_scores_of_a_text_are_those_of_one_rank(monkeypatch):
    draw = np.random.default_rng(3)
    places = np.split(draw.permutation(60), [7, 7, 20, 33, 41])  # the second batch is empty
    nats, correct, scored = draw.random(60), draw.random(60) < 0.5, []

    def score_tokens(where, cap):
        return torch.from_numpy(np.stack([nats[where], correct[where]]))

    class Where:
        def __init__(self, places):
            self.places = places

        def to(self, device):
            return self

    monkeypatch.setattr("ablate.metrics.token_scores.score_tokens", score_tokens)
    for size in (1, 2, 4):
        scored.clear()

        def work(ranks):
            batches = [(some, Where(some)) for some in places]
            return score_text(
                small_model(),
                lambda tokens: batches,
                lambda model, batch: [batch.places],
                CPU,
                lambda: scored.append(ranks.index),
            )

        for scores in together(size, work):
            assert scores.indices.tolist() == list(range(60))
            assert scores.nats.tolist() == nats.tolist()
            assert scores.correct.tolist() == correct.tolist()
        assert sorted(scored) == sorted(
            number % size for number in range(len(places))
        )  # each batch on one rank
