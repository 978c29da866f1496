# Every target makes .venv if it is not there.   make demo | test | lint | bench | docs | clean

PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.vestige-ready

# Tests run tiny models: threads would only wait for each other.
TEST_THREADS ?= 1

.PHONY: demo test lint bench docs clean

demo: $(READY)
	$(BIN)/vestige demo --out demo

test: $(READY)
	OMP_NUM_THREADS=$(TEST_THREADS) TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1 \
		$(BIN)/python -m pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)
	@set -e; for file in benchmarks/*.py; do echo "== $$file"; $(BIN)/python $$file; done

docs: $(READY)
	$(BIN)/python -m vestige.cli.docs docs

clean:
	rm -rf demo runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -print | xargs rm -rf

# torch first, by its exact pin, then the rest under the same constraints: see constraints.txt.
$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet "$$(grep '^torch==' constraints.txt)"
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[cluster,demo,gguf,nlu,dev]"
	touch $(READY)
