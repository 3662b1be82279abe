#!/usr/bin/env bash
# First light of ablate's CUDA path: correctness, figures, a study, in 8 minutes on one H100 or H200.
#
#   bash benchmarks/first_light/run.sh [--dry] [--only env,correct,figures,lm,study] [--seconds 475]
#
# pack.sh lays out what a machine without a network needs. Results: up to 8 files in $OUT. Each part has a time limit
# and survives the failure of the others; the exit code is 1 if one failed or found a fault. --dry: tiny sizes on a CPU,
# the toy corpus, no time limits.
set -u
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
DRY=0; ONLY=env,correct,figures,lm,study; SECONDS_ALL=475
while [ $# -gt 0 ]; do case $1 in
  --dry) DRY=1;; --only) ONLY=$2; shift;; --seconds) SECONDS_ALL=$2; shift;; *) echo "unknown: $1"; exit 2;;
esac; shift; done
START=$(date +%s)
ROOT=$(cd "$HERE/../.." && pwd)
export DRY ROOT PY=${PY:-python3} OUT=${OUT:-/tmp/first-light-out} WORK=${WORK:-$(mktemp -d /tmp/first-light.XXXX)}
export DATA=${DATA:-$ROOT/.gpu/multi30k}
mkdir -p "$OUT" "$WORK"
LOG=$OUT/log.txt
FAILED=$WORK/failed; rm -f "$FAILED"
WHL=${WHL:-$ROOT/.whl}
if ls "$WHL"/*.whl >/dev/null 2>&1; then
  "$PY" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$WORK/site" "$WHL"/*.whl 2>&1 | grep -v WARNING
fi
export PYTHONPATH=$WORK/site:$HERE:$ROOT:$ROOT/benchmarks PYTHONUNBUFFERED=1 COLUMNS=200 HF_HUB_OFFLINE=1
export TORCHINDUCTOR_CACHE_DIR=$WORK/inductor TRITON_CACHE_DIR=$WORK/triton
cd "$ROOT" || exit 2

say() { echo "[$(( $(date +%s) - START )) s] $*" | tee -a "$LOG"; }
wants() { case ",$ONLY," in *",$1,"*) return 0;; *) return 1;; esac; }
# part NAME LIMIT COMMAND...: within its limit and what is left of all; the output goes to the log
part() {
  local name=$1 limit=$2 rest=$(( SECONDS_ALL - ($(date +%s) - START) )) code; shift 2
  [ "$DRY" = 0 ] || { limit=100000; rest=$limit; }  # a shared CPU
  [ "$limit" -lt "$rest" ] || limit=$rest
  [ "$limit" -gt 5 ] || { say "$name: left out, no time"; return; }
  say "$name: begins, at most $limit s"
  PART_SECONDS=$(( limit - 2 )) timeout -k 10 "$limit" "$@" >"$WORK/$name.out" 2>&1; code=$?
  { echo "=== $name, exit code $code"; tail -c 60000 "$WORK/$name.out"; } >>"$LOG"
  say "$name: exit code $code"
  [ "$code" = 0 ] || echo "$name" >>"$FAILED"
}

if wants env; then
  { date; uname -a; nproc; free -g | head -2; df -h /tmp | tail -1; nvidia-smi; which gcc g++ cc git nvidia-cuda-mps-control
    "$PY" - <<'P'
import importlib, importlib.metadata as m, sys, sysconfig, os
print(sys.version, sys.executable, "Python.h", os.path.exists(sysconfig.get_paths()["include"] + "/Python.h"))
for n in "torch triton numpy typer rich pydantic pydantic-core pyyaml sentencepiece sacrebleu safetensors filelock psutil huggingface-hub pandas pyarrow matplotlib jinja2 pytest".split():
    try: print(n, m.version(n))
    except Exception as e: print(n, "MISSING")
import torch
print(torch.__version__, torch.version.cuda, torch.cuda.is_available())
if torch.cuda.is_available(): print(torch.cuda.get_device_properties(0), torch.cuda.mem_get_info())
for n in "ablate.cli.app ablate.workers.worker ablate.training".split():
    try: importlib.import_module(n); print(n, "imported")
    except Exception as e: print(n, "FAILED", type(e).__name__, e)
P
  } >"$OUT/env.txt" 2>&1
  tail -25 "$OUT/env.txt"
  grep -q "ablate.workers.worker imported" "$OUT/env.txt" || { say "ablate cannot be imported"; cat "$OUT/env.txt"; exit 1; }
fi

# Nothing in this block is timed finely, so all of it runs at once; the caches that it fills serve the rest.
if wants correct; then
  export TORCHINDUCTOR_COMPILE_THREADS=3  # some ten processes compile at once
  part correct 115 "$PY" "$HERE/correct.py" & a=$!
  part runs 125 "$PY" "$HERE/runs.py" & b=$!
  wants study && { part prepare 110 "$PY" "$HERE/study.py" prepare & c=$!; }
  wants lm && { part warm 110 "$PY" "$HERE/lm.py" --warm & d=$!; }
  wait $a $b ${c:-} ${d:-}
  unset TORCHINDUCTOR_COMPILE_THREADS
elif wants study; then
  part prepare 60 "$PY" "$HERE/study.py" prepare
fi
wants figures && part figures 110 "$PY" "$HERE/figures.py"
wants lm && part lm 48 "$PY" "$HERE/lm.py"
wants study && part study 190 "$PY" "$HERE/study.py" run

say "end"
# The reply carries the end of the output: the short of all parts.
"$PY" - <<'P' | cut -c1-600
import json, os, pathlib
out = pathlib.Path(os.environ["OUT"])
for name in ("correct", "runs", "figures", "lm"):
    file = out / f"{name}.jsonl"
    if not file.exists(): continue
    print(f"== {name}")
    for line in file.read_text().splitlines():
        v = json.loads(line); v.pop("at", None)
        for k in ("output", "runs", "whole", "parted", "top_ms", "where", "tail"):
            if v.get("ok", True) or k != "where": v.pop(k, None)
        print(" ", json.dumps(v))
file = out / "study.md"
if file.exists(): print(file.read_text()[:2500])
P
ls -la "$OUT"
[ ! -e "$FAILED" ] || { say "failed: $(sort "$FAILED" | tr '\n' ' ')"; exit 1; }
