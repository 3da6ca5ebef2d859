"""Properties of every dataset that can be loaded, including those of other packages."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.data import DATASETS, VIEWS, default_data_dir, load
from benchmarks.data.registry import DatasetInfo
from benchmarks.run import main
from methods.core.errors import UserError
from methods.core.params import build_params

AVAILABLE = [info.name for info in DATASETS.all() if info.status(default_data_dir()) == "ready"]


def test_datasets_of_other_packages_are_registered() -> None:
    assert {"digits", "stripes"} <= set(AVAILABLE)


@pytest.mark.parametrize("name", AVAILABLE)
def test_loaded_dataset_is_consistent(name: str) -> None:
    dataset = load(name, default_data_dir())
    for images, labels in (
        (dataset.train, dataset.train_labels),
        (dataset.test, dataset.test_labels),
    ):
        assert len(images) == len(labels) > 0
        assert labels.dtype == np.int64
        assert 0 <= labels.min() <= labels.max() < dataset.num_classes
        batch = images.fetch(torch.tensor([0, len(images) - 1]))
        assert batch.dtype == torch.uint8
        for view in VIEWS:
            inputs = dataset.views(batch, view, torch.Generator().manual_seed(0))
            assert inputs.shape == (2, *dataset.shape)
            assert inputs.dtype == torch.float32
    assert pickle.loads(pickle.dumps(dataset.views)).shape == dataset.shape


def test_parameters_of_an_external_dataset(tmp_path: Path) -> None:
    info = DATASETS.get("stripes")
    params = build_params(info.params, {"size": 5}, "dataset")
    dataset = load("stripes", tmp_path, params)
    assert (dataset.shape, dataset.num_classes) == ((1, 5, 5), 2)
    with pytest.raises(
        UserError, match="invalid dataset.size=0: expected an integer of at least 1"
    ):
        build_params(info.params, {"size": 0}, "dataset")


def test_invalid_arrays_of_an_external_dataset_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = DATASETS.get("stripes").read(
        DATASETS.get("stripes"), tmp_path, DATASETS.get("stripes").params()
    )
    assert isinstance(arrays, dict)
    changed = arrays | {"test_labels": arrays["test_labels"] + 1}
    info = DatasetInfo("stripes", "example", read=lambda *arguments: changed)
    monkeypatch.setitem(DATASETS._components, "stripes", info)
    with pytest.raises(UserError, match=r"stripes: test_labels has values 1\.\.2, expected 0\.\.1"):
        load("stripes", tmp_path)


def test_run_with_external_dataset_and_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["scale=smoke", "dataset=stripes", "executor=serial"]
    assert main([*arguments, "noise=none", f"runs_dir={tmp_path}"]) == 0
    (run_dir,) = (path for path in tmp_path.iterdir() if path.name.startswith("fedavg-stripes-s1"))
    assert '"name": "pooled_linear"' in (run_dir / "record.json").read_text()
