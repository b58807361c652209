"""From a configuration to the rooms of a run: every part is built here, and nothing runs yet."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rolecall.algorithms.base import Algorithm
from rolecall.algorithms.loss import Loss
from rolecall.algorithms.make import make_algorithm
from rolecall.config import Component, PolicyConfig, RolloutConfig, RunConfig
from rolecall.engines.read_model import named_end_ids, read_tokenizer
from rolecall.engines.specs import EndpointSpec, PolicySpec, resolve_model
from rolecall.errors import ConfigError, GraderError, TaskError, boundary, nearest
from rolecall.grading.graders import GRADERS
from rolecall.grading.pool import GraderPool
from rolecall.interventions.partners import leaders, slots_of
from rolecall.interventions.settings import anchored, check_interventions
from rolecall.learner.config import LearnerConfig, check_loss_roles
from rolecall.policies.table import PolicyTable, make_table
from rolecall.records import Sampling
from rolecall.registry import coerce, load_named
from rolecall.rollout.agentic import AgenticGroups
from rolecall.rollout.render import ChatRenderer, EndpointRenderer, Renderer
from rolecall.rollout.transcript import RoleSettings
from rolecall.tasks import TASK_SOURCES
from rolecall.tasks.base import TaskSource, TaskSplits
from rolecall.tasks.difficulty import Chosen, read_ids
from rolecall.tasks.splits import SplitRule, load_tasks
from rolecall.workflows import load_workflow
from rolecall.workflows.base import Workflow

SHARED_POLICY = "shared"
FREE_KEYS = ("name", "steps", "token_budget", "evaluation", "checkpoint", "engine", "grading", "tracking")
"""Settings that a resumed run may change: they do not enter the fingerprint."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What a configuration asks for, checked: no weights, no tasks, no processes yet."""

    config: RunConfig
    workflow: Workflow
    algorithm: Algorithm
    table: PolicyTable
    learners: Mapping[str, LearnerConfig]

    @property
    def roles(self) -> tuple[str, ...]:
        return self.workflow.roles

    @property
    def sampling(self) -> dict[str, Sampling]:
        return {role: self.config.role_sampling(role) for role in self.roles}


def make_plan(config: RunConfig, *, training: bool = True) -> Plan:
    """Check a configuration against the workflow's roles, the algorithm and the policies; `ConfigError` otherwise. Not
    for `training`: whether the samples could be trained on is not asked."""
    workflow = load_workflow(config.workflow.name, config.workflow.params)
    for role in config.roles:
        if role not in workflow.roles:
            raise ConfigError(
                f"[roles.{role}]: workflow {config.workflow.name!r} has no such role{nearest(role, workflow.roles)}"
            )
    algorithm = make_algorithm(config.algorithm.name, config.algorithm.params)
    check_algorithm_roles(algorithm, workflow.roles)
    table = role_table(config, workflow.roles)
    learners = {
        name: learner_config(config, policy_config(config, name)) for name, spec in table.specs.items() if spec.trained
    }
    for learner in learners.values():
        check_loss_roles(algorithm.loss, learner, workflow.roles)
    plan = Plan(config=config, workflow=workflow, algorithm=algorithm, table=table, learners=learners)
    check_interventions(
        config.interventions,
        roles=table.roles,
        train_roles=table.train_roles,
        loss=algorithm.loss,
        plain_bfloat16=[name for name, one in learners.items() if one.precision == "bfloat16_plain"],
    )
    check_failures(plan)
    check_endpoints(plan)
    if training:
        check_sampling(plan)
        check_schedule(plan)
        check_partners(plan)
    task_source(config)
    return plan


def check_algorithm_roles(algorithm: Algorithm, roles: tuple[str, ...]) -> None:
    """`ConfigError` when a table by role of reward or sampler, or `merge_copies`, names a role that there is not."""
    tables = {
        "merge_copies": algorithm.grouping.merge_copies,
        "reward.by_role": getattr(algorithm.reward, "by_role", ()),
        "prefer": getattr(algorithm.sampler, "prefer", ()),
    }
    for table, names in tables.items():
        for name in names:
            if name not in roles:
                raise ConfigError(
                    f"algorithm {algorithm.name!r}: {table} names the unknown role {name!r}{nearest(name, roles)}"
                )


