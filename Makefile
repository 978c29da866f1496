# Every target makes .venv if it is not there.
#   make demo | test | slow | long | numeric | peers | lint | bench | docs | clean
#   make test ORDER=random SEED=1    # modules and tests shuffled, other examples drawn; without
#                                    # SEED by the time

# The first of these that is 3.11 or newer makes .venv; PYTHON=/path/to/python names another.
PYTHON ?= python3.11 python3.12 python3.13 python3.14 python3 python
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.vestige-ready
DOCS_READY := $(VENV)/.vestige-docs-ready

# Tests run tiny models: threads would only wait for each other.
TEST_THREADS ?= 1
# Files of tests are shared out among so many processes.
TEST_PROCESSES ?= 2
ORDER ?= fixed
SEED ?= $(shell date +%s)
PYTEST = VESTIGE_EXAMPLES=$(ORDER) OMP_NUM_THREADS=$(TEST_THREADS) TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1 \
	$(BIN)/python -m pytest --numprocesses=$(TEST_PROCESSES) --dist=loadfile \
	$(if $(filter random,$(ORDER)),-p randomly --randomly-seed=$(SEED))

# Whose results are numbers that a processor computes.
NUMERIC := tests/models tests/training tests/privacy tests/defences tests/metrics

# What tests compare ours with, or run, and nothing else needs; the names are Debian's.
PEERS := chromium apertium apertium-eng-spa wordnet-base

.PHONY: demo test slow long numeric peers lint bench docs clean

demo: $(READY)
	$(BIN)/vestige demo --out demo

test: $(READY)
	$(PYTEST)

# The costliest tests of every room: trainings, kills, error rates over redraws. VESTIGE_PART=3/8
# runs every eighth file only; `.ci/run` runs another part for each commit.
slow: $(READY)
	$(PYTEST) -m "slow and not long"

# Every damaged field, every kind of kill and race: minutes, and not part of `make test`.
long: $(READY)
	$(PYTEST) -m long

numeric: $(READY)
	$(PYTEST) $(NUMERIC)

# Not among the dependencies: tests that need one of these skip without it. As root where Debian's
# own packages are missing.
peers: $(READY)
	$(BIN)/python -m pip install --quiet --no-deps -r tests/peers.txt
	dpkg --status $(PEERS) >/dev/null 2>&1 || { \
		apt-get update && apt-get install --yes --no-install-recommends $(PEERS); }

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)
	@set -e; for file in $$(grep -l __main__ benchmarks/*.py); do \
		echo "== $$file"; $(BIN)/python $$file --quick; done

# The verbs' pages from the verbs, then the site from all pages and docstrings: open site/index.html.
docs: $(READY) $(DOCS_READY)
	$(BIN)/python -m vestige.cli.help docs
	PATH="$(abspath $(BIN)):$$PATH" NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

clean:
	rm -rf demo runs site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -print | xargs rm -rf

# torch first, by its exact pin, then the rest under the same constraints: see constraints.txt.
$(READY): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet "$$(grep '^torch==' constraints.txt)"
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[bitsandbytes,check,cluster,demo,endpoint,gguf,nlu,dev]"
	touch $(READY)

$(DOCS_READY): $(READY)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[docs]"
	touch $(DOCS_READY)

$(BIN)/python:
	@for python in $(PYTHON); do \
		if "$$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' \
			2>/dev/null; then \
			echo "Making $(VENV) with $$python, $$("$$python" --version)"; \
			exec "$$python" -m venv $(VENV); \
		fi; \
	done; \
	echo "None of these is Python 3.11 or newer with its module venv: $(PYTHON)." >&2; \
	echo "Install one (Debian: apt-get install python3 python3-venv), or name it:" >&2; \
	echo "make PYTHON=/path/to/python" >&2; exit 1
