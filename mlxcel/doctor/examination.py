"""Everything that is looked at, in the order in which it is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mlxcel.config.settings import ServeSettings
from mlxcel.doctor.finding import Finding
from mlxcel.doctor.job import look_at_jobs
from mlxcel.doctor.machine import (
    look_at_device,
    look_at_disk,
    look_at_memory,
    look_at_open_files,
    physical_memory_bytes,
)
from mlxcel.doctor.metal import look_at_metallib, look_at_wired_limit
from mlxcel.doctor.model import look_at_model
from mlxcel.doctor.places import look_at_config, look_at_keys, look_at_log, look_at_models_folder
from mlxcel.doctor.port import look_at_port
from mlxcel.doctor.versions import look_at_versions
from mlxcel.errors import ConfigError
from mlxcel.service.layout import Layout


def examine(
    settings: ServeSettings,
    faults: Sequence[ConfigError],
    *,
    file: Path,
    environ: Mapping[str, str],
    jobs: tuple[Layout, ...],
) -> list[Finding]:
    """Look at everything. `faults` are those of the sources of settings, `file` is the config file."""
    models_dir = Path(settings.models_dir)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(look_at_device)  # the child takes the longest
        versions = look_at_versions()
        places = [
            *look_at_config(file, faults),
            look_at_keys(settings.api_keys_file, environ, host=settings.host),
            look_at_models_folder(models_dir),
            look_at_disk(models_dir),
            look_at_log(Path(settings.log_file).expanduser() if settings.log_file else None),
        ]
        port = look_at_port(settings.host, settings.port)
        service = look_at_jobs(jobs)
        device_found, device = asked.result()
    total_bytes = physical_memory_bytes()
    memory_bytes = (device and device.memory_bytes) or total_bytes
    model_found, model = look_at_model(settings, memory_bytes=memory_bytes)
    metal = [*look_at_metallib(device), look_at_wired_limit(device, total_bytes)]
    machine = [device_found, *metal, look_at_memory(memory_bytes, model), look_at_open_files()]
    return [*versions, *machine, *places, *model_found, port, *service]
