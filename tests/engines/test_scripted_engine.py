from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from rolecall.engines.base import Reply, Request
from rolecall.engines.scripted import Answer, Scripted, ScriptedEngine
from rolecall.errors import EngineError
from rolecall.records import Completion, Key, Sampling, Stop, Task


def request(number: int = 0, **fields: Any) -> Request:
    given: dict[str, Any] = {
        "policy": "p", "prompt_ids": (1, 2), "sampling": Sampling(max_tokens=8), "seed": number,
        "key": Key("solver", number, 0), "task": Task(id="t", question="", answer=None), "messages": (),
    }  # fmt: skip
    return Request(**{**given, **fields})


def ask(engine: ScriptedEngine, *requests: Request) -> list[Reply]:
    return asyncio.run(engine.generate(requests))


def one(answer: Answer, asked: Request | None = None) -> Reply:
    return ask(ScriptedEngine(lambda _: answer), asked if asked is not None else request())[0]


def test_a_text_becomes_its_bytes_and_the_end_token() -> None:
    assert one("ab") == Completion(
        token_ids=(97, 98, 256), logprobs=(-1.0,) * 3, versions=(0, 0, 0), stop=Stop.EOS
    )  # fmt: skip
    assert one("ab", request(end_ids=(7, 9))).token_ids == (97, 98, 7)  # type: ignore[union-attr]


def test_a_reply_that_does_not_fit_is_cut_off_at_max_tokens() -> None:
    assert one("a" * 7).stop is Stop.EOS  # type: ignore[union-attr]
    cut = one("a" * 8)
    assert isinstance(cut, Completion)
    assert (len(cut.token_ids), cut.stop) == (8, Stop.LENGTH)


def test_a_prefix_is_continued_and_keeps_its_versions() -> None:
    prefix = Completion(token_ids=(97, 98), logprobs=(-0.5, -0.5), versions=(3, 3), stop=Stop.ABORT)
    engine = ScriptedEngine(lambda _: "abcd", policies={"p": 4})
    reply = ask(engine, request(prefix=prefix))[0]
    assert reply == Completion(
        token_ids=(97, 98, 99, 100, 256), logprobs=(-0.5, -0.5, -1.0, -1.0, -1.0), versions=(3, 3, 4, 4, 4),
        stop=Stop.EOS,
    )  # fmt: skip


def test_a_request_that_fails_leaves_the_others_alone() -> None:
    def moody(asked: Request) -> Answer:
        if asked.seed == 1:
            raise KeyError("no line for this")
        return EngineError("refused") if asked.seed == 2 else "fine"

    engine = ScriptedEngine(moody, policies={"p": 0})
    replies = ask(engine, *[request(i) for i in range(4)], request(5, policy="q"))
    assert [isinstance(reply, Completion) for reply in replies] == [True, False, False, True, False]
    assert "raised KeyError" in str(replies[1])
    assert "the engine has no policy 'q'" in str(replies[4])


def test_a_reply_of_another_type_is_named() -> None:
    assert "wanted a string, Scripted" in str(one(3))  # type: ignore[arg-type]


def test_loading_moves_the_version_of_one_policy() -> None:
    engine = ScriptedEngine(lambda _: Scripted(text="a", logprob=-0.25), policies={"p": 0, "q": 7})

    async def main() -> list[Reply]:
        await engine.load("p", 1, {"w": 2.0})
        with pytest.raises(EngineError, match="no policy 'r'"):
            await engine.load("r", 1, {})
        return await engine.generate([request(), request(policy="q")])

    first, second = asyncio.run(main())
    assert isinstance(first, Completion)
    assert isinstance(second, Completion)
    assert (first.version, second.version) == (1, 7)
    assert first.logprobs == (-0.25, -0.25)
    assert engine.weights["p"] == {"w": 2.0}


def test_replies_come_in_order_however_late_they_are() -> None:
    engine = ScriptedEngine(lambda asked: str(asked.seed), latency=lambda asked: 0.03 / (1 + asked.seed))
    replies = ask(engine, *[request(i) for i in range(4)])
    assert [bytes(reply.token_ids[:-1]) for reply in replies] == [b"0", b"1", b"2", b"3"]  # type: ignore[union-attr]
    assert (engine.num_calls, engine.num_batches, engine.batch_sizes) == (4, 1, [4])


def test_scores_are_one_a_token() -> None:
    def score(policy: str, prompt: Sequence[int], completion: Sequence[int], temperature: float) -> list[float]:
        return [-temperature * len(prompt)] * len(completion)

    pairs = [((1, 2), (3, 4, 5)), ((1,), (2,))]
    assert asyncio.run(ScriptedEngine(lambda _: "").score("p", pairs)) == [[-1.0] * 3, [-1.0]]
    scored = asyncio.run(ScriptedEngine(lambda _: "", score_fn=score).score("p", pairs, 0.5))
    assert scored == [[-1.0] * 3, [-0.5]]


def test_a_closed_engine_answers_nothing() -> None:
    engine = ScriptedEngine(lambda _: "a")
    asyncio.run(engine.close())
    with pytest.raises(EngineError, match="closed"):
        ask(engine, request())
