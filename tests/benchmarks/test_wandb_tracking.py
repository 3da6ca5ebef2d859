"""tracking=wandb, with W&B itself: what it wrote is read back with its own reader and compared with the record."""

import base64
import csv
import getpass
import hashlib
import json
import os
import re
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import wandb
from rich.console import Console
from wandb_server import wandb_server

from benchmarks.config.schema import RunConfig
from benchmarks.loop.runner import execute_run
from benchmarks.run import main
from benchmarks.tracking import wandb_service, wandb_tracker
from benchmarks.tracking.wandb_tracker import SETTINGS, WandbTracker, records
from methods.fedavg import FedAvg

KEY = "0123456789abcdef" * 3
OFFLINE = [
    "scale=smoke",
    "executor=serial",
    "runs_dir=runs",
    "tracking=wandb",
    "tracking.mode=offline",
]
ONLINE = [*OFFLINE[:-1], "tracking.entity=a-team"]


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commands are typed in a folder below a home of the test's own; nobody is logged in."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home_of_ursula"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home_of_ursula" / "cache"))
    monkeypatch.setenv("USER", "ursula")
    (tmp_path / "home_of_ursula" / "work").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "home_of_ursula" / "work")
    return tmp_path / "home_of_ursula" / "work" / "runs"


def sessions(run: Path) -> list[Path]:
    return sorted((run / "wandb").iterdir())


def of_type(kind: str, *folders: Path) -> list[dict[str, Any]]:
    return [
        record[kind] for folder in folders for record in records(folder) if record["type"] == kind
    ]


def rows(*folders: Path) -> list[dict[str, Any]]:
    """The tests of a run; the last row, of pictures, apart."""
    items = [
        {k: v for k, v in row["item"].items() if not k.startswith("_")}
        for row in of_type("history", *folders)
    ]
    return [item for item in items if "accuracy" in item]


def curve(run: Path) -> list[dict[str, Any]]:
    with open(run / "curve.csv", newline="") as file:
        return [
            {k: v if k == "stage" else json.loads(v) for k, v in row.items() if v != ""}
            for row in csv.DictReader(file)
        ]


