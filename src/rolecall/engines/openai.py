"""An engine for OpenAI-compatible endpoints: frozen roles, and evaluation against models that are served elsewhere.

Requests run on an event loop of the engine's own, in a thread, so that connections outlive the loops of the episodes.
What an endpoint says of one request (an unknown model, a prompt that is too long) fails that request; an endpoint that
cannot be reached when the engine starts is an error at once.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx2

from rolecall.engines.base import Reply, Request
from rolecall.engines.endpoint_words import error_code, error_of, printable, retry_after, storable
from rolecall.engines.specs import PolicySpec
from rolecall.errors import ConfigError, EngineError, boundary, nearest
from rolecall.records import Completion, EndpointReply, Stop

T = TypeVar("T")

CONNECT_S = 10.0
GREETING_S = 30.0
FIRST_WAIT_S = 0.5
MAX_WORDS = 300
SEED_BITS = 31  # what every server takes
MOST_TOKENS = 2**40  # a larger count is none
THINK = ("<think>", "</think>")
STOPS = {
    "stop": Stop.EOS,
    "eos_token": Stop.EOS,
    "stop_sequence": Stop.EOS,
    "length": Stop.LENGTH,
    "content_filter": Stop.ABORT,
    "abort": Stop.ABORT,
}
PASSING = (408, 409, 425, 429)
"""Answers below 500 after which the same request may succeed."""


class OpenAIEngine:
    """See `engines.base.Engine`. The constructor returns when every endpoint has answered once."""

    def __init__(self, specs: Sequence[PolicySpec]) -> None:
        self.endpoints = {spec.name: Endpoint(spec) for spec in specs}
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="rolecall-endpoints", daemon=True)
        self.thread.start()
        try:
            for endpoint in self.endpoints.values():
                self._submit(endpoint.greet()).result()
        except BaseException:
            self.shut_down()
            raise

    async def generate(self, requests: Sequence[Request]) -> list[Reply]:
        """See `Engine.generate`. A cancelled call stops its requests."""
        return list(await asyncio.gather(*[asyncio.wrap_future(self._submit(self._reply(one))) for one in requests]))

    async def load(self, policy: str, version: int, weights: Mapping[str, Any]) -> None:
        raise EngineError(f"policy {policy!r} is served by an endpoint and loads no weights")

    async def score(
        self, policy: str, sequences: Sequence[tuple[Sequence[int], Sequence[int]]], temperature: float = 1.0
    ) -> list[list[float]]:
        raise EngineError(f"policy {policy!r} is served by an endpoint, which scores no tokens")

    def version(self, policy: str) -> int:
        self._known(policy)
        return 0

    async def close(self) -> None:
        await asyncio.to_thread(self.shut_down)

    def shut_down(self) -> None:
        """What `close` does, for places without an event loop."""
        if not self.thread.is_alive():
            return
        self._submit(self._end()).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for endpoint in self.endpoints.values():
            await endpoint.client.aclose()

    def _submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def _known(self, policy: str) -> Endpoint:
        if policy not in self.endpoints:
            raise EngineError(f"unknown policy {policy!r}{nearest(policy, self.endpoints)}")
        return self.endpoints[policy]

    async def _reply(self, request: Request) -> Reply:
        try:
            with boundary(EngineError, f"the request for {request.key}"):
                return await self._known(request.policy).complete(request)
        except EngineError as error:
            return error


@dataclass(kw_only=True, slots=True)
class Counts:
    """What an endpoint was asked so far: attempts, and those among them that were made again."""

    attempts: int = 0
    retries: int = 0


class Passing(EngineError):
    """An attempt that failed and may succeed when it is made again, after `wait_s` seconds if the endpoint says so."""

    def __init__(self, words: str, wait_s: float | None = None) -> None:
        super().__init__(words)
        self.wait_s = wait_s


class Endpoint:
    """One policy at its endpoint: the connections, how many requests are under way, and when it wants the next."""

    def __init__(self, spec: PolicySpec) -> None:
        assert spec.endpoint is not None
        self.spec, self.endpoint, self.settings = spec, spec.endpoint, spec.endpoint.requests
        self.where = f"endpoint {self.endpoint.url!r} (policy {spec.name!r})"
        self.key = self._key()
        self.slots = asyncio.Semaphore(self.settings.max_concurrent)
        self.not_before = 0.0  # by time.monotonic
        self.counts = Counts()
        self.spread = random.Random()  # so that requests that failed together do not come back together
        self.client = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {self.key}"} if self.key else {},
            timeout=httpx2.Timeout(None, connect=min(CONNECT_S, self.settings.timeout_s)),
            limits=httpx2.Limits(max_connections=self.settings.max_concurrent),
        )

    def _key(self) -> str | None:
        name = self.endpoint.api_key_env
        if name is None:
            return None
        key = os.environ.get(name, "").strip()
        if not key:
            raise ConfigError(f"{self.where}: the environment variable {name} is not set; put the endpoint's key there")
        if not (key.isascii() and key.isprintable()):
            raise ConfigError(
                f"{self.where}: the environment variable {name} holds characters that no key has (a line break, or "
                "letters beyond ASCII); put the key there and nothing else"
            )
        return key

    async def greet(self) -> None:
        """See that somebody answers, and takes the key; `EngineError` with what to do."""
        await self._persist("GET", f"{self.endpoint.url.rstrip('/')}/models", None, greeting=True)

    async def complete(self, request: Request) -> Completion:
        """One reply. `EngineError` in the endpoint's words when it refuses, or after the last attempt."""
        if request.prefix is not None:
            raise EngineError(f"{self.where} cannot go on with a completion begun earlier, as {request.key} asks")
        body = request_body(self.spec, request)
        async with self.slots:
            data = await self._persist("POST", self.endpoint.address, body)
        try:
            return completion_of(data, self.endpoint.opens_reasoning)
        except EngineError as error:
            raise EngineError(f"the reply of {self.where}: {self._hide(str(error))}") from None

    async def _persist(self, method: str, url: str, body: Mapping[str, Any] | None, *, greeting: bool = False) -> Any:
        """Ask until there is an answer, or the attempts are used up."""
        for attempt in range(self.settings.max_retries + 1):
            await asyncio.sleep(max(0.0, self.not_before - time.monotonic()))
            try:
                return await self._ask(method, url, body, greeting)
            except Passing as failed:
                wait_s = self._wait_s(failed, attempt)
                if attempt == self.settings.max_retries or wait_s > self.settings.max_wait_s:
                    times = "once" if attempt == 0 else f"{attempt + 1} times"
                    longer = f"; it asks to wait {wait_s:g} s, and requests.max_wait_s is {self.settings.max_wait_s:g}"
                    too_long = longer if wait_s > self.settings.max_wait_s else ""
                    raise EngineError(f"{failed} (asked {times}){too_long}") from failed
                self.counts.retries += 1
                if failed.wait_s is not None:  # it speaks of the endpoint, not of this request alone
                    self.not_before = max(self.not_before, time.monotonic() + wait_s)
                else:
                    await asyncio.sleep(wait_s)
        raise AssertionError("the last attempt returns or raises")

    def _wait_s(self, failed: Passing, attempt: int) -> float:
        if failed.wait_s is not None:
            return failed.wait_s
        longest: float = min(self.settings.max_wait_s, FIRST_WAIT_S * 2**attempt)
        return longest * self.spread.uniform(0.5, 1.0)

    async def _ask(self, method: str, url: str, body: Mapping[str, Any] | None, greeting: bool) -> Any:
        """One attempt: the JSON of the answer, `Passing`, or `EngineError`."""
        self.counts.attempts += 1
        limit = min(GREETING_S, self.settings.timeout_s) if greeting else self.settings.timeout_s
        try:
            async with asyncio.timeout(limit):
                response = await self.client.request(method, url, json=body)
        except TimeoutError:
            raise Passing(f"{self.where} gave no reply within {limit:g} s (requests.timeout_s)") from None
        except httpx2.TransportError as error:
            raise Passing(f"{self.where} cannot be reached: {self._hide(str(error)) or type(error).__name__}") from None
        except httpx2.InvalidURL as error:
            raise EngineError(f"{self.where} has no valid address: {error}") from None
        except httpx2.RequestError as error:  # what came is not what its headers say
            raise Passing(f"{self.where} sent what cannot be read: {self._hide(str(error))}") from None
        status = response.status_code
        if status in PASSING or status >= 500:
            wait_s = retry_after(response.headers.get("retry-after"))
            words = f"{self.where} answered {status}: {self._words(response)}"
            if error_code(response) == "insufficient_quota":
                raise EngineError(words)
            raise Passing(words, wait_s)
        if status in (401, 403):
            name = self.endpoint.api_key_env
            hint = (
                f"is the key in {name} the right one?" if name else "set api_key_env to the variable that has its key"
            )
            raise EngineError(f"{self.where} answered {status}: {self._words(response)}; {hint}")
        if greeting and not 300 <= status < 400:
            return None  # not every endpoint lists its models
        if status >= 300:
            raise EngineError(f"{self.where} answered {status}: {self._words(response)}")
        try:
            return response.json()
        except (ValueError, RecursionError):
            raise Passing(f"{self.where} answered {status} with no JSON: {self._words(response)}") from None

    def _words(self, response: httpx2.Response) -> str:
        """What the endpoint says is wrong: its error message, where it goes instead, or how its answer begins."""
        if "location" in response.headers:
            return f"go to {printable(response.headers['location'])}"
        said = error_of(response)
        message = said.get("message") if isinstance(said, Mapping) else said
        text = message if isinstance(message, str) and message.strip() else response.text
        text = printable(" ".join(text.split()))
        return self._hide(text[:MAX_WORDS] + ("..." if len(text) > MAX_WORDS else "")) or "(nothing)"

    def _hide(self, text: str) -> str:
        """A text without the key, should the endpoint repeat it."""
        return text.replace(self.key, "***") if self.key else text


