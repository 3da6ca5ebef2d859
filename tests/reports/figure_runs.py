"""Runs for the tests of figures: copies of a frozen FedCorr run with other keys.

The frozen run fedcorr-iid-s1 has three classes and four clients of 10, 10, 20 and 5 samples.
Clients 1 and 2 are noisy, with noise rates 0.4 and 0.7.
"""

import json
import shutil
from pathlib import Path
from typing import Any

GOOD = Path(__file__).parent / "records" / "good"
FEDCORR = GOOD / "fedcorr-iid-s1"


def write_run(
    runs: Path,
    method: str,
    best: float = 0.5,
    seed: int = 1,
    journal: list[dict[str, Any]] | None = None,
    **keys: Any,
) -> Path:
    """Write the run METHOD-NNN, such as `write_run(runs, "lsg", **{"method.lambda_": 0.2})`."""
    run_dir = runs / f"{method}-{len(list(runs.glob('*'))):03d}"
    shutil.copytree(FEDCORR, run_dir)
    record = json.loads((FEDCORR / "record.json").read_text())
    record["run_id"], record["summary"]["best"] = run_dir.name, best
    record["summary"]["last10"] = best - 0.05
    record["config"] |= {"method": {"name": method}, "seed": seed}
    record["config"] |= {"protocol": "fedcorr", "hyperparameters": "common"}
    for key, value in keys.items():
        section, name = key.split(".")
        record["config"].setdefault(section, {})[name] = value
    (run_dir / "record.json").write_text(json.dumps(record))
    if journal is not None:
        lines = "".join(json.dumps(entry) + "\n" for entry in journal)
        (run_dir / "journal.jsonl").write_text(lines)
    return run_dir