def summary(*folders: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for entry in of_type("summary", *folders):
        found |= entry["update"]
    return found


def services() -> list[int]:
    """W&B's processes that this one has started."""
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return [
        int(pid) for pid in children if b"wandb-core" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def signal_service(number: int) -> None:
    (pid,) = services()
    os.kill(pid, number)


def test_every_cell_of_a_grid_is_a_run_that_equals_its_record(
    runs: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Forked workers, two cells in one process; files, pictures and the artifact; nothing private in any byte below the home."""
    grid = [
        "noise.rho=0.4,0.8",
        "method=fedcorr",
        "part_of=mine",
        "executor=processes",
        "executor.workers=2",
    ]
    assert main(["-m", *OFFLINE, *grid]) == 0
    assert "wandb" not in "".join(capfd.readouterr()).lower() and services() == []
    found = {run.name: run for run in runs.glob("fedcorr-*")}
    assert len(found) == 2
    for name, run in found.items():
        (session,) = sessions(run)
        record = json.loads((run / "record.json").read_text())
        (about,) = of_type("run", session)
        assert (about["run_id"], about["project"], about["run_group"], about["job_type"]) == (
            name,
            "federated-label-noise",
            "mine",
            "fedcorr",
        )
        assert sorted(about["tags"]) == ["digits", "rho_tau", "smoke"] and about[
            "display_name"
        ].startswith("fedcorr digits rho_tau(")
        config = about["config"]["update"]
        assert {key: config[key] for key in record["config"]} == record["config"]
        assert (config["run_id"], config["executor"], config["part_of"]) == (
            name,
            {"name": "processes", "workers": 2},
            "mine",
        )
        assert rows(session) == curve(run)
        told = summary(session)
        assert (told["status"], told["rounds"]) == ("done", record["rounds"]) and of_type(
            "exit", session
        )[0].get("exit_code", 0) == 0
        assert {key: told[key] for key in record["scores"]} == record["scores"]
        for section in ("summary", "cost", "time", "scene", "versions"):
            assert {key: told[f"{section}/{key}"] for key in record[section]} == record[section]
        for picture in ("partition", "lid_mixture", "confusion"):
            png = session / "files" / told[f"figures/{picture}.path"]
            assert (
                png.read_bytes().startswith(b"\x89PNG")
                and hashlib.sha256(png.read_bytes()).hexdigest()
                == told[f"figures/{picture}.sha256"]
            )
        (artifact,) = of_type("artifact", session)
        assert (artifact["name"], artifact["type"]) == (f"record-{name}", "record")
        files = {entry["path"]: entry for entry in artifact["manifest"]["contents"]}
        assert set(files) == {"record.json", "curve.csv", "journal.jsonl"}
        for path, entry in files.items():
            assert entry["local_path"] == f"runs/{name}/{path}"
            assert (
                base64.b64decode(entry["digest"]) == hashlib.md5((run / path).read_bytes()).digest()
            )
        assert private(*(json.dumps(record).encode() for record in records(session))) == []
    written = [path for path in Path.home().rglob("*") if path.is_file()]
    assert len(written) > 20 and not any(path.is_symlink() for path in runs.rglob("*"))
    for path in written:
        assert (
            private(path.read_bytes(), long_only=path.suffix in (".wandb", ".png", ".npz")) == []
        ), path


def private(*texts: bytes, long_only: bool = False) -> list[str]:
    """What of the machine and its user shows in some bytes. A short name could stand in compressed bytes by chance."""
    long = [re.escape(str(Path.home()).encode()), b"ursula", KEY.encode()]
    short = [
        rb"\b" + re.escape(name.encode()) + rb"\b"
        for name in (socket.gethostname(), getpass.getuser())
    ]
    return [
        str(found)
        for text in texts
        for secret in (long if long_only else [*long, *short])
        if (found := re.search(secret, text))
    ]


def test_diverged_and_failed_cells_are_shown_as_failed(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main([*OFFLINE, "train.lr=1e12"]) == 1
    (diverged,) = runs.glob("fedavg-*")
    (session,) = sessions(diverged)
    assert of_type("exit", session)[0]["exit_code"] == 1
    assert (
        summary(session)["status"] == "diverged"
        and "returned NaN or Inf" in summary(session)["reason"]
    )

    def broken(*arguments: Any) -> None:
        raise RuntimeError(f"nothing at {Path.home()}/data")

    monkeypatch.setattr(FedAvg, "setup", broken)
    assert main([*OFFLINE, "seed=2"]) == 1
    (failed,) = runs.glob("fedavg-*-s2-*")
    (session,) = sessions(failed)
    assert of_type("exit", session)[0]["exit_code"] == 1 and rows(session) == []
    assert (
        summary(session)["reason"]
        == json.loads((failed / "record.json").read_text())["reason"]
        == "RuntimeError: nothing at ~/data"
    )


class StoppingTracker(WandbTracker):
    """Ends a run in round 5, after its test and before its checkpoint."""

    error: type[BaseException]

    def advance(self, round: int, stage: str, participations: int) -> None:
        if round == 5:
            raise self.error


def stop(config: RunConfig, error: type[BaseException]) -> None:
    """By Ctrl-C, or by an error after which the cell can be tried again."""
    tracker = StoppingTracker("test", config, Console(quiet=True), live=False)
    tracker.error = error
    with suppress(KeyboardInterrupt):
        assert execute_run(config, tracker)["status"] == "failed"
    tracker.close()


def test_resumed_cell_continues_its_run_without_a_row_twice(
    configure: Callable[..., RunConfig], runs: Path
) -> None:
    """Also when W&B's file was cut short, as by a kill: rows that it lost come from the checkpoint. Then the same command once more, and force=true."""
    config = configure(*OFFLINE, "checkpoint.every_seconds=0")
    command = [*OFFLINE, "checkpoint.every_seconds=0"]
    run = runs / config.run_id
    stop(config, KeyboardInterrupt)
    (first,) = sessions(run)
    assert [row["round"] for row in rows(first)] == [1, 2, 3, 4, 5]
    (log,) = first.glob("*.wandb")
    log.write_bytes(
        log.read_bytes()[: log.read_bytes().index(b"participations\x82\x01\x0212") + 20]
    )
    kept = [row["round"] for row in rows(first)]
    assert kept and kept[-1] < 4

    assert main(command) == 0
    assert "goes on from round 4" in (run / "log.txt").read_text()
    first, second = sessions(run)
    assert {about["run_id"] for about in of_type("run", first, second)} == {config.run_id}
    assert all(about["resume"] for about in of_type("run", first, second))
    whole = curve(run)
    assert rows(first, second) == whole and len(whole) == 8
    assert of_type("exit", second)[0].get("exit_code", 0) == 0

    before = {path: path.stat().st_mtime_ns for path in (run / "wandb").rglob("*")}
    assert main(command) == 0
    assert {path: path.stat().st_mtime_ns for path in (run / "wandb").rglob("*")} == before

    assert main([*command, "force=true"]) == 0
    (anew,) = sessions(run)
    assert (
        anew not in (first, second)
        and len(rows(anew)) == 8
        and not of_type("run", anew)[0].get("resume")
    )


def test_online_sends_the_curve_once_and_nothing_private(
    configure: Callable[..., RunConfig], runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell that failed and went on: the server has the rows of both jobs as one run."""
    with wandb_server() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        config = configure(*ONLINE, "checkpoint.every_seconds=0")
        stop(config, RuntimeError)
        assert [row["_step"] for row in server.rows] == [1, 2, 3, 4, 5] and server.exit_codes == [1]
        assert main([*ONLINE, "checkpoint.every_seconds=0"]) == 0
    assert [
        {k: v for k, v in row.items() if not k.startswith("_")} for row in server.rows[:-1]
    ] == [
        {**row, "seconds": sent["seconds"]}
        for row, sent in zip(curve(runs / config.run_id), server.rows, strict=False)
    ]
    assert {"figures/partition", "figures/confusion"} <= set(
        server.rows[-1]
    ) and server.exit_codes == [1, 0]
    assert private(*server.received) == [] and len(server.received) > 6


@pytest.mark.parametrize(
    ("key", "reason"),
    [("", "no login; `wandb login` makes one"), (KEY, "context deadline exceeded")],
    ids=["no login", "no network"],
)
def test_online_falls_back_to_offline(
    key: str,
    reason: str,
    runs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    if key:
        monkeypatch.setenv("WANDB_API_KEY", key)
    monkeypatch.setitem(SETTINGS, "init_timeout", 1.0)
    assert main(ONLINE) == 0
    (run,) = runs.glob("fedavg-*")
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "W&B" in line)
    assert reason in line and line.endswith(
        f"python -m wandb sync runs/{run.name}/wandb/offline-run-*"
    )
    (session,) = sessions(run)
    assert session.name.startswith("offline-run-") and rows(session) == curve(run)


@pytest.mark.parametrize(
    ("trouble", "words"),
    [(signal.SIGKILL, "goes on without W&B ("), (signal.SIGSTOP, "W&B was not sent all (")],
    ids=["dies", "hangs"],
)
def test_run_outlives_wandb(
    trouble: int,
    words: str,
    runs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """W&B's service is killed, or stands still, after the third test."""
    shown, closed = WandbTracker.evaluated, WandbTracker._close

    def evaluated(self: WandbTracker, row: dict[str, Any]) -> None:
        shown(self, row)
        if row["round"] == 3:
            signal_service(trouble)

    def close(self: WandbTracker, exit_code: int) -> None:
        monkeypatch.setattr(
            wandb_tracker, "SEND_SECONDS", 1.0
        )  # not before: a slow machine may need longer to draw the pictures
        closed(self, exit_code)

    monkeypatch.setattr(WandbTracker, "evaluated", evaluated)
    monkeypatch.setattr(WandbTracker, "_close", close)
    monkeypatch.setattr(wandb_tracker, "ANSWER_SECONDS", 1.0)
    assert main(OFFLINE) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "W&B" in line)
    assert words in line and services() == []
    (run,) = runs.glob("fedavg-*")
    assert (
        json.loads((run / "record.json").read_text())["status"] == "done" and len(curve(run)) == 8
    )


def test_a_wandb_that_hangs_when_a_run_opens_costs_a_line(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wandb.setup(wandb.Settings(silent=True))
    signal_service(signal.SIGSTOP)
    monkeypatch.setattr(wandb_tracker, "OPEN_SECONDS", 0.5)
    assert main(OFFLINE) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "W&B" in line)
    assert "goes on without W&B (" in line and services() == []


def test_a_service_that_lost_the_request_to_end_is_ended() -> None:
    wandb.setup(wandb.Settings(silent=True))
    signal_service(signal.SIGSTOP)
    wandb_service.end(seconds=0.5)
    assert services() == []


def test_disabled_writes_nothing_and_a_run_of_the_callers_own_stays(runs: Path) -> None:
    assert main([*OFFLINE[:-1], "tracking.mode=disabled"]) == 0
    (run,) = runs.glob("fedavg-*")
    assert not (run / "wandb").exists() and (run / "record.json").exists()
    mine = wandb.init(mode="offline", dir=Path.home(), settings=wandb.Settings(silent=True))
    try:
        assert main([*OFFLINE, "seed=2"]) == 0
        mine.log({"still": "here"})
    finally:
        mine.finish()
        wandb.teardown()
    (session,) = (Path.home() / "wandb").glob("offline-run-*")
    assert of_type("history", session)[0]["item"]["still"] == "here"
