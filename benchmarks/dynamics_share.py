"""What the dynamics take of a training step, by part; see `dynamics.py` for what they take of an update.

Shares are by the dynamics' own clock within whole steps (collect, credit, learn, publish):

- the demo's team, a solver, a verifier and a corrector that share one policy, 32 tasks of 8 episodes: as a whole model,
  as a LoRA adapter of rank 16, and as a whole model above `max_parameters`, whose role gradients are sketched (the
  sketch is longer than this model, so it is cut to 2^16 numbers here);
- three voters and an aggregator that share an adapter, 8 tasks of 8 episodes, in steps in which copies are measured.

`measured_share` compares steps with the dynamics on and off, in turns: it is noisier than what it measures, and there
to show that the clock leaves nothing big out. What comes at a cadence (copies, the KL on the probe set) is given for a
due step, and spread over the default cadence.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from figures import Figure, figure, take_turns

PEERS: dict[str, str] = {}
FIGURES = {
    "share": "share of a step that gradients by role, the update applied and persistence take (aim: under 0.03)",
    "adapter_share": "the same where the policy is an adapter (aim: under 0.03)",
    "sketch_share": "the same where role gradients are sketched",
    "measured_share": "(seconds of a step with dynamics - without) / with, from steps in turns",
    "step": "seconds of a step of the demo's team, dynamics on",
    "adapter_step": "the same where the policy is an adapter",
    "leakage_share": "share of a step that formats and the classifier of roles take",
    "probe_due_share": "share of a step that the KL on the probe set takes where it is due",
    "probe_spread_share": "the same over the steps between two that are due",
    "copies_due_share": "share of a step of the voters that the pass over their copies takes where it is due",
    "copies_spread_share": "the same over the steps between two that are due",
    "voting_step": "seconds of a step of the voters, copies not measured",
    "gradients_share": "what gradients by role take of the update alone, in processor time (`dynamics.py`)",
    "probe_share": "what the KL probe takes of the updates between two probes, in processor time (`dynamics.py`)",
}
WHOLE: dict[str, Any] = {"model": "builtin:tiny"}
ADAPTER: dict[str, Any] = {**WHOLE, "kind": "adapter", "lora": {"rank": 16, "alpha": 32.0}}
TEAM: dict[str, Any] = {
    "sharing": "shared",
    "workflow": {
        "name": "solve_verify_correct", "max_rounds": 2, "prompts": "tiny", "answer_format": "text",
    },
    "algorithm": {"name": "agent_grpo", "n": 8},
}  # fmt: skip
VOTERS: dict[str, Any] = {
    "sharing": "shared",
    "workflow": {"name": "voting", "prompts": "tiny_workflows", "answer_format": "text"},
    "algorithm": {"name": "workflow_grpo", "n": 8, "reward": {"name": "own_step:Lottery"}},
}
SKETCH_WIDTH = 2**16


def run(repeats: int) -> dict[str, Figure]:
    import dynamics

    found: dict[str, Figure] = {}
    with tempfile.TemporaryDirectory() as folder:
        found |= demo_team(Path(folder) / "team", repeats)
        found |= adapter_team(Path(folder) / "adapter", repeats)
        found |= voters(Path(folder) / "voters", repeats)
    inside = dynamics.figures(repeats)
    return found | {name: inside[name] for name in ("gradients_share", "probe_share")}


def demo_team(folder: Path, repeats: int) -> dict[str, Figure]:
    """The demo's team with the dynamics on, off and sketched, in turns."""
    from rolecall.dynamics.settings import DynamicsSettings
    from rolecall.dynamics.sketch import CountSketch

    shares: dict[str, list[float]] = {name: [] for name in ("on", "sketch", "leakage", "probe")}
    every = DynamicsSettings().probe_every_steps
    team = Stepper(folder, WHOLE, TEAM)
    settings = {
        "on": DynamicsSettings(),
        "off": DynamicsSettings(gradients=False),
        "sketch": DynamicsSettings(max_parameters=0),
    }

    def step(name: str) -> float:
        learner = team.learner
        learner.watch_with(settings[name])
        if name == "sketch":
            learner.watch.sketch = CountSketch(SKETCH_WIDTH)
        spent, metrics = team.step()
        probed = metrics.get("time/probe_s", 0.0)
        if name != "off":
            shares[name].append(learner.watch.seconds / (spent - probed))
        shares["leakage"].append(metrics["time/leakage_s"] / (spent - probed))
        if probed:
            shares["probe"].append(probed / (spent - probed))
        return spent - probed

    try:
        seconds = take_turns({name: lambda name=name: step(name) for name in settings}, repeats)
    finally:
        team.close()
    differences = [(on - off) / on for on, off in zip(seconds["on"], seconds["off"], strict=True)]
    return {
        "share": figure(shares["on"][1:], "share"),
        "sketch_share": figure(shares["sketch"][1:], "share"),
        "measured_share": figure(differences, "share"),
        "step": figure(seconds["on"], "s"),
        "leakage_share": figure(shares["leakage"][1:], "share"),
        "probe_due_share": figure(shares["probe"], "share"),
        "probe_spread_share": figure((share / every for share in shares["probe"]), "share"),
    }


