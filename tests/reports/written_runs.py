"""Hand-written configurations of runs of the small configuration in tests/reports/conf.

The tests of the matching compare them with composed configurations.
"""

from typing import Any

import yaml

# The options of tests/reports/conf with all parameters.
OPTIONS: dict[str, dict[str, dict[str, Any]]] = {
    "dataset": {"cifar10": {}, "cifar100": {}, "mnist": {}},
    "model": {
        "lenet5": {},
        "cnn9": {"dropout_in_eval": False},
        "resnet18": {"stem": "cifar"},
        "resnet34": {"stem": "cifar"},
    },
    "partition": {
        "iid": {"form": "plain"},
        "bernoulli_dirichlet": {"p": 0.7, "alpha": 10.0, "form": "plain"},
    },
    "noise": {
        "rho_tau": {"rho": 0.6, "tau": 0.5, "classes": None, "form": "plain"},
        "symmetric": {"epsilon": 0.3, "scope": "global"},
        "pairwise": {"epsilon": 0.3, "direction": -1},
    },
    "method": {
        "fedavg": {},
        "fedprox": {"mu": 1.0, "form": "squared"},
        "fedcorr": {
            **{"iterations": 5, "finetuning_fraction": 0.5, "theta": 0.5, "pi": 0.5, "kappa": 0.1},
            **{"beta": 5.0, "alpha": 1.0, "num_neighbors": 20, "final_method": "fedavg"},
            **{"correction": True, "fraction_scheduling": True, "proximal": True},
            **{"finetuning": True, "usual_training": True, "mixup": True, "profile": "official"},
            **{"prox": None, "sample_loss": None, "rank_loss": None, "relabel_pool": None},
            **{"mixup_stages": None, "stage2_relabel": None, "score_view": None},
        },
    },
}
DEFAULTS = {
    "dataset": "cifar100",
    "partition": "iid",
    "noise": "rho_tau",
    "method": "fedavg",
}
CHOICES = {"protocol": "fedcorr", "hyperparameters": "common"}
TRAIN = {
    **{"local_epochs": 5, "batch_size": 10, "optimizer": "sgd", "lr": 0.01, "momentum": 0.5},
    **{"weight_decay": 0.0, "lr_decay": 1.0, "clip_norm": 0.0},
}
# Model, clients, clients per round and participations.
SCALES = {
    ("paper", "cifar100"): ("resnet34", 50, 5, 5000),
    ("laptop", "cifar100"): ("lenet5", 50, 5, 500),
    ("smoke", "cifar100"): ("lenet5", 50, 2, 4),
    ("laptop", "cifar10"): ("lenet5", 100, 10, 1000),
    ("laptop", "mnist"): ("lenet5", 100, 10, 1000),
}


def written_config(overrides: tuple[str, ...], scale: str = "laptop") -> dict[str, Any]:
    """Configuration of a record of the small configuration, without seed and scale."""
    values = dict(text.split("=", 1) for text in overrides)
    options = DEFAULTS | {key: value for key, value in values.items() if key in OPTIONS}
    model, clients, cohort, participations = SCALES[scale, options["dataset"]]
    options.setdefault("model", model)
    config: dict[str, Any] = {
        group: {"name": options[group], **OPTIONS[group][options[group]]} for group in OPTIONS
    }
    config |= {
        "train": dict(TRAIN),
        "federation": {"num_clients": clients, "clients_per_round": cohort},
        "budget": {"participations": participations},
        "evaluate": {"every": 1, "memorization_samples": 1000},
    }
    config |= {key: values.pop(key, default) for key, default in CHOICES.items()}
    for key, value in values.items():
        if key not in OPTIONS:
            section, name = key.split(".")
            assert name in config[section], key
            config[section][name] = yaml.safe_load(value)
    return config
