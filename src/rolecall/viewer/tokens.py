"""The tokens of one turn: ids, pieces of text, log-probabilities, and whether training used them.

A tokenizer is loaded when the first token view asks for it, from this machine alone. Where none is found the view
shows ids and says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

from rolecall.errors import RolecallError, boundary
from rolecall.viewer.metrics import finite

BUILTIN = "builtin:"


class Tokenizer(Protocol):
    """What the view needs of a tokenizer."""

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str: ...

    def id_to_token(self, token_id: int) -> str | None: ...


class TokenizerMissing(RolecallError):
    """A tokenizer that this machine does not have, or that cannot be read."""

    kind = "tokenizer"


def token_view(
    turn: Mapping[str, Any], *, config: Mapping[str, Any], source: str, advantages: Mapping[str, float]
) -> dict[str, Any]:
    """Prompt tokens, then completion tokens, in parallel lists; a prompt token has no log-probability."""
    completion = turn["completion"]
    if completion.get("endpoint"):
        return endpoint_view(turn, config=config, source=source, advantages=advantages)
    num_prompt = len(turn["prompt_ids"])
    ids = [*turn["prompt_ids"], *completion["token_ids"]]
    trained, why = training_use(turn, config=config, source=source, advantages=advantages)
    found: dict[str, Any] = {
        "ids": ids,
        "num_prompt": num_prompt,
        "logprobs": [None] * num_prompt + [finite(value) for value in completion["logprobs"]],
        "versions": [None] * num_prompt + list(completion["versions"]),
        "trained": trained,
        "why": why,
        "pieces": None,
        "problem": None,
    }
    model = model_of(turn["policy"], config)
    try:
        found["pieces"] = pieces(tokenizer(model), ids)
    except TokenizerMissing as error:
        found["problem"] = f"token ids without their text: {error}"
    return found


def endpoint_view(
    turn: Mapping[str, Any], *, config: Mapping[str, Any], source: str, advantages: Mapping[str, float]
) -> dict[str, Any]:
    """The view of a turn that an endpoint wrote: it has no tokens."""
    trained, why = training_use(turn, config=config, source=source, advantages=advantages)
    lists: dict[str, Any] = {name: [] for name in ("ids", "logprobs", "versions")}
    problem = "an endpoint returned this text: only it knows the tokens"
    return {**lists, "num_prompt": 0, "trained": trained, "why": why, "pieces": None, "problem": problem}


def training_use(
    turn: Mapping[str, Any], *, config: Mapping[str, Any], source: str, advantages: Mapping[str, float]
) -> tuple[bool, str]:
    """Whether the turn's completion moved weights, and the reason in words. Prompt tokens are never trained."""
    role, policy = turn["key"][0], turn["policy"]
    train_roles = config.get("train_roles")
    kind = config.get("policies", {}).get(policy, {}).get("kind") or config.get("model", {}).get("kind", "model")
    advantage = advantages.get(turn["id"])
    if source != "training":
        return False, "this is an evaluation; nothing in it is trained"
    if train_roles is not None and role not in train_roles:
        return False, f"train_roles leaves the {role} out"
    if policy in earlier_versions([*config.get("policies", {}), "shared", role], config):
        return False, f"an earlier version of the policy played here as a partner ({policy})"
    if kind == "frozen":
        return False, f"the policy {policy} is frozen"
    if kind == "api":
        return False, f"an endpoint serves the policy {policy}"
    if advantage is None:
        return False, "the turn has no advantage, so it is in no sample"
    if advantage == 0:
        return True, "in the batch with advantage 0: it adds nothing to the policy gradient"
    return True, f"each completion token is trained with advantage {advantage:+.3f}".replace("-", "−")


def model_of(policy: str, config: Mapping[str, Any]) -> str:
    """The model, and so the tokenizer, of a policy."""
    names = earlier_versions(config.get("policies", {}), config)
    table = config.get("policies", {}).get(names.get(policy, policy), {})
    return str(table.get("model") or config.get("model", {}).get("model", ""))


def earlier_versions(policies: Iterable[str], config: Mapping[str, Any]) -> dict[str, str]:
    """The names under which earlier versions of these policies play as partners, and whose they are."""
    slots = range(int(config.get("partners", {}).get("slots", 0)))
    return {f"{policy}@memory{slot}": policy for policy in policies for slot in slots}


@lru_cache(maxsize=8)
def tokenizer(model: str) -> Tokenizer:
    """The tokenizer of a model folder, a built-in model, or a model in this machine's hub cache; `TokenizerMissing`."""
    if not model:
        raise TokenizerMissing("the run's configuration names no model")
    with boundary(TokenizerMissing, f"reading the tokenizer of {model}"):
        from tokenizers import Tokenizer as Fast

        return Fast.from_file(str(_tokenizer_file(model)))


def pieces(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """The text of each token. A token that is a part of one character has no text of its own: its stored form stands
    for it."""
    found = []
    for token_id in ids:
        text = tokenizer.decode([token_id], skip_special_tokens=False)
        if not text or "\ufffd" in text:
            text = tokenizer.id_to_token(token_id) or f"<{token_id}>"
        found.append(text)
    return found


def _tokenizer_file(model: str) -> Path:
    if model.startswith(BUILTIN):
        path = Path(str(files("rolecall.models"))) / model.removeprefix(BUILTIN) / "tokenizer.json"
    elif Path(model).is_dir():
        path = Path(model) / "tokenizer.json"
    else:
        from huggingface_hub import try_to_load_from_cache

        cached = try_to_load_from_cache(model, "tokenizer.json")
        if not isinstance(cached, str):
            raise TokenizerMissing(f"the model {model!r} is neither a folder here nor in the hub's cache")
        path = Path(cached)
    if not path.is_file():
        raise TokenizerMissing(f"{model!r} has no tokenizer.json here")
    return path
