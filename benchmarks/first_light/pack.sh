#!/usr/bin/env bash
# Lay out in a checkout what run.sh needs on a machine without a network:
#
#   bash benchmarks/first_light/pack.sh MULTI30K
#
# MULTI30K is a folder with its files. They go to .gpu/multi30k, and the packages that the machine lacks to .whl;
# both are left out of git, and have to be taken along. There: bash benchmarks/first_light/run.sh
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
mkdir -p .gpu .whl
cp -r "$1" .gpu/multi30k && chmod -R u+w .gpu/multi30k
python3 -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
  --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 -d .whl \
  pydantic==2.14.4 pydantic-core==2.50.5 annotated-types==0.8.0 typing-inspection==0.4.5 typing-extensions==4.16.0 filelock==4.3.1
du -sh .gpu .whl
