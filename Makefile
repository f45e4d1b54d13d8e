# One front door; each target makes the environment first.
#   make run        trains everything that is not up to date
#   make test       lint, types, and tests of all behaviour; less than 5 minutes on two cores
#   make test-slow  tests that start the real DVC, Slurm, an entry point, stores and hosted workflows; 17 minutes more
#   make test-all   both, as .ci/run does
#   make lint       lint, format and types alone
# The slowest tests are listed at the end of each run.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
export PATH := $(abspath $(BIN)):$(PATH)

PYTEST = OMP_NUM_THREADS=1 pytest -n $(WORKERS) --dist loadfile --durations 25
WORKERS := 2

.PHONY: run test test-slow test-all lint environment

run: environment
	dvc repro

test: environment lint
	$(PYTEST) -m "not slow"

# each waits for other processes much of the time
test-slow: WORKERS := 3
test-slow: environment
	$(PYTEST) -m slow

test-all: test test-slow

lint: environment
	ruff check .
	ruff format --check .
	mypy

environment: $(VENV)/.ready

$(VENV)/.ready: requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --requirement requirements.lock
	$(BIN)/pip install --quiet --no-deps --editable .
	touch $@
