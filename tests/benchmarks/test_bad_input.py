"""Wrong command lines: one line that names the key and what is legal, exit code 2, nothing written."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.run import main

# What is typed (a grid starts with -m), and what the one line must say.
MISTAKES = {
    # keys
    "nose.rho=0.4": ["nose.rho is not a key", "did you mean noise?"],
    "noise.roh=0.4": ["noise.roh is not a key", "did you mean rho?", "legal: name, rho, tau"],
    "+noise.roh=0.4": ["unknown key noise.roh", "did you mean rho?", "available: rho, tau"],
    "+colour=red": ["colour is not a key of the configuration", "legal: seed, scale, dataset"],
    "train.lr.decay=1": ["train.lr.decay is not a key", "train.lr is a value"],
    "method=fedprox method.mue=1": ["method.mue is not a key", "did you mean mu?"],
    "method.mu=1": ["method.mu is not a key", "legal: name"],
    "executor.workers=2": ["executor.workers is not a key", "legal: name"],
    "hydra.verbos=true": ["hydra.verbos is not a key", "did you mean verbose?"],
    "~seed=1": ["seed is missing"],
    "~noise=rho_tau": ["noise is missing", "legal: a configuration with all of"],
    "~noise.rho=0.6": ["missing noise.rho", "set noise.rho=VALUE"],
    # entries of a group
    "method=fedavgg": ["method=fedavgg is not legal", "legal: arfl, coteaching,"],
    "method.name=fedavgg": ["method='fedavgg' is not legal", "legal: arfl, coteaching,"],
    "dataset=cifar11": ["dataset=cifar11 is not legal", "cifar10, cifar100,"],
    "model=resnet19": ["model=resnet19 is not legal", "resnet18, resnet34"],
    "model=null": ["model=null is not legal", "digits_cnn"],
    "dataset=null": ["dataset=null is not legal", "digits"],
    "partition=random": [
        "partition=random is not legal",
        "legal: bernoulli_dirichlet, centralized",
    ],
    "noise=human_like": ["noise=human_like is not legal", "human, none, pairwise"],
    "executor=cluster": ["executor=cluster is not legal", "legal: processes, serial"],
    "tracking=mlflow": ["tracking=mlflow is not legal", "legal: none, wandb"],
    "tracking=wandb tracking.mode=foo": [
        "tracking.mode='foo' is not legal",
        "legal: online, offline, disabled",
    ],
    "tracking=wandb tracking.project=a/b": [
        "tracking.project='a/b' is not legal",
        "none of / \\ # ? % :",
    ],
    "tracking=wandb tracking.entity=5": ["tracking.entity=5 is not legal", "legal: a word or null"],
    "tracking.mode=offline": ["tracking.mode is not a key", "legal: name"],
    "experiment=no_such_table": ["unknown experiment no_such_table", "available: "],
    "method_dataset=fedavg_moon": ["method_dataset=fedavg_moon is not legal", "arfl_cifar10"],
    "scale=huge": ["scale=huge is not legal", "legal: laptop, paper, smoke"],
    "hydra/launcher=slurm": ["hydra/launcher=slurm is not legal", "legal: basic"],
    "hydra.searchpath=[file:///nowhere/conf]": ["/nowhere/conf", "legal: hydra.searchpath=["],
    "hydra.searchpath=3": [
        "hydra.searchpath must be a list of strings",
        "legal: hydra.searchpath=[",
    ],
    # types and values
    "seed=one": ["seed='one' is not legal", "legal: a whole number"],
    "seed=1.5": ["seed=1.5 is not legal", "legal: a whole number"],
    "seed=true": ["seed=True is not legal", "legal: a whole number"],
    "seed=": ["seed='' is not legal", "legal: a whole number"],
    "seed=-1": ["seed=-1 is not legal", "legal: 0 to 4294967295"],
    "seed=5000000000": ["seed=5000000000 is not legal", "legal: 0 to 4294967295"],
    "train=null": ["train=None is not legal", "legal: keys local_epochs, batch_size"],
    "train.lr=nan": ["train.lr=nan is not legal", "legal: a number"],
    "train.lr=inf": ["train.lr=inf is not legal", "legal: a number"],
    "train.lr=0": ["train.lr=0.0 is not legal", "legal: above 0"],
    "train.optimizer=lion": ["train.optimizer='lion' is not legal", "legal: sgd, adam"],
    "train.local_epochs=0": ["train.local_epochs=0 is not legal", "legal: at least 1"],
    "budget.participations=1e3": [
        "budget.participations=1000.0 is not legal",
        "legal: a whole number",
    ],
    "evaluate.every=0": ["evaluate.every=0 is not legal", "legal: at least 1"],
    "checkpoint.every_seconds=-1": [
        "checkpoint.every_seconds=-1.0 is not legal",
        "legal: at least 0",
    ],
    "force=maybe": ["force='maybe' is not legal", "legal: true or false"],
    "data_dir=5": ["data_dir=5 is not legal", "legal: a word or null"],
    "executor=processes executor.workers=0": [
        "executor.workers=0 is not legal",
        "legal: auto, or at least 1",
    ],
    "executor=processes executor.workers=many": [
        "executor.workers='many' is not legal",
        "legal: auto, or at least 1",
    ],
    "noise.rho=1.2": ["invalid noise.rho=1.2", "expected a number in [0, 1]"],
    "noise.rho=-0.1": ["invalid noise.rho=-0.1", "expected a number in [0, 1]"],
    "noise.rho=[0.1,0.2]": ["invalid noise.rho=[0.1, 0.2]", "expected a number"],
    "noise.rho=null": ["invalid noise.rho=null", "expected a number"],
    "noise.rho=${noise.rhoo}": ["noise.rho", "'noise.rhoo' not found", "legal: "],
    "method=fedprox method.mu=-1": ["method.mu=-1.0 is not legal", "legal: at least 0"],
    "method=fedprox method.form=cubed": [
        "method.form='cubed' is not legal",
        "legal: squared, norm",
    ],
    "method=fedcorr method.final=coteaching": ["method.final=", "coteaching", "legal: "],
    # pairs that cannot be
    "scale=paper": [
        "scale=paper has no settings for dataset=digits",
        "legal: scale=laptop, scale=smoke",
    ],
    "dataset=npz": ["dataset.path is missing", "legal: dataset.path=VALUE"],
    "dataset=npz dataset.path=/nowhere/mine.npz": [
        "dataset.path",
        "/nowhere/mine.npz",
        ".npz file with train_images",
    ],
    "+dataset.path=mine.npz": ["unknown key dataset.path: available: none"],
    "dataset=mnist data_dir=/nowhere": [
        "cannot read mnist: /nowhere/mnist/train_images.npy does not exist",
        "run `python -m benchmarks.data fetch=mnist data_dir=/nowhere`",
    ],
    "dataset=clothing1m data_dir=/nowhere": [
        "cannot read clothing1m: /nowhere/clothing1m/images does not exist"
    ],
    "model=lenet5": ["invalid model='lenet5'", "expected a model for 1x8x8 images (digits_cnn, "],
    "+model.depth=3": ["unknown key model.depth: available: none"],
    "federation.num_clients=2000": [
        "federation.num_clients=2000",
        "expected an integer in [1, 1437]",
    ],
    "federation.clients_per_round=9": [
        "federation.clients_per_round=9 is not legal",
        "legal: 1 to federation.num_clients=8",
    ],
    "budget.participations=3": [
        "budget.participations=3 is less than one round",
        "legal: at least federation.clients_per_round=4",
    ],
    "partition=centralized": ["federation.num_clients=8", "expected 1"],
    "partition=classes_per_client partition.classes=11": [
        "partition.classes=11",
        "expected at most 10",
    ],
    "partition=classes_per_client": [
        "cannot apply noise=rho_tau",
        "choose a partition with disjoint clients",
    ],
    "noise.classes=11": ["noise.classes=11", "expected null or at most 10"],
    "noise=human": ["noise.path is missing", "legal: noise.path=VALUE"],
    "method=poc method.d=3": [
        "method.d=3 is not legal",
        "legal: at least federation.clients_per_round=4",
    ],
    "method=fedcorr budget.participations=7": [
        "budget.participations=7",
        "legal: at least federation.num_clients=8",
    ],
    # the command line itself
    "noise.rho=0.4,0.8": ["noise.rho=0.4,0.8 makes 2 cells", "legal: one value per key, or -m"],
    "noise.rho=[1,2": ["noise.rho=[1,2 cannot be read", "legal: key=value"],
    "noise.rho=${": ["noise.rho=${ cannot be read", "legal: key=value"],
    "=3": ["'=3' is not legal", "legal: key=value"],
    "fedprox": ["'fedprox' is not legal", "legal: key=value, -m"],
    "--method fedprox": ["'--method' is not legal", "legal: key=value, -m"],
    "-m seed=interval(1,3)": ["seed=interval(1,3) is not legal", "legal: key=a,b"],
    # one wrong cell of a grid stops it before it starts
    "-m seed=1,2,x": ["seed='x' is not legal"],
    "-m method=fedavg,fedprox noise.rho=0.4,1.4": ["noise.rho=1.4"],
    "-m federation.num_clients=8,2000": [
        "federation.num_clients=2000",
        "(run scale=smoke federation.num_clients=2000)",
    ],
    "-m method=fedavg,poc +method.d=3": ["method.d is not a key", "legal: none"],
}


@pytest.mark.parametrize("typed", MISTAKES)
def test_is_one_line_that_names_the_key_and_what_is_legal(
    typed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    assert main(["scale=smoke", "executor=serial", f"runs_dir={runs}", *typed.split()]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert (
        shown.err.startswith("error: ") and shown.err.count("\n") == 1 and shown.err.endswith("\n")
    )
    for words in MISTAKES[typed]:
        assert words in shown.err
    assert not runs.exists()


def test_damaged_record_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cell = ["scale=smoke", "executor=serial", f"runs_dir={tmp_path}"]
    assert main([*cell, "dry=true"]) == 0
    folder = tmp_path / next(
        word
        for word in capsys.readouterr().out.replace("/", " ").split()
        if word.startswith("fedavg-digits-s1-")
    )
    folder.mkdir()
    (folder / "record.json").write_text('{"status": "do')
    assert main(cell) == 2
    assert (
        capsys.readouterr().err
        == f"error: cannot read {folder}/record.json: not a valid JSON object; delete it to rerun\n"
    )


def test_arrays_of_the_users_own_are_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.npz"
    np.savez(
        path,
        train_images=np.zeros((4, 8, 8), np.uint8),
        train_labels=np.arange(3),
        test_images=np.zeros((2, 8, 8), np.uint8),
        test_labels=np.arange(2),
    )
    assert (
        main(
            ["scale=smoke", "dataset=npz", f"dataset.path={path}", f"runs_dir={tmp_path / 'runs'}"]
        )
        == 2
    )
    assert capsys.readouterr().err == (
        f"error: cannot read {path}: train_images is uint8 (4, 1, 8, 8), "
        "expected uint8 (3, 1, 8, 8)\n"
    )
