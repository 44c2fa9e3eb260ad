# Shakedown. `make help` lists the targets.
SHELL := /bin/sh
PYTHON := .venv/bin/python
# The lab tests of CI, all in one lab of two nodes; `make test-lab` has the others.
LAB_TESTS := tests/lab/test_acceptance.py tests/lab/test_switch_faults.py tests/lab/test_hosts.py

.PHONY: help setup acceptance test test-code test-slow test-spaces test-faults test-all test-folders test-unit test-bare test-fuzz test-lab test-fabric test-foreign test-switches test-training training-env docs lines collection lint lab-up lab-down lock sbom clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

setup:  ## install what is missing: system packages and .venv
	@lab/setup.sh

acceptance: setup  ## from a bare machine to a verdict in the embedded lab (KEEP=1 leaves the lab up)
	@$(PYTHON) -m lab acceptance $(if $(KEEP),--keep)

# As many workers as the machine has cores; each test has a folder and processes of its own.
# Compiled once, where an environment says otherwise: each worker and each program that a test starts would compile
# all tests and modules again.
unexport PYTHONDONTWRITEBYTECODE
PARALLEL := --numprocesses=auto --maxprocesses=8 --dist=worksteal

# lab/ci.py has the phases, and which run beside which. Some of them by themselves are the next targets.
test: setup  ## everything that CI runs: lint, test-code, test-spaces, test-bare, test-faults (40 to 75 minutes on two cores)
	@$(PYTHON) -m lab.ci

test-code: setup  ## all tests that need no lab: unit, decisions, recorded runs, browser, wheel
	@$(PYTHON) -m pytest $(PARALLEL) tests/unit tests/decision tests/runs tests/browser tests/packaging

# Beside test-bare, which runs the fast tests and the wheel's of what is committed on Debian's own Python.
test-slow: setup  ## of test-code, what test-bare does not run
	@$(PYTHON) -m pytest $(PARALLEL) --durations=20 -m slow tests/unit tests/decision tests/runs
	@$(PYTHON) -m pytest $(PARALLEL) tests/browser

test-spaces: setup  ## faults that need no kernel of their own, in a cluster of namespaces of this host (needs root)
	@$(PYTHON) -m pytest -v --durations=10 tests/lab/test_spaces_slurm.py

test-faults: setup  ## planted faults in the virtual cluster of two nodes, each named
	@$(PYTHON) -m pytest -v --durations=30 $(LAB_TESTS)

test-unit: setup  ## the fast tests
	@$(PYTHON) -m pytest $(PARALLEL) -m "not slow" tests/unit tests/decision tests/runs

# A root of each suite with git and make, and a clone of HEAD: what is not committed is not tested.
SUITES ?= bookworm trixie
test-bare: setup  ## the fast tests and the wheel on a bare Debian 12 and 13 (SUITES=bookworm: on one)
	@$(PYTHON) -m lab.bare $(SUITES)

# For a night, or before a release: `make -k test-all` goes on after a failure. Why each is not in `make test` stands
# in brackets behind it.
test-all: lint test-code test-folders test-lab test-fabric test-foreign test-switches test-training test-fuzz test-bare  ## all there is, one after the other

# FUZZ_SECONDS is for how long. What is found is kept in tests/fuzz/found and tried first the next time.
FUZZ_SECONDS ?= 600
test-fuzz: setup  ## damaged run folders through every command that reads them (by the clock: FUZZ_SECONDS=600)
	@FUZZ_SECONDS=$(FUZZ_SECONDS) $(PYTHON) -m pytest -s tests/fuzz

# SHAKEDOWN_KEEP_LAB=1 leaves a converged lab to the next tests; --repetitions 3 runs each of them three times in one lab.
test-lab: setup  ## test-faults, and the labs of three nodes, of namespaces and of GPUs (a boot for most files: hours if emulated)
	@$(PYTHON) -m pytest tests/lab --ignore=tests/lab/test_fabric.py --ignore=tests/lab/test_foreign.py

