"""Steps by CUDA graphs give the weights of steps without; a recorder that executes functions again
replaces a GPU's.
"""

import functools

import pytest
import torch

from ablate.config import resolve_row
from ablate.config.training import graphs_note
from ablate.errors import Interrupted
from ablate.kernels import device
from ablate.kernels.cross_entropy import smoothed_cross_entropy
from ablate.model import build
from ablate.training import step_graphs
from ablate.training import trainer as trainer_module
from tests.training.conftest import Training
from tests.training.in_memory import corpus_of

STEPS, V = 32, 23
# With dropout and tied embeddings, as always in these tests.
SETTINGS = {
    "batch_tokens": 36, "train_steps": STEPS, "eval_every": 100, "checkpoint_every": 100, "gradient_clipping": 0.5,
}  # fmt: skip


class Rerun:
    """Executes a function again to replay it, with the tensors that it was recorded with, as a
    graph does.

    Recording executes nothing: it draws no random numbers and leaves results without values.
    """

    def __init__(self, random):
        self.random, self.recorded, self.results = random, 0, []

    def __call__(self, function):
        self.recorded += 1
        before = self.random.get_state()
        results = function()
        self.random.set_state(before)
        for result in results:
            if result is not None:
                result.fill_(torch.nan)
        self.results.append(results)
        return results, lambda: self.replay(function, results)

    def replay(self, function, results):
        # A graph does not know the context that it is launched in.
        with torch.autocast("cpu", enabled=False):
            again = function()
        for old, new in zip(results, again, strict=True):
            assert (old is None) == (new is None)
            if old is not None:
                old.copy_(new)


def few_shapes():
    """Sentences of few lengths: batches of one shape have other tokens, and often another number of
    target tokens.
    """
    drawn = torch.Generator().manual_seed(5)

    def text(lengths):
        length = lengths[int(torch.randint(len(lengths), (), generator=drawn))]
        return torch.randint(4, V, (length,), generator=drawn).tolist()

    return corpus_of(
        [(text([5]), text([3, 4])) for _ in range(24)]
        + [(text([7]), text([6, 7])) for _ in range(12)],
        V,
    )


