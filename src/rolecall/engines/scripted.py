"""An engine that replies from a function: for tests, examples and simulations. No model, no torch."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rolecall.engines.base import Reply, Request
from rolecall.errors import EngineError, RolecallError, boundary, nearest
from rolecall.records import Completion, Stop

END_ID = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class Scripted:
    """A reply with more said about it: a log-probability for each token, and whether its end was cut off.

    >>> Scripted(text="7", cut_off=True).logprob
    -1.0
    """

    text: str
    logprob: float = -1.0
    cut_off: bool = False


Answer = str | Scripted | Completion | EngineError
ScoreFn = Callable[[str, Sequence[int], Sequence[int], float], Sequence[float]]


class ScriptedEngine:
    """Replies `fn(request)`: a text, a `Scripted` text, a `Completion` as it is, or an `EngineError` for this request.

    A text becomes its bytes (or `encode(text)`) and the request's first end id (else 256). A reply longer than
    `sampling.max_tokens`, which bounds a continued completion as a whole, is cut off there. `latency(request)` is the
    seconds that a reply takes. `policies` maps the known policies to their first version; None knows every policy, at
    version 0. Log-probabilities are `Scripted.logprob`, and `score` gives `score_fn(...)` or -1 for every token.
    """

    def __init__(
        self,
        fn: Callable[[Request], Answer],
        *,
        latency: Callable[[Request], float] | None = None,
        policies: Mapping[str, int] | None = None,
        encode: Callable[[str], Sequence[int]] | None = None,
        score_fn: ScoreFn | None = None,
    ) -> None:
        self.fn = fn
        self.latency = latency
        self.encode = encode if encode is not None else lambda text: tuple(text.encode())
        self.score_fn = score_fn
        self.weights: dict[str, Mapping[str, Any]] = {}
        self.num_calls = 0
        self.num_batches = 0
        self.calls_by_role: Counter[str] = Counter()
        self.batch_sizes: list[int] = []
        self.closed = False
        self._open = policies is None
        self._versions: dict[str, int] = dict(policies or {})

    async def generate(self, requests: Sequence[Request]) -> list[Reply]:
        if self.closed:
            raise EngineError("the scripted engine is closed; make a new one")
        self.num_calls += len(requests)
        self.num_batches += 1
        self.batch_sizes.append(len(requests))
        for request in requests:
            self.calls_by_role[request.key.role] += 1
        if self.latency is None:
            return [self._reply(request) for request in requests]
        return list(await asyncio.gather(*[self._late(request, self.latency(request)) for request in requests]))

    async def load(self, policy: str, version: int, weights: Mapping[str, Any]) -> None:
        self._check(policy)
        if version < 0:
            raise EngineError(f"version {version} of policy {policy!r}; wanted 0 or more")
        self._versions[policy] = version
        self.weights[policy] = weights

    async def score(
        self, policy: str, sequences: Sequence[tuple[Sequence[int], Sequence[int]]], temperature: float = 1.0
    ) -> list[list[float]]:
        self._check(policy)
        if self.score_fn is None:
            return [[-1.0] * len(completion) for _, completion in sequences]
        return [list(self.score_fn(policy, prompt, completion, temperature)) for prompt, completion in sequences]

    def version(self, policy: str) -> int:
        self._check(policy)
        return self._versions.get(policy, 0)

    async def close(self) -> None:
        self.closed = True

    async def _late(self, request: Request, seconds: float) -> Reply:
        await asyncio.sleep(seconds)
        return self._reply(request)

    def _check(self, policy: str) -> None:
        if not self._open and policy not in self._versions:
            raise EngineError(f"the engine has no policy {policy!r}{nearest(policy, self._versions)}")

    def _reply(self, request: Request) -> Reply:
        try:
            self._check(request.policy)
            with boundary(EngineError, f"the scripted reply to {request.key}"):
                answer = self.fn(request)
        except EngineError as error:
            return error
        except RolecallError as error:
            return EngineError(str(error))
        if isinstance(answer, (Completion, EngineError)):
            return answer
        said = Scripted(text=answer) if isinstance(answer, str) else answer
        if not isinstance(said, Scripted):
            return EngineError(
                f"the scripted reply to {request.key} is {said!r:.60}; "
                f"wanted a string, Scripted, Completion or EngineError"
            )
        return self._completion(request, said)

    def _completion(self, request: Request, said: Scripted) -> Completion:
        """`said` in tokens, after the prefix that the request continues, within its limit."""
        version = self.version(request.policy)
        end = () if said.cut_off else (request.end_ids[0] if request.end_ids else END_ID,)
        ids = (*self.encode(said.text), *end)
        kept: tuple[tuple[int, ...], tuple[float, ...], tuple[int, ...]] = ((), (), ())
        if request.prefix is not None:
            kept = (request.prefix.token_ids, request.prefix.logprobs, request.prefix.versions)
            ids = ids[len(kept[0]) :]
        room = request.sampling.max_tokens - len(kept[0])
        stop = Stop.LENGTH if said.cut_off or len(ids) > room else Stop.EOS
        ids = ids[: max(0, room)]
        return Completion(
            token_ids=(*kept[0], *ids),
            logprobs=(*kept[1], *[said.logprob] * len(ids)),
            versions=(*kept[2], *[version] * len(ids)),
            stop=stop,
        )
