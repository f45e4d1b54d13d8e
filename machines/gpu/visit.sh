#!/bin/sh
# Nine minutes with a GPU whose machine has PyTorch and no network:
#     machines/gpu/visit.sh WHEELS [OPTION ...]       # the folder of machines/gpu/wheels.sh; options of bench.gpu
# docs/speed.md says what to bring.
set -eu
wheels=$(realpath "${1:?usage: machines/gpu/visit.sh WHEELS [OPTION ...]}")
shift
cd "$(dirname "$0")/../.."
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir --target "$site" "$wheels"/*.whl
PYTHONPATH=$site${PYTHONPATH:+:$PYTHONPATH} python3 -m bench.gpu "$@"
