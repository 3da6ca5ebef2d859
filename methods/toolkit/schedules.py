"""Schedules over the rounds of a run. Lengths are fractions of all rounds, for any budget."""

from methods.core.task import TaskSpec


def rounds_from_fraction(fraction: float, spec: TaskSpec) -> int:
    """Number of rounds in a fraction of the run, rounded: 0.2 of 100 rounds are 20."""
    return round(fraction * (spec.participations // spec.clients_per_round))


def ramp(round: int, length: int) -> float:
    """Linear ramp from 0 in round 0 to 1 in round `length`; 1 from there on."""
    return 1.0 if round >= length else round / length


def forget_rate(round: int, length: int, final: float) -> float:
    """Fraction of a batch to drop (Co-teaching): linear from 0 to `final` in `length` rounds."""
    return final if round >= length else final * round / max(length - 1, 1)


def num_kept(size: int, rate: float) -> int:
    """Number of samples left after dropping a fraction, rounded down; at least one."""
    # 1e-9: (1 - 0.9) * 10 is 0.999... in floating point.
    return max(int((1.0 - rate) * size + 1e-9), 1)
