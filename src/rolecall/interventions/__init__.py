"""What may be done, by role, about what the dynamics show: settings and maths (`learner/interventions.py` acts)."""

from rolecall.interventions.settings import Intervention

__all__ = ["Intervention"]
