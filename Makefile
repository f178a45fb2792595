# The habits of the project. `make help` lists them; CONTRIBUTING.md explains them.
PYTHON ?= .venv/bin/python
GROUP ?= core

.PHONY: help setup test slow lint types docs bench figure wheel

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

setup:  ## a virtual environment with everything that development needs
	python3 -m venv .venv
	.venv/bin/python -m pip install --quiet -e '.[dev,docs]'

test:  ## the tests of every change
	$(PYTHON) -m pytest

slow:  ## one group of slow tests: make slow GROUP=core (pages, quickstart, seeds, papers, rehearsals, fuzz)
	$(PYTHON) -m pytest -m slow --group $(GROUP)

lint: types  ## style, types and import contracts
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(dir $(PYTHON))lint-imports

types:  ## types
	$(PYTHON) -m mypy

docs: figure  ## the documentation site in site/, with every link and anchor checked
	$(PYTHON) -m mkdocs build --strict --quiet

figure:  ## is the picture in ARCHITECTURE.md that of the code? (scripts/architecture.py draws it)
	$(PYTHON) scripts/architecture.py --check

bench:  ## the benchmarks that take seconds
	$(PYTHON) benchmarks/startup.py
	$(PYTHON) benchmarks/loader.py

wheel:  ## the sdist and the wheel in dist/
	$(PYTHON) -m build
