# One front door; each target makes the environment that it needs first. The slowest tests are listed at the end of each
# run. `make help` lists the targets: lines that begin with `#:`.
#: run          enlarges a photo by a network that ships, then trains everything that is not up to date
#: test         lint, types, and the quick tests; from 4 minutes on two cores
#: test-slow    tests that start the real DVC, Slurm, an entry point, stores and hosted workflows, and the longest
#: test-all     both, as .ci/run does; 23 to 52 minutes in CI
#: lint         lint, format and types alone
#: pictures     the README's pictures, from the results of `make run`
#: docs         the site, in build/site; broken links are errors
#: dist         the wheel and the source archive, in dist, checked for an upload (CONTRIBUTING.md)
#: lock         renews the lock files, with hashes (docs/supply_chain.md)
#: audit        looks for known vulnerabilities in what is locked
#: licences     renews locks/LICENSES.csv
#: sbom         a bill of materials, CycloneDX
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
export PATH := $(abspath $(BIN)):$(PATH)
# Python keeps what it has compiled, even where a container says otherwise: a process then starts in half the time.
unexport PYTHONDONTWRITEBYTECODE

PYTEST = OMP_NUM_THREADS=1 pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 25
WORKERS := 2

.PHONY: help run test test-slow test-all lint pictures docs dist environment lock audit licences sbom

run: build/cat.sr.png
	dvc repro
	@python -m figura.commands.results

# A first picture, before anything is trained: by a network that ships.
build/cat.sr.png: $(VENV)/.ready
	figura predict photos_x2 docs/pictures/cat.png --output build

help:
	@sed -n 's/^#: /make /p' $(firstword $(MAKEFILE_LIST))

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

pictures: $(VENV)/.ready
	python -m figura.commands.strips docs/pictures vunet/transfers pix2pix/triptychs pose/found super_resolution/enlarged

environment: $(VENV)/.ready-dev

# Every file is checked against the hash in the lock; `--no-deps`: the locks are complete, tests hold that. Python compiles
# what is imported, once; pip would compile all of it, which takes a quarter of the installation.
LOCKED := pip install --no-compile --no-deps --require-hashes --requirement

# PyTorch's build for CUDA (PyPI's for Linux) asks for NVIDIA's libraries, that for CPUs does not. Another build of the
# same version, installed into $(VENV) with what it needs before, stays.
$(VENV)/.ready: locks/requirements.lock locks/requirements-cuda.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' || \
	    { echo "$(PYTHON) is not Python 3.11 to 3.14; name one that is: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/$(LOCKED) locks/requirements.lock
	! $(BIN)/pip check | grep '^torch .* not installed' > /dev/null || $(BIN)/$(LOCKED) locks/requirements-cuda.lock
	$(BIN)/pip install --no-deps --no-build-isolation --editable .
	touch $@

$(VENV)/.ready-dev: $(VENV)/.ready locks/requirements-dev.lock
	$(BIN)/$(LOCKED) locks/requirements-dev.lock
	touch $@

docs: environment
	zensical build --strict --config-file docs/zensical.toml
	rm -rf build/site
	mkdir -p build
	mv docs/build/site build/site
	rmdir docs/build

dist: environment
	rm -rf dist
	hatchling build
	uvx --from twine==6.2.0 twine check --strict dist/*

lock: environment
	python locks/renew.py $(OPTIONS)

LOCKS := $(wildcard locks/requirements*.lock)

# --strict: a package that the database does not answer for is no clean one
audit: environment
	pip-audit --strict --disable-pip --require-hashes $(LOCKS:%=--requirement %) || { $(ADVICE); exit 1; }

define ADVICE
echo "What to do: 'make lock OPTIONS=\"--upgrade-package NAME\"' takes the fixed version; then 'make licences test-all' and\
 'dvc repro', as results depend on packages. Where no fix exists and figura does not use what is vulnerable, add\
 '--ignore-vuln ID' to the target 'audit' of the Makefile, with the reason." >&2
endef

licences: environment
	pip-licenses --with-system --format csv --output-file locks/LICENSES.csv --packages \
	    $$(sed -n 's/==.*//p' locks/requirements.lock locks/requirements-dev.lock)
	sed -i 's/+cpu"/"/' locks/LICENSES.csv

sbom: environment
	mkdir -p sbom
	cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible --output-file sbom/figura.cdx.json locks/requirements.lock
