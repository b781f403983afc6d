# Everything here sets itself up: a virtual environment of its own, nothing else is touched.
#   make demo    profile a real model, plain against speculative; leaves demo/session.sqlite, demo/report/
#   make test    the whole test suite
#   make lint    ruff, mypy and the import contract
#   make plots   draw the figures of plots/ again, with the CSV behind each

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEMO ?= demo
DEMO_OPTIONS ?=

.PHONY: demo test lint plots clean

demo: $(VENV)/ready
	mkdir -p $(DEMO)
	$(BIN)/edgeprof run smollm2-135m -o $(DEMO)/session.sqlite --force $(DEMO_OPTIONS)
	$(BIN)/edgeprof report $(DEMO)/session.sqlite -o $(DEMO)/report --force

test: $(VENV)/ready
	$(BIN)/python -m pytest $(PYTEST_OPTIONS)

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

plots: $(VENV)/ready
	$(BIN)/python plots/make.py

$(VENV)/ready: setup.cfg pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 10) else \
		"edgeprof needs Python 3.10 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet -e '.[cpu,dev,html,jetson,trace]'
	@touch $@

clean:
	rm -rf $(VENV) $(DEMO) build dist *.egg-info
