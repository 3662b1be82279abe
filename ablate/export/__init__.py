"""Trained runs as models of other libraries.

export_run.py      a run's folder in, a folder of another library's files out
targets.py         the models of other libraries, and the configurations that each supports
trained_model.py   configuration, weights and vocabulary of the run
marian.py          encoder-decoders for transformers
llama.py, gpt2.py  decoder-only models for transformers
bert.py            masked language models for transformers
huggingface.py     files and weights that these models have in common
ctranslate.py      encoder-decoders and decoder-only models for CTranslate2
"""

from ablate.export.export_run import export_run

__all__ = ["export_run"]