@pytest.fixture
def small(tmp_path):
    """Make a training on sentences of few lengths; keywords as for `training`."""

    def small(name="run", *, corpus=None, **fields):
        direct = {
            key: fields.pop(key) for key in tuple(fields) if key in Training.__dataclass_fields__
        }
        return Training(tmp_path / name, corpus or few_shapes(), {**SETTINGS, **fields}, **direct)

    return small


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The outcome of a training without graphs, by settings; each is trained once."""

    @functools.cache
    def outcome(**settings):
        run = Training(tmp_path_factory.mktemp("plain"), few_shapes(), {**SETTINGS, **settings})
        run.fit()
        return run.outcome()

    return outcome


def by_graphs(run, recorder=Rerun, max_shapes=256):
    """The training with graphs: the trainer and its recorder, before its first step."""
    trainer = run.prepare()
    recorder = recorder(trainer.random)
    trainer.use_graphs(recorder)
    trainer.graphs.max_shapes = max_shapes
    return trainer, recorder


VARIANTS = {
        "post-norm": {},
    "bf16": {"precision": "bf16"},
    "decoder-only": {"architecture": "decoder-only", "gradient_clipping": None},
    "untied": {
        "tied_embeddings": "none", "positional_encoding": "learned", "activation": "swiglu", "norm_position": "pre",
        "norm": "rmsnorm", "attention_dropout": 0.2, "optimizer": "adamw", "weight_decay": 0.1,
    },
    "sgd": {"optimizer": "sgd", "positional_encoding": "relative", "activation_dropout": 0.2, "learning_rate": 0.3},
}  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
def test_weights_state_and_log_are_the_same_with_graphs(small, plain, variant):
    run = small(**VARIANTS[variant])
    trainer, recorder = by_graphs(run)
    trainer.fit()
    assert run.outcome() == plain(**VARIANTS[variant])
    assert recorder.recorded == 2 * len(trainer.graphs.shapes) >= 6
    assert trainer.graphs.replayed > STEPS // 2
    assert run.log_lines == [trainer.graphs.summary]


def test_batches_of_one_shape_differ_in_their_number_of_target_tokens(small):
    """Else the equality above would not show that the loss is outside of graphs."""
    trainer, _ = by_graphs(small())
    targets, real = {}, trainer.graphs._go_on

    def observed():
        shape, _, _, cut = trainer.graphs._call
        targets.setdefault(shape, set()).add(int((cut.grad != 0).any(-1).sum()))
        real()

    trainer.graphs._go_on = observed
    trainer.fit()
    assert max(len(targets[shape]) for shape in trainer.graphs.shapes) > 2


def test_an_interrupted_training_ends_the_same_and_begins_without_graphs(small, plain):
    run = small(stop_after=(23,))
    trainer, _ = by_graphs(run)
    with pytest.raises(Interrupted):
        trainer.fit()
    assert trainer.graphs.replayed
    run.stop_after, seen = (), []
    trainer, recorder = by_graphs(run)
    run.after_step = lambda report: seen.append(recorder.recorded)
    trainer.fit()
    assert seen[0] == 0
    assert trainer.graphs.replayed
    assert run.outcome() == plain()


def test_no_more_shapes_get_graphs_than_allowed(small, plain):
    run = small()
    trainer, recorder = by_graphs(run, max_shapes=1)
    trainer.fit()
    assert (len(trainer.graphs.shapes), recorder.recorded) == (1, 2)
    assert trainer.graphs.replayed
    assert run.outcome() == plain()


def test_a_shape_is_recorded_after_two_steps_and_replayed_from_the_third(small):
    trainer, recorder = by_graphs(
        small(corpus=corpus_of([([5, 6, 7], [8, 9])] * 9, V), batch_tokens=36)
    )
    seen = []
    for step in range(1, 6):
        trainer._step(step)
        seen.append((recorder.recorded, trainer.graphs.replayed))
    assert seen == [(0, 0), (0, 0), (2, 1), (2, 2), (2, 3)]
    assert trainer.graphs.summary == "CUDA graphs of 1 shapes ran 3 of 5 batches"


def storage(tensor):
    return tensor.untyped_storage().data_ptr()


def test_tensors_of_a_graph_are_its_own_and_stay_where_they_are(small):
    trainer, _ = by_graphs(small())
    given, real = [], trainer.graphs._states
    trainer.graphs._states = lambda name, *tokens: given.extend(tokens) or real(name, *tokens)
    for step in range(1, 30):
        trainer._step(step)
    held = [*trainer.model.parameters(), *given]
    shapes = trainer.graphs.shapes
    tensors = [
        [*p.tokens, *p.gradients, p.states, *(g for g in p.found if g is not None)]
        for p in shapes.values()
    ]
    addresses = [storage(tensor) for passes in tensors for tensor in passes]
    assert len(set(addresses)) == len(addresses)
    assert not {*addresses} & {storage(tensor) for tensor in held}
    assert all(parameter.grad is None for parameter in trainer.model.parameters())
    assert "forward" not in vars(trainer.model)
    trainer._step(30)
    assert [storage(tensor) for passes in tensors for tensor in passes] == addresses


def test_nothing_of_an_earlier_step_is_alive_when_a_shape_is_recorded(small):
    """Autograd's node that adds to a gradient lives while a result depends on it, and keeps the
    stream of its step.
    """
    trainer, recorder = by_graphs(small())
    find, nodes = torch.autograd.graph.get_gradient_edge, []

    def mark(*args):
        nodes.extend(find(parameter).node for parameter in trainer.model.parameters())
        for node in nodes:
            node.metadata["step"] = trainer.progress.step + 1

    def record(function):
        alive = [name for name, p in trainer.model.named_parameters() if find(p).node.metadata]
        assert alive == []
        return recorder(function)

    trainer.model.register_forward_pre_hook(mark)
    trainer.model.register_forward_hook(
        lambda *args: nodes.clear()
    )  # the results hold them from here on
    trainer.graphs.recorder = record
    for step in range(1, 20):
        trainer._step(step)
    assert recorder.recorded


# --- steps and runs without graphs ---


def test_a_batch_in_several_micro_batches_is_never_recorded(small):
    without, run = (
        small(name, micro_batch_tokens=20, train_steps=9) for name in ("plain", "graphs")
    )
    without.fit()
    trainer, recorder = by_graphs(run)
    trainer.fit()
    assert recorder.recorded == trainer.graphs.replayed == 0
    assert run.log_lines == [
        "CUDA graphs are not used for a batch that is divided into micro-batches",
        trainer.graphs.summary,
    ]
    assert run.outcome() == without.outcome()


@pytest.mark.parametrize(("arguments", "words"), [
    (("cuda", 1, "attention", False), None),
    (("cpu", 1, "attention", False), "GPUs only"),
    (("cuda", 2, "attention", False), "several GPUs"),
    (("cuda", 1, "lstm", False), "mixer=lstm"),
    (("cuda", 1, "attention", True), "custom classes"),
])  # fmt: skip
def test_a_run_that_cannot_use_graphs_is_told_why(arguments, words):
    note = graphs_note(*arguments)
    assert note is None if words is None else words in note


def test_a_run_on_a_cpu_says_that_the_setting_has_no_effect(small, plain):
    run = small(cuda_graphs=True)
    run.fit()
    assert run.trainer.graphs is None
    assert run.log_lines == ["cuda_graphs has an effect on GPUs only"]
    assert run.outcome() == plain()


@pytest.mark.parametrize("parts", [1, 2])
def test_the_parts_of_a_batch_and_custom_classes_are_asked_about(small, monkeypatch, parts):
    monkeypatch.setattr(trainer_module, "graphs_note", lambda *arguments: str(arguments))
    run = small(cuda_graphs=True, parts=parts)
    run.prepare()
    assert run.log_lines == [
        str(("cpu", parts, "attention", True))
    ]  # the task of these tests is a custom class


def test_a_run_that_can_use_graphs_records_with_its_device_and_its_dropout_masks(
    small, plain, monkeypatch
):
    monkeypatch.setattr(trainer_module, "graphs_note", lambda *arguments: None)
    monkeypatch.setattr(
        trainer_module,
        "CudaGraphRecorder",
        lambda device, random: {"cpu": Rerun}[device.type](random),
    )
    run = small(cuda_graphs=True)
    run.fit()
    assert run.trainer.graphs.replayed > STEPS // 2
    assert run.log_lines == [run.trainer.graphs.summary]
    assert run.outcome() == plain()


# --- memory ---


class Full(Rerun):
    """Has no memory for one recording in three."""

    error: RuntimeError = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")

    def __call__(self, function):
        if self.recorded % 3 == 2:
            self.recorded += 1
            raise self.error
        return super().__call__(function)


def test_a_shape_without_memory_for_its_graph_goes_on_without_one(small, plain):
    run = small()
    trainer, recorder = by_graphs(run, Full)
    trainer.fit()
    assert 0 < 2 * len(trainer.graphs.shapes) < recorder.recorded
    assert run.log_lines[:-1] == ["no CUDA graph for a shape: out of memory"]
    assert run.outcome() == plain()


def test_a_shape_that_cannot_be_recorded_is_told_with_the_first_line_of_the_reason(small, plain):
    class Refusing(Full):
        error = RuntimeError(
            "operation not permitted when stream is capturing\nCompile with TORCH_USE_CUDA_DSA"
        )

    run = small()
    by_graphs(run, Refusing)[0].fit()
    assert run.log_lines[:-1] == [
        "no CUDA graph for a shape: operation not permitted when stream is capturing"
    ]
    assert run.outcome() == plain()


def test_a_recording_that_ends_within_its_backward_pass_leaves_no_gradients(small, plain):
    run = small()

    class FullWithin(Rerun):
        def __call__(self, function):
            if self.recorded % 2 == 0:  # a forward pass
                return super().__call__(function)
            self.recorded += 1
            for parameter in run.trainer.optimizer.parameters[:3]:  # autograd has come this far
                parameter.grad = torch.ones_like(parameter)
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")

    trainer, recorder = by_graphs(run, FullWithin)
    trainer.fit()
    assert recorder.recorded > 0
    assert trainer.graphs.shapes == {}
    assert run.outcome() == plain()


def test_a_step_out_of_memory_is_repeated_without_graphs_before_it_is_divided(
    small, plain, monkeypatch
):
    run, released = small(), []
    trainer, _ = by_graphs(run)
    graphs = trainer.graphs
    monkeypatch.setattr(
        trainer_module, "release_cached_memory", lambda device: released.append(trainer.graphs)
    )

    def fail_once():
        if graphs.replayed == 9 and trainer.graphs is not None:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")

    run.before_loss = fail_once
    trainer.fit()
    assert trainer.graphs is None
    assert released == [None]  # once, after the graphs and their pool are dropped
    assert run.smaller == []
    assert len(run.log_lines) == 1
    assert run.log_lines[0].startswith("out of memory: no CUDA graphs from step ")
    assert run.outcome() == plain()


# --- the tests above notice mistakes ---


class FrozenMasks(Rerun):
    """As if the generator was not registered: every replay draws the numbers of the recording."""

    def __call__(self, function):
        self.before = self.random.get_state()
        return super().__call__(function)

    def replay(self, function, results):
        now = self.random.get_state()
        self.random.set_state(self.before)
        super().replay(function, results)
        self.random.set_state(now)


class Added(Rerun):
    """As if gradients were added to those of the step before."""

    def replay(self, function, results):
        before = [None if result is None else result.nan_to_num() for result in results]
        super().replay(function, results)
        if len(results) > 1:  # of the backward pass
            for result, old in zip(results, before, strict=True):
                if result is not None:
                    result += old


def skip_tokens(trainer, monkeypatch):
    real = step_graphs._copy
    monkeypatch.setattr(
        step_graphs,
        "_copy",
        lambda new, old: real(new, old) if old[0].is_floating_point() else None,
    )


def skip_gradients(trainer, monkeypatch):
    real = step_graphs._copy
    monkeypatch.setattr(
        step_graphs,
        "_copy",
        lambda new, old: None if old[0].is_floating_point() else real(new, old),
    )


def keep_rate(trainer, monkeypatch):
    rates = []
    real = trainer._rate
    trainer._rate = lambda step: rates.append(real(step)) or rates[trainer.graphs.replayed and 5]


BUGS = {
    "inputs": (Rerun, skip_tokens),
    "gradient of the states": (Rerun, skip_gradients),
    "learning rate": (Rerun, keep_rate),
    "gradients added": (Added, None),
    "masks": (FrozenMasks, None),
}


@pytest.mark.parametrize("bug", BUGS)
def test_weights_differ_where_a_graph_keeps_something_of_its_recording(
    small, plain, monkeypatch, bug
):
    recorder, plant = BUGS[bug]
    run = small(train_steps=20)
    trainer, _ = by_graphs(run, recorder)
    if plant:
        plant(trainer, monkeypatch)
    trainer.fit()
    assert trainer.graphs.replayed
    assert run.outcome() != plain(train_steps=20)


# --- the recorder of a GPU, with its library replaced ---


def test_the_recorder_registers_the_generator_and_shares_one_pool(monkeypatch):
    calls = []

    class Graph:
        def register_generator_state(self, generator):
            calls.append(("register", generator))

        def replay(self):
            calls.append("replay")

    class Context:
        def __init__(self, *args, **settings):
            self.name = (*map(type, args), *sorted(settings.items()))

        def __enter__(self):
            calls.append(("enter", self.name))

        def __exit__(self, *error):
            calls.append("exit")

    for name, value in {
        "CUDAGraph": Graph, "graph": Context, "stream": Context, "graph_pool_handle": lambda: "pool",
        "Stream": lambda device: "stream", "current_stream": lambda: "current",
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, value)
    random = torch.Generator()
    record = device.CudaGraphRecorder(torch.device("cuda", 0), random)
    results, replay = record(lambda: calls.append("function") or [1])
    assert results == [1]
    settings = (("capture_error_mode", "thread_local"), ("pool", "pool"), ("stream", "stream"))
    expected = [
        ("register", random),
        ("enter", (str,)),
        ("enter", (Graph, *settings)),
        "function",
        "exit",
        "exit",
    ]
    assert calls == expected
    replay()
    assert calls == [*expected, "replay"]


def test_a_recorded_function_of_a_masked_language_model_gives_its_gradients(monkeypatch):
    """The loss has layers of its own there, whose gradients do not pass the states."""
    row = resolve_row({
        "architecture": "encoder-only", "n_layers": 1, "d_model": 12, "d_ff": 20, "n_heads": 3, "dropout": 0.2,
        "output_transform": True, "output_bias": True,
    })  # fmt: skip
    drawn, found = torch.Generator().manual_seed(1), {}
    batches = [torch.randint(4, V, (3, 5), generator=drawn) for _ in range(6)]
    for graphs_used in (False, True):
        model = build(row, V, 1).train()
        parameters = [*model.parameters()]
        recorder = Rerun(model.random)
        graphs = step_graphs.StepGraphs(
            model, parameters, lambda: device.autocast(torch.device("cpu"), "fp32"), recorder, None
        )
        found[graphs_used] = []
        for n, tokens in enumerate(batches):
            with graphs.step(whole=True) if graphs_used else torch.enable_grad():
                states = model.output_states(model.read(tokens).flatten(0, 1)[: 3 + n])
                smoothed_cross_entropy(
                    states, model.output_matrix, tokens.flatten()[: 3 + n], 0.1
                ).backward()
            found[graphs_used].append(step_graphs._take_gradients(parameters))
            found[graphs_used][-1] = [
                None if g is None else g.clone() for g in found[graphs_used][-1]
            ]
    assert graphs.replayed == 4
    for one, other in zip(found[False], found[True], strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True) if a is not None)
        assert [a is None for a in one] == [b is None for b in other]
