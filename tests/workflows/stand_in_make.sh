#!/usr/bin/env bash
# Stands in for make: the real one says what it would do, so that an unknown target fails, and the target is recorded.
set -euo pipefail
"$REAL_MAKE" --dry-run "$@" > /dev/null
echo "$*" >> "$RECORD/make.txt"
mkdir -p .venv/bin
touch .venv/bin/activate
