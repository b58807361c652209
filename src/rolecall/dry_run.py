"""`rolecall train --dry-run`: the resolved run in words and numbers, before anything is loaded."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from rolecall.assemble import Plan, make_tasks, task_source
from rolecall.config import RunConfig
from rolecall.context_limit import check_positions, positions_of
from rolecall.engines.specs import LoraSpec, PolicySpec, resolve_model
from rolecall.errors import ConfigError, boundary
from rolecall.interventions.settings import Intervention
from rolecall.records import Task
from rolecall.rollout.agentic import AgenticGroups
from rolecall.tasks.hub import Hub

BYTES = {"float32": 4, "bfloat16": 2}
TRAINED_BYTES = 16.0  # a weight, its gradient and two moments in float32


def describe(plan: Plan) -> str:
    """Roles to policies, peers a step, sequences and tokens a step, and the memory that weights and optimisers take."""
    config, sampler = plan.config, plan.algorithm.sampler
    if isinstance(sampler, AgenticGroups):
        num_peers = sequences_a_task = sampler.max_calls
        longest = max(sampling.max_tokens for sampling in plan.sampling.values())
        drawn = f"groups of {sampler.n}, {sampler.k} go on, {sampler.stages} stages, schedule {config.schedule.mode}"
    else:
        num_peers = len(sampler.plans((Task(id="any", question="", answer=None),)))
        sequences_a_task = num_peers * sum(_calls(plan, role) for role in plan.roles)
        longest = sum(plan.sampling[role].max_tokens * _calls(plan, role) for role in plan.roles)
        drawn = "independent"
    episodes = config.rollout.tasks_per_step * num_peers
    sequences = config.rollout.tasks_per_step * sequences_a_task
    lines = [f"run {config.name!r}: {config.steps} steps, seed {config.seed}, deterministic {config.deterministic}", ""]
    lines.append("role -> policy")
    for role in plan.roles:
        spec = plan.table.specs[plan.table.policy(role)]
        trained = "trained" if role in plan.table.train_roles else "not trained"
        sampling = plan.sampling[role]
        lines.append(
            f"  {role} -> {spec.name} ({made_of(spec)}, {trained}); temperature "
            f"{sampling.temperature:g}, at most {sampling.max_tokens} tokens a call, {_calls(plan, role)} call(s)"
        )
    lines += [
        *_interventions(config),
        "",
        f"algorithm {plan.algorithm.name}: units by {plan.algorithm.grouping.unit}, peers by "
        f"{plan.algorithm.grouping.peers}, {num_peers} {sampler.denominator} a task ({drawn}), loss ratio "
        f"{plan.algorithm.loss.ratio}, {plan.algorithm.loss.aggregate}",
        f"a step: {config.rollout.tasks_per_step} tasks x {num_peers} = {episodes} {sampler.denominator}, at most "
        f"{sequences} sequences and {episodes * longest:,} generated tokens",
        "",
        "memory for weights, gradients and AdamW moments (activations and caches come on top)",
    ]
    known: dict[str, int | None] = {}
    lines += [f"  {line}" for line in _memory(plan, known)]
    for name, limit in known.items():
        lines += check_positions(plan, plan.table.specs[name], limit)
    return "\n".join(lines)


def _interventions(config: RunConfig) -> list[str]:
    """What is done about a role beside training it: the settings that differ from leaving it alone."""
    unsaid = Intervention()
    said = {
        role: ", ".join(
            f"{one.name} = {getattr(table, one.name)!r}"
            for one in fields(table)
            if getattr(table, one.name) != getattr(unsaid, one.name)
        )
        for role, table in config.interventions.items()
    }
    return ["", "interventions", *(f"  {role}: {words}" for role, words in said.items() if words)] if said else []


def describe_tasks(config: RunConfig) -> str:
    """A line on the first task of each split; `TaskError` when the source cannot be read. A dataset that is not on this
    machine is not asked for: it may wait for its network, as the hub id of a model may."""
    source = task_source(config)
    if isinstance(source, Hub) and not Path(source.path).is_dir():
        return f"tasks: {source.label} is not on this machine, and was not read"
    splits = make_tasks(config, first=True)
    named = ", ".join(f"{tasks.name} {next(iter(tasks)).question[:60]!r}" for tasks in splits if len(tasks))
    graders = ", ".join(sorted({task.grader for tasks in splits for task in tasks}))
    return f"tasks: {source.label} can be read (grader {graders}); the first of each split: {named}"


def made_of(spec: PolicySpec) -> str:
    """A policy's weights in words."""
    if spec.endpoint is not None:
        return f"{spec.model} at {spec.endpoint.url}"
    return f"{spec.kind} of {spec.model}, {spec.dtype}"


