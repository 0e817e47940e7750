# Each target makes its own virtual environment under .venv and installs what it needs. Tests run on all processors.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python

.PHONY: demo test check fast-tests format clean

demo: $(VENV)/demo.stamp
	$(RUN) examples/digits.py --out demo-output

test: $(VENV)/test.stamp
	$(RUN) -m pytest -n auto

check: $(VENV)/test.stamp
	$(RUN) -m ruff check graphcell tests examples benchmarks
	$(RUN) -m mypy
	$(RUN) -m pytest -n auto -m "not slow"

format: $(VENV)/test.stamp
	$(RUN) -m ruff check --fix graphcell tests examples benchmarks

$(VENV)/base.stamp: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --upgrade pip
	$(RUN) -m pip install --quiet -e .
	touch $@

$(VENV)/demo.stamp: $(VENV)/base.stamp
	$(RUN) -m pip install --quiet -e ".[demo]"
	touch $@

$(VENV)/test.stamp: $(VENV)/base.stamp
	$(RUN) -m pip install --quiet -e ".[demo,test,dev]"
	touch $@

clean:
	rm -rf $(VENV) demo-output build dist *.egg-info
