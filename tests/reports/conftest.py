"""Fixtures of the report tests: a small configuration, and hand-written records of its runs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from written_runs import written_config

from benchmarks.config import experiments

HERE = Path(__file__).parent


@pytest.fixture
def frozen_conf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compose runs from tests/reports/conf, so that golden tables do not depend on conf/."""
    monkeypatch.setattr(experiments, "CONF", HERE / "conf")


@pytest.fixture
def write_run(frozen_conf: None, tmp_path: Path) -> Callable[..., Path]:
    """write_run("method=fedavg", seed=1, best=0.5) writes a run to a directory in tmp_path/runs."""

    def write(
        *overrides: str, scale: str = "laptop", seed: int = 1, best: float = 0.5, **changes: Any
    ) -> Path:
        run_dir = tmp_path / "runs" / f"{len(list(tmp_path.glob('runs/*'))):03d}"
        settings = {"protocol_version": 2, "seed": seed, "scale": scale}
        record = {
            "protocol_version": 2,
            "run_id": run_dir.name,
            "status": "done",
            "reason": "",
            "config": settings | written_config(overrides, scale),
            "scenario": {"hash": f"scenario {seed}"},
            "oracle": "",
            "rounds": 10,
            "summary": {"best": best, "last10": best, "final": best},
            "metrics": {},
            "cost": {"participations": 100},
            "time": {"seconds_method": 1.0},
        }
        run_dir.mkdir(parents=True)
        (run_dir / "record.json").write_text(json.dumps(record | changes))
        return run_dir

    return write
