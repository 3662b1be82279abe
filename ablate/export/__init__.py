"""Trained runs as models of other libraries.

export_run.py      a run's folder in, a folder of another library's files out
targets.py         the models of other libraries, by task
target.py          a target: the settings that it supports, and its weights in terms of ours
changes.py         how weights become those of others
encoders.py        tables of Marian, BERT and ModernBERT for transformers
causal.py          tables of GPT-2, Llama and their descendants for transformers
huggingface.py     the files of transformers
ctranslate.py      tables and files of CTranslate2
"""

from ablate.export.export_run import export_run

__all__ = ["export_run"]
