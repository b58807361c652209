"""Is an answer right? Graders by name, and a pool of worker processes that runs them and can kill them.

Importing this package imports none of the libraries that graders use; the workers do.
"""

from rolecall.grading.episodes import grade_episodes, grade_episodes_async
from rolecall.grading.graders import GRADERS, Grader
from rolecall.grading.math import grade_math
from rolecall.grading.pool import GraderPool
from rolecall.grading.stats import PoolStats

__all__ = ["GRADERS", "Grader", "GraderPool", "PoolStats", "grade_episodes", "grade_episodes_async", "grade_math"]
