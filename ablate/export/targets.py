"""The models of other libraries that a run can be exported to."""

from __future__ import annotations

from ablate.config import ModelConfig
<<<<<<< HEAD
from ablate.config.fields import facts_of
from ablate.config.plugins import without_digest
from ablate.config.variants import BERT, GENERATOR, GPT2, LLAMA, MARIAN, TRANSLATOR, exportable
from ablate.errors import listed
from ablate.export import ctranslate
from ablate.export.bert import write_bert
from ablate.export.gpt2 import write_gpt2
from ablate.export.llama import write_llama, write_llama_language_model
from ablate.export.marian import write_marian
from ablate.export.trained_model import TrainedModel
from ablate.formatting import setting_text
from ablate.tasks import TASKS
=======
from ablate.export.causal import CAUSAL
from ablate.export.ctranslate import GENERATOR, TRANSLATOR
from ablate.export.encoders import BERT, MARIAN
from ablate.export.target import Target
from ablate.tasks import LanguageModel, MaskedLanguageModel, Translation
>>>>>>> 8ea15cd (Export: one table of names, changes and supported settings for each model of another library, which the proof against transformers shares; twelve published architectures are exported as their own classes)

# By library, task and architecture: the first one with the fewest violations is the target.
TARGETS: dict[str, dict[str, dict[str, tuple[Target, ...]]]] = {
    "huggingface": {
        Translation.name: {"encoder-decoder": (MARIAN,), "decoder-only": CAUSAL},
        LanguageModel.name: {"decoder-only": CAUSAL},
        MaskedLanguageModel.name: {"encoder-only": (BERT,)},
    },
    "ctranslate2": {
        Translation.name: {"encoder-decoder": (TRANSLATOR,), "decoder-only": (GENERATOR,)}
    },
}

<<<<<<< HEAD
_LLAMA = TARGETS["huggingface"]["decoder-only"]
# Of language models, by name of the library: the first one with the fewest violations is the
# target.
LANGUAGE_MODELS: dict[str, tuple[Target, ...]] = {
    "huggingface": (
        Target(
            GPT2,
            {
                **_variants(GPT2, "mixer", "attention", "positional_encoding"),
                "attention_scale": ("1/sqrt(d_k)",),
                **_variants(GPT2, "activation", "norm"),
                "norm_position": ("pre",),
                "residual": (True,),
            },
            _gpt2_rules,
            write_gpt2,
        ),
        replace(_LLAMA, write=write_llama_language_model),
    )
}
MASKED_LANGUAGE_MODELS: dict[str, tuple[Target, ...]] = {
    "huggingface": (
        Target(
            BERT,
            {
                **_variants(BERT, "mixer", "attention", "positional_encoding"),
                "attention_scale": ("1/sqrt(d_k)",),
                **_variants(BERT, "activation", "norm"),
                "norm_position": ("post",),
                "residual": (True,),
                "embedding_norm": (True,),
                "output_transform": (True,),
                "output_bias": (False, True),
            },
            _bert_rules,
            write_bert,
        ),
    )
}
_ONE_STACK = {"causal": LANGUAGE_MODELS, "masked": MASKED_LANGUAGE_MODELS}

=======
>>>>>>> 8ea15cd (Export: one table of names, changes and supported settings for each model of another library, which the proof against transformers shares; twelve published architectures are exported as their own classes)

def target_of(task: str, config: ModelConfig, library: str) -> Target | None:
    """The model of a library that a run is exported as; None if the library has none for the
    task.
    """
<<<<<<< HEAD
    kind = TASKS[task].exported_as if task in TASKS else ""
    if kind == "sequence-to-sequence":
        return TARGETS[library][config.architecture]
    targets = _ONE_STACK.get(kind, {}).get(library, ())
    return min(targets, key=lambda target: len(target.violations(config)), default=None)


def exportable_tasks(library: str) -> tuple[str, ...]:
    """Names of the tasks whose runs can be exported to a library."""
    kinds = {"sequence-to-sequence"}
    kinds.update(kind for kind, targets in _ONE_STACK.items() if library in targets)
    return tuple(name for name, task in TASKS.items() if task.exported_as in kinds)
=======
    targets = TARGETS[library].get(task, {}).get(config.architecture, ())
    return min(targets, key=lambda target: len(target.violations(config)), default=None)


def all_targets() -> list[Target]:
    """Every model of every library."""
    targets: dict[str, Target] = {}
    for tasks in TARGETS.values():
        for architectures in tasks.values():
            for group in architectures.values():
                targets |= {target.name: target for target in group}
    return list(targets.values())
>>>>>>> 8ea15cd (Export: one table of names, changes and supported settings for each model of another library, which the proof against transformers shares; twelve published architectures are exported as their own classes)
