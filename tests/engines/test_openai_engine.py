"""The engine for endpoints, against a real server on this machine: what is sent, what is read, and what fails how."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from endpoint_server import Answer, Asked, chat, error, free_port, hang, serve
from rolecall.engines.base import Request
from rolecall.engines.openai import OpenAIEngine, completion_of, retry_after, split_reasoning
from rolecall.engines.specs import EndpointSpec, PolicySpec, RequestSettings
from rolecall.errors import ConfigError, EngineError
from rolecall.records import Completion, Key, Sampling, Stop, Task

TASK = Task(id="t", question="2+2", answer="4")
FAST = RequestSettings(timeout_s=5.0, max_retries=2, max_wait_s=0.2)


def request(text: str = "2+2", policy: str = "p", **changes: Any) -> Request:
    asked = Request(
        policy=policy,
        prompt_ids=(1,),
        sampling=Sampling(temperature=0.6, top_p=0.95, max_tokens=64),
        seed=2**40 + 7,
        key=Key("solver", 0, 0),
        task=TASK,
        messages=({"role": "system", "content": "be brief"}, {"role": "user", "content": text}),
    )
    return replace(asked, **changes)


def spec(url: str, name: str = "p", requests: RequestSettings = FAST, **endpoint: Any) -> PolicySpec:
    return PolicySpec(name=name, kind="api", model="m", endpoint=EndpointSpec(url=url, requests=requests, **endpoint))


@contextmanager
def engine_of(*specs: PolicySpec) -> Iterator[OpenAIEngine]:
    engine = OpenAIEngine(specs)
    try:
        yield engine
    finally:
        engine.shut_down()


def ask(
    answer: Callable[[Asked], Answer], *requests: Request, settings: RequestSettings = FAST, **endpoint: Any
) -> tuple[list[Any], list[Asked]]:
    """The replies to requests, and what the server was asked."""
    with serve(answer) as server, engine_of(spec(server.url, requests=settings, **endpoint)) as engine:
        return asyncio.run(engine.generate(requests or (request(),))), server.asked


def failure(answer: Callable[[Asked], Answer], **options: Any) -> str:
    (reply,), _ = ask(answer, **options)
    assert isinstance(reply, EngineError), reply
    return str(reply)


# -- what is sent and what is read ------------------------------------------------------------------------------------


def test_a_request_carries_the_messages_and_the_sampling_of_the_role() -> None:
    (reply,), asked = ask(lambda _: "four it is")
    assert isinstance(reply, Completion)
    assert asked[0].body == {
        "model": "m",
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "2+2"}],
        "temperature": 0.6,
        "top_p": 0.95,
        "max_tokens": 64,
        "seed": (2**40 + 7) % 2**31,
    }
    assert "authorization" not in asked[0].headers


def test_a_reply_holds_the_text_and_the_endpoints_own_count_of_tokens() -> None:
    (reply,), _ = ask(lambda _: "four it is")
    assert (reply.token_ids, reply.logprobs, reply.versions, reply.stop) == ((), (), (), Stop.EOS)
    assert (reply.endpoint.text, reply.endpoint.reasoning) == ("four it is", "")
    assert (reply.num_tokens, reply.endpoint.num_prompt_tokens) == (3, 11)


def test_top_k_is_sent_when_it_is_on_and_extra_has_the_last_word() -> None:
    extra = {"chat_template_kwargs": {"enable_thinking": False}, "temperature": 1.0}
    settings = replace(FAST, omit=("seed", "top_p"), max_tokens_key="max_completion_tokens")
    one = request(sampling=Sampling(top_k=20, max_tokens=9, temperature=0.5))
    _, asked = ask(lambda _: "4", one, settings=settings, extra=extra)
    body = dict(asked[0].body)
    assert body.pop("messages")
    assert body == {"model": "m", "max_completion_tokens": 9, "top_k": 20, "temperature": 1.0, **extra}


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_in_a_field_of_its_own_is_kept_and_is_not_visible(field: str) -> None:
    (reply,), _ = ask(lambda _: chat("4", **{field: "2 and 2"}))
    assert (reply.endpoint.text, reply.endpoint.reasoning) == ("4", "2 and 2")


def test_reasoning_inside_the_content_is_not_visible_either() -> None:
    (reply,), _ = ask(lambda _: chat("<think>\n2 and 2\n</think>\n\n4"))
    assert reply.endpoint.text == "4"
    assert "2 and 2" in reply.endpoint.reasoning


@pytest.mark.parametrize(
    ("answer", "opened"),
    [
        (chat(None, "length", reasoning_content="2 and"), False),
        (chat("", "length", reasoning_content="2 and"), False),
        (chat("<think>2 and", "length"), False),
        (chat("2 and", "length"), True),
    ],
)
def test_a_reasoning_that_was_cut_off_leaves_no_visible_text(answer: Response, opened: bool) -> None:
    (reply,), _ = ask(lambda _: answer, opens_reasoning=opened)
    assert reply.stop is Stop.LENGTH
    assert reply.endpoint.text is None
    assert "2 and" in reply.endpoint.reasoning


def test_a_template_that_opens_the_reasoning_needs_only_the_closing_mark() -> None:
    assert split_reasoning("2 and 2</think>4", opened=True) == ("2 and 2", "4")
    assert split_reasoning("4", opened=False) == ("", "4")


@pytest.mark.parametrize(
    ("reason", "stop"), [("stop", Stop.EOS), ("length", Stop.LENGTH), ("content_filter", Stop.ABORT)]
)
def test_the_finish_reason_becomes_the_stop(reason: str, stop: Stop) -> None:
    (reply,), _ = ask(lambda _: chat("4", reason))
    assert reply.stop is stop


def test_an_answer_without_a_count_is_read_and_says_that_it_has_none() -> None:
    reply = completion_of({"choices": [{"message": {"content": "4"}, "finish_reason": "stop"}]})
    assert reply.endpoint is not None
    assert reply.endpoint.num_tokens is None
    assert reply.num_tokens == 0


def test_half_a_surrogate_pair_is_replaced_so_that_the_text_can_be_stored() -> None:
    reply = completion_of({"choices": [{"message": {"content": "\ud800"}, "finish_reason": "stop"}]})
    assert reply.endpoint is not None
    assert reply.endpoint.text == "?"


# -- what goes wrong --------------------------------------------------------------------------------------------------


def test_a_busy_endpoint_is_asked_again_after_as_long_as_it_says() -> None:
    def answer(asked: Asked) -> Answer:
        return error(429, "slow down", {"Retry-After": "0.15"}) if asked.number == 0 else "4"

    (reply,), asked = ask(answer)
    assert reply.endpoint.text == "4"
    assert asked[1].at - asked[0].at >= 0.15


def test_while_it_asks_to_wait_no_other_request_goes_to_it() -> None:
    async def answer(asked: Asked) -> Response:
        if asked.last == "busy" and asked.number < 2:
            return error(429, "slow down", {"Retry-After": "0.4"})
        await asyncio.sleep(0.1)
        return chat(asked.last)

    settings = replace(FAST, max_concurrent=2, max_wait_s=1.0)
    replies, asked = ask(answer, request("busy"), request("free"), request("next"), settings=settings)
    assert [reply.endpoint.text for reply in replies] == ["busy", "free", "next"]
    told = next(one.at for one in asked if one.last == "busy")
    assert next(one.at for one in asked if one.last == "next") - told >= 0.35


def test_a_wait_that_is_too_long_is_an_error_that_says_so() -> None:
    words = failure(lambda _: error(429, "come back tomorrow", {"Retry-After": "86400"}))
    assert "come back tomorrow" in words
    assert "86400 s" in words
    assert "max_wait_s" in words


def test_a_used_up_quota_is_not_asked_again() -> None:
    (reply,), asked = ask(lambda _: error(429, "You exceeded your quota", code="insufficient_quota"))
    assert isinstance(reply, EngineError)
    assert len(asked) == 1


def test_a_server_that_fails_is_asked_again_and_then_given_up_with_its_words() -> None:
    (reply,), asked = ask(lambda _: error(500, "CUDA error"))
    assert len(asked) == 3
    assert "answered 500: CUDA error (asked 3 times)" in str(reply)
    (reply,), asked = ask(lambda asked: error(503, "loading") if asked.number < 2 else "4")
    assert reply.endpoint.text == "4"


def test_a_reply_that_does_not_come_is_a_timeout_of_its_own() -> None:
    begun = time.monotonic()
    words = failure(lambda _: hang(), settings=replace(FAST, timeout_s=0.2, max_retries=1))
    assert "no reply within 0.2 s" in words
    assert "asked 2 times" in words
    assert time.monotonic() - begun < 25  # the server would answer after 30


def test_an_answer_that_is_no_json_is_asked_for_again_and_shown() -> None:
    (reply,), asked = ask(lambda _: PlainTextResponse("<html>a proxy</html>"))
    assert len(asked) == 3
    assert "no JSON: <html>a proxy</html>" in str(reply)
    (reply,), _ = ask(lambda asked: PlainTextResponse('{"choices": [') if asked.number == 0 else "4")
    assert reply.endpoint.text == "4"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([], "'choices' is None"),
        ({"error": {"message": "upstream down"}}, "upstream down"),
        ({"choices": []}, "'message' is None"),
        ({"choices": [{"message": {"content": ["a"]}, "finish_reason": "stop"}]}, "wanted a text"),
        ({"choices": [{"message": {"content": "a"}, "finish_reason": "tool_calls"}]}, "finish_reason is 'tool_calls'"),
        ({"choices": [{"message": {"content": "a"}, "finish_reason": ["stop"]}]}, "wanted one of 'stop'"),
        ({"choices": [{"message": {"content": "a"}}]}, "finish_reason is None"),
    ],
)
def test_json_that_is_no_completion_is_an_error_that_shows_it(data: Any, words: str) -> None:
    with pytest.raises(EngineError, match=words.replace("[", r"\[")):
        completion_of(data)


def test_a_refusal_is_told_in_the_endpoints_words_and_fails_its_own_request_alone() -> None:
    def answer(asked: Asked) -> Answer:
        return error(400, "maximum context length is 4096 tokens") if "long" in asked.last else "4"

    replies, asked = ask(answer, request("long"), request("short"))
    assert "answered 400: maximum context length is 4096 tokens" in str(replies[0])
    assert replies[1].endpoint.text == "4"
    assert len(asked) == 2


def test_a_redirect_names_the_address_that_would_do() -> None:
    with (
        serve(lambda _: "4", models=lambda: RedirectResponse("https://example.org/v1/models")) as server,
        pytest.raises(EngineError, match=r"answered 307: go to https://example\.org/v1/models"),
    ):
        OpenAIEngine([spec(server.url)])


def test_an_endpoint_that_is_not_there_is_an_error_when_the_engine_starts() -> None:
    url = f"http://127.0.0.1:{free_port()}/v1"
    before = threading.active_count()
    with pytest.raises(EngineError, match=rf"endpoint '{url}' \(policy 'p'\) cannot be reached.*asked 3 times"):
        OpenAIEngine([spec(url)])
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Response(b"no gzip", 200, {"content-encoding": "gzip"}), "sent what cannot be read: .*asked 3 times"),
        (Response(b"[" * 200_000, 503), r"answered 503: \[\[.*asked 3 times"),
        (Response(json.dumps({"error": {"message": "no \ud83d\x1b[31m"}}), 401), r"answered 401: no \ufffd\ufffd\[31m"),
    ],
)
def test_an_endpoint_that_greets_with_rubbish_is_told_and_no_traceback(answer: Response, words: str) -> None:
    with serve(lambda _: "4", models=lambda: answer) as server, pytest.raises(EngineError, match=words):
        OpenAIEngine([spec(server.url)])


def test_a_host_that_no_name_can_have_is_told() -> None:
    with pytest.raises(EngineError, match="has no valid address"):
        OpenAIEngine([spec("http://" + "ü" * 80 + "/v1")])


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Response(b"no gzip", 200, {"content-encoding": "gzip"}), "sent what cannot be read"),
        (Response(b"[" * 200_000), "with no JSON"),
        (Response(json.dumps({"error": {"message": "a \ud83d\x00"}}), 400), "answered 400: a \ufffd\ufffd"),
    ],
)
def test_rubbish_fails_its_request_in_words_that_a_file_can_hold(answer: Response, words: str) -> None:
    said = failure(lambda _: answer)
    assert words in said
    said.encode()


def test_a_count_of_tokens_beyond_all_measure_is_none() -> None:
    data = json.loads(bytes(chat("4").body))
    data["usage"]["completion_tokens"] = 10**30
    (reply,), _ = ask(lambda _: JSONResponse(data))
    assert reply.endpoint.num_tokens is None


@pytest.mark.parametrize("key", ["sk-a\nsk-b", "schlüssel"])
def test_a_key_that_no_header_can_carry_is_told_and_not_shown(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", key)
    with pytest.raises(ConfigError, match="SOME_KEY holds characters that no key has") as found:
        OpenAIEngine([spec("http://127.0.0.1:1/v1", api_key_env="SOME_KEY")])
    assert key not in str(found.value)


def test_an_endpoint_that_goes_away_fails_its_requests_and_not_the_engine() -> None:
    with serve(lambda _: "4") as server:
        engine = OpenAIEngine([spec(server.url)])
    (reply,) = asyncio.run(engine.generate([request()]))
    assert "cannot be reached" in str(reply)
    engine.shut_down()


def test_a_key_comes_from_the_environment_and_never_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-secret")
    words = failure(lambda _: error(401, "Incorrect API key provided: sk-secret"), api_key_env="SOME_KEY")
    assert "Incorrect API key provided: ***" in words
    assert "is the key in SOME_KEY the right one?" in words
    _, asked = ask(lambda _: "4", api_key_env="SOME_KEY")
    assert asked[0].headers["authorization"] == "Bearer sk-secret"


def test_a_key_that_is_not_set_and_one_that_is_missing_are_told_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOME_KEY", raising=False)
    with pytest.raises(ConfigError, match="the environment variable SOME_KEY is not set"):
        OpenAIEngine([spec("http://127.0.0.1:1/v1", api_key_env="SOME_KEY")])
    with (
        serve(lambda _: "4", models=lambda: error(401, "no key")) as server,
        pytest.raises(EngineError, match="answered 401: no key; set api_key_env"),
    ):
        OpenAIEngine([spec(server.url)])


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8000/v1",
        "ftp://a/v1",
        "http:///v1",
        "http://a/v1?key=1",
        "http://u:p@a/v1",
        "http://u:p@a/v1?key=1",
        "http://u:p@a:eighty/v1",
        "http://a:99999999/v1",
        "http://[::1/v1",
    ],
)
def test_a_url_that_is_none_or_that_holds_a_key_is_refused(url: str) -> None:
    with pytest.raises(ConfigError) as found:
        EndpointSpec(url=url)
    assert "u:p" not in str(found.value)


def test_extra_may_not_replace_what_makes_samples_differ() -> None:
    with pytest.raises(ConfigError, match="extra sets 'seed'"):
        EndpointSpec(url="http://a/v1", extra={"seed": 1})


# -- the engine's contract --------------------------------------------------------------------------------------------


def test_no_more_requests_than_allowed_are_under_way_and_replies_keep_their_order() -> None:
    async def answer(asked: Asked) -> Response:
        await asyncio.sleep(0.02)
        return chat(asked.last)

    many = [request(str(i)) for i in range(12)]
    with serve(answer) as server, engine_of(spec(server.url, requests=replace(FAST, max_concurrent=3))) as engine:
        replies = asyncio.run(engine.generate(many))
        assert [reply.endpoint.text for reply in replies] == [str(i) for i in range(12)]  # type: ignore[union-attr]
        assert server.busiest == 3


def test_connections_outlive_the_event_loops_that_ask() -> None:
    with serve(lambda _: "4") as server, engine_of(spec(server.url)) as engine:
        for _ in range(3):
            (reply,) = asyncio.run(engine.generate([request()]))
            assert isinstance(reply, Completion)


def test_a_cancelled_call_stops_its_request() -> None:
    async def cancelled(engine: OpenAIEngine) -> None:
        task = asyncio.create_task(engine.generate([request()]))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (reply,) = await engine.generate([request()])  # the only slot is free again
        assert isinstance(reply, Completion)

    def answer(asked: Asked) -> Answer:
        return hang() if asked.number == 0 else "4"

    with serve(answer) as server, engine_of(spec(server.url, requests=replace(FAST, max_concurrent=1))) as engine:
        asyncio.run(cancelled(engine))


def test_what_an_endpoint_cannot_do_is_an_error_that_names_the_policy() -> None:
    def raised(coroutine: Coroutine[Any, Any, Any]) -> str:
        with pytest.raises(EngineError) as found:
            asyncio.run(coroutine)
        return str(found.value)

    with serve(lambda _: "4") as server, engine_of(spec(server.url)) as engine:
        assert "loads no weights" in raised(engine.load("p", 1, {}))
        assert "scores no tokens" in raised(engine.score("p", [([1], [2])]))
        assert engine.version("p") == 0
        prefix = Completion(token_ids=(), logprobs=(), versions=(), stop=Stop.LENGTH)
        replies = asyncio.run(engine.generate([request(policy="q"), request(prefix=prefix), request()]))
        assert "unknown policy 'q'" in str(replies[0])
        assert "cannot go on with a completion" in str(replies[1])
        assert isinstance(replies[2], Completion)


def test_attempts_and_retries_are_counted() -> None:
    with (
        serve(lambda asked: error(500, "no") if asked.number == 0 else "4") as server,
        engine_of(spec(server.url)) as engine,
    ):
        asyncio.run(engine.generate([request(), request()]))
        counts = engine.endpoints["p"].counts
        assert (counts.attempts, counts.retries) == (4, 1)  # the greeting, two requests, one of them twice


def test_a_retry_after_is_seconds_or_a_date() -> None:
    assert retry_after("2.5") == 2.5
    assert retry_after("-1") == 0.0
    assert retry_after(None) is None
    assert retry_after("soon") is None
    found = retry_after(format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True))
    assert found is not None
    assert 28 <= found <= 30
