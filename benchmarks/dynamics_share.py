"""What the dynamics take of a training step of the demo's team; see `dynamics.py` for what they take of an update.

`share` is by their own clock within whole steps of the solver, verifier and corrector that share one policy, 32 tasks
of 8 episodes each as in the demo. `measured_share` compares steps with the dynamics on and off, in turns: it is noisier
than what it measures, and there to show that the clock leaves nothing big out.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from figures import Figure, figure, take_turns

PEERS: dict[str, str] = {}
FIGURES = {
    "share": "share of a step that gradients by role, the update applied and persistence take (aim: under 0.03)",
    "measured_share": "(seconds of a step with dynamics - without) / with, from steps in turns",
    "step": "seconds of a step of the demo's team, dynamics on",
    "gradients_share": "the same of the update alone, in processor time (`dynamics.py`)",
    "probe_share": "what the KL probe takes of the updates between two probes, in processor time (`dynamics.py`)",
}
TEAM = {
    "sharing": "shared",
    "workflow": {
        "name": "solve_verify_correct", "max_rounds": 2, "prompts": "tiny", "answer_format": "text",
    },
    "algorithm": {"name": "agent_grpo", "n": 8},
}  # fmt: skip


def run(repeats: int) -> dict[str, Figure]:
    from own_step import TINY, OwnStep

    import dynamics
    from rolecall.dynamics.settings import DynamicsSettings

    with tempfile.TemporaryDirectory() as folder:
        team = OwnStep(Path(folder) / "team", model=TINY, tasks_per_step=32, max_tokens=32, settings=TEAM)
        try:
            learner = team.run.learners["shared"]
            shares: list[float] = []

            def step(*, watched: bool) -> float:
                learner.watch_with(DynamicsSettings(gradients=watched))
                spent = team.step()
                if watched:
                    shares.append(learner.watch.seconds / spent)
                return spent

            seconds = take_turns({"on": lambda: step(watched=True), "off": lambda: step(watched=False)}, repeats)
        finally:
            team.close()
    inside = dynamics.figures(repeats)
    differences = [(on - off) / on for on, off in zip(seconds["on"], seconds["off"], strict=True)]
    return {
        "share": figure(shares[1:], "share"),
        "measured_share": figure(differences, "share"),
        "step": figure(seconds["on"], "s"),
        "gradients_share": inside["gradients_share"],
        "probe_share": inside["probe_share"],
    }
