"""How a run collects episodes, and the rows that it keeps of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rolecall.algorithms.base import CreditResult
from rolecall.assemble import Plan, role_settings
from rolecall.engines.base import Engine, request_seed
from rolecall.records import EMPTY, GradedEpisode, Sampling, Task
from rolecall.rollout.collector import Collector, CollectorSettings
from rolecall.rollout.render import Renderer
from rolecall.rollout.samplers import EpisodePlan
from rolecall.rollout.serial import to_dict
from rolecall.rollout.stored import replay_data
from rolecall.rollout.transcript import Journal, Limits, Transcript


def make_collector(
    plan: Plan,
    renderers: Mapping[str, Renderer],
    engine: Engine,
    sampling: Mapping[str, Sampling],
    *,
    label: str = "",
    journal: Journal | None = None,
) -> Collector:
    """A collector for training, or for the evaluation `label`, whose episodes draw numbers of their own."""
    config, rollout = plan.config, plan.config.rollout
    settings = CollectorSettings(
        run_seed=request_seed(config.seed, "evaluation", label) if label else config.seed,
        deterministic=config.deterministic,
        max_concurrent=rollout.max_concurrent,
        on_failure=rollout.on_failure if not label else "zero",
        max_retries=rollout.max_retries,
        after_retries=rollout.after_retries,
        limits=Limits(deadline_s=rollout.episode_timeout_s),
        watchdog_s=rollout.watchdog_s,
    )
    return Collector(plan.workflow, role_settings(plan, renderers, sampling), engine, settings, journal=journal)


def evaluation_plans(tasks: Sequence[Task], samples: int) -> list[EpisodePlan]:
    """`samples` episodes of every task."""
    return [
        EpisodePlan(task=task, index=index, order=order) for order, task in enumerate(tasks) for index in range(samples)
    ]


def episode_rows(
    step: int,
    graded: Sequence[GradedEpisode],
    credit: CreditResult | None = None,
    transcripts: Mapping[str, Transcript] = EMPTY,
) -> list[dict[str, Any]]:
    """Rows of an episodes file: what is filtered on, and each whole episode with its grades, rewards, advantages, and
    what it takes to run it again."""
    rewards = {one.episode.id: one.rewards for one in credit.scored} if credit else {}
    advantages = credit.advantages if credit else {}
    return [
        {
            "step": step,
            "episode": one.episode.id,
            "task": one.episode.task.id,
            "outcome": str(one.episode.outcome_class),
            "answer": one.episode.answer,
            "team_score": one.team.score,
            "num_turns": len(one.episode.path),
            "record": json.dumps(
                {
                    "graded": to_dict(one),
                    "rewards": {turn: to_dict(reward) for turn, reward in rewards.get(one.episode.id, {}).items()},
                    "advantages": {t.id: advantages[t.id] for t in one.episode.turns if t.id in advantages},
                    "replay": replay_data(transcripts[one.episode.id]) if one.episode.id in transcripts else None,
                }
            ),
        }
        for one in graded
    ]
