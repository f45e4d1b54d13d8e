#!/bin/sh
# Download what figura needs beside an environment that has PyTorch, OpenCV, pandas, numba and accelerate:
#     machines/gpu/wheels.sh FOLDER [PYTHON_VERSION, by default 3.12]
# The versions and hashes are those of locks/requirements.lock.
set -eu
folder=${1:?usage: machines/gpu/wheels.sh FOLDER [PYTHON_VERSION]}
mkdir -p "$folder"
chosen=$(mktemp)
trap 'rm -f "$chosen"' EXIT
names='pydantic|pydantic-core|annotated-types|typing-inspection|orjson|pycocotools|ruamel-yaml'
names="$names|matplotlib|contourpy|cycler|fonttools|kiwisolver|pyparsing"  # curves
awk -v names="^($names)==" '/^[a-z]/ {keep = $0 ~ names} keep' "$(dirname "$0")/../../locks/requirements.lock" > "$chosen"
python3 -m pip download --quiet --no-deps --require-hashes --only-binary :all: --implementation cp \
    --python-version "${2:-3.12}" --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 \
    --platform manylinux2014_x86_64 --dest "$folder" --requirement "$chosen"
du -ch "$folder"/*.whl
