"""What no schedule can beat: the critical path, and the work over the capacity of each part at its best rate."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from rolecall.pipeline.chains import PickCounts
from rolecall.simulation.costs import Costs
from rolecall.simulation.workload import Drawn, Onward, Workload


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds. `critical_path_s`: the longest chain of work that waits for other work, each part at its best rate and
    none waiting: a task's calls one after the other, every one as long as the longest completion that the next one
    waits for, their prompts and grading, and the update of the last group. The others: all work of a kind, spread
    evenly over all parts of that kind, all slots full. Loads of weights, keys and values computed anew, and updates'
    fixed costs beyond one are left out: how many there are is the schedule's."""

    critical_path_s: float
    engines_s: float
    learners_s: float
    graders_s: float

    @property
    def lower_bound_s(self) -> float:
        return max(self.critical_path_s, self.engines_s, self.learners_s, self.graders_s)

    @property
    def part(self) -> str:
        """What the bound is made by."""
        parts = {
            "critical path": self.critical_path_s,
            "engines": self.engines_s,
            "learners": self.learners_s,
            "graders": self.graders_s,
        }
        return max(parts, key=lambda name: parts[name])


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """All that a number of tasks ask for, by role and call: completions, tokens; and tokens that are learned from."""

    completions: Counter[tuple[str, int]]
    tokens: Counter[tuple[str, int]]
    prompt_tokens: int
    learned_tokens: int
    groups: int
    critical_path_s: float

    def bounds(self, costs: Costs) -> Bounds:
        engines = costs.engines
        engines_s = sum(self.tokens.values()) * engines.best_token_s + self.prompt_tokens * engines.prompt_token_s
        group_size = sum(self.completions.values()) // max(1, self.groups)
        return Bounds(
            critical_path_s=self.critical_path_s,
            engines_s=engines_s / engines.count,
            learners_s=self.learned_tokens * costs.learners.token_s / costs.learners.count,
            graders_s=self.groups * group_size * costs.graders.completion_s / costs.graders.count,
        )


def all_work(workload: Workload, costs: Costs, num_tasks: int) -> Work:
    """Walk the chains of the tasks without a clock: picks and lengths depend on no schedule."""
    completions: Counter[tuple[str, int]] = Counter()
    tokens: Counter[tuple[str, int]] = Counter()
    prompts = learned = groups = 0
    longest = 0.0
    for task in range(num_tasks):
        chain, counts = workload.chain(task), PickCounts()
        stage, now = 0, [(0, workload.draw(0, workload.first(task)))]
        while now:
            call = workload.calls[stage]
            candidates = {}
            for number, drawn in now:
                groups += 1
                completions[call.role, call.call] += len(drawn.lengths)
                tokens[call.role, call.call] += sum(drawn.lengths)
                prompts += call.prompt_tokens * len(drawn.lengths)
                end_s = drawn.soonest_s + _shortest_s(workload, costs, stage, drawn)
                candidates[number] = workload.candidates(stage, number, drawn, end_s)
                train_s = 0.0
                if _is_learned(workload, costs, stage) and not (costs.learners.skip_flat and drawn.flat):
                    sizes = [call.prompt_tokens + length for length in drawn.lengths]
                    learned += sum(sizes)
                    rows_s = costs.learners.token_s * max(sum(sizes) / costs.learners.count, max(sizes))
                    train_s = costs.learners.update_s + rows_s + costs.learners.publish_s
                longest = max(longest, end_s + train_s)
            following = [
                successor for number, _ in now for successor in chain.complete(stage, candidates[number], counts)
            ]
            # k of all candidates of the stage are picked when all of them are there
            pooled_s = max(found[0].onward.soonest_s for found in candidates.values())
            now = []
            for one in following:
                stand: Onward = one.candidate.onward
                soonest_s = pooled_s if workload.sampler.pool == "task" else stand.soonest_s
                now.append((one.number, workload.draw(stage + 1, stand, soonest_s)))
            stage += 1
    return Work(
        completions=completions,
        tokens=tokens,
        prompt_tokens=prompts,
        learned_tokens=learned,
        groups=groups,
        critical_path_s=longest,
    )


def _shortest_s(workload: Workload, costs: Costs, stage: int, drawn: Drawn) -> float:
    """From the start of a group to its grades, if nothing waits."""
    engines = costs.engines
    prompt_s = workload.calls[stage].prompt_tokens * engines.prompt_token_s
    return prompt_s + max(drawn.lengths) * engines.quickest_token_s + len(drawn.lengths) * costs.graders.completion_s


def _is_learned(workload: Workload, costs: Costs, stage: int) -> bool:
    return workload.calls[stage].policy in workload.trained and workload.is_trained(stage)