def policy_config(config: RunConfig, name: str) -> PolicyConfig:
    """The table of one policy: its own row, or the common `[model]` under `sharing`."""
    return config.policies.get(name, config.model)


def policy_spec(name: str, config: PolicyConfig) -> PolicySpec:
    endpoint = None
    if config.kind == "api" and config.endpoint is not None:
        endpoint = EndpointSpec(
            url=config.endpoint,
            api_key_env=config.api_key_env,
            extra=config.extra,
            opens_reasoning=config.opens_reasoning,
            requests=config.requests,
        )
    return PolicySpec(
        name=name,
        kind=config.kind,
        model=config.model,
        lora=config.lora,
        adapter=config.adapter,
        dtype=config.dtype,
        endpoint=endpoint,
    )


def role_table(config: RunConfig, roles: tuple[str, ...]) -> PolicyTable:
    """The role-to-policy table that the configuration spells out, or stands for."""
    if config.policies:
        return make_table(
            roles,
            specs={name: policy_spec(name, policy) for name, policy in config.policies.items()},
            role_policies={role: r.policy for role, r in config.roles.items() if r.policy is not None},
            train_roles=config.train_roles,
        )
    template = policy_spec(SHARED_POLICY, config.model)
    return make_table(roles, sharing=config.sharing or "shared", template=template, train_roles=config.train_roles)


def learner_config(config: RunConfig, policy: PolicyConfig) -> LearnerConfig:
    """`[learner]` with the policy's own overrides; a schedule without a length spans the run."""
    merged = own_learner(config, policy)
    if spans_the_run(merged):
        merged = replace(merged, schedule_steps=config.steps * merged.minibatches)
    return replace(merged, seed=merged.seed or config.seed)


def spans_the_run(learner: LearnerConfig) -> bool:
    return learner.schedule != "constant" and learner.schedule_steps == 0


def own_learner(config: RunConfig, policy: PolicyConfig) -> LearnerConfig:
    """`[learner]` with what the policy says otherwise."""
    merged = config.learner
    if policy.learner:
        known = LearnerConfig.__dataclass_fields__
        for key in policy.learner:
            if key not in known:
                raise ConfigError(f"a policy's learner has no setting {key!r}{nearest(key, known)}")
        merged = replace(
            merged, **{key: coerce_field(LearnerConfig, key, value) for key, value in policy.learner.items()}
        )
    return merged


def coerce_field(kind: type, key: str, value: Any) -> Any:
    from typing import get_type_hints

    return coerce(value, get_type_hints(kind)[key], f"learner.{key}")


def check_failures(plan: Plan) -> None:
    """A reward that keeps what was earned before a failure, and a rollout that trains it with 0, contradict."""
    reward, end = plan.algorithm.reward, plan.config.rollout.of_failures
    parts = {"reward": reward, **{f"reward.extra.{n}": part for n, part in getattr(reward, "extra", {}).items()}}
    for name, part in parts.items():
        if end == "zero" and getattr(part, "on_failure", None) == "keep":
            raise ConfigError(
                f'algorithm {plan.algorithm.name!r}: {name}.on_failure = "keep" keeps what the turns of a failed '
                f"episode earned, and under rollout.on_failure = {plan.config.rollout.on_failure!r} they are trained "
                'with 0; set rollout.on_failure = "keep" (or after_retries), or leave the other out'
            )


def check_endpoints(plan: Plan) -> None:
    """The prompts of an endpoint cannot be cut here."""
    for role in plan.roles:
        if plan.sampling[role].overlong == "truncate_left" and not plan.table.specs[plan.table.policy(role)].local:
            raise ConfigError(
                f"role {role!r} is served by an endpoint and its sampling has overlong = 'truncate_left': only the "
                f"endpoint knows its tokens. Set roles.{role}.sampling.overlong = 'fail'"
            )


