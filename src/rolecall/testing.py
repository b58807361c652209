"""What a user runs on a part of their own. Each complaint says what was seen, what was wanted, and what to do.

`check_workflow` and `check_engine` raise the first complaint; `check_reward` and `check_algorithm` return all that they
find. `rolecall check` runs them from the command line.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rolecall.engines.base import Engine, Request, request_seed
from rolecall.engines.scripted import Answer, ScriptedEngine
from rolecall.errors import EngineError, ReplayMismatch, WorkflowError
from rolecall.records import Completion, Key, OutcomeClass, Sampling, Stop, Task
from rolecall.rollout.collector import Collector, CollectorSettings
from rolecall.rollout.loop import LoopRunner
from rolecall.rollout.render import PlainRenderer
from rolecall.rollout.runner import run_episode
from rolecall.rollout.samplers import EpisodePlan, IndependentEpisodes
from rolecall.rollout.spy import Spy
from rolecall.rollout.stored import replay_data
from rolecall.rollout.transcript import Finished, Limits, RoleSettings
from rolecall.testing_credit import check_algorithm, check_reward
from rolecall.workflows.base import Workflow

RULES = (
    "Draw random numbers from team.rng, put tools, clocks and files behind `await team.effect(name, fn)`, gather "
    "copies with asyncio.gather, and keep nothing between episodes"
)
_Run = dict[str, Finished]


def any_reply(request: Request) -> str:
    """A reply for any role, as a function of the request alone: some steps, an answer, and a verdict at the end."""
    rng = random.Random(request_seed(request.seed, request.prompt_ids))
    number = rng.randrange(4)
    verdict = rng.choice(["correct", "wrong"])
    return f"Step {rng.randrange(100)}: so it is \\boxed{{{number}}}.\nAnswer: {number}\nVerdict: {verdict}"


def check_workflow(
    workflow: Workflow,
    tasks: Sequence[Task],
    replies: Callable[[Request], Answer] = any_reply,
    *,
    episodes: int = 2,
    rounds: int = 3,
    deadline_s: float = 10.0,
    seed: int = 0,
) -> None:
    """Run a workflow many ways that must give the same episodes, and raise `WorkflowError` at the first difference.

    The ways: in waves, twice; from its own records, without an engine; with replies that take shuffled times; and one
    episode after the other in reverse order. Code that draws random numbers of its own or reads a clock is named.
    """
    check = _WorkflowCheck(workflow, replies, Limits(deadline_s=deadline_s), seed)
    plans = IndependentEpisodes(n=episodes).plans(tasks)
    if not plans:
        raise WorkflowError("check_workflow got no tasks; give it one or more that take the workflow's different paths")
    with Spy() as spy:
        reference = check.run(plans, deterministic=True)
    check.fail_on_bad_ends(reference)
    if spy.found:
        raise WorkflowError(f"{check.name} {spy.found[0]}; wanted nothing that a replay could not repeat. {RULES}")
    if check.num_held:
        raise WorkflowError(
            f"{check.name} set {check.num_held} timers or threads of its own (asyncio.sleep, timeout, to_thread); "
            f"wanted none: what they wait for is not recorded. {RULES}"
        )
    check.compare(reference, check.run(plans, deterministic=True), "when run a second time")
    check.compare(reference, check.replay(reference), "when replayed from its own records")
    for round_number in range(rounds):
        shuffled = check.run(plans, deterministic=False, latency=random.Random(seed + round_number))
        check.compare(reference, shuffled, "when replies take other times")
    check.compare(reference, check.run(plans[::-1], deterministic=True, alone=True), "when episodes run one by one")


class _WorkflowCheck:
    def __init__(self, workflow: Workflow, replies: Callable[[Request], Answer], limits: Limits, seed: int) -> None:
        self.workflow, self.replies, self.limits, self.seed = workflow, replies, limits, seed
        self.name = type(workflow).__name__
        self.num_held = 0
        settings = RoleSettings(policy="any", sampling=Sampling(max_prompt_tokens=10**9), renderer=PlainRenderer())
        self.roles = dict.fromkeys(workflow.roles, settings)

    def run(
        self,
        plans: Sequence[EpisodePlan],
        *,
        deterministic: bool,
        latency: random.Random | None = None,
        alone: bool = False,
    ) -> _Run:
        slow = None if latency is None else lambda _: latency.random() * 0.004
        engine = ScriptedEngine(self.replies, latency=slow)
        settings = CollectorSettings(
            run_seed=self.seed,
            deterministic=deterministic,
            max_concurrent=1 if alone else 1024,
            limits=self.limits,
            watchdog_s=2 * (self.limits.deadline_s or 10.0),
        )
        with LoopRunner(watchdog_s=settings.watchdog_s) as runner:
            collected = Collector(self.workflow, self.roles, engine, settings, runner=runner).collect(plans)
            self.num_held += runner.loop.num_held
        pairs = zip(collected.episodes, collected.transcripts, strict=True)
        return {episode.id: Finished(episode=episode, transcript=transcript) for episode, transcript in pairs}

    def replay(self, reference: _Run) -> _Run:
        def refuse(request: Request) -> Answer:
            return EngineError(f"{request.key} was asked for in a replay, and has no record")

        engine = ScriptedEngine(refuse)
        again = {}
        for name, one in reference.items():
            try:
                again[name] = run_episode(self.workflow, one.transcript, self.roles, engine, limits=self.limits)
            except ReplayMismatch as error:
                raise WorkflowError(f"{self.name} when replayed from its own records: {error}. {RULES}") from error
        return again

    def fail_on_bad_ends(self, reference: _Run) -> None:
        for one in reference.values():
            episode = one.episode
            if episode.outcome_class in (OutcomeClass.ERROR, OutcomeClass.TIMEOUT):
                raise WorkflowError(
                    f"{self.name} ended episode {episode.id} in class {episode.outcome_class.value!r}: "
                    f"{episode.failure.detail if episode.failure else ''}; wanted an Outcome"
                )
            unstored = replay_data(one.transcript).get("unstored")
            if unstored:
                raise WorkflowError(f"{self.name}: {unstored}")

    def compare(self, reference: _Run, other: _Run, when: str) -> None:
        for name, one in reference.items():
            difference = first_difference(one, other[name])
            if difference is not None:
                raise WorkflowError(
                    f"{self.name} gives another episode {when}. Episode {name}, first difference: {difference}; "
                    f"wanted the same episode. {RULES}"
                )


def first_difference(one: Finished, other: Finished) -> str | None:
    """The first place where two runs of an episode differ, in words; None if they are the same."""
    for mine, theirs in zip(one.transcript.calls, other.transcript.calls, strict=False):
        if mine.key != theirs.key:
            return f"one calls {mine.key}, the other {theirs.key}"
        if mine.prompt_hash != theirs.prompt_hash:
            if mine.turn is None or theirs.turn is None:
                return f"the messages to {mine.key}"
            return f"the messages to {mine.key}: {_differing(mine.turn.messages, theirs.turn.messages)}"
        if mine != theirs:
            return f"the reply of {mine.key}: {_differing(mine.turn or mine.failure, theirs.turn or theirs.failure)}"
    longer = max(one.transcript.calls, other.transcript.calls, key=len)
    shorter = min(len(one.transcript.calls), len(other.transcript.calls))
    if len(longer) != shorter:
        return f"only one of them calls {longer[shorter].key}"
    if one.transcript.effects != other.transcript.effects:
        return f"the effects: {_differing(one.transcript.effects, other.transcript.effects)}"
    if one.episode != other.episode:
        return f"the outcome: {_differing(one.episode.outcome, other.episode.outcome)}"
    return None


def _differing(mine: Any, theirs: Any) -> str:
    """Two texts from a little before the place where they part."""
    one, other = str(mine), str(theirs)
    place = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    start = max(0, place - 20)
    return f"{one[start : place + 40]!r} against {other[start : place + 40]!r}"


def check_engine(
    engine: Engine,
    policy: str,
    prompts: Sequence[Sequence[int]],
    *,
    sampling: Sampling | None = None,
    score_tolerance: float | None = 1e-4,
    end_ids: tuple[int, ...] = (),
) -> None:
    """Ask an engine what its contract promises; raise `EngineError` at the first promise that it breaks.

    `score_tolerance` bounds the difference between sampled and scored log-probabilities (None: not compared). The
    engine is neither loaded nor closed. Call it outside an event loop.
    """
    sampling = sampling if sampling is not None else Sampling(max_tokens=16)
    with LoopRunner() as runner:
        runner.run(_EngineCheck(engine, policy, prompts, sampling, end_ids).run(score_tolerance))


class _EngineCheck:
    def __init__(
        self,
        engine: Engine,
        policy: str,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        end_ids: tuple[int, ...],
    ) -> None:
        self.engine, self.policy, self.sampling = engine, policy, sampling
        self.requests = [
            Request(
                policy=policy,
                prompt_ids=tuple(ids),
                sampling=sampling,
                seed=request_seed(0, i),
                key=Key("checked", i, 0),
                task=Task(id=f"check:{i}", question="", answer=None),
                messages=(),
                end_ids=end_ids,
            )
            for i, ids in enumerate(prompts)
        ]

    async def run(self, score_tolerance: float | None) -> None:
        self.want(await self.engine.generate([]) == [], "no requests got replies", "[] for []")
        replies = await self.engine.generate(self.requests)
        self.want(len(replies) == len(self.requests), f"{len(self.requests)} requests got {len(replies)}", "one each")
        done = [self.completion(request, reply) for request, reply in zip(self.requests, replies, strict=True)]
        await self.same_alone(done)
        await self.unknown_policy(done)
        if score_tolerance is not None:
            await self.scores(done, score_tolerance)

    def completion(self, request: Request, reply: object) -> Completion:
        where, version = f"the reply to request {request.key.copy}", self.engine.version(self.policy)
        if not isinstance(reply, Completion):
            raise EngineError(f"{where} is {reply!r:.80}; wanted a Completion")
        size, limit = len(reply.token_ids), self.sampling.max_tokens
        self.want(1 <= size <= limit, f"{where} has {size} tokens", f"1 to max_tokens={limit}, the end token included")
        self.want(
            all(math.isfinite(p) and p <= 1e-6 for p in reply.logprobs),
            f"{where} has log-probabilities {[p for p in reply.logprobs if not p <= 1e-6][:3]}",
            "finite numbers of 0 or less",
        )
        self.want(set(reply.versions) == {version}, f"{where} has versions {set(reply.versions)}", f"{version} for all")
        self.want(
            reply.stop is not Stop.LENGTH or size == limit, f"{where} stops for length at {size}", f"{limit} tokens"
        )
        self.want(
            reply.stop is not Stop.EOS or not request.end_ids or reply.token_ids[-1] in request.end_ids,
            f"{where} stops at {reply.token_ids[-1]}",
            f"one of the end ids {request.end_ids} as the last token",
        )
        return reply

    async def same_alone(self, done: Sequence[Completion]) -> None:
        """Seeds are counter-based: a request gives the same tokens alone, in reverse order, and beside another call."""
        alone, reverse = await asyncio.gather(
            self.engine.generate(self.requests[:1]), self.engine.generate(self.requests[::-1])
        )
        for i, reply in [(0, alone[0]), *enumerate(reverse[::-1])]:
            same = isinstance(reply, Completion) and reply.token_ids == done[i].token_ids
            self.want(
                same,
                f"request {i} gave other tokens in another batch",
                "the same: make random numbers from request.seed and the token position, never from slot or batch "
                "(log-probabilities that nearly tie can do this too: try other prompts)",
            )

    async def unknown_policy(self, done: Sequence[Completion]) -> None:
        stranger = replace(self.requests[0], policy="no such policy")
        replies = await self.engine.generate([stranger, self.requests[0]])
        self.want(
            isinstance(replies[0], EngineError),
            f"a request for an unknown policy gave {replies[0]!r:.80}",
            "an EngineError in its place: a missing adapter must never fall back to the base",
        )
        same = isinstance(replies[1], Completion) and replies[1].token_ids == done[0].token_ids
        self.want(same, "a failing request changed the one beside it", "the other requests to go on")

    async def scores(self, done: Sequence[Completion], tolerance: float) -> None:
        pairs = [(r.prompt_ids, c.token_ids) for r, c in zip(self.requests, done, strict=True)]
        scored = await self.engine.score(self.policy, pairs, 1.0 if self.sampling.greedy else self.sampling.temperature)
        for i, (row, completion) in enumerate(zip(scored, done, strict=True)):
            self.want(len(row) == len(completion.token_ids), f"sequence {i} got {len(row)} scores", "one a token")
            worst = max(abs(a - b) for a, b in zip(row, completion.logprobs, strict=True))
            self.want(
                worst <= tolerance,
                f"sequence {i}: sampled and scored log-probabilities differ by {worst:.2g}",
                f"at most {tolerance:g}: both are of the distribution after temperature, under the loaded weights",
            )

    def want(self, good: bool, seen: str, wanted: str) -> None:
        if not good:
            raise EngineError(f"{type(self.engine).__name__}: {seen}; wanted {wanted}")


__all__ = ["any_reply", "check_algorithm", "check_engine", "check_reward", "check_workflow", "first_difference"]
