"""Shared by the report tests: a small frozen configuration, and records written from it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reports import configure

HERE = Path(__file__).parent


@pytest.fixture
def frozen_conf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are composed from tests/reports/conf, so that they do not move with the real configuration."""
    monkeypatch.setattr(configure, "CONF", HERE / "conf")


@pytest.fixture
def write_run(frozen_conf: None, tmp_path: Path) -> Callable[..., Path]:
    """write_run("method=fedavg", scale="laptop", seed=1, best=0.5) -> folder of such a run in tmp_path / "runs"."""

    def write(
        *overrides: str, scale: str = "laptop", seed: int = 1, best: float = 0.5, **changes: Any
    ) -> Path:
        config: dict[str, Any] = {"protocol": 1, "seed": seed, "scale": scale}
        for key, value in configure.configured(overrides, scale).items():
            section, name = key.split(".")
            config.setdefault(section, {})[name] = value
        folder = tmp_path / "runs" / f"{len(list(tmp_path.glob('runs/*'))):03d}"
        record = {
            "protocol": 1,
            "run_id": folder.name,
            "status": "done",
            "reason": "",
            "config": config,
            "scene": {"hash": f"scene {seed}"},
            "oracle": "",
        }
        record |= {
            "summary": {"best": best, "last10": best, "final": best},
            "scores": {},
            "cost": {"participations": 100},
            "rounds": 10,
            "time": {"seconds_method": 10.0},
            **changes,
        }
        folder.mkdir(parents=True)
        (folder / "record.json").write_text(json.dumps(record))
        return folder

    return write
