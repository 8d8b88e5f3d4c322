# Everything a person needs; each target does its own set-up. `make` lists them.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
PORT ?= 9092
PYTEST_ARGS ?=
# Processes that run tests; 0: none beside pytest itself, which a debugger needs. Each starts a broker of its own.
WORKERS ?= 2

export KAFKA

.DEFAULT_GOAL := help
.PHONY: help demo test lint bench bench-quality kafka kafka-stop java jars postgres chromium receivers servers loops clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

demo: $(VENV)/.runtime ## stream two recorded runs through Kafka and watch the verdict (ARGS=--exit, KAFKA=host:port)
	@if [ -z "$$KAFKA" ]; then $(MAKE) --no-print-directory java; fi
	$(BIN)/firstfault demo $(ARGS)

test: | $(VENV)/bin/python ## set up, lint, and run the whole test suite, real broker included (PYTEST_ARGS=..., WORKERS=2)
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=line servers $(VENV)/.dev
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint loops
	$(BIN)/pytest --numprocesses=$(WORKERS) --dist=loadfile $(PYTEST_ARGS)

lint: $(VENV)/.dev ## ruff, mypy --strict and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# What the tests would otherwise compile in every process that comes to it before another has kept it.
loops: $(VENV)/.dev
	@$(BIN)/python -c 'from service.warm_up import compile_all; compile_all()'

bench: $(VENV)/.dev java ## print every speed and quality figure, one line each
	@set -e; for script in bench/[a-z]*.py; do $(BIN)/python -m "bench.$$(basename $$script .py)"; done

bench-quality: $(VENV)/.dev ## measure how right the verdicts are: minutes, or hours (FULL=1, RECORDED=folder of healthy curves)
	@$(BIN)/python -m bench.quality $(if $(FULL),--full) $(if $(RECORDED),--recorded "$(RECORDED)") $(ARGS)
	@$(BIN)/python -m bench.figures --pages-only

kafka: $(VENV)/.runtime java ## start a local broker and print its address (PORT=9092; STOP=1 ends it)
	@$(BIN)/python -m service.local_kafka $(if $(STOP),stop,start) --port $(PORT)

kafka-stop: $(VENV)/.runtime ## end the local broker
	@$(BIN)/python -m service.local_kafka stop

java: ## install Java and Maven where they are missing and apt-get may be used (for the broker)
	@if java -version 2>&1 | grep -qE 'version "(1[7-9]|[2-9][0-9])' && command -v mvn >/dev/null; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing Java 17 and Maven with apt-get, for the local Kafka broker"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	    openjdk-17-jre-headless maven >/dev/null || echo "they could not be installed: no local broker"; \
	else echo "Java >= 17 or Maven is missing: no local broker; what needs one says so or is skipped"; fi

jars: java | $(VENV)/bin/python
	@$(BIN)/python -c 'from service.kafka_jars import find_java, kafka_jars; find_java(); kafka_jars()' 2>/dev/null || true

# One after the other: apt-get has one lock.
servers:
	@for server in jars postgres chromium receivers; do $(MAKE) --no-print-directory $$server; done

postgres: ## install the PostgreSQL server where it is missing and apt-get may be used (for the tests)
	@if command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing PostgreSQL with apt-get, for the tests of the store"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	    postgresql >/dev/null || echo "it could not be installed: the tests that need it are skipped"; \
	else echo "PostgreSQL is missing: the tests that need it say so and are skipped"; fi

chromium: ## install Chromium and its driver where they are missing and apt-get may be used (for the tests)
	@if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing Chromium with apt-get, for the tests of the page"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	    chromium chromium-driver >/dev/null || echo "it could not be installed: the tests that need it are skipped"; \
	else echo "Chromium is missing: the tests that need it say so and are skipped"; fi

# RUNLEVEL=1: they are installed, and nothing of them is started.
receivers: ## install kcat, promtool and Alertmanager where missing and apt-get may be used (for the tests)
	@if command -v kcat >/dev/null && command -v promtool >/dev/null && \
	  { command -v alertmanager || command -v prometheus-alertmanager; } >/dev/null; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing kcat, promtool and Alertmanager with apt-get, for the tests of the wire and of alerts"; \
	  apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	    kcat prometheus prometheus-alertmanager >/dev/null || echo "they could not be installed: the tests that need them are skipped"; \
	else echo "kcat, promtool or Alertmanager is missing: the tests that need them say so and are skipped"; fi

clean: ## remove the virtual environment and caches of this clone
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build *.egg-info

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "firstfault needs Python 3.11 or later; name one with: make PYTHON=/path/to/python3 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "$(PYTHON) cannot make a virtual environment; on Debian: apt-get install python3-venv" >&2; exit 1; }

# A stamp is newer than pyproject.toml once everything it lists is installed.
$(VENV)/.runtime: pyproject.toml | $(VENV)/bin/python
	@echo "installing firstfault into $(VENV)"
	@$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	@echo "installing firstfault with its development tools into $(VENV) (torch is large: minutes the first time)"
	@$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(VENV)/.runtime
