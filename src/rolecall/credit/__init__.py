"""Credit: which turns share a reward, whose rewards are compared, and what each earned relative to its peers."""

from __future__ import annotations

from collections.abc import Mapping

from rolecall.credit.assign import ALONE, Assigned, CreditCounts, assign
from rolecall.credit.estimators import Estimator, LeaveOneOut, Mean, MeanStd, PeerEstimator, RunningMean
from rolecall.credit.metrics import credit_metrics, reward_metrics
from rolecall.credit.units import PEERS, UNITS, Grouping, Scored, Units, build_units

ESTIMATORS: Mapping[str, type[Estimator]] = {
    "mean_std": MeanStd,
    "mean": Mean,
    "leave_one_out": LeaveOneOut,
    "running_mean": RunningMean,
}

__all__ = [
    "ALONE",
    "ESTIMATORS",
    "PEERS",
    "UNITS",
    "Assigned",
    "CreditCounts",
    "Estimator",
    "Grouping",
    "LeaveOneOut",
    "Mean",
    "MeanStd",
    "PeerEstimator",
    "RunningMean",
    "Scored",
    "Units",
    "assign",
    "build_units",
    "credit_metrics",
    "reward_metrics",
]
