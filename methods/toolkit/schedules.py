"""Schedules over the rounds of a run. A length is given as a share of all rounds, so that one value serves every budget."""

from methods.core.contract import TaskSpec


def rounds_from_fraction(share: float, spec: TaskSpec) -> int:
    """A share of the run's rounds, as the nearest whole number: 0.2 of 100 rounds are 20."""
    return round(share * (spec.participations // spec.clients_per_round))


def ramp(round: int, length: int) -> float:
    """Linear from 0 in round 0 to 1 in round `length`, 1 from there on; without a length 1 throughout."""
    return 1.0 if round >= length else round / length


def forget_rate(round: int, length: int, final: float) -> float:
    """Small-loss selection (Co-teaching): the share left out, `length` equal steps from 0 to `final` in the first `length` rounds, then `final`."""
    return final if round >= length else final * round / max(length - 1, 1)


def num_kept(size: int, rate: float) -> int:
    """How many of a batch stay when a share is left out: rounded down, at least one, so that a batch of one can be learnt from."""
    return max(
        int((1.0 - rate) * size + 1e-9), 1
    )  # 1e-9: (1 - 0.9) * 10 is 1, and 0.999... in floating point
