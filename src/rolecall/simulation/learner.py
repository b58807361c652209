"""What an update costs the learners, and which of the released completions it computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rolecall.pipeline.scheduler import Released
from rolecall.simulation.costs import LearnerCosts
from rolecall.simulation.workload import Workload


@dataclass(frozen=True, slots=True)
class Update:
    """An update under way. `policies`: those that get a new version. `learn_s` and `publish_s`: how long it takes;
    `best_s`: how long its tokens take all learners at their best."""

    policies: tuple[str, ...]
    learn_s: float
    publish_s: float
    best_s: float
    num_rows: int
    tokens: int


def make_update(released: Sequence[Released], workload: Workload, costs: LearnerCosts) -> Update:
    """The cost of training what the scheduler released."""
    tokens: dict[str, int] = {}
    longest: dict[str, int] = {}
    num_rows = 0
    for one in released:
        group = one.group
        if one.drop or group.policy not in workload.trained or not workload.is_trained(group.stage):
            continue
        num_rows += len(one.rows)
        if costs.skip_flat and group.data.flat:
            continue
        prompt = workload.calls[group.stage].prompt_tokens
        sizes = [prompt + row.tokens for row in one.rows]
        tokens[group.policy] = tokens.get(group.policy, 0) + sum(sizes)
        longest[group.policy] = max(longest.get(group.policy, 0), *sizes)
    learn_s = sum(
        costs.update_s + costs.token_s * max(tokens[policy] / costs.count, longest[policy]) for policy in tokens
    )
    return Update(
        policies=tuple(sorted(tokens)),
        learn_s=learn_s,
        publish_s=costs.publish_s if tokens else 0.0,
        best_s=costs.token_s * sum(tokens.values()) / costs.count,
        num_rows=num_rows,
        tokens=sum(tokens.values()),
    )
