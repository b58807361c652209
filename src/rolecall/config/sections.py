"""The sections of a configuration as strict typed models, and what they must agree on.

Defaults stand once: in these models, or in the dataclass of the part that they configure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rolecall.dynamics.settings import DynamicsSettings
from rolecall.engines.specs import LocalSettings, LoraSpec, RequestSettings
from rolecall.interventions.partners import PartnerSettings
from rolecall.interventions.settings import Intervention
from rolecall.learner.config import LearnerConfig
from rolecall.pipeline.schedule import Schedule
from rolecall.records import Sampling


class Section(BaseModel):
    """A part of the configuration; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Component(BaseModel):
    """A built-in by short name or a user's own by `module:Name`; all other keys are its knobs, checked where it is
    built (`registry.load_named`)."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str

    @property
    def params(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class SplitSizes(Section):
    """How many tasks each split holds; 0 for `train` means all that the source has."""

    train: int = Field(default=0, ge=0)
    validation: int = Field(default=0, ge=0)
    test: int = Field(default=200, ge=0)


class TasksConfig(Component):
    """A source of tasks and its knobs; `split_seed` 0 is the plain hash rule of `tasks/splits.py`. A held-out set may
    have a source of its own; its questions are then kept out of the training set. `only`: a JSON file with the ids of
    the tasks to read from the source, as `rolecall difficulty` and `rolecall decontaminate` write it."""

    sizes: SplitSizes = SplitSizes()
    split_seed: int = 0
    validation_from: Component | None = None
    test_from: Component | None = None
    only: str | None = None


class SamplingOverrides(Section):
    """Fields of `records.Sampling` that a role or the evaluation sets otherwise; what is not named is inherited."""

    temperature: float | None = Field(default=None, ge=0)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=0)
    max_tokens: int | None = Field(default=None, ge=1)
    max_prompt_tokens: int | None = Field(default=None, ge=1)
    overlong: Literal["fail", "truncate_left"] | None = None

    def apply(self, base: Sampling) -> Sampling:
        return replace(base, **self.model_dump(exclude_none=True))


class RoleConfig(Section):
    """One role: its policy (only with explicit `[policies]`), its sampling, a deadline for each of its calls."""

    policy: str | None = None
    sampling: SamplingOverrides = SamplingOverrides()
    call_timeout_s: float | None = Field(default=None, gt=0)


UNREAD = {
    "chat_template": "put chat_template_kwargs into `extra`",
    "endpoint": "leave it out, or set kind = 'api'",
}
EXAMPLE = "endpoint = 'http://localhost:8000/v1', model = 'Qwen/Qwen3-0.6B'"


class PolicyConfig(Section):
    """The weights of one policy: `model` trains a whole model, `adapter` a LoRA adapter on it, `frozen` nothing; an
    `api` policy is served by an OpenAI-compatible `endpoint` (`engines.specs.EndpointSpec`) and has none here.

    `chat_template` goes to the tokenizer's template (`{enable_thinking = false}`); `learner` overrides `[learner]`.
    """

    kind: Literal["model", "adapter", "frozen", "api"] = "model"
    model: str = "builtin:tiny"
    lora: LoraSpec | None = None
    adapter: str | None = None
    dtype: Literal["float32", "bfloat16"] = "float32"
    chat_template: dict[str, Any] = Field(default_factory=dict)
    learner: dict[str, Any] = Field(default_factory=dict)
    endpoint: str | None = None
    api_key_env: str | None = None
    extra: dict[str, Any] = Field(default_factory=dict)
    opens_reasoning: bool = False
    requests: RequestSettings = RequestSettings()

    @property
    def unread(self) -> str | None:
        """A setting that says something which nothing of this kind reads."""
        here = ("lora", "adapter", "dtype", "chat_template", "learner")
        there = ("endpoint", "api_key_env", "extra", "opens_reasoning", "requests")
        if self.kind != "frozen":
            names: tuple[str, ...] = here if self.kind == "api" else there
        else:
            names = ("learner", *there) if self.adapter is not None else ("learner", "lora", *there)
        said = (name for name in names if getattr(self, name) != getattr(_UNSAID, name))
        return next(said, None)


_UNSAID = PolicyConfig()


class RolloutConfig(Section):
    """How a step's episodes are run, and what becomes of those that fail. `episode_timeout_s` has a default, so that a
    workflow that never ends is a timeout and not a run that hangs; raise it for slow models.

    With agentic groups `refill` is dynamic sampling that fills up: a step admits further tasks until `tasks_per_step`
    first groups have rewards that differ, at most `max_oversampling` times as many tasks. After `max_flat_steps` steps
    in a row in which no advantage differs from 0 the run stops with the reason (0: never)."""

    tasks_per_step: int = Field(default=32, ge=1)
    max_concurrent: int = Field(default=1024, ge=1)
    call_timeout_s: float | None = Field(default=None, gt=0)
    episode_timeout_s: float | None = Field(default=1800.0, gt=0)
    watchdog_s: float = Field(default=30.0, gt=0)
    on_failure: Literal["retry", "zero", "keep", "drop"] = "zero"
    max_retries: int = Field(default=1, ge=0)
    after_retries: Literal["zero", "keep", "drop"] = "zero"
    refill: bool = False
    max_oversampling: float = Field(default=2.0, ge=1, allow_inf_nan=False)
    max_flat_steps: int = Field(default=50, ge=0)

    @property
    def of_failures(self) -> str:
        """What becomes in the end of the turns of a failed episode: zero, keep or drop."""
        return self.after_retries if self.on_failure == "retry" else self.on_failure


_LOCAL = LocalSettings()


class EngineConfig(Section):
    """The engine that samples completions; `local` is PyTorch on this machine (`engines.specs.LocalSettings`)."""

    name: Literal["local"] = "local"
    mode: Literal["processes", "inline"] = _LOCAL.mode
    workers: int = Field(default=_LOCAL.workers, ge=1)
    threads_per_worker: int = Field(default=_LOCAL.threads_per_worker, ge=1)
    max_batch_rows: int = Field(default=_LOCAL.max_batch_rows, ge=1)
    max_batch_tokens: int = Field(default=_LOCAL.max_batch_tokens, ge=1)

    def local(self, *, deterministic: bool) -> LocalSettings:
        return LocalSettings(deterministic=deterministic, **self.model_dump(exclude={"name"}))


class GradingConfig(Section):
    """The pool of grader processes and the deadline of one answer. `unsandboxed` runs programs that models wrote where
    they cannot be contained."""

    workers: int = Field(default=1, ge=1)
    timeout_s: float = Field(default=5.0, gt=0)
    unsandboxed: bool = False

    def pool(self) -> dict[str, Any]:
        """The arguments of a `GraderPool`."""
        return {"workers": self.workers, "deadline_s": self.timeout_s, "unsandboxed": self.unsandboxed}


class EvaluationConfig(Section):
    """Validation every `every_steps` (0: never) chooses the best checkpoint; the test split is used at the ends.

    `on_cliff`: what follows when validation falls from its peak beyond its interval (`dynamics/cliff.py`). `rollback`
    goes on from the best checkpoint at `rollback_lr` times the learning rate (again times that at each further one), at
    most `max_rollbacks` times; the fall after the last of them stops the run."""

    every_steps: int = Field(default=10, ge=0)
    samples: int = Field(default=1, ge=1)
    greedy: bool = True
    on_cliff: Literal["warn", "stop", "rollback"] = "warn"
    max_rollbacks: int = Field(default=2, ge=1)
    rollback_lr: float = Field(default=0.5, gt=0, le=1)
    sampling: SamplingOverrides = SamplingOverrides()


class CheckpointConfig(Section):
    """A checkpoint every `every_steps` steps; the last `keep_last` and the best are kept. With `keep_inflight` a
    resumed run goes on with the calls that were recorded since the last checkpoint (not when `deterministic`)."""

    every_steps: int = Field(default=1, ge=1)
    keep_last: int = Field(default=2, ge=1)
    keep_inflight: bool = False


class TrackingConfig(Section):
    """Trackers beside TensorBoard. `wandb_mode` None: as W&B is set up (`WANDB_MODE`); "offline" needs no account."""

    wandb: bool = False
    wandb_project: str = "rolecall"
    wandb_mode: Literal["online", "offline"] | None = None


class ParityConfig(Section):
    """Proof that the engine samples from the trained weights: a canary at the start, a probe after publishing."""

    canary: bool = True
    every_steps: int = Field(default=1, ge=1)
    num_prompts: int = Field(default=4, ge=1)


class RunConfig(Section):
    """A whole run. `sharing` is short for a role-to-policy table; explicit `[policies]` replace it."""

    name: str = "run"
    seed: int = Field(default=0, ge=0, lt=2**32)
    steps: int = Field(default=100, ge=0)
    token_budget: int | None = Field(default=None, ge=1)
    deterministic: bool = True
    sharing: Literal["shared", "isolated"] | None = None
    train_roles: tuple[str, ...] | None = None
    workflow: Component
    tasks: TasksConfig
    algorithm: Component
    model: PolicyConfig = PolicyConfig()
    policies: dict[str, PolicyConfig] = Field(default_factory=dict)
    roles: dict[str, RoleConfig] = Field(default_factory=dict)
    sampling: Sampling = Sampling()
    rollout: RolloutConfig = RolloutConfig()
    schedule: Schedule = Schedule()
    learner: LearnerConfig = LearnerConfig()
    engine: EngineConfig = EngineConfig()
    grading: GradingConfig = GradingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    parity: ParityConfig = ParityConfig()
    dynamics: DynamicsSettings = DynamicsSettings()
    interventions: dict[str, Intervention] = Field(default_factory=dict)
    partners: PartnerSettings = PartnerSettings()
    tracking: TrackingConfig = TrackingConfig()

    @model_validator(mode="after")
    def _one_table(self) -> RunConfig:
        if self.policies and self.sharing is not None:
            raise ValueError(
                f"sharing = {self.sharing!r} and a [policies] table contradict each other; keep one of them"
            )
        if self.policies and self.model != PolicyConfig():
            raise ValueError("[model] is read only under `sharing`; give each policy of [policies] its own model")
        for name, row in [*self.policies.items(), ("model", self.model)]:
            if (unread := row.unread) is not None:
                what = f"{unread!r} table" if unread in ("learner", "lora") else repr(unread)
                raise ValueError(
                    f"policy {name!r} has kind = {row.kind!r}, and nothing reads its {what}; "
                    f"{UNREAD.get(unread, 'leave it out')}"
                )
            if row.kind == "api" and (row.endpoint is None or row.model == _UNSAID.model):
                missing = "endpoint" if row.endpoint is None else "model"
                raise ValueError(f"policy {name!r} has kind = 'api' and no {missing!r}; set both, such as {EXAMPLE}")
        named = {role: role_config.policy for role, role_config in self.roles.items() if role_config.policy}
        if named and not self.policies:
            role, policy = next(iter(named.items()))
            raise ValueError(f"roles.{role}.policy = {policy!r} needs a [policies.{policy}] table, and there is none")
        return self

    @model_validator(mode="after")
    def _one_promise(self) -> RunConfig:
        if self.deterministic and self.checkpoint.keep_inflight:
            raise ValueError(
                "deterministic = true does the step in flight again from its start, and checkpoint.keep_inflight "
                "(--keep-inflight) goes on with it; set deterministic = false, or leave keep_inflight out"
            )
        served = [name for name, row in [*self.policies.items(), ("model", self.model)] if row.kind == "api"]
        if self.deterministic and served:
            raise ValueError(
                f"policy {served[0]!r} is served by an endpoint, which need not write the same text twice; set "
                "deterministic = false"
            )
        return self

    @model_validator(mode="after")
    def _one_watch(self) -> RunConfig:
        if self.evaluation.on_cliff != "warn" and not (self.evaluation.every_steps and self.tasks.sizes.validation):
            what = "tasks.sizes.validation" if self.evaluation.every_steps else "evaluation.every_steps"
            raise ValueError(
                f"evaluation.on_cliff is {self.evaluation.on_cliff!r} and {what} is 0: nothing would see a cliff; set "
                "it above 0"
            )
        return self

    def role_sampling(self, role: str) -> Sampling:
        """The sampling of one role in training."""
        return self.roles.get(role, RoleConfig()).sampling.apply(self.sampling)

    def eval_sampling(self, role: str, *, greedy: bool = False) -> Sampling:
        """The sampling of one role in validation and evaluation."""
        sampling = self.evaluation.sampling.apply(self.role_sampling(role))
        return replace(sampling, temperature=0.0, top_p=1.0, top_k=0) if greedy else sampling
