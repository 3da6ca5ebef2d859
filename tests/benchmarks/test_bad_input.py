"""Invalid command lines: one line with the key and the expected values, exit code 2, no files."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.run import main

# Command line (after SMOKE) and parts of the one-line error.
MISTAKES = {
    # keys
    "nose.rho=0.4": ["unknown key nose", "did you mean noise?"],
    "noise.roh=0.4": ["unknown key noise.roh", "did you mean rho?", "available: name, rho, tau"],
    "+noise.roh=0.4": ["unknown key noise.roh", "did you mean rho?", "available: rho, tau"],
    "+colour=red": ["unknown key colour", "available: seed, scale, "],
    "+seed=2": ["Could not append to config. An item is already at 'seed'."],
    "train.lr.decay=1": ["unknown key train.lr.decay", "available: none"],
    "method=fedprox method.mue=1": ["unknown key method.mue", "did you mean mu?"],
    "method=lsg method.warmup_rounds=0.1": ["method.warmup_rounds: did you mean warmup_fraction?"],
    "method=fedcorr method.final=poc": ["key method.final: did you mean final_method?"],
    "evaluate.memorised_samples=0": ["did you mean memorization_samples?"],
    "method.mu=1": ["unknown key method.mu", "available: name"],
    "executor.workers=2": [
        "unknown key executor.workers",
        "available: device, precision, compile, name",
    ],
    "hydra.verbos=true": ["unknown key hydra.verbos", "did you mean verbose?"],
    "~seed=1": ["missing seed: set seed=VALUE"],
    "~noise=rho_tau": ["missing noise: set noise=VALUE"],
    "~noise.rho=0.6": ["missing noise.rho: set noise.rho=VALUE"],
    "~noise.roh": ["Could not delete from config. 'noise.roh' does not exist"],
    # options of a config group
    "method=fedavgg": ["unknown method fedavgg", "did you mean fedavg?", "available: arfl, "],
    "method.name=fedavgg": ["unknown method fedavgg", "available: arfl, "],
    "dataset=cifar11": ["unknown dataset cifar11", "available: cifar10, cifar100,"],
    "model=resnet19": ["unknown model resnet19", "resnet18, resnet34"],
    "model=null": ["unknown model null", "digits_cnn"],
    "dataset=null": ["unknown dataset null", "digits"],
    "partition=random": ["unknown partition random", "available: bernoulli_dirichlet, centralized"],
    "noise=human_like": ["unknown noise human_like", "human, none, pairwise"],
    "executor=cluster": ["unknown executor cluster", "available: processes, ray, serial"],
    "tracking=mlflow": ["unknown tracking mlflow", "available: none, wandb"],
    "tracking=wandb tracking.mode=foo": [
        "invalid tracking.mode='foo': expected online, offline or disabled"
    ],
    "tracking=wandb tracking.project=a/b": [
        "invalid tracking.project='a/b': expected 1 to 128 characters without any of / \\ # ? % :"
    ],
    "tracking=wandb tracking.entity=5": ["invalid tracking.entity=5: expected a string or null"],
    "tracking.mode=offline": ["unknown key tracking.mode", "available: name"],
    "experiment=no_such_table": ["unknown experiment no_such_table", "available: fedcnml_figure2"],
    "experiment=fedcorr_figure3": ["cannot start an experiment as one run: add -m"],
    "protocol=fedcor": [
        "unknown protocol fedcor",
        "did you mean fedcorr?",
        "fedcnml, fedcorr, lsg",
    ],
    "hyperparameters=best": ["unknown hyperparameters best", "common, published, tuned"],
    "settings=mine": ["unknown key settings"],
    "protocol=fedcorr dataset=mnist scale=paper": [
        "invalid scale=paper: protocol=fedcorr has no setting for dataset=mnist",
        "available: laptop, smoke",
    ],
    "scale=huge": ["unknown scale huge", "available: laptop, paper, smoke"],
    "hydra/launcher=slurm": ["unknown hydra/launcher slurm", "available: basic"],
    "hydra.searchpath=[file:///nowhere/conf]": ["/nowhere/conf", "expected hydra.searchpath=["],
    "hydra.searchpath=3": ["hydra.searchpath must be a list", "expected hydra.searchpath=["],
    # types and values
    "seed=one": ["invalid seed='one': expected an integer in [0, 4294967295]"],
    "seed=1.5": ["invalid seed=1.5: expected an integer"],
    "seed=true": ["invalid seed=true: expected an integer"],
    "seed=": ["invalid seed='': expected an integer"],
    "seed=-1": ["invalid seed=-1: expected an integer in [0, 4294967295]"],
    "seed=5000000000": ["invalid seed=5000000000: expected an integer in [0, 4294967295]"],
    "train=null": ["invalid train=null: expected keys local_epochs, batch_size"],
    "train.lr=nan": ["invalid train.lr=nan: expected a number above 0"],
    "train.lr=inf": ["invalid train.lr=inf: expected a number above 0"],
    "train.lr=0": ["invalid train.lr=0: expected a number above 0"],
    "train.optimizer=lion": ["invalid train.optimizer='lion': expected sgd or adam"],
    "train.local_epochs=0": ["invalid train.local_epochs=0: expected an integer of at least 1"],
    "executor.compile=maybe": ["invalid executor.compile='maybe': expected"],
    "executor.device=gpu": [
        "invalid executor.device='gpu': expected auto, cpu, cuda, cuda:N, mps or xpu"
    ],
    "executor.precision=fp16": ["invalid executor.precision='fp16': expected"],
    "budget.participations=1e3": ["invalid budget.participations=1000.0: expected an integer"],
    "evaluate.validation=1": ["invalid evaluate.validation=1: expected a number in [0, 1)"],
    "evaluate.every=0": ["invalid evaluate.every=0: expected an integer of at least 1"],
    "checkpoint.every_seconds=-1": [
        "invalid checkpoint.every_seconds=-1: expected a number of at least 0"
    ],
    "force=maybe": ["invalid force='maybe': expected true or false"],
    "dry=maybe": ["invalid dry_run='maybe': expected true or false"],
    "data_dir=5": ["invalid data_dir=5: expected a path"],
    "executor=processes executor.workers=0": [
        "invalid executor.workers=0: expected an integer of at least 1 or auto"
    ],
    "executor=processes executor.workers=many": [
        "invalid executor.workers='many': expected an integer of at least 1 or auto"
    ],
    "noise.rho=1.2": ["invalid noise.rho=1.2: expected a number in [0, 1]"],
    "noise.rho=-0.1": ["invalid noise.rho=-0.1: expected a number in [0, 1]"],
    "noise.rho=[0.1,0.2]": ["invalid noise.rho=[0.1, 0.2]: expected a number in [0, 1]"],
    "noise.rho=null": ["invalid noise.rho=null: expected a number in [0, 1]"],
    "noise.rho=${noise.rhoo}": ["cannot resolve noise.rho", "'noise.rhoo' not found"],
    "method=fedprox method.mu=-1": ["invalid method.mu=-1: expected a number of at least 0"],
    "method=fedprox method.form=cubed": ["invalid method.form='cubed': expected squared or norm"],
    "method=fedcorr method.final_method=coteaching": [
        "invalid method.final_method='coteaching': expected "
    ],
    # combinations
    "scale=paper": [
        "invalid scale=paper: protocol=digits has no setting for dataset=digits;"
        " available: laptop, smoke"
    ],
    "dataset=npz": ["missing dataset.path: set dataset.path=VALUE"],
    "dataset=npz dataset.path=/nowhere/mine.npz": ["/nowhere/mine.npz", ".npz file"],
    "+dataset.path=mine.npz": ["unknown key dataset.path: available: none"],
    "dataset=mnist data_dir=/nowhere": ["mnist", "/nowhere", "benchmarks.data fetch=mnist"],
    "dataset=clothing1m data_dir=/nowhere": ["clothing1m", "/nowhere/clothing1m/images"],
    "model=lenet5": ["lenet5", "1x8x8"],
    "+model.depth=3": ["unknown key model.depth: available: none"],
    "federation.num_clients=2000": [
        "invalid federation.num_clients=2000: expected an integer in [1, 1437]"
    ],
    "federation.clients_per_round=9": [
        "invalid federation.clients_per_round=9: expected an integer in [1, "
        "federation.num_clients=8]"
    ],
    "budget.participations=3": [
        "invalid budget.participations=3",
        "federation.clients_per_round=4",
    ],
    "partition=centralized": ["invalid federation.num_clients=8: expected 1"],
    "partition=classes_per_client partition.classes=11": ["invalid partition.classes=11"],
    "partition=classes_per_client": [
        "cannot apply noise=rho_tau",
        "choose a partition with disjoint clients",
    ],
    "noise.classes=11": ["invalid noise.classes=11"],
    "noise=human": ["missing noise.path: set noise.path=VALUE"],
    "method=poc method.d=3": ["invalid method.d=3", "federation.clients_per_round=4"],
    "method=fedcorr budget.participations=7": [
        "invalid budget.participations=7",
        "federation.num_clients=8",
    ],
    # the command line itself
    "noise.rho=0.4,0.8": ["cannot start one run with noise.rho=0.4,0.8: add -m"],
    "seed=range(1,3)": ["cannot start one run with seed=range(1,3): add -m"],
    "noise.rho=[1,2": ["cannot parse override 'noise.rho=[1,2': expected key=value"],
    "noise.rho=${": ["cannot parse override 'noise.rho=${': expected key=value"],
    "=3": ["cannot parse override '=3': expected key=value"],
    "fedprox": ["cannot parse override 'fedprox': expected key=value"],
    "--method fedprox": ["unknown option --method", "--multirun", "--cfg"],
    "-m --cfg job": ["cannot combine --multirun and --cfg"],
    "--cfg": ["missing value of --cfg: set --cfg job | hydra | all"],
    "--cfg jobs": ["invalid --cfg jobs: did you mean job?"],
    "--resolve": ["cannot use --resolve alone: add --cfg job"],
    "--config-dir /nowhere": ["Additional config directory '/nowhere' not found"],
    "-m seed=interval(1,3)": ["invalid seed='interval(1,3)': expected discrete values"],
    "-m noise.rho=[1,2": ["cannot parse override 'noise.rho=[1,2': expected key=value"],
    "-m hydra.verbose=true,false": ["Sweeping over Hydra's configuration is not supported"],
    # an invalid run stops the sweep before its first run
    "-m seed=1,2,x": ["invalid seed='x': expected an integer"],
    "-m method=fedavg,fedavgg": ["unknown method fedavgg", "did you mean fedavg?"],
    "-m experiment=fedcorr_figure3,no_such_table": ["unknown experiment no_such_table"],
    "-m method=fedavg,fedprox noise.rho=0.4,1.4": ["invalid noise.rho=1.4"],
    "-m federation.num_clients=8,2000": [
        "invalid federation.num_clients=2000",
        "scale=smoke federation.num_clients=2000)",
    ],
    "-m method=fedavg,poc +method.d=3": ["unknown key method.d", "available: none"],
}


@pytest.mark.parametrize("typed", MISTAKES)
def test_error_is_one_line_with_key_and_expected_values(
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
