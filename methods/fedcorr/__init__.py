"""FedCorr (Xu et al., CVPR 2022)."""

from methods.fedcorr.method import FedCorr as FedCorr
