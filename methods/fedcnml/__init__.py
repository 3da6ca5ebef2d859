"""Fed-CNML (Wu et al., Computer Science 2024)."""

from methods.fedcnml.method import FedCNML as FedCNML
