"""Checkpoints: what they store, what they refuse, and that no file of the suite can run code."""

import ast
import hashlib
import io
import json
import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from run_helpers import InterruptedRunError, run_to_end, to_comparable

from benchmarks.config.schema import RunConfig
from benchmarks.loop import checkpoint as checkpoint_module
from benchmarks.loop.checkpoint import CheckpointFile
from benchmarks.loop.state_codec import decode, encode
from benchmarks.records.files import atomic_write
from benchmarks.records.readers import read_scenario
from methods.core.contract import ServerState
from methods.core.errors import UserError

ROOT = Path(__file__).parent.parent.parent
IDENTITY = {"run_id": "fedavg-digits-s1-0", "method": "fedavg"}


@dataclass(kw_only=True)
class ExampleState(ServerState):
    scores: np.ndarray
    history: list[dict[int, Any]] = field(default_factory=list)


class RunsCode:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_all_kinds_of_values_keep_their_type_and_bytes() -> None:
    shared = torch.arange(4.0)
    strided = torch.arange(12.0).view(3, 4).t()
    state = ExampleState(
        models={"model": shared},
        scores=np.array([0.1, np.nan, -0.0]),
        history=[{3: torch.tensor([True, False]), -1: None}, {0: (1, 2.5, "word", True, np.inf)}],
    )
    value = {
        "state": state,
        "again": shared,
        "empty": torch.zeros(0, 4),
        "scalars": [torch.tensor(3), np.float32(0.1), np.int64(7), np.bool_(True)],
        "types": [torch.ones(3, dtype=dtype) for dtype in (torch.bfloat16, torch.int8, torch.half)],
        "strided": strided,
        "words": np.array(["a", "bc"]),
        1: {"1": []},
    }
    loaded = decode(encode(value))
    halves = value.pop("types"), loaded.pop("types")
    assert all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(*halves, strict=True))
    assert to_comparable(loaded) == to_comparable(value)
    assert type(loaded["state"]) is ExampleState and list(loaded) == list(value)
    assert type(loaded["state"].history[1][0]) is tuple
    assert loaded["again"] is loaded["state"].models["model"]
    loaded["strided"] += 1  # writable
    assert len(encode([shared, shared])) < len(encode([shared, shared.clone()]))


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (lambda: None, "state.shared['f']"),
        ({1.5: 2}, "state.shared['f']"),
        ([0, {"inner": torch.Generator()}], "state.shared['f'][1]['inner']"),
        (np.array([object()]), "state.shared['f']"),
    ],
    ids=["function", "key", "generator", "object array"],
)
def test_value_that_cannot_be_stored_is_named(value: Any, path: str) -> None:
    with pytest.raises(UserError) as caught:
        encode(ServerState(models={}, shared={"f": value}))
    assert str(caught.value).startswith(f"cannot store {path} of type ")
    assert "\n" not in str(caught.value)


def test_attribute_that_is_no_field_is_named() -> None:
    state = ServerState(models={})
    state.extra = 1  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="cannot store state.extra: expected a field"):
        encode(state)


def write_forged(path: Path, content: bytes, **header: Any) -> None:
    """A file with a valid header and hash, whatever its content is."""
    line = {"format": "fln checkpoint", "version": 1, **IDENTITY}
    line |= {"sha256": hashlib.sha256(content).hexdigest(), **header}
    path.write_bytes(json.dumps(line).encode() + b"\n" + content)


def archive(tree: Any, **arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, tree=np.frombuffer(json.dumps(tree).encode(), np.uint8), **arrays)
    return buffer.getvalue()


def state_of(name: str, *fields: list[Any]) -> dict[str, Any]:
    return {"dict": [["round", 1], ["method", {"state": [name, list(fields)]}]]}


