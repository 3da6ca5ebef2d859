"""Completed and interrupted runs whose source has changed since."""

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from run_helpers import InterruptedRunError, SilentTracker, run_to_end

from benchmarks.config.schema import Component, RunConfig
from benchmarks.config.sweep import PlannedRun
from benchmarks.loop.runner import execute_run
from benchmarks.records import source
from benchmarks.records.record import Record, write_record
from benchmarks.terminal.run_tables import finished_run_ids, print_planned_runs
from methods.core.errors import UserError
from methods.core.params import NoParams
from methods.core.registry import METHODS

METHOD = '''
"""A method of another package."""
from methods import FedAvg, register
from . import helper

@register(family="aggregation", paper="none")
class Scaled(FedAvg):
    """FedAvg with scaled models."""
    name = "scaled"

    def aggregate_models(self, matrix, weights):
        return helper.SCALE * super().aggregate_models(matrix, weights)
'''


@pytest.fixture
def edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """edit("SCALE = 0.5") -> the package with this text in a module, in a new process."""
    package = tmp_path / "scaled_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "method.py").write_text(METHOD)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    METHODS.names()

    def forget() -> None:
        METHODS._components.pop("scaled", None)
        source._digests.cache_clear()
        for name in [name for name in sys.modules if name.startswith("scaled_package")]:
            del sys.modules[name]

    def write(text: str) -> None:
        forget()
        (package / "helper.py").write_text(text)
        importlib.invalidate_caches()
        importlib.import_module("scaled_package.method")

    yield write
    forget()


@pytest.fixture
def scaled(configure: Callable[..., RunConfig]) -> Callable[..., RunConfig]:
    """scaled("stale=keep") -> configuration of the method `scaled`."""
    return lambda *overrides: replace(
        configure("budget.participations=12", *overrides), method=Component("scaled", NoParams())
    )


def execute(config: RunConfig) -> tuple[Record, list[str]]:
    tracker = SilentTracker(config.run_dir)
    record = execute_run(config, tracker)
    return record, [line for line in tracker.lines if "source" in line]


def test_edited_package_is_run_again(edit: Callable, scaled: Callable[..., RunConfig]) -> None:
    edit("SCALE = 1.0")
    first, _ = execute(scaled())
    edit('"""Docstring."""\n\nSCALE  =  1.0  # comment')
    assert execute(scaled("stale=error")) == (first, [])
    edit("SCALE = 0.5")
    kept, lines = execute(scaled("stale=keep"))
    assert kept == first
    assert lines == [
        "the source of scaled_package has changed since then; the result is kept, "
        "stale=rerun repeats the run"
    ]
    with pytest.raises(UserError, match="^cannot use .*: the source of scaled_package has changed"):
        execute(scaled("stale=error"))
    second, lines = execute(scaled())
    assert second.summary != first.summary
    assert re.fullmatch(
        "the source of scaled_package has changed since then; the run is repeated, .*", *lines
    )
    assert execute(scaled()) == (second, [])


def test_changed_suite_is_reported_and_kept(
    configure: Callable[..., RunConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    config = configure("budget.participations=4")
    record, _ = execute(config)
    assert record.source.keys() == {"benchmarks", "methods", "noise", "partition"}
    assert record.source == source.source_digests(config)
    old = record.model_copy(update={"source": record.source | {"methods": "old"}})
    write_record(config.run_dir, old)
    assert finished_run_ids([PlannedRun([], config)]) == {config.run_id}
    line = "1 completed run: the source of methods has changed since then; the result is kept"
    assert line in capsys.readouterr().out
    rerun = replace(config, stale="rerun")
    assert finished_run_ids([PlannedRun([], rerun)]) == set()
    print_planned_runs([PlannedRun([], rerun)], set())
    assert "done, to repeat" in capsys.readouterr().out
    again, lines = execute(rerun)
    assert (again.source, len(lines)) == (record.source, 1)


def test_checkpoint_of_other_source_is_not_continued(
    edit: Callable, scaled: Callable[..., RunConfig]
) -> None:
    edit("SCALE = 0.5")
    config = scaled("checkpoint.every_seconds=0")
    for stale, start in (("auto", "it starts again"), ("keep", "the run continues")):
        edit("SCALE = 1.0")
        with pytest.raises(InterruptedRunError):
            run_to_end(config, stops=[2])
        edit("SCALE = 0.5")
        with pytest.raises(UserError, match="^cannot use .*: the source of scaled_package has"):
            execute(replace(config, stale="error"))
        assert not (config.run_dir / "record.json").exists()
        record, lines = execute(replace(config, stale=stale, force=False))
        assert len(lines) == 1 and f"has changed since then; {start}" in lines[0]
        (config.run_dir / "record.json").unlink()
        if stale == "auto":
            fresh, _ = execute(config)
            assert record.summary == fresh.summary
            (config.run_dir / "record.json").unlink()
        else:
            assert record.summary != fresh.summary


def test_record_has_version_and_commit(configure: Callable[..., RunConfig]) -> None:
    record, _ = execute(configure("budget.participations=4"))
    assert record.versions["federated-label-noise"]
    if (source.ROOT / ".git").exists():
        assert re.fullmatch("[0-9a-f]{7,40}(-dirty)?", record.versions["commit"])
    assert "example-plugin" not in record.versions


def test_record_has_the_version_of_another_package(configure: Callable[..., RunConfig]) -> None:
    record, _ = execute(configure("budget.participations=4", "method=norm_clipping"))
    assert record.versions["example-plugin"] == "0.1"
    assert "example_plugin" in record.source


def test_source_covers_bases_and_imports_of_the_same_packages() -> None:
    import methods.dividemix  # noqa: F401

    _, imported = source._read_module(sys.modules["methods.dividemix"])
    assert {"methods.toolkit.mixup", "methods.fedavg"} <= set(imported)
    names = frozenset(source._defining_modules(METHODS.get("dividemix")))
    assert {"methods.dividemix", "methods.toolkit.warmup", "methods.fedavg"} <= names
    assert source._digests(names).keys() == {"methods"}
