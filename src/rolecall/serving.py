"""Who plays each role in an evaluation: the run's own policies, another model, another run's checkpoint, an endpoint.

    solver=runs/other@last               the policy of that role in a checkpoint of another run (best unless said)
    solver=Qwen/Qwen3-0.6B               a model: a folder, a hub id, or a built-in one
    solver=some-model@http://host:8000/v1    a model at an OpenAI-compatible endpoint
    solver={model = "m", endpoint = "http://host:8000/v1", api_key_env = "KEY"}    a [policies.x] table in full

Nothing is trained here: no learner is built, and weights go from the checkpoint into the engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rolecall.assemble import Plan, make_plan, make_renderers, policy_config
from rolecall.config import PolicyConfig, RunConfig, make_config, toml_value
from rolecall.engines.local import LocalEngine
from rolecall.engines.router import RouterEngine, make_engine
from rolecall.engines.specs import resolve_model
from rolecall.errors import UsageError, nearest
from rolecall.grading.episodes import grade_episodes
from rolecall.grading.pool import GraderPool
from rolecall.learner.checkpoint import best, latest
from rolecall.policies.stored import fitting, stored_weights
from rolecall.records import GradedEpisode, Task
from rolecall.rollout.collector import Collected
from rolecall.rollout.loop import LoopRunner
from rolecall.rollout.render import Renderer
from rolecall.run_episodes import evaluation_plans, make_collector
from rolecall.run_folder import RunFolder

ENDPOINT = re.compile(r"(?P<model>.+)@(?P<url>https?://.+)")
OTHER_RUN = re.compile(r"(?P<folder>.+)@(?P<checkpoint>best|last|base|\d+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """The weights of one policy, in a checkpoint under the name that they have there."""

    checkpoint: Path
    policy: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Serving:
    """The configuration with everybody in place, the weights to load by policy, and who plays each role in words."""

    config: RunConfig
    weights: Mapping[str, Weights]
    words: Mapping[str, str]

    @property
    def plan(self) -> Plan:
        return make_plan(self.config, training=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Substitute:
    """Somebody who takes over a role: a row of the policy table under a name, and weights where the row is not all."""

    name: str
    row: Mapping[str, Any]
    weights: Weights | None = None


def serve_roles(
    config: RunConfig, checkpoint: Path | None, substitutes: Mapping[str, str], api_key_env: str | None = None
) -> Serving:
    """The run's own policies with the weights of `checkpoint` (None: those before training), but for the roles in
    `substitutes`, whose texts are as at the head of this file. `api_key_env` is for endpoints given as MODEL@URL.

    Where an endpoint serves a role, calls go out as they come, and no more episodes are under way than the endpoint
    takes requests: each would only wait, and its time would run.
    """
    plan = make_plan(config, training=False)
    for role in substitutes:
        if role not in plan.roles:
            raise UsageError(
                f"--role {role}=...: workflow {config.workflow.name!r} has no role {role!r}{nearest(role, plan.roles)}"
            )
    own = dict(plan.table.roles)
    found: dict[str, Substitute] = {}
    for role, text in substitutes.items():
        one = substitute(text, role, policy_config(config, own[role]), api_key_env)
        clash = one.name in plan.table.specs or any(
            one.name == other.name and (one.row, one.weights) != (other.row, other.weights) for other in found.values()
        )
        found[role] = replace(one, name=f"{one.name} ({role})") if clash else one
    roles = own | {role: one.name for role, one in found.items()}
    weights = {
        name: Weights(checkpoint=checkpoint, policy=name)
        for name, spec in plan.table.local.items()
        if checkpoint is not None and spec.trained and name in roles.values()
    }
    weights |= {one.name: one.weights for one in found.values() if one.weights is not None}
    if found:
        config = _with_table(config, plan, roles, {one.name: one.row for one in found.values()})
    rows = {name: policy_config(config, name) for name in roles.values()}
    words = {
        role: substitutes.get(role) or (checkpoint.name if name in weights and checkpoint else _words(rows[name]))
        for role, name in roles.items()
    }
    return Serving(config=_for_endpoints(config, rows), weights=weights, words=words)


def substitute(text: str, role: str, like: PolicyConfig, api_key_env: str | None = None) -> Substitute:
    """Who is meant by `text`, for `role`; a model is read in the dtype of the policy that it stands in for."""
    if text.startswith("{"):
        return _table(text, role)
    if at_endpoint := ENDPOINT.fullmatch(text):
        row = {"kind": "api", "model": at_endpoint["model"], "endpoint": at_endpoint["url"]}
        return Substitute(name=text, row=row | ({"api_key_env": api_key_env} if api_key_env else {}))
    if text.startswith(("http://", "https://")):
        raise UsageError(f"{role} = {text!r} names an endpoint and no model; wanted MODEL@URL, such as my-model@{text}")
    other = OTHER_RUN.fullmatch(text)
    name, checkpoint = (other["folder"], other["checkpoint"]) if other else (text, "best")
    folder = Path(name).expanduser()
    if text and (folder / "config.toml").is_file():
        return _of_run(text, folder, checkpoint, role)
    if other or not text:
        raise UsageError(
            f"{role} = {text!r} names nobody: {name!r} is no run folder; wanted one, a model, or MODEL@URL"
        )
    resolve_model(text)
    dtype = like.dtype if like.kind != "api" else PolicyConfig().dtype
    return Substitute(name=text, row={"kind": "frozen", "model": text, "dtype": dtype})


def _table(text: str, role: str) -> Substitute:
    row = toml_value(text)
    if not isinstance(row, dict):
        raise UsageError(
            f"{role} = {text!r} is no inline table of TOML; wanted one such as "
            '{model = "m", endpoint = "http://localhost:8000/v1"}'
        )
    row.setdefault("kind", "api" if "endpoint" in row else "frozen")
    if row["kind"] == "adapter" and "adapter" not in row:
        raise UsageError(f"{role} = {text!r} is an untrained adapter; name a saved one: adapter = 'folder'")
    model = str(row.get("model", text))
    return Substitute(name=f"{model}@{row['endpoint']}" if "endpoint" in row else model, row=row)


def _of_run(text: str, path: Path, checkpoint: str, role: str) -> Substitute:
    """The policy that plays `role` in another run, with its weights at `checkpoint`."""
    folder = RunFolder.open(path)
    plan = make_plan(folder.config(), training=False)
    if role not in plan.roles:
        raise UsageError(f"run {str(path)!r} has no role {role!r}{nearest(role, plan.roles)}")
    policy = plan.table.policy(role)
    where = find_checkpoint(folder, checkpoint) if plan.table.specs[policy].trained else None
    row = policy_config(plan.config, policy).model_dump()
    return Substitute(
        name=text, row=row, weights=Weights(checkpoint=where, policy=policy) if where is not None else None
    )


def _with_table(
    config: RunConfig, plan: Plan, roles: Mapping[str, str], rows: Mapping[str, Mapping[str, Any]]
) -> RunConfig:
    """The configuration with an explicit table: the policies that are still played, and the new ones."""
    kept = {
        name: policy_config(config, name).model_dump()
        for name in plan.table.specs
        if name in roles.values() and name not in rows
    }
    data = config.model_dump(exclude={"sharing", "model", "train_roles", "policies"})
    data["policies"] = {**kept, **{name: dict(row) for name, row in rows.items()}}
    for role, policy in roles.items():
        data["roles"].setdefault(role, {})["policy"] = policy
    if any(row.get("kind") == "api" for row in data["policies"].values()):
        data["deterministic"] = False
    return make_config(data, source="the roles as served")


def _for_endpoints(config: RunConfig, rows: Mapping[str, PolicyConfig]) -> RunConfig:
    at_once = [row.requests.max_concurrent for row in rows.values() if row.kind == "api"]
    if not at_once:
        return config
    rollout = config.rollout.model_copy(update={"max_concurrent": min(config.rollout.max_concurrent, max(at_once))})
    return config.model_copy(update={"rollout": rollout})


def _words(row: PolicyConfig) -> str:
    return f"{row.model}@{row.endpoint}" if row.kind == "api" else row.model


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluator:
    """Open while episodes are evaluated; use `open_evaluator`."""

    plan: Plan
    renderers: Mapping[str, Renderer]
    engine: LocalEngine | RouterEngine
    graders: GraderPool

    def run(
        self, tasks: Sequence[Task], *, label: str, samples: int, greedy: bool = False
    ) -> tuple[list[GradedEpisode], Collected]:
        """`samples` graded episodes of every task; seeds depend on the run and the label alone."""
        sampling = {role: self.plan.config.eval_sampling(role, greedy=greedy) for role in self.plan.roles}
        self.graders.start({task.grader for task in tasks})
        collector = make_collector(self.plan, self.renderers, self.engine, sampling, label=label)
        try:
            collected = collector.collect(evaluation_plans(tasks, samples))
        finally:
            collector.close()
        return grade_episodes(collected.episodes, self.graders), collected

    def requests(self) -> dict[str, dict[str, int]]:
        """What each endpoint was asked, by policy: attempts, and those among them that were made again."""
        if isinstance(self.engine, LocalEngine):
            return {}
        every = self.engine.endpoints.endpoints
        return {name: {"attempts": one.counts.attempts, "retries": one.counts.retries} for name, one in every.items()}


@contextmanager
def open_evaluator(serving: Serving) -> Iterator[Evaluator]:
    """The engine with its weights, the tokenizers and the graders; their processes end with the context."""
    plan, config = serving.plan, serving.config
    renderers = make_renderers(plan)
    with ExitStack() as opened:
        graders = opened.enter_context(GraderPool(**config.grading.pool()))
        engine = make_engine(list(plan.table.specs.values()), config.engine.local(deterministic=config.deterministic))
        opened.callback(engine.shut_down)
        with LoopRunner() as loop:
            for name, weights in serving.weights.items():
                version, tensors = stored_weights(weights.checkpoint, weights.policy)
                with fitting(weights.checkpoint, weights.policy, plan.table.specs[name].model):
                    loop.run(engine.load(name, version, tensors))
        yield Evaluator(plan=plan, renderers=renderers, engine=engine, graders=graders)


def find_checkpoint(folder: RunFolder, name: str) -> Path | None:
    """The folder of the checkpoint called best, last, base (None: the weights before training) or a step."""
    root = folder.checkpoints
    if name == "base":
        return None
    if name in ("best", "last"):
        found = (best(root) if name == "best" else None) or latest(root)
        if found is None:
            raise UsageError(f"run {str(folder.path)!r} has no checkpoint yet; take its start with --checkpoint base")
        return found
    there = sorted(path.name for path in root.glob("step-*"))
    step = int(name) if name.isdecimal() else None  # not isdigit: that takes "²", which is no number
    matching = [path for path in there if int(path.removeprefix("step-").split(".")[0]) == step]
    if not matching:
        raise UsageError(f"--checkpoint is {name!r}; wanted best, last, base or a step of {', '.join(there) or 'none'}")
    return root / matching[-1]
