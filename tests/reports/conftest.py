"""Fixtures of the report tests: a small configuration, and records written from it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.config import experiments
from benchmarks.config.compose import compose_run

HERE = Path(__file__).parent


@pytest.fixture
def frozen_conf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compose runs from tests/reports/conf, so that golden tables do not depend on conf/."""
    monkeypatch.setattr(experiments, "CONF", HERE / "conf")


@pytest.fixture
def write_run(frozen_conf: None, tmp_path: Path) -> Callable[..., Path]:
    """write_run("method=fedavg", seed=1, best=0.5) -> run directory in tmp_path / "runs"."""

    def write(
        *overrides: str, scale: str = "laptop", seed: int = 1, best: float = 0.5, **changes: Any
    ) -> Path:
        config = compose_run([*overrides, f"scale={scale}", f"seed={seed}"]).hashed_config()
        run_dir = tmp_path / "runs" / f"{len(list(tmp_path.glob('runs/*'))):03d}"
        record = {
            "protocol": 1,
            "run_id": run_dir.name,
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
        run_dir.mkdir(parents=True)
        (run_dir / "record.json").write_text(json.dumps(record))
        return run_dir

    return write