def check_sampling(plan: Plan) -> None:
    """A trained role must be sampled from its whole distribution."""
    for role in plan.table.train_roles:
        sampling = plan.sampling[role]
        if sampling.greedy or sampling.truncates_support:
            raise ConfigError(
                f"role {role!r} is trained and sampled at temperature {sampling.temperature:g}, top_p "
                f"{sampling.top_p:g}, top_k {sampling.top_k}: the log-probabilities trained on would not be those of "
                "the policy; set temperature above 0, top_p = 1 and top_k = 0, or leave the role out of train_roles"
            )


def check_schedule(plan: Plan) -> None:
    """`ConfigError` when `[schedule]` asks for what the algorithm's sampler or the reward cannot give."""
    config, agentic = plan.config, isinstance(plan.algorithm.sampler, AgenticGroups)
    mode, name = config.schedule.mode, plan.algorithm.name
    if not agentic:
        if mode != "barrier":
            raise ConfigError(
                f"schedule.mode is {mode!r} and algorithm {name!r} draws independent episodes, which are compared when "
                "all have ended; use mode 'barrier', or an algorithm of agentic groups such as 'marsrl'"
            )
        if config.rollout.refill:
            raise ConfigError(f"rollout.refill belongs to agentic groups, and algorithm {name!r} draws episodes")
        return
    assert isinstance(plan.algorithm.sampler, AgenticGroups)
    config.schedule.check_group(plan.algorithm.sampler.n)
    config.schedule.check_policies(plan.table.specs)
    if config.checkpoint.keep_inflight:
        raise ConfigError(
            f"checkpoint.keep_inflight (--keep-inflight) records independent episodes; algorithm {name!r} keeps what "
            "is under way in its checkpoints: leave it out"
        )
    if mode == "overlapped" and config.deterministic:
        raise ConfigError(
            "schedule.mode is 'overlapped' and deterministic is true: what is trained when depends on the clock; set "
            "deterministic = false, or another mode"
        )
    if mode != "barrier" and plan.algorithm.broadcasts:
        raise ConfigError(
            f"the reward of algorithm {name!r} broadcasts the team's outcome, and under schedule.mode {mode!r} a "
            "completion is trained before its chain has one; use mode 'barrier', or an agent-specific reward"
        )


def check_partners(plan: Plan) -> None:
    """`ConfigError` when `[partners]` asks for earlier versions where there can be none."""
    config, table = plan.config, plan.table
    if not config.partners.share:
        return
    if isinstance(plan.algorithm.sampler, AgenticGroups):
        raise ConfigError(
            f"partners.share is {config.partners.share:g} and algorithm {plan.algorithm.name!r} draws agentic groups, "
            "where the calls of one task belong to many chains; use an algorithm of independent episodes, or share = 0"
        )
    if not leaders(table.roles, table.train_roles, list(plan.learners)):
        kinds = {role: table.specs[policy].kind for role, policy in table.roles.items()}
        raise ConfigError(
            f"partners.share is {config.partners.share:g} and no trained role has another one beside it whose policy "
            f"is trained (kinds by role: {kinds}): frozen policies and endpoints have no earlier versions, and a role "
            "alone has no partner. Train a second role, or set share = 0"
        )
    if not (config.evaluation.every_steps and config.tasks.sizes.validation):
        raise ConfigError(
            f"partners.share is {config.partners.share:g} and nothing is validated, by which earlier versions are "
            "ranked; set evaluation.every_steps and tasks.sizes.validation above 0"
        )
    for name in slots_of(plan.learners, config.partners):
        if name in table.specs:
            raise ConfigError(f"policy {name!r} has the name of a slot for earlier versions; choose another name")


def task_source(config: RunConfig) -> TaskSource:
    """The configured source, its name and knobs checked and nothing read."""
    source: TaskSource = load_named(config.tasks.name, TASK_SOURCES, "task source", config.tasks.params)
    return source if config.tasks.only is None else Chosen(source=source, ids=read_ids(config.tasks.only))


def _held_out(component: Component | None) -> TaskSource | None:
    if component is None:
        return None
    source: TaskSource = load_named(component.name, TASK_SOURCES, "task source", component.params)
    return source


