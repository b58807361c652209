"""What a run makes of its plan before its first step, and keeps as it is."""

from __future__ import annotations

from collections.abc import Mapping

from rolecall.assemble import Plan
from rolecall.config import RunConfig
from rolecall.dynamics.monitor import DynamicsMonitor
from rolecall.learner.learner import Learner
from rolecall.policies.parity import Sequences, probe_sequences


def make_monitor(plan: Plan, learners: Mapping[str, Learner]) -> DynamicsMonitor:
    """What watches the roles of a run, under the settings of its `[dynamics]`."""
    coarse = [
        name
        for name, learner in learners.items()
        if learner.config.precision != "float32" or plan.table.specs[name].dtype != "float32"
    ]
    return DynamicsMonitor(
        learners,
        plan.table.roles,
        plan.config.dynamics,
        train_roles=plan.table.train_roles,
        temperatures={role: sampling.temperature for role, sampling in plan.sampling.items()},
        coarse=coarse,
        workflow=plan.workflow,
    )


def quiet_transformers() -> None:
    """No progress bars of Transformers between the lines of the run."""
    from transformers.utils import logging

    logging.disable_progress_bar()


def probe_prompts(learners: Mapping[str, Learner], config: RunConfig) -> Sequences:
    """The prompts of the parity probe, of tokens that all of the learners know."""
    if not learners:
        return []
    vocab = min(int(learner.module.model.config.vocab_size) for learner in learners.values())
    return probe_sequences(vocab, num=config.parity.num_prompts, seed=config.seed)
