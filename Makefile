# make serve   set everything up and serve a real small model on 127.0.0.1:8080
# make test    set up and pass the tests
# make test-floor   the server's tests with the versions that MacPorts has
# make setup   .venv with .venv/bin/mlxcel     make check   lint, types, layering
# make bench   our served rate beside mlx_lm.server's    make bench-recut   tools/recut on a large repository
# make soak    long runs: clients that leave, too many clients, /health under load, every moment of a re-cut killed
# make demo-recut   the patch-stack tool in two minutes of reading
# make fuzz-api   an hour of requests against the OpenAPI document; EXAMPLES=n for each operation
# make lock    resolve the development dependencies again
# Overrides:   make serve MODEL=dir PORT=n ARGS='--no-batch'   PYTHON=python3.12
MODEL ?= build/models/SmolLM2-135M-Instruct
PORT ?= 8080
ARGS ?=
EXAMPLES ?= 500
TESTS ?= tests
FLOOR_TESTS ?= tests/unit tests/server
bin := .venv/bin

.PHONY: serve test test-floor check setup setup-tcl setup-model lock bench soak bench-recut demo-recut fuzz-api clean
.DEFAULT_GOAL := test

setup:
	@setup/environment

setup-tcl:
	@setup/tcl

setup-model: setup
	@setup/model

ifeq ($(MODEL),build/models/SmolLM2-135M-Instruct)
serve: setup-model
else
serve: setup
endif
	@exec $(bin)/mlxcel serve "$(MODEL)" --port $(PORT) $(ARGS)

check: setup
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/mypy
	PYTHONPATH=tools $(bin)/lint-imports

test: check setup-model setup-tcl
	$(bin)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not long" $(TESTS)

test-floor: setup
	@setup/floor
	.venv-floor/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not real_model and not long" --ignore tests/unit/load -k "not bench" $(FLOOR_TESTS)

bench: setup
	$(bin)/python -m bench.served_rate

soak: setup
	$(bin)/python -m bench.soak
	CRASH_EVERY=1 $(bin)/python -m pytest -n 2 tests/git/test_crash.py
	$(bin)/python -m pytest -n 2 -m long tests

bench-recut: setup
	$(bin)/python bench/recut_speed.py

demo-recut: setup
	@tools/demo-recut

fuzz-api: setup
	SCHEMATHESIS_EXAMPLES=$(EXAMPLES) $(bin)/python -m pytest tests/server/test_schemathesis.py

lock:
	$(bin)/uv pip compile pyproject.toml --extra dev --universal --python-version 3.10 --generate-hashes --no-header --upgrade -o requirements-dev.lock

clean:
	rm -rf .venv build dist
