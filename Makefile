# The habits of the project. `make help` lists them; CONTRIBUTING.md explains them.
PYTHON ?= .venv/bin/python
GROUP ?= core

.PHONY: help setup test slow lint types docs bench figures figure wheel release workflows

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

setup:  ## a virtual environment with everything that development needs
	python3 -m venv .venv
	.venv/bin/python -m pip install --quiet -e '.[dev,docs]'

test:  ## the tests of every change
	$(PYTHON) -m pytest

slow:  ## one group of slow tests: make slow GROUP=core (pages, quickstart, seeds, papers, rehearsals, fuzz)
	$(PYTHON) -m pytest -m slow --group $(GROUP)

lint: types workflows  ## style, types and import contracts
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

figures:  ## docs/performance.json and the page's table, 40 minutes of one core; names what became worse by a tenth
	$(PYTHON) benchmarks/figures.py

wheel:  ## the sdist and the wheel in dist/, with their metadata checked
	rm -rf dist
	$(PYTHON) -m build
	$(PYTHON) -m twine check --strict dist/*

release: wheel  ## publish dist/ to PyPI (asks for the token of the account)
	$(PYTHON) -m twine upload dist/*

workflows:  ## the workflows of .github/ against their schema and for unsafe steps
	$(dir $(PYTHON))check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(dir $(PYTHON))zizmor --offline .github/workflows
