"""tracking=wandb: the entries that W&B wrote are compared with the record."""

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
from benchmarks.tracking.wandb_tracker import SETTINGS, WandbTracker, read_entries
from methods.fedavg import FedAvg

KEY = "0123456789abcdef" * 3
WANDB = ["scale=smoke", "executor=serial", "runs_dir=runs", "tracking=wandb"]
OFFLINE = [*WANDB, "tracking.mode=offline"]
ONLINE = [*WANDB, "tracking.entity=a-team"]
FIGURES = "[fln.run_figures]\nrun_figures = reports.figures.run_figures:render_figures\n"


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in the home directory of a user who is not logged in to W&B."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    home = tmp_path / "home_of_ursula"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    monkeypatch.setenv("USER", "ursula")
    (home / "work").mkdir(parents=True)
    monkeypatch.chdir(home / "work")
    return home / "work" / "runs"


@pytest.fixture
def figures_installed(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installed distribution whose entry point renders the figures of a run."""
    path = tmp_path_factory.mktemp("site")
    (path / "figures-0.1.dist-info").mkdir()
    (path / "figures-0.1.dist-info" / "METADATA").write_text("Name: figures\nVersion: 0.1\n")
    (path / "figures-0.1.dist-info" / "entry_points.txt").write_text(FIGURES)
    monkeypatch.syspath_prepend(path)


def sessions(run_dir: Path) -> list[Path]:
    return sorted((run_dir / "wandb").iterdir())


def entries(kind: str, *sessions: Path) -> list[dict[str, Any]]:
    return [
        entry[kind] for path in sessions for entry in read_entries(path) if entry["type"] == kind
    ]


def evaluations(*sessions: Path) -> list[dict[str, Any]]:
    """Rows of the history with an accuracy. The last row of a run has figures instead."""
    rows = [
        {key: value for key, value in row["item"].items() if not key.startswith("_")}
        for row in entries("history", *sessions)
    ]
    return [row for row in rows if "accuracy" in row]


def exit_code(session: Path) -> int:
    return int(entries("exit", session)[0].get("exit_code", 0))


def curve(run_dir: Path) -> list[dict[str, Any]]:
    with open(run_dir / "curve.csv", newline="") as file:
        return [
            {k: v if k == "stage" else json.loads(v) for k, v in row.items() if v != ""}
            for row in csv.DictReader(file)
        ]


def summary(*sessions: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for entry in entries("summary", *sessions):
        found |= entry["update"]
    return found


def services() -> list[int]:
    """W&B service processes of this process."""
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return [
        int(pid) for pid in children if b"wandb-core" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def signal_service(number: int) -> None:
    (pid,) = services()
    os.kill(pid, number)


def private_strings_found(*texts: bytes, long_only: bool = False) -> list[str]:
    """Paths and names of the user and machine. Short names may occur by chance in binary files."""
    long = [re.escape(str(Path.home()).encode()), b"ursula", KEY.encode()]
    names = (socket.gethostname(), getpass.getuser())
    short = [rb"\b" + re.escape(name.encode()) + rb"\b" for name in names]
    return [
        str(found)
        for text in texts
        for secret in (long if long_only else [*long, *short])
        if (found := re.search(secret, text))
    ]


def wandb_line(capsys: pytest.CaptureFixture[str]) -> str:
    """The only printed line about W&B."""
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "W&B" in line)
    return line


def test_every_run_of_a_sweep_is_a_wandb_run(
    runs: Path, figures_installed: None, capfd: pytest.CaptureFixture[str]
) -> None:
    """Two runs in one process, with worker processes. No file has private data."""
    options = ["noise.rho=0.4,0.8", "method=fedcorr", "experiment_name=mine"]
    workers = ["executor=processes", "executor.workers=2"]
    offline = [text for text in OFFLINE if text != "executor=serial"]
    assert main(["-m", *offline, *options, *workers]) == 0
    assert "wandb" not in "".join(capfd.readouterr()).lower() and services() == []
    run_dirs = list(runs.glob("fedcorr-*"))
    assert len(run_dirs) == 2
    for run_dir in run_dirs:
        (session,) = sessions(run_dir)
        record = json.loads((run_dir / "record.json").read_text())
        check_run_entry(session, record)
        check_summary(session, record)
        check_artifact(session, run_dir)
        assert evaluations(session) == curve(run_dir)
        texts = (json.dumps(entry).encode() for entry in read_entries(session))
        assert private_strings_found(*texts) == []
    written = [path for path in Path.home().rglob("*") if path.is_file()]
    assert len(written) > 20 and not any(path.is_symlink() for path in runs.rglob("*"))
    for path in written:
        is_binary = path.suffix in (".wandb", ".png", ".npz")
        assert private_strings_found(path.read_bytes(), long_only=is_binary) == [], path


def check_run_entry(session: Path, record: dict[str, Any]) -> None:
    (run,) = entries("run", session)
    expected = (record["run_id"], "federated-label-noise", "mine", "fedcorr")
    assert (run["run_id"], run["project"], run["run_group"], run["job_type"]) == expected
    assert sorted(run["tags"]) == ["digits", "rho_tau", "smoke"]
    assert run["display_name"].startswith("fedcorr digits rho_tau(")
    config = run["config"]["update"]
    assert {key: config[key] for key in record["config"]} == record["config"]
    assert (config["run_id"], config["experiment_name"]) == (record["run_id"], "mine")
    assert {"name": "processes", "workers": 2}.items() <= config["executor"].items()


def check_summary(session: Path, record: dict[str, Any]) -> None:
    sent = summary(session)
    assert (sent["status"], sent["rounds"]) == ("done", record["rounds"])
    assert exit_code(session) == 0
    assert {key: sent[key] for key in record["metrics"]} == record["metrics"]
    for section in ("summary", "cost", "time", "scenario", "versions"):
        assert {key: sent[f"{section}/{key}"] for key in record[section]} == record[section]
    for figure in ("partition", "lid_mixture", "confusion"):
        png = (session / "files" / sent[f"figures/{figure}.path"]).read_bytes()
        assert png.startswith(b"\x89PNG")
        assert hashlib.sha256(png).hexdigest() == sent[f"figures/{figure}.sha256"]


def check_artifact(session: Path, run_dir: Path) -> None:
    (artifact,) = entries("artifact", session)
    assert (artifact["name"], artifact["type"]) == (f"record-{run_dir.name}", "record")
    files = {entry["path"]: entry for entry in artifact["manifest"]["contents"]}
    assert set(files) == {"record.json", "curve.csv", "journal.jsonl"}
    for name, entry in files.items():
        assert entry["local_path"] == f"runs/{run_dir.name}/{name}"
        digest = hashlib.md5((run_dir / name).read_bytes()).digest()
        assert base64.b64decode(entry["digest"]) == digest


def test_figures_need_an_installed_package(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wandb_tracker, "entry_points", lambda group: ())
    assert main(OFFLINE) == 0
    (run_dir,) = runs.glob("fedavg-*")
    assert not any(key.startswith("figures/") for key in summary(*sessions(run_dir)))
    log = (run_dir / "log.txt").read_text()
    assert log.count("no figures for W&B: no installed package provides fln.run_figures") == 1


def test_unsuccessful_runs_have_exit_code_1(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main([*OFFLINE, "train.lr=1e12"]) == 1
    (diverged,) = runs.glob("fedavg-*")
    (session,) = sessions(diverged)
    assert exit_code(session) == 1 and summary(session)["status"] == "diverged"
    assert "returned NaN or Inf" in summary(session)["reason"]

    def broken(*arguments: Any) -> None:
        raise RuntimeError(f"nothing at {Path.home()}/data")

    monkeypatch.setattr(FedAvg, "setup", broken)
    assert main([*OFFLINE, "seed=2"]) == 1
    (failed,) = runs.glob("fedavg-*-s2-*")
    (session,) = sessions(failed)
    assert exit_code(session) == 1 and evaluations(session) == []
    record = json.loads((failed / "record.json").read_text())
    assert summary(session)["reason"] == record["reason"] == "RuntimeError: nothing at ~/data"


class StoppingWandbTracker(WandbTracker):
    """Ends a run in round 5, after its evaluation and before its checkpoint."""

    error: type[BaseException]

    def on_round(self, round: int, stage: str, participations: int) -> None:
        if round == 5:
            raise self.error


def stop(config: RunConfig, error: type[BaseException]) -> None:
    """Interrupt a run by Ctrl-C, or by an error after which it can resume."""
    tracker = StoppingWandbTracker("test", config, Console(quiet=True), live=False)
    tracker.error = error
    with suppress(KeyboardInterrupt):
        assert execute_run(config, tracker).status == "failed"
    tracker.close()


def test_resumed_run_continues_its_wandb_run(
    configure: Callable[..., RunConfig], runs: Path
) -> None:
    """W&B's file is cut off, as by a kill. The rows that it lost come from the checkpoint."""
    command = [*OFFLINE, "checkpoint.every_seconds=0"]
    config = configure(*command)
    run_dir = runs / config.run_id
    stop(config, KeyboardInterrupt)
    (first,) = sessions(run_dir)
    assert [row["round"] for row in evaluations(first)] == [1, 2, 3, 4, 5]
    (log,) = first.glob("*.wandb")
    end_of_third_row = log.read_bytes().index(b"participations\x82\x01\x0212") + 20
    log.write_bytes(log.read_bytes()[:end_of_third_row])
    kept = [row["round"] for row in evaluations(first)]
    assert kept and kept[-1] < 4

    assert main(command) == 0
    assert "resuming from round 4" in (run_dir / "log.txt").read_text()
    first, second = sessions(run_dir)
    run_entries = entries("run", first, second)
    assert {entry["run_id"] for entry in run_entries} == {config.run_id}
    assert all(entry["resume"] for entry in run_entries)
    assert evaluations(first, second) == curve(run_dir) and len(curve(run_dir)) == 8
    assert exit_code(second) == 0

    def times() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in (run_dir / "wandb").rglob("*")}

    before = times()
    assert main(command) == 0
    assert times() == before

    assert main([*command, "force=true"]) == 0
    (repeated,) = sessions(run_dir)
    assert repeated not in (first, second) and len(evaluations(repeated)) == 8
    assert not entries("run", repeated)[0].get("resume")


