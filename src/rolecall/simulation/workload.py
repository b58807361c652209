"""What the tasks of a simulated run ask for: calls by stage, their lengths and outcomes; the same by every schedule."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rolecall.assemble import Plan
from rolecall.errors import ConfigError, nearest
from rolecall.pipeline.chains import Candidate, Chain
from rolecall.pipeline.scheduler import Group
from rolecall.rollout.agentic import AgenticGroups
from rolecall.simulation.costs import Costs, Lengths
from rolecall.simulation.lengths import Distribution, Fixed, LogNormal, ParetoTail, draw, mix, uniform
from rolecall.simulation.recorded import recorded_lengths
from rolecall.workflows.solve_verify_correct import SolveVerifyCorrect

OUTCOME = 0x5851F42D4C957F2D  # told apart from the counter of lengths


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A stage of every path: whose call it is, how long its completions are, and how they turn out.

    `right` and `right_after_right`: chances of an answer; for a judge, chances to flag a wrong and a right answer.
    """

    role: str
    call: int
    policy: str
    judges: bool
    prompt_tokens: int
    max_tokens: int
    lengths: Distribution
    chance_after_wrong: float
    chance_after_right: float


@dataclass(frozen=True, slots=True)
class Onward:
    """Where a path stands after a completion: a counter of its own, whether the answer on the table is right, and the
    soonest that it could stand there, in seconds from the start (`Work.critical_path_s`)."""

    seed: int
    right: bool
    soonest_s: float = 0.0


@dataclass(slots=True)
class Drawn:
    """What a group's completions will be: `lengths` in tokens, and where the path stood before. `flat`, known when it
    is graded: the rewards are all alike, so that nothing is learned from it."""

    seed: int
    right: bool
    lengths: tuple[int, ...]
    soonest_s: float
    flat: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """The calls of a path and how groups are drawn from them. `trained`: the policies that the learner updates."""

    calls: tuple[Call, ...]
    sampler: AgenticGroups
    seed: int
    trained: frozenset[str]
    train_roles: frozenset[str]

    @property
    def policies(self) -> tuple[str, ...]:
        return tuple(sorted({call.policy for call in self.calls}))

    @property
    def roles(self) -> tuple[str, ...]:
        """In the order of the path."""
        return tuple(dict.fromkeys(call.role for call in self.calls))

    def chain(self, task: int) -> Chain:
        return Chain(self.sampler, self.seed, task)

    def first(self, task: int) -> Onward:
        """Where the path of a task begins: nothing is on the table."""
        return Onward(mix(mix(self.seed) ^ task), False)

    def draw(self, stage: int, stand: Onward, soonest_s: float = 0.0) -> Drawn:
        """The group of completions of one call, after a path that stands at `stand`."""
        call = self.calls[stage]
        lengths = tuple(
            draw(call.lengths, mix(stand.seed + number), call.max_tokens) for number in range(self.sampler.n)
        )
        return Drawn(stand.seed, stand.right, lengths, soonest_s)

    def group(self, chain: int, stage: int, number: int, drawn: Drawn) -> Group:
        """The group as the scheduler knows it."""
        call = self.calls[stage]
        return Group.of(
            self.sampler.n,
            chain=chain,
            stage=stage,
            number=number,
            policy=call.policy,
            role=call.role,
            data=drawn,
        )

    def candidates(self, stage: int, number: int, drawn: Drawn, end_s: float = 0.0) -> list[Candidate]:
        """The completions of a group, scored by what each claims itself, and which call waits after each; `drawn.flat`
        is known after it."""
        call = self.calls[stage]
        after = self.calls[stage + 1] if stage + 1 < len(self.calls) else None
        chance = call.chance_after_right if drawn.right else call.chance_after_wrong
        found = []
        for row, length in enumerate(drawn.lengths):
            seed = mix(drawn.seed + row)
            cut = length >= call.max_tokens
            said = not cut and uniform(mix(seed ^ OUTCOME)) < chance  # right, or flagged
            if call.judges:
                right, score = drawn.right, float(not cut and said != drawn.right)
                goes_on = said or cut  # what cannot be read does not accept
            else:
                right, score, goes_on = said, float(said), not cut
            receiver = (after.role, after.call) if after is not None and goes_on else None
            found.append(Candidate((number, row), score, receiver, Onward(seed, right, end_s)))
        drawn.flat = len({candidate.score for candidate in found}) < 2
        return found

    def is_trained(self, stage: int) -> bool:
        return self.calls[stage].role in self.train_roles


