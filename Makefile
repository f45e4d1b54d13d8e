# One front door: `make run` trains everything, `make test` checks everything. Both make the environment first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
export PATH := $(abspath $(BIN)):$(PATH)

.PHONY: run test lint environment

run: environment
	dvc repro

test: environment lint
	OMP_NUM_THREADS=1 pytest -n 2 --dist loadfile

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
