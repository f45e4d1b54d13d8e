#!/usr/bin/env bash
# Stands in for npm: records what it is asked for.
set -euo pipefail
echo "$*" >> "$RECORD/npm.txt"
