"""What every test shares: a sealed environment and the tiny model on disk.

The environment is sealed while pytest starts, before anything imports huggingface_hub (it reads its variables
once): a home folder of its own, no network for models, no settings of the person who runs the tests.
Subprocesses inherit it.
"""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.tiny_llama import make_tiny_llama

# How long one example takes says more of the machine than of the code; pytest's timeout bounds each test.
settings.register_profile("mlxcel", deadline=None)
settings.load_profile("mlxcel")


def pytest_configure(config: pytest.Config) -> None:
    # A shell's background job ignores Ctrl-C, and so would every process that a test starts and interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    home = tempfile.TemporaryDirectory(prefix="mlxcel-test-home-")
    config.add_cleanup(home.cleanup)
    for name in list(os.environ):
        if name.startswith(("MLXCEL_", "HF_", "HUGGINGFACE_", "TRANSFORMERS_", "XDG_")):
            del os.environ[name]
    os.environ.update(HOME=home.name, HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")


REAL_MODEL = Path(__file__).parents[1] / "build" / "models" / "SmolLM2-135M-Instruct"


@pytest.fixture(scope="session")
def real_model() -> Path:
    """The folder of SmolLM2-135M-Instruct; tests that use it are marked `real_model`."""
    if not REAL_MODEL.is_dir():
        pytest.fail(f"{REAL_MODEL} is missing: run 'make setup-model'")
    return REAL_MODEL


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the tiny random Llama that tests share; nobody writes into it."""
    return make_tiny_llama(tmp_path_factory.mktemp("models") / "tiny-llama")
