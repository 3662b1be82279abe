"""Convert trained runs to models of other libraries.

export_run.py      read the folder of a run, write the folder of a model
targets.py         the models of other libraries, by library, task and architecture
target.py          a target: which settings it supports, and how its weights are made from ours
changes.py         changes of tensors that the tables of weights use
encoders.py        settings and tables of weights of Marian, BERT and ModernBERT
causal.py          settings and tables of weights of GPT-2, Llama and their descendants
huggingface.py     the files of transformers
ctranslate.py      settings, tables of weights and files of CTranslate2
"""

from ablate.export.export_run import export_run

__all__ = ["export_run"]
