"""Trained runs as models of other libraries.

export_run.py      a run's folder in, a folder of another library's files out
targets.py         the models of other libraries, and the configurations that each supports
trained_model.py   configuration, weights and vocabulary of the run
huggingface.py     encoder-decoders (Marian) and decoder-only models (Llama) for transformers
ctranslate.py      both architectures for CTranslate2
"""

from ablate.export.export_run import export_run

__all__ = ["export_run"]
