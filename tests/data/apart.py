"""Corpora prepared in another process: libraries read their environment variables once."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# The outcome of each case is a corpus, or the lines of an error. The pauses of the Hub's library
# and its blocks are smaller, so that a small file can be cut in the middle.
SCRIPT = """
import json, sys, time
from pathlib import Path
pause = time.sleep
import huggingface_hub.constants
huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE = 4096
time.sleep = lambda seconds: pause(min(seconds, 0.01))
from ablate.config.translation_data import TranslationData
from ablate.config.language_data import LanguageData
from ablate.data.prepare import prepare
from ablate.errors import AblateError
outcomes = []
for settings, folder, corpora in json.loads(sys.argv[1]):
    said = []
    try:
        data = (TranslationData if "direction" in settings else LanguageData).resolve(settings)
        corpus = prepare(data, Path(folder), Path(corpora), said.append)
    except AblateError as error:
        outcomes.append({"fault": list(error.lines)})
        continue
    texts = {}
    for name in ("train", "dev", "test"):
        split = corpus.split(name)
        for field in corpus.fields:
            ids = [split[field][i].tolist() for i in range(len(split))]
            texts[f"{name}.{field}"] = corpus.tokenizer_of(field).decode(ids)
    sources = {name: origin.model_dump(mode="json") for name, origin in corpus.manifest.sources.items()}
    counts = corpus.manifest.records
    outcomes.append({"id": corpus.id, "records": counts, "said": said, "texts": texts, "sources": sources})
print(json.dumps(outcomes))
"""


def start_preparing(cases, **environment):
    """Start the preparation of cases (data settings, folder of files, folder of corpora)."""
    arguments = [sys.executable, "-W", "error", "-c", SCRIPT, json.dumps(cases, default=str)]
    # Other tests run offline.
    variables = {
        **os.environ,
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        **environment,
    }
    pipe = subprocess.PIPE
    return subprocess.Popen(arguments, cwd=ROOT, env=variables, stdout=pipe, stderr=pipe, text=True)


def outcomes_of(process):
    """Wait for `start_preparing`; return the outcome of each case."""
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])
