"""What a model was made for, held against the longest prompts and completions that its roles may have."""

from __future__ import annotations

from rolecall.assemble import Plan
from rolecall.engines.read_model import num_positions
from rolecall.engines.specs import PolicySpec, resolve_model
from rolecall.errors import ConfigError, boundary


def context_notes(plan: Plan) -> list[str]:
    """A line for each role whose longest prompt and completion are together more than its model was made for;
    `ConfigError` where no prompt would have room, or a model's configuration cannot be read."""
    return [line for spec in plan.table.local.values() for line in check_positions(plan, spec, positions_of(spec))]


def positions_of(spec: PolicySpec) -> int | None:
    """`num_positions` of a policy's model; `ConfigError` when its configuration cannot be read."""
    with boundary(ConfigError, f"reading the configuration of policy {spec.name!r} from {spec.model!r}"):
        return num_positions(resolve_model(spec.model))


def check_positions(plan: Plan, spec: PolicySpec, limit: int | None) -> list[str]:
    """The lines of `context_notes` for one policy, whose model has `limit` positions (None: it does not say)."""
    lines: list[str] = []
    for role in plan.table.roles_of(spec.name) if limit is not None else ():
        asked = (plan.config.role_sampling(role), plan.config.eval_sampling(role))
        prompt, reply = (max(getattr(one, name) for one in asked) for name in ("max_prompt_tokens", "max_tokens"))
        if reply >= limit:
            raise ConfigError(
                f"role {role!r}: max_tokens is {reply}, and the model {spec.model!r} was made for {limit} tokens, "
                "prompt and reply together (max_position_embeddings); lower max_tokens, or take a model with a longer "
                "context"
            )
        if prompt + reply > limit:
            lines.append(
                f"role {role!r}: max_prompt_tokens {prompt} and max_tokens {reply} are together more than the {limit} "
                f"that {spec.model!r} was made for: a prompt of more than {limit - reply} tokens cuts its reply short, "
                f"one of {limit} or more fails; set max_prompt_tokens to {limit - reply}"
            )
    return lines
