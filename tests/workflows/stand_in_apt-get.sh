#!/usr/bin/env bash
# Stands in for apt-get: records what it is asked for.
set -euo pipefail
echo "$*" >> "$RECORD/apt-get.txt"
