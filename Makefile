# `make` alone lists the targets. Everything runs from .venv; nothing needs to be activated.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PY := .venv/bin/python
# In an environment of its own: the product does not need what it brings.
PIP_AUDIT := 2.10.1

# Tests that need no JVM, no broker and no browser.
FAST := not spark and not broker and not dagster_dev and not browser and not verify

# Keeps the output of what runs at once apart; macOS's make is too old for it.
GROUPED := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

.PHONY: help setup quick demo test check check-source check-plan verify soak audit bench plan format clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## make .venv, fetch the jars, let JVMs start sooner (first time some minutes); PYTHON= names another
	@PYTHON="$(PYTHON)" .ci/setup

quick:
	@QUICK=1 PYTHON="$(PYTHON)" .ci/setup

demo: quick ## broker, sample events, tables and the Dagster UI on this machine; ARGS="--..."
	@.venv/bin/kafka-assets demo $(ARGS)

test: setup ## every test except the long ones; ARGS="-k name"
	@$(PY) -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not verify and not browser" $(ARGS)

check: setup ## format, lint, types, import contracts, plan, tests without a JVM: under a minute
	@$(MAKE) -j2 $(GROUPED) --no-print-directory check-source check-plan
	@$(PY) -m pytest -q -n 2 --dist worksteal -m "$(FAST)" $(ARGS)

# The JVM of the plan takes longer than all of the source's checks, so they run beside it.
check-source:
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@$(PY) -m mypy
	@.venv/bin/lint-imports

check-plan:
	@.venv/bin/kafka-assets plan

verify: setup ## the long rest: reliability, conformance, browser; ARGS="-k name"
	@$(PY) -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "verify or browser" $(ARGS)

soak: setup ## kill runs for three hours, then write docs/reliability.md; KILLS=5 is short; MINUTES= FOLDER= in goes
	@$(PY) -m kafka_assets_tests.reliability.soak $(if $(KILLS),--kills $(KILLS)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(FOLDER),--folder $(FOLDER))

audit: setup ## look for known vulnerabilities in the pinned packages; needs PyPI's JSON interface
	@test -x .venv/audit/bin/pip-audit || { $(PY) -m venv .venv/audit && .venv/audit/bin/pip install -q pip-audit==$(PIP_AUDIT); }
	@.venv/audit/bin/pip-audit --strict --disable-pip --no-deps -r constraints.txt

bench: setup ## benchmarks; ONLY=name for one, JSON=file for the figures
	@$(PY) -m kafka_assets_tests.benchmarks $(if $(ONLY),--only "$(ONLY)") $(if $(JSON),--json "$(JSON)")

plan: setup ## run every table's function once on empty frames, without a broker
	@.venv/bin/kafka-assets plan $(ARGS)

format: setup ## format the code and repair what ruff can
	@$(PY) -m ruff format .
	@$(PY) -m ruff check --fix .

clean: ## remove .venv and caches; tables, jars and pip's cache stay
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
