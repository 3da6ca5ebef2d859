"""Damaged records: each is named in one line, and excluded from reports or run again."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from damaged_files import damaged_records
from run_helpers import SilentTracker

from benchmarks import cli
from benchmarks.config.schema import RunConfig
from benchmarks.config.sweep import PlannedRun
from benchmarks.loop.runner import execute_run
from benchmarks.records.record import CorruptRecordError, Record, read_record
from benchmarks.records.stale import find_finished
from benchmarks.terminal.run_tables import finished_run_ids, print_planned_runs

GOOD = Path(__file__).parent / "records" / "good"
STEP = 3  # of the damaged forms of a record, every third


@pytest.fixture
def config(configure: Callable[..., RunConfig]) -> RunConfig:
    return configure("method=fedcorr", "budget.participations=16")


@pytest.fixture
def record(config: RunConfig) -> Record:
    return execute_run(config, SilentTracker(config.run_dir))


def write_forms(record: Record, runs: Path) -> tuple[list[Path], list[Path]]:
    """One run directory per form: those whose record is refused, and those with other values."""
    refused, accepted = [], []
    for number, text in enumerate([*damaged_records(record.to_dict()).values()][::STEP]):
        run_dir = runs / f"form-{number}"
        run_dir.mkdir(parents=True)
        text = text.replace(record.run_id.encode(), run_dir.name.encode(), 1)
        (run_dir / "record.json").write_bytes(text)
        try:
            read_record(run_dir)
            accepted.append(run_dir)
        except CorruptRecordError as error:
            assert str(error).startswith(f"cannot read {run_dir}/record.json: ")
            assert "\n" not in str(error) and len(str(error)) < 400
            refused.append(run_dir)
    return refused, accepted


def test_damaged_records_are_named_and_excluded(
    record: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forms, runs = tmp_path / "forms", tmp_path / "reports"
    refused, accepted = write_forms(record, forms)
    assert len(refused) > 500 and len(accepted) > 200
    for name in ("fedavg-noniid-s1", "fedavg-noniid-s2", "fedcorr-noniid-s1"):
        shutil.copytree(GOOD / name, runs / name)
    for run_dir in refused:
        shutil.move(run_dir, runs)
    commands = [["compare"], ["tables", f"out={tmp_path / 'tables'}", "table=fedcorr_table2"]]
    commands.append(["page", f"out={tmp_path / 'page.html'}"])
    for command in commands:
        assert cli.main([*command, f"runs={runs}"]) == 0
        lines = capsys.readouterr().err.splitlines()
        named = [line.partition("/record.json: ") for line in lines]
        expected = sorted(f"cannot read {runs / path.name}" for path in refused)
        assert sorted(start for start, found, _ in named if found) == expected
    assert cli.main(["status", f"runs={runs}"]) == 0
    assert f"{len(refused)} damaged" in capsys.readouterr().out


def test_other_values_do_not_stop_reports(
    record: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_forms(record, tmp_path / "forms")
    for command in (["status"], ["tables", f"out={tmp_path}", "table=fedcorr_table2"]):
        assert cli.main([*command, f"runs={tmp_path / 'forms'}"]) == 0
    capsys.readouterr()
    # Runs of one cell that differ in more than the seed are not averaged.
    assert cli.main(["compare", f"runs={tmp_path / 'forms'}"]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: cannot average runs of cell")


def test_damaged_record_is_run_again(
    record: Record, config: RunConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = config.run_dir / "record.json"
    good = path.read_bytes()
    for text in [*damaged_records(record.to_dict()).values()][:: 10 * STEP]:
        path.write_bytes(text)
        found, line = find_finished(config)
        if found is None:
            assert line.startswith(f"cannot read {path}: ") and line.endswith("run is repeated")
    path.write_bytes(good[:-10])
    run = PlannedRun([], config)
    print_planned_runs([run], finished_run_ids([run]))
    assert "damaged, to repeat" in capsys.readouterr().out
    tracker = SilentTracker(config.run_dir)
    assert execute_run(config, tracker).summary == record.summary
    assert sum(line.startswith(f"cannot read {path}: ") for line in tracker.lines) == 1
