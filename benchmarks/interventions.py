"""What interventions cost an update, in processor seconds of this process.

A random Qwen3 of 0.8 million parameters, float32, one thread; three roles of unequal lengths that share one policy, as
in the demo (`dynamics.py`). Balancing and damping are sections of their own, which are timed; what they take is too
little for a difference of updates. An anchor changes the passes themselves: (with - without) / with, pair by pair.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from typing import Any

from figures import Figure, figure, take_turns

PEERS: dict[str, str] = {}
TURNS = 384
FIGURES = {
    "update": "processor seconds of an update without interventions",
    "balance_share": "mass balancing of three roles: their norms, and one pass over the weights for each",
    "damping_gradient_share": "damping of one role on the gradient: its mean, and one pass",
    "damping_update_share": "the same on the update: two moments of its own beside AdamW's",
    "anchor_share": "a KL anchor of one role: a forward pass of the base model over its turns",
}


def run(repeats: int) -> dict[str, Figure]:
    from dynamics import make_model

    with tempfile.TemporaryDirectory() as folder:
        return costs(make_model(folder), repeats)


def costs(folder: str, repeats: int) -> dict[str, Figure]:
    import torch

    from dynamics import ROLES, make_samples
    from rolecall.algorithms.loss import Loss
    from rolecall.engines.specs import PolicySpec
    from rolecall.interventions.settings import Intervention, anchored
    from rolecall.learner.config import LearnerConfig
    from rolecall.policies.build import build_policies

    torch.set_num_threads(1)
    samples = make_samples(TURNS, seed=0)
    tables = {
        "plain": {},
        "balance": {role: Intervention(balance_mass=True) for role in ROLES},
        "damping_gradient": {"verifier": Intervention(damping=0.3, apply_to="gradient")},
        "damping_update": {"verifier": Intervention(damping=0.3)},
        "anchor": {"verifier": Intervention(kl_anchor=0.01)},
    }

    def contender(name: str, table: dict[str, Intervention]) -> Callable[[], float]:
        spec = PolicySpec(name="team", kind="model", model=folder)
        built = build_policies(
            [spec],
            LearnerConfig(lr=1e-4),
            anchored(Loss(), table),
            device="cpu",
            interventions=table,
            roles=dict.fromkeys(ROLES, "team"),
        )
        learner = built["team"].learner
        assert learner is not None

        own = Sections(learner.interventions)

        def update() -> float:
            own.seconds = 0.0
            begun = time.process_time()
            learner.update(samples)
            spent = time.process_time() - begun
            sections[name].append(own.seconds / spent)
            return spent

        return update

    sections: dict[str, list[float]] = {name: [] for name in tables}
    seconds = take_turns({name: contender(name, table) for name, table in tables.items()}, repeats)
    pairs = zip(seconds["anchor"], seconds["plain"], strict=True)
    parts = {
        f"{name}_share": figure(sections[name][1:], "share")
        for name in ("balance", "damping_gradient", "damping_update")
    }
    return {
        "update": figure(seconds["plain"], "s"),
        **parts,
        "anchor_share": figure(((a - b) / a for a, b in pairs), "share"),
    }


class Sections:
    """Times what the learner asks of its interventions."""

    def __init__(self, interventions: Any) -> None:
        self.seconds = 0.0
        for name in ("begin", "weights", "before_clip", "after_step"):
            setattr(interventions, name, self._timed(getattr(interventions, name)))

    def _timed(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def section(*arguments: Any) -> Any:
            begun = time.process_time()
            try:
                return work(*arguments)
            finally:
                self.seconds += time.process_time() - begun

        return section