test-folders: setup  ## every shipped and every discovered folder through plan, rehearsal, --syntax-check and --check (minutes each)
	@SHAKEDOWN_EVERY_FOLDER=1 $(PYTHON) -m pytest $(PARALLEL) tests/unit/roles/test_every_folder.py

test-fabric: setup  ## leaves and spines: six faults between switches, three times each (seven machines: 2 h if emulated)
	@$(PYTHON) -m pytest tests/lab/test_fabric.py --repetitions 3

test-foreign: setup  ## a cluster that is somebody else's: discover, plan, measure, change nothing (an image and a lab of its own)
	@$(PYTHON) -m pytest tests/lab/test_foreign.py

test-switches: setup  ## the switch role against scripted devices, over their own protocols (half an hour of SSH and HTTP)
	@$(PYTHON) -m pytest tests/switches

lint: setup  ## ruff, mypy, import-linter, yamllint, ansible-lint, shellcheck
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check --quiet .
	@.venv/bin/mypy
	@.venv/bin/lint-imports
	@.venv/bin/yamllint --strict .
	@PATH="$(CURDIR)/.venv/bin:$$PATH" .venv/bin/ansible-lint --offline -q
	@git ls-files '*.sh' .ci/run | xargs shellcheck

docs: setup  ## write docs/reference and the roles' pages from the models, the commands and the roles
	@$(PYTHON) docs/generate.py

SINCE ?=
lines:  ## lines and files per room, beside those of the last tag (SINCE=COMMIT)
	@python3 research/lines.py $(SINCE)

collection: setup  ## build the roles as an Ansible collection into dist/ (collection/README.md)
	@$(PYTHON) collection/build.py dist

lab-up: setup  ## boot the virtual cluster
	@$(PYTHON) -m lab up

lab-down:  ## end it
	@$(PYTHON) -m lab down

LOCK := .venv/bin/uv pip compile --quiet --python-version 3.11 --generate-hashes --no-header --no-annotate
lock:  ## rewrite requirements/ from pyproject.toml
	@$(LOCK) --universal pyproject.toml --extra controller --extra dev -o requirements/controller.txt
	@$(LOCK) --universal --group pyproject.toml:head -o requirements/head.txt
	@$(LOCK) --python-platform linux --group pyproject.toml:inference -o requirements/inference.txt
	@$(LOCK) --python-platform linux --group pyproject.toml:training -o requirements/training.txt

# In environments of their own, of what the locks install and nothing else (docs/decisions/sbom.md).
sbom:  ## rewrite requirements/*.cdx.json and the table of licences from what the locks install (needs the index)
	@place=$$(mktemp -d) && trap 'rm -rf "$$place"' EXIT && for part in controller head; do \
		.venv/bin/uv venv --quiet --no-project "$$place/$$part" && \
		.venv/bin/uv pip install --quiet --no-config --no-deps --require-hashes --python "$$place/$$part/bin/python" \
			--requirement requirements/$$part.txt && \
		.venv/bin/uv tool run --quiet --from cyclonedx-bom==7.5.0 cyclonedx-py environment "$$place/$$part/bin/python" \
			--output-reproducible --output-format JSON --output-file requirements/$$part.cdx.json || exit; \
	done
	@$(PYTHON) docs/generate.py

# TRAINING_ENV is where, on a file system that the nodes share; TRAINING_PYTHON the interpreter they all have.
TRAINING_ENV ?= $(HOME)/.cache/shakedown/training-venv
TRAINING_PYTHON ?= python3
training-env: setup  ## PyTorch, transformers and PEFT for LoRA tests, into TRAINING_ENV (5 GB)
	@.venv/bin/uv venv --quiet --no-project --allow-existing --python $(TRAINING_PYTHON) $(TRAINING_ENV)
	@.venv/bin/uv pip install --quiet --no-config --no-deps --require-hashes --python $(TRAINING_ENV)/bin/python \
		--requirement requirements/training.txt

test-training: setup  ## the trainer on two processes: faults, resuming, layouts (needs training-env, 5 GB)
	@$(PYTHON) -m pytest tests/training

clean:  ## remove .venv and caches (images stay: python -m lab image --prune)
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
