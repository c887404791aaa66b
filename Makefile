VENV := .venv
BIN := $(VENV)/bin
DEMO := demo
WORKERS ?= 2

# The installed package is what is used and tested, never the tree beside it.
unexport PYTHONPATH PYTHONHOME

.PHONY: help setup test lint format demo prove system python clean FORCE
.DELETE_ON_ERROR:

help:  ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' Makefile

setup: $(VENV)/installed  ## make .venv and install the project into it

test: system lint  ## lint, then run the tests
	$(BIN)/pytest -n $(WORKERS)

lint: setup  ## ruff and mypy
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: setup  ## let ruff rewrite the sources
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

demo: setup  ## a step that outlives its allocation, then the analysis of a generated accounting file
	@scripts/demo $(DEMO)

prove: system setup  ## run the full proofs and benchmarks, write docs/proof.md
	$(BIN)/python benchmarks/prove.py

system: python  ## bring the system packages the tests use (as root)
	@scripts/system chromium chromium-driver zstd strace
	@scripts/criu --capabilities >/dev/null || true  # says itself what is left out

clean:  ## remove everything these targets make
	rm -rf $(VENV) .criu $(DEMO) build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis

python:
	@scripts/venv --usable $(VENV) || scripts/system python3-venv

# Check sums of what is installed: this file changes when a source is edited, added or removed, and only then.
SOURCES = pyproject.toml constraints.txt $$(find poc reports executor -type f -not -path '*/__pycache__/*' | LC_ALL=C sort)

$(VENV)/sources: FORCE | python
	@scripts/venv $(VENV)
	@cksum $(SOURCES) >$@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

# A module that was removed from the tree would live on in build/ and be installed from there.
$(VENV)/installed: $(VENV)/sources
	rm -rf build *.egg-info
	$(BIN)/python -m pip install --quiet '.[test]' -c constraints.txt
	@rm -rf build *.egg-info
	@touch $@