def test_online_run_sends_each_row_once_and_nothing_private(
    configure: Callable[..., RunConfig],
    runs: Path,
    figures_installed: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run that failed and resumed is one run on the server."""
    with wandb_server() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        config = configure(*ONLINE, "checkpoint.every_seconds=0")
        stop(config, RuntimeError)
        assert [row["_step"] for row in server.rows] == [1, 2, 3, 4, 5] and server.exit_codes == [1]
        assert main([*ONLINE, "checkpoint.every_seconds=0"]) == 0
    sent = [{k: v for k, v in row.items() if not k.startswith("_")} for row in server.rows]
    rows = curve(runs / config.run_id)
    # Round 5 was sent before the failure and repeated afterwards, so its time differs.
    assert sent[:-1] == [
        {**row, "seconds": other["seconds"]} for row, other in zip(rows, sent, strict=False)
    ]
    assert {"figures/partition", "figures/confusion"} <= set(sent[-1])
    assert server.exit_codes == [1, 0]
    assert private_strings_found(*server.received) == [] and len(server.received) > 6


@pytest.mark.parametrize(
    ("key", "reason"),
    [("", "not logged in; run `wandb login`"), (KEY, "context deadline exceeded")],
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
    (run_dir,) = runs.glob("fedavg-*")
    line = wandb_line(capsys)
    assert "W&B is unreachable (" in line and reason in line
    assert line.endswith(f"python -m wandb sync runs/{run_dir.name}/wandb/offline-run-*")
    (session,) = sessions(run_dir)
    assert session.name.startswith("offline-run-") and evaluations(session) == curve(run_dir)


@pytest.mark.parametrize(
    ("signal_number", "message"),
    [(signal.SIGKILL, "continuing without W&B ("), (signal.SIGSTOP, "W&B upload incomplete (")],
    ids=["killed", "hanging"],
)
def test_run_continues_after_wandb_failure(
    signal_number: int,
    message: str,
    runs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The W&B service gets a signal after the third evaluation."""
    original_on_evaluation, original_close = WandbTracker.on_evaluation, WandbTracker._close

    def on_evaluation(self: WandbTracker, row: dict[str, Any]) -> None:
        original_on_evaluation(self, row)
        if row["round"] == 3:
            signal_service(signal_number)

    def close(self: WandbTracker, exit_code: int) -> None:
        # Not earlier, because rendering the figures may take longer.
        monkeypatch.setattr(wandb_tracker, "FINISH_TIMEOUT_S", 1.0)
        original_close(self, exit_code)

    monkeypatch.setattr(WandbTracker, "on_evaluation", on_evaluation)
    monkeypatch.setattr(WandbTracker, "_close", close)
    monkeypatch.setattr(wandb_tracker, "INIT_TIMEOUT_S", 1.0)
    assert main(OFFLINE) == 0
    assert message in wandb_line(capsys) and services() == []
    (run_dir,) = runs.glob("fedavg-*")
    assert json.loads((run_dir / "record.json").read_text())["status"] == "done"
    assert len(curve(run_dir)) == 8


def test_wandb_init_timeout_is_logged(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wandb.setup(wandb.Settings(silent=True))
    signal_service(signal.SIGSTOP)
    monkeypatch.setattr(wandb_tracker, "OPEN_TIMEOUT_S", 0.5)
    assert main(OFFLINE) == 0
    assert "continuing without W&B (" in wandb_line(capsys) and services() == []


def test_teardown_ends_a_hanging_service() -> None:
    wandb.setup(wandb.Settings(silent=True))
    signal_service(signal.SIGSTOP)
    wandb_service.teardown(seconds=0.5)
    assert services() == []


def test_disabled_writes_nothing(runs: Path) -> None:
    assert main([*WANDB, "tracking.mode=disabled"]) == 0
    (run_dir,) = runs.glob("fedavg-*")
    assert not (run_dir / "wandb").exists() and (run_dir / "record.json").exists()


def test_wandb_run_of_the_caller_is_unchanged(runs: Path) -> None:
    own = wandb.init(mode="offline", dir=Path.home(), settings=wandb.Settings(silent=True))
    try:
        assert main([*OFFLINE, "seed=2"]) == 0
        own.log({"still": "here"})
    finally:
        own.finish()
        wandb.teardown()
    (session,) = (Path.home() / "wandb").glob("offline-run-*")
    assert entries("history", session)[0]["item"]["still"] == "here"
