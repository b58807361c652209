"""Algorithms: named compositions of sampler, reward, credit and loss. Nothing here needs a model."""

from __future__ import annotations

from rolecall.algorithms.base import Algorithm, CreditResult
from rolecall.algorithms.diagnose import diagnose
from rolecall.algorithms.loss import Loss
from rolecall.algorithms.make import ALGORITHMS, make_algorithm

__all__ = ["ALGORITHMS", "Algorithm", "CreditResult", "Loss", "diagnose", "make_algorithm"]
