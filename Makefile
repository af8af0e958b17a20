# Every target does its own set-up; PYTHON names an interpreter of 3.11 or later.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test unit test-observability live lint long mutants bench clean

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[test,lint]'
	touch $(READY)

demo: $(READY)  ## a worker of a real FSDP job is killed; watch it recover, read the verdict
	$(BIN)/aftershock run kill-worker

test: unit test-observability live  ## all that CI runs

unit: $(READY)  ## about a minute and a half, no Ray cluster
	$(BIN)/pytest -m "not live and not long and not observability" --timeout 60 --numprocesses 2

test-observability: $(READY)  ## a real Prometheus and Pushgateway on loopback; under a minute; skipped without them
	$(BIN)/pytest -m "observability and not live" --timeout 120

live: $(READY)  ## real Ray, real training, about 30 minutes
	$(BIN)/pytest -m live --timeout 600 --durations 10

long: $(READY)  ## what CI has no time for; results go to docs/long-results.md
	$(BIN)/pytest -m long --timeout 3600

mutants: $(READY)  ## every buggy trainer is caught by its check, every healthy one is green; about an hour and a half
	$(BIN)/python -m tests.mutants

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)  ## what agent, verifying, judging, trends and simulating cost; others beside it; needs b3sum, strace
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python benchmarks/agent_overhead.py
	$(BIN)/python benchmarks/against_chaostoolkit.py
	$(BIN)/python benchmarks/against_ckptchaos.py
	$(BIN)/python benchmarks/suite_sharing.py
	$(BIN)/python benchmarks/verify_throughput.py
	$(BIN)/python benchmarks/analyze_scale.py
	$(BIN)/python benchmarks/trend_power.py
	$(BIN)/python benchmarks/trend_scale.py
	$(BIN)/python benchmarks/simulator.py
	$(BIN)/python benchmarks/export_cost.py

clean:
	rm -rf .venv runs out
