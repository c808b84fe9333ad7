# The README's commands. Each makes .venv, installs what it needs, and runs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: bench test check format clean

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[timm,prune,train,dev]'
	touch $@

bench: $(VENV)/.installed
	$(BIN)/runtime bench --budget 40% --seconds 15 --html runs/bench.html --json runs/bench.json

test: $(VENV)/.installed
	$(BIN)/pytest -m 'not gpu'

check: $(VENV)/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -m 'not gpu'

format: $(VENV)/.installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache dist build