def make_tasks(config: RunConfig, *, first: bool = False) -> TaskSplits:
    """Read the configured source into its splits (only the `first` task of each), and see that their graders are there;
    `TaskError` otherwise."""
    source = task_source(config)
    sizes = {name: getattr(config.tasks.sizes, name) for name in ("train", "validation", "test")}
    if first:
        sizes = {name: 1 if name == "train" else min(size, 1) for name, size in sizes.items()}
    splits = load_tasks(
        source,
        **sizes,
        rule=SplitRule(seed=config.tasks.split_seed),
        validation_source=_held_out(config.tasks.validation_from),
        test_source=_held_out(config.tasks.test_from),
    )
    check_graders(source.label, {task.grader for tasks in splits for task in tasks})
    return splits


def check_graders(label: str, names: Collection[str]) -> None:
    """`TaskError` when a grader that tasks name is not built in and cannot be loaded; before any model is."""
    try:
        with GraderPool() as pool:
            pool.start(sorted(set(names) - GRADERS.keys()))
    except GraderError as error:
        raise TaskError(f"{label}: its tasks cannot be graded: {error}") from error


def make_renderers(plan: Plan) -> dict[str, Renderer]:
    """One renderer a policy: its model's tokenizer and chat template; an endpoint has its own."""
    renderers: dict[str, Renderer] = {}
    for name, spec in plan.table.specs.items():
        if not spec.local:
            renderers[name] = EndpointRenderer()
            continue
        with boundary(ConfigError, f"loading the tokenizer of policy {name!r} from {spec.model!r}"):
            tokenizer = read_tokenizer(resolve_model(spec.model))
            ends = named_end_ids(resolve_model(spec.model))
        options = policy_config(plan.config, name).chat_template
        renderers[name] = renderer = ChatRenderer(tokenizer, template_options=options, more_end_ids=ends)
        check_vocabulary(spec, renderer)
    return renderers


def check_vocabulary(spec: PolicySpec, renderer: Renderer) -> None:
    """`ConfigError` when a prompt has token ids that the model has no row for: model and tokenizer are not a pair."""
    from transformers import AutoConfig

    with boundary(ConfigError, f"reading the configuration of policy {spec.name!r} from {spec.model!r}"):
        rows = AutoConfig.from_pretrained(resolve_model(spec.model)).get_text_config().vocab_size
    highest = max([*renderer.encode([{"role": "user", "content": "x"}]), *renderer.end_ids])
    if highest >= rows:
        raise ConfigError(
            f"policy {spec.name!r}: a prompt or its end has the token id {highest} and model {spec.model!r} has {rows} "
            "rows of embeddings; model and tokenizer are not a pair: save both to one folder, or resize the embeddings"
        )


def role_settings(
    plan: Plan, renderers: Mapping[str, Renderer], sampling: Mapping[str, Sampling]
) -> dict[str, RoleSettings]:
    """How each role's calls are made under the given sampling."""
    config = plan.config
    settings: dict[str, RoleSettings] = {}
    for role in plan.roles:
        own = config.roles[role].call_timeout_s if role in config.roles else None
        policy = plan.table.policy(role)
        settings[role] = RoleSettings(
            policy=policy,
            sampling=sampling[role],
            renderer=renderers[policy],
            deadline_s=own or config.rollout.call_timeout_s,
        )
    return settings


def losses(plan: Plan) -> dict[str, Loss]:
    """The loss of each trained policy: the algorithm's, with the KL anchors of interventions."""
    return dict.fromkeys(plan.learners, anchored(plan.algorithm.loss, plan.config.interventions))


def config_fingerprint(config: RunConfig) -> str:
    """A hash over every setting that a resumed run may not change."""
    data = config.model_dump(mode="json", exclude=set(FREE_KEYS))
    data["rollout"]["max_flat_steps"] = RolloutConfig().max_flat_steps  # when to give up changes no step
    rows = config.policies.values() or [config.model]
    if any(spans_the_run(own_learner(config, row)) for row in rows):
        data["steps"] = config.steps  # with other steps the schedule would be another one
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]
