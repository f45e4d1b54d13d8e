#!/usr/bin/env bash
# Stands in for sudo: runs the command as who it is.
set -euo pipefail
exec env "$@"