def request_body(spec: PolicySpec, request: Request) -> dict[str, Any]:
    """The body of a chat completion; `extra` has the last word."""
    assert spec.endpoint is not None
    sampling, settings = request.sampling, spec.endpoint.requests
    body: dict[str, Any] = {
        "model": spec.model,
        "messages": [dict(message) for message in request.messages],
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        settings.max_tokens_key: sampling.max_tokens,
        "seed": request.seed % 2**SEED_BITS,
    }
    if sampling.top_k:
        body["top_k"] = sampling.top_k
    return {name: value for name, value in body.items() if name not in settings.omit} | dict(spec.endpoint.extra)


def completion_of(data: Any, opens_reasoning: bool = False) -> Completion:
    """The completion in an answer; `EngineError` when the answer has none."""
    choices = _part(data, "choices", list)
    choice: Mapping[str, Any] = choices[0] if choices and isinstance(choices[0], dict) else {}
    message = _part(choice, "message", dict)
    content, reason = message.get("content"), choice.get("finish_reason")
    if not isinstance(content, str | None):
        raise EngineError(f"its content is {type(content).__name__} {content!r:.80}; wanted a text")
    if not isinstance(reason, str) or reason not in STOPS:
        raise EngineError(f"its finish_reason is {reason!r:.40}; wanted one of {', '.join(map(repr, STOPS))}")
    stop = STOPS[reason]
    fields = (message.get(name) for name in ("reasoning_content", "reasoning"))
    apart = next((said for said in fields if isinstance(said, str) and said), "")
    inside, text = split_reasoning(content or "", opens_reasoning and not apart)
    if apart and not content and stop is not Stop.EOS:
        text = None
    said = data.get("usage")
    usage: Mapping[str, Any] = said if isinstance(said, Mapping) else {}
    reply = EndpointReply(
        text=None if text is None else storable(text),
        reasoning=storable(apart + inside),
        num_tokens=_count(usage.get("completion_tokens")),
        num_prompt_tokens=_count(usage.get("prompt_tokens")),
    )
    return Completion(token_ids=(), logprobs=(), versions=(), stop=stop, endpoint=reply)


def split_reasoning(content: str, opened: bool) -> tuple[str, str | None]:
    """The reasoning in a content that holds its marks, and the text after it (None: the reasoning did not end).

    >>> split_reasoning("<think>2+2</think> 4", opened=False)
    ('2+2', '4')
    """
    start, end = THINK
    if end in content:
        reasoning, _, text = content.rpartition(end)
        return reasoning.strip().removeprefix(start), text.strip()
    if opened or content.lstrip().startswith(start):
        return content.strip().removeprefix(start), None
    return "", content


def _part(data: Any, name: str, kind: type) -> Any:
    found = data.get(name) if isinstance(data, Mapping) else None
    if not isinstance(found, kind):
        raise EngineError(f"it holds no chat completion: {name!r} is {found!r:.80} in {data!r:.200}")
    return found


def _count(value: Any) -> int | None:
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS
    return value if good else None