def _calls(plan: Plan, role: str) -> int:
    """The most calls of a role in one episode, as far as the workflow says."""
    return plan.workflow.max_calls().get(role, 1)


def _memory(plan: Plan, known: dict[str, int | None]) -> list[str]:
    """A line a policy, and the sum; `known` gets the positions of every model that can be read. Adapters of one base
    share it, in the learner and in each worker of the engine; a frozen policy is in the engine alone, and shares its
    base with the adapters of that model."""
    lines: list[str] = []
    in_learner: set[tuple[str, str]] = set()
    in_engine: set[tuple[str, str]] = set()
    workers = plan.config.engine.workers if plan.config.engine.mode == "processes" else 1
    number = "worker" if workers == 1 else "workers"
    total, unknown = 0.0, 0
    for spec in plan.table.local.values():
        resolve_model(spec.model)  # a folder that is not there is an error; a hub id may wait for its network
        try:
            base, trained = count_parameters(spec)
            known[spec.name] = positions_of(spec)
        except ConfigError as error:
            lines.append(f"{spec.name}: not known here ({str(error).splitlines()[0]})")
            unknown += 1
            continue
        learner, engine = trained * TRAINED_BYTES, 0.0
        partners = plan.config.partners
        copies = 1 + partners.slots if partners.share and spec.trained else 1  # earlier versions beside the current one
        if spec.kind == "model":
            engine = base * BYTES[spec.dtype] * copies
        else:
            engine = trained * BYTES[spec.dtype] * copies
            if (spec.model, spec.dtype) not in in_engine:
                engine += base * BYTES[spec.dtype]
                in_engine.add((spec.model, spec.dtype))
            if spec.kind == "adapter":
                precision = plan.learners[spec.name].precision
                if (spec.model, precision) not in in_learner:
                    learner += base * (4 if precision == "float32" else 2)
                    in_learner.add((spec.model, precision))
        total += learner + engine * workers
        lines.append(
            f"{spec.name}: {base / 1e6:,.2f} M parameters, {trained / 1e6:,.2f} M trained; learner "
            f"{learner / 2**20:,.1f} MiB, engine {engine * workers / 2**20:,.1f} MiB ({workers} {number})"
        )
    if unknown and unknown == len(plan.table.local):
        lines.append("in all: not known here")
    else:
        lines.append(f"in all {'at least ' if unknown else ''}{total / 2**20:,.1f} MiB")
    return lines


def count_parameters(spec: PolicySpec) -> tuple[int, int]:
    """Parameters of the base model and those that are trained, from its configuration alone (no weights are read)."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with boundary(ConfigError, f"reading the model of policy {spec.name!r} ({spec.model!r})"):
        model_config = AutoConfig.from_pretrained(resolve_model(spec.model))
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(model_config)
    base = sum(parameter.numel() for parameter in model.parameters())
    if spec.kind == "model":
        return base, base
    if spec.kind == "frozen":
        return base, 0
    return base, lora_parameters(model, spec.lora or saved_lora(spec))


def saved_lora(spec: PolicySpec) -> LoraSpec:
    """The shape of the saved adapter that a policy starts from."""
    from rolecall.engines.local_lora import read_adapter

    assert spec.adapter is not None
    return read_adapter(spec.adapter)[0]


def lora_parameters(model: object, lora: LoraSpec) -> int:
    """rank x (inputs + outputs), over the linear layers that the adapter targets."""
    import torch

    assert isinstance(model, torch.nn.Module)
    every = lora.target_modules == ("all-linear",)

    def targeted(name: str) -> bool:
        return any(f".{name}".endswith(f".{target}") for target in lora.target_modules)

    return sum(
        lora.rank * (module.in_features + module.out_features)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and (targeted(name) or (every and "lm_head" not in name))
    )
