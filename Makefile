# make report [PRESET=quick|night|gpu|paper] [ONLY=03] [CORES=2]   run the notebooks, publish reports/PRESET/index.html
# make test                                                        the tests, ten minutes on two cores
# make test-slow                                                   the others: whole processes, kills, exhaustive grids
# make oracles                                                     our mechanisms against other people's code (installs it)
# make lab                                                         open the notebooks in JupyterLab
# make check                                                       lint, format and types
# make clean                                                       remove .venv and caches; runs/ and reports/ stay

PRESET ?= quick
ONLY   ?=
CORES  ?=
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	"$$p" -c 'import sys; raise SystemExit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null \
	&& { command -v "$$p"; break; }; done)

VENV  := .venv
BIN   := $(VENV)/bin
# Written last, so an interrupted set-up is taken up again and a finished one is skipped.
STAMP := $(VENV)/.installed
ORACLES := $(VENV)/.oracles
# In a container one is often root, whom Jupyter refuses unless told; it listens on this machine alone, with a token.
AS_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)

.DEFAULT_GOAL := help
.PHONY: help setup report test test-slow oracles lab check clean

help:
	@sed -n '1,/^$$/s/^# //p' Makefile

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "setup: needs Python 3.11, 3.12 or 3.13; name one with make PYTHON=/path/to/python3" >&2; exit 2; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { \
		echo "setup: creating $(VENV) with $$($(PYTHON) --version)"; $(PYTHON) -m venv --clear $(VENV); }
	@echo "setup: installing the pinned dependencies (some minutes the first time; log in $(VENV)/install.log)"
	@rm -f $(STAMP)
	@$(BIN)/python -m pip install --quiet --log $(VENV)/install.log -c constraints.txt -e '.[dev]' \
		|| { echo "setup: failed; the reason is above and in $(VENV)/install.log; run make again to resume" >&2; exit 1; }
	@touch $(STAMP)
	@echo "setup: done"

report: $(STAMP)
	@$(BIN)/transnormer report --preset $(PRESET) $(if $(ONLY),--only $(ONLY)) $(if $(CORES),--cores $(CORES))

test: $(STAMP)
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

test-slow: $(STAMP)
	@$(BIN)/python -m pytest -m "slow and not printed" $(PYTEST_ARGS)

oracles: $(ORACLES)
	@$(BIN)/python -m pytest tests/oracles $(PYTEST_ARGS)

$(ORACLES): $(STAMP)
	@echo "oracles: installing the packages that the mechanisms are held against (log in $(VENV)/oracles.log)"
	@rm -f $(ORACLES)
	@$(BIN)/python -m pip install --quiet --log $(VENV)/oracles.log -c constraints.txt -e '.[oracles]' \
		|| { echo "oracles: failed; the reason is above and in $(VENV)/oracles.log; run make oracles again" >&2; exit 1; }
	@touch $(ORACLES)

lab: $(STAMP)
	@$(BIN)/jupyter lab $(AS_ROOT) --notebook-dir=. notebooks/00_start_here.ipynb

check: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .snakemake