SERVER_STATE = "methods.core.contract.ServerState"
FORGED: dict[str, Any] = {
    "other class": state_of("subprocess.Popen", ["args", "ls"]),
    "other fields": state_of(SERVER_STATE, ["models", {"dict": []}]),
    "more fields": state_of(
        SERVER_STATE, *([name, {"dict": []}] for name in ("models", "shared", "__class__"))
    ),
    "other kind": {"call": ["os.system", "ls"]},
    "array that is missing": {"dict": [["round", {"array": 7}], ["method", None]]},
    "type that is not one": {"tensor": [0, "load", [1]]},
    "other entries": {"dict": [["round", 1]]},
    "other type": {"dict": [["round", "1"], ["method", None]]},
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_tree_is_refused(name: str, tmp_path: Path) -> None:
    checkpoint = CheckpointFile(tmp_path, IDENTITY)
    write_forged(checkpoint.latest, archive(FORGED[name], **{"0": np.zeros(4, np.uint8)}))
    state, (warning,) = checkpoint.load({"round": 0, "method": ServerState(models={})})
    assert state is None and not checkpoint.latest.exists()
    assert warning.startswith(f"cannot use {checkpoint.latest}: ") and "\n" not in warning


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    """As the whole file, as the content, and as an array with objects."""
    target = tmp_path / "code was run"
    code = pickle.dumps(RunsCode(target))
    buffer = io.BytesIO()
    np.savez(buffer, tree=np.array([RunsCode(target)]), transition=np.array([RunsCode(target)]))
    checkpoint = CheckpointFile(tmp_path, IDENTITY)
    for content in (code, buffer.getvalue()):
        checkpoint.latest.write_bytes(hashlib.sha256(content).digest() + content)
        write_forged(checkpoint.previous, content)
        state, warnings = checkpoint.load({})
        assert state is None and len(warnings) == 2
    (tmp_path / "scene.npz").write_bytes(buffer.getvalue())
    with pytest.raises(UserError, match="cannot read .*scene.npz"):
        read_scenario(tmp_path)
    assert not target.exists()
    pickle.loads(code)
    assert target.exists()


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"version": 2}, "version is 2, expected 1"),
        ({"format": "tar"}, "format is 'tar', expected 'fln checkpoint'"),
        ({"method": "fedprox"}, "method is 'fedprox', expected 'fedavg'"),
        ({"run_id": "other"}, "run_id is 'other', expected 'fedavg-digits-s1-0'"),
        ({"sha256": "0"}, "wrong hash"),
    ],
)
def test_other_header_is_refused_and_the_previous_file_used(
    header: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    checkpoint = CheckpointFile(tmp_path, IDENTITY)
    checkpoint.save({"round": 1})
    checkpoint.save({"round": 2})
    write_forged(checkpoint.latest, encode({"round": 9}), **header)
    state, (warning,) = checkpoint.load({"round": 0})
    assert state == {"round": 1}
    assert reason in warning and warning.endswith("; using the previous checkpoint")


def test_damaged_only_checkpoint_names_the_first_round(tmp_path: Path) -> None:
    checkpoint = CheckpointFile(tmp_path, IDENTITY)
    checkpoint.save({"round": 1})
    checkpoint.latest.write_bytes(b"rubbish")
    state, (warning,) = checkpoint.load({"round": 0})
    assert state is None and warning.endswith("; starting from the first round")


def test_crash_during_a_checkpoint_keeps_the_previous_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = CheckpointFile(tmp_path, IDENTITY)
    checkpoint.save({"round": 1})

    def write_half(path: Path, data: bytes) -> None:
        (path.parent / f".{path.name}.partial").write_bytes(data[:10])
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint_module, "atomic_write", write_half)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save({"round": 2})
    assert checkpoint.load({"round": 0}) == ({"round": 1}, [])
    monkeypatch.setattr(checkpoint_module, "atomic_write", atomic_write)
    checkpoint.save({"round": 2})
    assert checkpoint.load({"round": 0}) == ({"round": 2}, [])
    checkpoint.delete()
    assert checkpoint.load({"round": 0}) == (None, []) and list(tmp_path.iterdir()) == []


def test_checkpoint_of_another_run_is_not_used(configure: Callable[..., RunConfig]) -> None:
    configs = [configure("checkpoint.every_seconds=0", f"seed={seed}") for seed in (1, 2)]
    for config in configs:
        with pytest.raises(InterruptedRunError):
            run_to_end(config, stops=[4])
    for name in ("checkpoint.bin", "checkpoint.previous.bin"):
        os.replace(configs[0].run_dir / name, configs[1].run_dir / name)
    lines = run_to_end(configs[1]).tracker.lines  # type: ignore[attr-defined]
    refused = [line for line in lines if "run_id is 'fedavg-digits-s1-" in line]
    assert len(refused) == 2 and not any("resuming" in line for line in lines)


def called_name(call: ast.Call) -> str:
    return ast.unparse(call.func)


def test_no_file_is_read_with_a_function_that_can_run_code() -> None:
    """Pickles exist only in the pipes between a run and its own workers."""
    required = {"np.load": "allow_pickle=False", "torch.load": "weights_only=True"}
    forbidden = {"yaml.load", "joblib.load", "pd.read_pickle", "eval", "exec", "marshal.loads"}
    found = []
    for package in ("methods", "benchmarks", "noise", "partition", "reports", "hydra_plugins"):
        for path in (ROOT / package).rglob("*.py"):
            source = path.read_text(encoding="utf-8")
            if "executors" not in path.parts and "import pickle" in source:
                found.append(f"{path}: pickle")
            for call in ast.walk(ast.parse(source)):
                if not isinstance(call, ast.Call):
                    continue
                name = called_name(call)
                if name in forbidden or required.get(name, "") not in ast.unparse(call):
                    found.append(f"{path}:{call.lineno}: {name}")
    assert found == []