def make_workload(plan: Plan, costs: Costs) -> Workload:
    """The workload of a recipe under costs; `ConfigError` where they do not belong together."""
    sampler = plan.algorithm.sampler
    if not isinstance(sampler, AgenticGroups):
        raise ConfigError(
            f"algorithm {plan.config.algorithm.name!r} draws independent episodes, which every schedule runs alike; "
            "simulate a recipe of agentic groups, such as recipes/marsrl_tiny.toml"
        )
    if plan.config.rollout.refill:
        raise ConfigError("rollout.refill is not simulated; leave it out with --set rollout.refill=false")
    path = path_of(plan, costs)[: sampler.stages]
    for role in costs.roles:
        if role not in plan.roles:
            raise ConfigError(f"costs: roles.{role} is no role of the recipe's workflow{nearest(role, plan.roles)}")
    for role in path:
        if role not in costs.roles:
            raise ConfigError(f"costs: the path calls {role!r}, and there is no [roles.{role}]; add its lengths")
    calls = []
    for stage, role in enumerate(path):
        own, number = costs.roles[role], path[:stage].count(role)
        after_wrong, after_right = (
            (own.recall, own.false_alarms) if own.recall is not None else (own.right, own.right_after_right)
        )
        assert after_wrong is not None
        calls.append(
            Call(
                role=role,
                call=number,
                policy=plan.table.policy(role),
                judges=own.judges,
                prompt_tokens=own.prompt_tokens,
                max_tokens=plan.config.role_sampling(role).max_tokens,
                lengths=distribution(own.lengths_of(number), role),
                chance_after_wrong=after_wrong,
                chance_after_right=after_right,
            )
        )
    return Workload(
        calls=tuple(calls),
        sampler=sampler,
        seed=costs.seed,
        trained=frozenset(name for name, spec in plan.table.specs.items() if spec.trained),
        train_roles=frozenset(plan.table.train_roles),
    )


def path_of(plan: Plan, costs: Costs) -> tuple[str, ...]:
    """The roles of the calls on a path, from the first to the last."""
    if costs.path is not None:
        for role in costs.path:
            if role not in plan.roles:
                raise ConfigError(f"costs: path names {role!r}, no role of the workflow{nearest(role, plan.roles)}")
        return costs.path
    workflow = plan.workflow
    if isinstance(workflow, SolveVerifyCorrect) and workflow.mode == "unroll":
        return ("solver", *("verifier", "corrector") * workflow.max_rounds)
    raise ConfigError(
        f"costs: which roles the calls of workflow {plan.config.workflow.name!r} have is not known; "
        "list them, e.g. path = ['solver', 'verifier', 'corrector']"
    )


def distribution(lengths: Lengths, role: str) -> Distribution:
    """The distribution that a table of lengths describes."""
    if lengths.kind == "recorded":
        assert lengths.run is not None
        return recorded_lengths(Path(lengths.run), role)
    if lengths.kind == "fixed":
        assert lengths.tokens is not None
        return Fixed(lengths.tokens)
    assert lengths.median is not None
    assert lengths.sigma is not None
    body = LogNormal(lengths.median, lengths.sigma)
    if lengths.kind == "lognormal":
        return body
    assert lengths.tail_share is not None
    assert lengths.tail_index is not None
    return ParetoTail(body, lengths.tail_share, lengths.tail_index)