def adapter_team(folder: Path, repeats: int) -> dict[str, Figure]:
    """The demo's team on an adapter."""
    team = Stepper(folder, ADAPTER, TEAM)
    shares: list[float] = []

    def step() -> float:
        spent, metrics = team.step()
        spent -= metrics.get("time/probe_s", 0.0)
        shares.append(team.learner.watch.seconds / spent)
        return spent

    try:
        seconds = take_turns({"on": step}, repeats)
    finally:
        team.close()
    return {"adapter_share": figure(shares[1:], "share"), "adapter_step": figure(seconds["on"], "s")}


def voters(folder: Path, repeats: int) -> dict[str, Figure]:
    """Steps of three voters and an aggregator, with their copies measured and not."""
    from rolecall.dynamics.settings import DynamicsSettings

    every = DynamicsSettings().copies_every_steps
    team = Stepper(folder, ADAPTER, VOTERS, tasks_per_step=8)
    passes: list[float] = []

    def step(every: int) -> float:
        team.learner.watch_with(DynamicsSettings(copies_every_steps=every))
        spent, metrics = team.step()
        if every:
            passes.append(team.learner.watch.copies_seconds)
        return spent - team.learner.watch.copies_seconds - metrics.get("time/probe_s", 0.0)

    contenders: Mapping[str, Callable[[], float]] = {"due": lambda: step(1), "not due": lambda: step(0)}
    try:
        seconds = take_turns(contenders, repeats)
    finally:
        team.close()
    due = [made / (made + rest) for made, rest in zip(passes[1:], seconds["due"], strict=True)]
    spread = [made / (every * rest + made) for made, rest in zip(passes[1:], seconds["due"], strict=True)]
    return {
        "copies_due_share": figure(due, "share"),
        "copies_spread_share": figure(spread, "share"),
        "voting_step": figure(seconds["not due"], "s"),
    }


class Stepper:
    """Training steps of a team that shares one policy, made one by one."""

    def __init__(
        self, folder: Path, model: Mapping[str, Any], team: Mapping[str, Any], tasks_per_step: int = 32
    ) -> None:
        from own_step import TINY, OwnStep

        settings = {**team, "model": dict(model)}
        self.own = OwnStep(folder, model=TINY, tasks_per_step=tasks_per_step, max_tokens=32, settings=settings)
        self.learner = self.own.run.learners["shared"]

    def step(self) -> tuple[float, Mapping[str, float]]:
        """The seconds of one step, and its metrics."""
        return self.own.step(), self.own.run.metrics

    def close(self) -> None:
        self.own.close()
