# Everything a developer runs. Each target first makes the virtual environment it needs, from a lock with hashes.

PYTHON3 ?= python3
UV := $(shell uv --version >/dev/null 2>&1 && echo uv)

DEV := .venv
RUN := build/venv-run
BIN := $(DEV)/bin

SEEDS ?= 2000
MUTANT_SEEDS ?= 80
MINUTES ?= 3
RECORDS ?= 1000000
EVENTS ?= 20000
DELETIONS ?= 60

# Hundreds of processes are started here: they need not compile the same modules again and again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-spark test-sources test-brokers test-others lint format bench bench-spark bench-receiver sim mutants chaos podchaos held-restart e2e e2e-brokers e2e-cluster docs lock clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(RUN)/.installed ## Events become actions on a real Kafka; a replica is killed; nothing is lost
	$(RUN)/bin/eventbus demo

# Spark, brokers and other people's servers mostly start and wait: these tests do so beside all others.
SPARK := tests/spark
SOURCES := tests/cli tests/eventsources tests/security
BROKERS := tests/faults tests/pipeline tests/contract

test: $(DEV)/.installed ## Lint and run all tests
	@mkdir -p build
	@$(MAKE) --no-print-directory --jobs=5 --keep-going lint test-spark test-sources test-brokers test-others

test-spark: TESTS := $(SPARK)
test-sources: TESTS := $(SOURCES)
test-brokers: TESTS := $(BROKERS)
test-spark test-sources test-brokers:
	@$(call logged,$(TESTS))

test-others:
	@$(BIN)/python -m pytest $(addprefix --ignore=,$(SPARK) $(SOURCES) $(BROKERS))

# What runs beside others is shown when it has ended.
logged = $(BIN)/python -m pytest $(1) > build/$@.log 2>&1; status=$$?; cat build/$@.log; exit $$status

lint: $(DEV)/.installed ## Style, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(DEV)/.installed ## Let ruff fix what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(DEV)/.installed ## Measure against the bare Kafka client; writes build/bench.json
	$(BIN)/python -m e2e.bench

bench-receiver: $(DEV)/.installed ## Measure webhooks against the same server without Kafka; writes build/bench-receiver.json
	$(BIN)/python -m e2e.bench_receiver

bench-spark: $(DEV)/.installed ## Measure audit and backtest against Spark's plain reading; writes build/bench-spark.json
	$(BIN)/python -m e2e.bench_spark

sim: $(DEV)/.installed ## Simulate SEEDS sensors with faults of every kind; writes build/sim.json
	$(BIN)/python -m tests.sim --seeds $(SEEDS)

mutants: $(DEV)/.installed ## Plant bugs in the protocol and count the seeds that catch them; writes build/mutants.json
	$(BIN)/python -m tests.sim.planted --seeds $(MUTANT_SEEDS)

chaos: $(DEV)/.installed ## Torment replicas, brokers and target for MINUTES while events flow; writes build/chaos.json
	$(BIN)/python -m e2e.chaos --minutes $(MINUTES)

podchaos: $(DEV)/.installed ## Delete DELETIONS pods on a real cluster while EVENTS flow; writes build/podchaos.json
	$(BIN)/python -m e2e.podchaos --events $(EVENTS) --deletions $(DELETIONS)

held-restart: $(DEV)/.installed ## What a restart reads after an event was held for RECORDS records; writes build/held.json
	$(BIN)/python -m e2e.chaos.held --records $(RECORDS)

# What goes on without Kubernetes goes on while one is built and tried; its storm comes first, so that the two do not meet.
ON_CLUSTER := $(addprefix e2e/test_,cluster.py cluster_building.py controller.py kubernetes_actions.py lease.py resource.py spark_kubernetes.py podchaos.py)

# What measures seconds has the machine for itself.
ALONE := e2e/test_failover.py

ON_BROKERS := e2e/test_chaos.py $(filter-out e2e/test_chaos.py $(ALONE) $(ON_CLUSTER),$(wildcard e2e/test_*.py))

e2e: $(DEV)/.installed ## Real brokers, real processes, a real Kubernetes; all that they log is in build/e2e
	@mkdir -p build/e2e
	@$(BIN)/python -m pytest --basetemp=build/e2e/alone $(ALONE); alone=$$?; \
	$(MAKE) --no-print-directory --jobs=2 --keep-going e2e-brokers e2e-cluster && exit $$alone

e2e-brokers:
	@$(call logged,--durations=10 --basetemp=build/e2e/brokers $(ON_BROKERS))

e2e-cluster:
	-$(BIN)/python -m e2e.cluster build
	EVENTBUS_PODCHAOS_EVENTS=$(EVENTS) EVENTBUS_PODCHAOS_DELETIONS=$(DELETIONS) \
	$(BIN)/python -m pytest --durations=10 --basetemp=build/e2e/cluster $(ON_CLUSTER)

docs: $(DEV)/.installed ## Generate reference pages and diagrams
	$(BIN)/python -m docs.generate

lock: ## Pin the newest versions that pyproject.toml allows (needs uv)
	$(call compile,broker,run)
	$(call compile,dev,dev)
	$(call compile,pods,pods)
	$(call compile,spark,spark)

clean: ## Remove everything that make and the tools made
	rm -rf $(DEV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A lock must say what, never from where: no index, no links, no paths.
compile = uv pip compile pyproject.toml requirements/build.in --extra $(1) --output-file requirements/$(2).lock \
	--quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	--no-annotate --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"

# An environment is made anew when its lock changes, and the project installed again when pyproject.toml does.
$(DEV)/.locked: requirements/dev.lock
	$(call environment,$(DEV),$<)

$(RUN)/.locked: requirements/run.lock
	$(call environment,$(RUN),$<)

%/.installed: %/.locked pyproject.toml
	$(call install,$*,--no-deps --no-build-isolation --editable .)
	@touch $@

define environment
	@$(PYTHON3) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "This needs Python 3.11 or newer, and $(PYTHON3) is not. Name one: make PYTHON3=python3.12"; exit 1; }
	rm -rf $(1)
	$(if $(UV),uv venv --quiet --python $(PYTHON3) $(1),$(PYTHON3) -m venv $(1))
	$(call install,$(1),--require-hashes -r $(2))
	@touch $(1)/.locked
endef

install = $(if $(UV),uv pip install --quiet --python $(1)/bin/python,$(1)/bin/python -m pip install --quiet) $(2)
