"""Numbers and run ids stay as they are until PROTOCOL_VERSION is raised."""

import json
from pathlib import Path

import freeze
import pytest

pytestmark = pytest.mark.no_cover
FROZEN = json.loads(freeze.FILE.read_text())
same_bytes = pytest.mark.skipif(
    freeze.environment() != FROZEN["environment"],
    reason=f"digests are of {FROZEN['environment']}, here is {freeze.environment()}",
)


@same_bytes
@pytest.mark.parametrize("executor", freeze.EXECUTORS)
@pytest.mark.parametrize("method", FROZEN["runs"])
def test_smoke_run_has_the_same_bytes(method: str, executor: str, tmp_path: Path) -> None:
    assert freeze.digest_of_run(method, executor, str(tmp_path)) == FROZEN["runs"][method][executor]


@pytest.mark.parametrize("experiment", FROZEN["run_ids"])
def test_published_cells_keep_their_run_ids(experiment: str) -> None:
    for scale, ids in FROZEN["run_ids"][experiment].items():
        assert freeze.run_ids(experiment, scale) == ids
