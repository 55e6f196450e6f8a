# `make help` lists the targets. Works with GNU make on Linux and macOS.
#
#   make train ARGS="data=my.yaml epochs=50"     passes keys on
#   make setup PYTHON=python3.12                 picks the interpreter, 3.10 or newer

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
TASK ?=
FULL ?=

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup train val predict test test-slow lint bench clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' Makefile | awk -F '|' '{ printf "%-12s %s\n", $$1, $$2 }'

setup: $(INSTALLED) ## make the virtual environment in .venv and install into it

$(INSTALLED): setup.cfg pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 10) else \
	    "$(PYTHON) is Python %d.%d; 3.10 or newer is needed: make setup PYTHON=python3.12" % sys.version_info[:2])'
	@echo "Installing into $(VENV); torch is large, so the first time takes some minutes."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --editable '.[dev]'
	@touch $@

train: $(INSTALLED) ## train; without ARGS the default detector on the bundled sample; TASK=classify: the classifier
	$(BIN)/visiontrain $(TASK) train $(ARGS)

val: $(INSTALLED) ## score a model: make val ARGS="model=runs/detect/train/weights/best.pt"
	$(BIN)/visiontrain val $(ARGS)

predict: $(INSTALLED) ## run a model: make predict ARGS="model=runs/detect/train/weights/best.pt source=images/"
	$(BIN)/visiontrain predict $(ARGS)

test: $(INSTALLED) ## run the quick tests
	$(BIN)/python -m pytest -m "not slow" $(ARGS)

test-slow: $(INSTALLED) ## run the tests that train; FULL=1: with hours of injected faults instead of a small dose
	$(if $(FULL),VISIONTRAIN_FULL=$(FULL) )$(BIN)/python -m pytest -m slow $(ARGS)

lint: $(INSTALLED) ## check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(INSTALLED) ## time start-up, augmentation, check and the window, as JSON
	$(BIN)/python -m benchmarks $(ARGS)

clean: ## remove what tools leave behind; keeps .venv and runs
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./$(VENV) -prune -o -type d -name __pycache__ -exec rm -rf {} +
