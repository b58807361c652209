"""`rolecall train --dry-run`: the resolved run in words and numbers, before anything is loaded."""

from __future__ import annotations

from rolecall.assemble import Plan
from rolecall.engines.specs import LoraSpec, PolicySpec, resolve_model
from rolecall.errors import ConfigError, boundary
from rolecall.records import Task

BYTES = {"float32": 4, "bfloat16": 2}


def describe(plan: Plan) -> str:
    """Roles to policies, peers a step, sequences and tokens a step, and the memory that weights and optimisers take."""
    config, sampler = plan.config, plan.algorithm.sampler
    num_peers = len(sampler.plans((Task(id="any", question="", answer=None),)))
    episodes = config.rollout.tasks_per_step * num_peers
    longest = sum(plan.sampling[role].max_tokens * _calls(plan, role) for role in plan.roles)
    sequences = episodes * sum(_calls(plan, role) for role in plan.roles)
    lines = [f"run {config.name!r}: {config.steps} steps, seed {config.seed}, deterministic {config.deterministic}", ""]
    lines.append("role -> policy")
    for role in plan.roles:
        spec = plan.table.specs[plan.table.policy(role)]
        trained = "trained" if role in plan.table.train_roles else "not trained"
        sampling = plan.sampling[role]
        lines.append(
            f"  {role} -> {spec.name} ({spec.kind} of {spec.model}, {spec.dtype}, {trained}); temperature "
            f"{sampling.temperature:g}, at most {sampling.max_tokens} tokens a call, {_calls(plan, role)} call(s)"
        )
    lines += [
        "",
        f"algorithm {plan.algorithm.name}: units by {plan.algorithm.grouping.unit}, peers by "
        f"{plan.algorithm.grouping.peers}, {num_peers} {sampler.denominator} a task, loss ratio "
        f"{plan.algorithm.loss.ratio}, {plan.algorithm.loss.aggregate}",
        f"a step: {config.rollout.tasks_per_step} tasks x {num_peers} = {episodes} {sampler.denominator}, at most "
        f"{sequences} sequences and {episodes * longest:,} generated tokens",
        "",
        "memory for weights, gradients and AdamW moments (activations and caches come on top)",
    ]
    lines += [f"  {line}" for line in _memory(plan)]
    return "\n".join(lines)


def _calls(plan: Plan, role: str) -> int:
    """The most calls of a role in one episode, as far as the workflow says."""
    return plan.workflow.max_calls().get(role, 1)


def _memory(plan: Plan) -> list[str]:
    lines: list[str] = []
    total = 0.0
    seen_bases: set[str] = set()
    for spec in plan.table.specs.values():
        try:
            base, trained = count_parameters(spec)
        except ConfigError as error:
            lines.append(f"{spec.name}: not known here ({str(error).splitlines()[0]})")
            continue
        size = 0.0
        if spec.kind == "model":
            size = trained * 16.0
        else:
            if spec.model not in seen_bases:
                size += base * BYTES[spec.dtype]
                seen_bases.add(spec.model)
            size += trained * 16.0
        copies = base * BYTES[spec.dtype] * plan.config.engine.workers
        total += size + copies
        lines.append(
            f"{spec.name}: {base / 1e6:,.2f} M parameters, {trained / 1e6:,.2f} M trained; learner "
            f"{size / 2**20:,.1f} MiB, engine {copies / 2**20:,.1f} MiB ({plan.config.engine.workers} workers)"
        )
    lines.append(f"in all {total / 2**20:,.1f} MiB")
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
    return base, lora_parameters(model, spec.lora) if spec.kind == "adapter" and spec.lora else 0


def lora_parameters(model: object, lora: LoraSpec) -> int:
    """rank x (inputs + outputs), over the linear layers that the adapter targets."""
    import torch

    assert isinstance(model, torch.nn.Module)
    every = lora.target_modules == ("all-linear",)
    return sum(
        lora.rank * (module.in_features + module.out_features)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
        and (name.split(".")[-1] in lora.target_modules or (every and "lm_head" not in name))
    )
