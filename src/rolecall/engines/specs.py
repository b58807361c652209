"""What a policy is made of, in words that need no torch: shared by the engines, the learner and the policy table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from rolecall.errors import ConfigError, nearest

PolicyKind = Literal["model", "adapter", "frozen", "api"]

BUILTIN_PREFIX = "builtin:"
BUILTIN_ROOT = Path(__file__).resolve().parent.parent / "models"

HUB_ID = re.compile(r"^[\w][\w.-]*(/[\w][\w.-]*)?$")


@dataclass(frozen=True, kw_only=True, slots=True)
class LoraSpec:
    """The shape of a LoRA adapter: `y = W x + (alpha / rank) B (A x)` on every linear layer whose last name is in
    `target_modules`; `("all-linear",)` means all linear layers but the LM head.

    >>> LoraSpec(rank=8, alpha=16.0).scaling
    2.0
    """

    rank: int = 16
    alpha: float = 32.0
    target_modules: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ConfigError(f"lora.rank is {self.rank}; it must be at least 1")
        if not self.target_modules:
            raise ConfigError('lora.target_modules is empty; name the layers to adapt, or use ["all-linear"]')

    @property
    def scaling(self) -> float:
        return self.alpha / self.rank


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestSettings:
    """How an endpoint is asked. `timeout_s` bounds one attempt at one reply; a request that finds the endpoint busy,
    broken or silent is made again up to `max_retries` times, after 0.5, 1, 2, ... seconds (at most `max_wait_s`), or
    after as long as the endpoint says in `Retry-After`.

    `max_tokens_key` is the name under which the limit on a reply is sent; what `omit` names ("seed", "top_p", ...) is
    not sent, for endpoints that refuse it.
    """

    max_concurrent: int = 64
    timeout_s: float = 600.0
    max_retries: int = 4
    max_wait_s: float = 120.0
    max_tokens_key: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    omit: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, least in (("max_concurrent", 1), ("max_retries", 0)):
            if getattr(self, name) < least:
                raise ConfigError(f"requests.{name} is {getattr(self, name)}; it must be at least {least}")
        for name in ("timeout_s", "max_wait_s"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"requests.{name} is {getattr(self, name)}; wanted seconds, more than 0")


@dataclass(frozen=True, kw_only=True, slots=True)
class EndpointSpec:
    """An OpenAI-compatible endpoint: `url` is what stands before `/chat/completions`. The key is in the environment
    variable `api_key_env` and nowhere else. `extra` goes into the body of every request. `opens_reasoning`: the model's
    template begins the reasoning itself, so that a reply holds `</think>` alone, or neither mark when it was cut off.

    >>> EndpointSpec(url="http://localhost:8000/v1/").address
    'http://localhost:8000/v1/chat/completions'
    """

    url: str
    api_key_env: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    opens_reasoning: bool = False
    requests: RequestSettings = RequestSettings()

    def __post_init__(self) -> None:
        shown = self.url.rpartition("@")[2]  # without a name and a password
        try:
            parts = urlsplit(self.url)
            whole = bool(parts.hostname) and parts.port != 0  # both raise where the text has none
        except ValueError as error:
            raise ConfigError(f"endpoint {shown!r} is no URL such as 'http://localhost:8000/v1': {error}") from None
        if parts.scheme not in ("http", "https") or not whole or parts.query or parts.fragment:
            raise ConfigError(f"endpoint {shown!r} is no URL such as 'http://localhost:8000/v1'")
        if parts.username or parts.password:
            raise ConfigError(
                f"the endpoint at {parts.hostname!r} has a name or password in its URL, which a run would store; put "
                "the key into an environment variable, and its name into api_key_env"
            )
        for key in ("model", "messages", "stream", "n", "seed"):
            if key in self.extra:
                raise ConfigError(
                    f"endpoint {self.url!r}: extra sets {key!r}, which rolecall sends itself; leave it out"
                )

    @property
    def address(self) -> str:
        return f"{self.url.rstrip('/')}/chat/completions"


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicySpec:
    """One policy: a whole `model`, an `adapter` on the base `model`, a `frozen` one (a model, or a model and a saved
    adapter), or an `api` one, which an `endpoint` serves. `model` is a folder, a hub id, or `builtin:tiny`, and of an
    endpoint the name that it goes by there; `adapter` is a PEFT folder: where an adapter policy starts, or what a
    frozen policy adds to its base.

    >>> PolicySpec(name="solver", kind="adapter", model="builtin:tiny", lora=LoraSpec(rank=8)).trained
    True
    """

    name: str
    kind: PolicyKind
    model: str
    lora: LoraSpec | None = None
    adapter: str | None = None
    dtype: str = "float32"
    endpoint: EndpointSpec | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("model", "adapter", "frozen", "api"):
            raise ConfigError(
                f"policy {self.name!r} has kind {self.kind!r}; wanted 'model', 'adapter', 'frozen' or 'api'"
            )
        if (self.kind == "api") is not (self.endpoint is not None):
            wanted = (
                "an endpoint, as kind = 'api' asks for" if self.endpoint is None else "no endpoint, or kind = 'api'"
            )
            raise ConfigError(f"policy {self.name!r} has kind {self.kind!r}; wanted {wanted}")
        if self.kind == "model" and (self.lora is not None or self.adapter is not None):
            raise ConfigError(f"policy {self.name!r} is a whole model but names an adapter; use kind = 'adapter'")
        if self.kind == "adapter" and self.lora is None and self.adapter is None:
            raise ConfigError(
                f"policy {self.name!r} is an adapter without a lora table and without a saved adapter; "
                "give it its shape, such as lora = { rank = 16, alpha = 32.0 }"
            )

    @property
    def trained(self) -> bool:
        return self.kind in ("model", "adapter")

    @property
    def local(self) -> bool:
        """Whether its weights are on this machine."""
        return self.kind != "api"


def resolve_model(model: str) -> str:
    """Where a model is: the folder of a built-in or local model, or the hub id as it stands. `ConfigError` when a named
    folder does not exist or holds no model."""
    if model.startswith(BUILTIN_PREFIX):
        name = model.removeprefix(BUILTIN_PREFIX)
        folder = BUILTIN_ROOT / name
        if not (folder / "config.json").is_file():
            shipped = [path.parent.name for path in sorted(BUILTIN_ROOT.glob("*/config.json"))]
            raise ConfigError(f"model {model!r}: rolecall ships no built-in model {name!r}{nearest(name, shipped)}")
        return str(folder)
    folder = Path(model).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ConfigError(f"model {model!r} is a folder without config.json; wanted one saved by save_pretrained")
        return str(folder)
    if not HUB_ID.match(model):
        raise ConfigError(
            f"model {model!r} is no folder and no hub id; wanted a path, 'owner/name' or 'builtin:tiny'. A "
            "folder that a recipe names is made first, as the recipe's first lines say"
        )
    return model


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalSettings:
    """How the local engine runs. `mode="processes"` starts `workers` processes of `threads_per_worker` threads, each
    with a copy of all weights; `"inline"` runs in a thread of this process. Limits are per worker and base model.

    `deterministic`: one list of requests is one wave, split over the workers by a rule that depends on the list alone,
    and nothing joins it: the same list under the same weights gives the same completions bit for bit. Otherwise a
    request joins the running batch at the next token.
    """

    mode: Literal["processes", "inline"] = "processes"
    workers: int = 2
    threads_per_worker: int = 1
    deterministic: bool = False
    max_batch_rows: int = 256
    max_batch_tokens: int = 1 << 17  # rows times columns in the key-value cache
    prefill_tokens: int = 1 << 13  # rows times columns run through the model at once when requests join
    fast: bool = True  # the quick forward pass where a model has one; False: always the model's own

    def __post_init__(self) -> None:
        if self.mode not in ("processes", "inline"):
            raise ConfigError(f"engine.mode is {self.mode!r}; wanted 'processes' or 'inline'")
        for name in ("workers", "threads_per_worker", "max_batch_rows", "max_batch_tokens", "prefill_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"engine.{name} is {getattr(self, name)}; it must be at least 1")

    @property
    def num_workers(self) -> int:
        return self.workers if self.mode == "processes" else 1
