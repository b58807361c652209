"""What a completion of the local engine is, whatever batch it was drawn in."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest
import torch
from local_builders import NEVER, generate, max_difference, plain_logprobs, ragged_prompts, read_model, request, run

from rolecall.engines.local import LocalEngine
from rolecall.engines.local_cache import ColumnCache
from rolecall.engines.local_decode import Batch
from rolecall.engines.local_host import FORWARD_COLUMNS, load_base
from rolecall.engines.specs import LocalSettings, PolicySpec
from rolecall.errors import EngineError
from rolecall.records import Completion, Stop

INLINE = LocalSettings(mode="inline")


@pytest.fixture(scope="module")
def folder(tiny_model):
    return tiny_model()


@pytest.fixture(scope="module")
def model(folder):
    return read_model(folder)


@pytest.fixture(scope="module", params=["fast", "generic"])
def engine(request, folder):
    settings = LocalSettings(mode="inline", fast=request.param == "fast", max_batch_rows=24, prefill_tokens=64)
    made = LocalEngine([PolicySpec(name="p", kind="model", model=folder)], settings)
    yield made
    made.shut_down()


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_engine_logprobs_equal_a_plain_forward_pass(engine, model, temperature):
    requests = [
        request("p", prompt, seed, temperature=temperature, max_tokens=1 + seed % 23)
        for seed, prompt in enumerate(ragged_prompts(40))
    ]
    replies = generate(engine, requests)
    for asked, reply in zip(requests, replies, strict=True):
        assert len(reply.token_ids) == asked.sampling.max_tokens
        expected = plain_logprobs(model, asked.prompt_ids, reply.token_ids, temperature)
        assert max_difference(reply.logprobs, expected) < 1e-4
        assert reply.stop is Stop.LENGTH
        assert reply.versions == (0,) * len(reply.token_ids)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_scores_equal_a_plain_forward_pass(engine, model, temperature):
    sequences = [(prompt, prompt[::-1] + [7] * (i % 5)) for i, prompt in enumerate(ragged_prompts(9))]
    sequences.append(([3, 4], []))
    scores = run(engine.score("p", sequences, temperature))
    for (prompt, completion), row in zip(sequences, scores, strict=True):
        assert max_difference(row, plain_logprobs(model, prompt, completion, temperature)) < 1e-4


def test_a_prompt_longer_than_one_forward_pass_is_run_in_slices(engine, model):
    prompt = [(7 * i * i + i) % 256 for i in range(FORWARD_COLUMNS + 150)]
    reply = generate(engine, [request("p", prompt, 0, max_tokens=6)])[0]
    expected = plain_logprobs(model, prompt, reply.token_ids)
    assert max_difference(reply.logprobs, expected) < 1e-4
    assert max_difference(run(engine.score("p", [(prompt, reply.token_ids)]))[0], expected) < 1e-4


def test_the_batch_that_a_request_shares_changes_its_logprobs_by_rounding_only(engine):
    prompts = ragged_prompts(30)
    requests = [request("p", prompt, seed, max_tokens=4 + seed % 13) for seed, prompt in enumerate(prompts)]
    together = generate(engine, requests)
    backwards = generate(engine, requests[::-1])[::-1]
    differing = 0
    for i, asked in enumerate(requests):
        alone = generate(engine, [asked])[0]
        for other in (together[i], backwards[i]):
            if other.token_ids != alone.token_ids:
                differing += 1  # a near-tie
            else:
                assert max_difference(other.logprobs, alone.logprobs) < 1e-5
    assert differing <= 1


def test_copies_and_candidates_of_one_prompt_differ_by_their_seeds(engine):
    replies = generate(engine, [request("p", [1, 2, 3], seed) for seed in range(6)])
    assert len({reply.token_ids for reply in replies}) == 6
    again = generate(engine, [request("p", [1, 2, 3], 4)])[0]
    assert again.token_ids == replies[4].token_ids


def test_sampled_frequencies_follow_the_model(engine, model):
    replies = generate(engine, [request("p", [9, 8, 7], seed, max_tokens=1) for seed in range(2000)])
    with torch.no_grad():
        expected = torch.softmax(model(torch.tensor([[9, 8, 7]])).logits[0, -1], dim=-1)
    counts = torch.bincount(torch.tensor([reply.token_ids[0] for reply in replies]), minlength=261)
    big = expected * 2000 >= 5
    chi = ((counts - expected * 2000) ** 2 / (expected * 2000))[big].sum().item()
    degrees = int(big.sum())
    assert chi < degrees + 4.5 * (2 * degrees) ** 0.5


def test_greedy_takes_the_likeliest_token_with_its_logprob_at_temperature_one(engine, model):
    prompt = [11, 12, 13]
    reply = generate(engine, [request("p", prompt, 0, temperature=0.0, max_tokens=8)])[0]
    ids = list(prompt)
    with torch.no_grad():
        for token in reply.token_ids:
            assert token == model(torch.tensor([ids])).logits[0, -1].argmax().item()
            ids.append(token)
    assert max_difference(reply.logprobs, plain_logprobs(model, prompt, reply.token_ids)) < 1e-4


def test_peers_that_share_a_prompt_are_run_through_the_model_once(folder, monkeypatch):
    engine = LocalEngine([PolicySpec(name="p", kind="model", model=folder)], INLINE)
    prefilled = []
    from rolecall.engines.local_fast import FastRunner

    forward = FastRunner.forward

    def spy(self, ids, start, cache, last):
        if ids.shape[1] > 1:
            prefilled.append(ids.shape[0])
        return forward(self, ids, start, cache, last)

    monkeypatch.setattr(FastRunner, "forward", spy)
    generate(engine, [request("p", [1, 2, 3], seed) for seed in range(8)] + [request("p", [1, 2, 4], 0)])
    engine.shut_down()
    assert prefilled == [2]


def test_an_end_token_is_the_last_of_the_completion(engine):
    free = generate(engine, [request("p", [5, 6], 3, max_tokens=12)])[0]
    end = free.token_ids[7]
    first = free.token_ids.index(end)
    ended = generate(engine, [request("p", [5, 6], 3, max_tokens=12, end_ids=(NEVER, end))])[0]
    assert ended.token_ids == free.token_ids[: first + 1]
    assert ended.stop is Stop.EOS
    at_limit = generate(engine, [request("p", [5, 6], 3, max_tokens=first + 1, end_ids=(end,))])[0]
    assert at_limit.stop is Stop.EOS


def test_the_models_own_end_token_ends_when_a_request_names_none(engine, model):
    replies = generate(engine, [request("p", [5], seed, end_ids=(), max_tokens=400) for seed in range(40)])
    ended = [reply for reply in replies if reply.stop is Stop.EOS]
    assert ended
    for reply in replies:
        assert 259 not in reply.token_ids[:-1]
        assert (reply.token_ids[-1] == 259) == (reply.stop is Stop.EOS)


def test_a_pad_token_that_is_the_end_token_hides_nothing(tiny_model):
    folder = tiny_model(pad_is_eos=True)
    model = read_model(folder)
    assert model.config.pad_token_id == model.config.eos_token_id == 259
    engine = LocalEngine([PolicySpec(name="p", kind="model", model=folder)], INLINE)
    prompts = [[259, 1, 259], [259] * 7, [4]]
    replies = generate(engine, [request("p", prompt, i) for i, prompt in enumerate(prompts)])
    engine.shut_down()
    for prompt, reply in zip(prompts, replies, strict=True):
        assert max_difference(reply.logprobs, plain_logprobs(model, prompt, reply.token_ids)) < 1e-4


@pytest.mark.parametrize("cut", [1, 5, 11])
def test_a_continued_prefix_gives_the_tokens_of_a_one_shot_completion(engine, cut):
    asked = [request("p", prompt, seed, max_tokens=12) for seed, prompt in enumerate(ragged_prompts(5))]
    whole = generate(engine, asked)
    begun = [
        Completion(
            token_ids=reply.token_ids[:cut], logprobs=reply.logprobs[:cut], versions=(-1,) * cut, stop=Stop.ABORT
        )
        for reply in whole
    ]
    again = generate(
        engine,
        [request("p", a.prompt_ids, a.seed, max_tokens=12, prefix=p) for a, p in zip(asked, begun, strict=True)],
    )
    for one, two in zip(whole, again, strict=True):
        assert one.token_ids == two.token_ids
        assert max_difference(one.logprobs, two.logprobs) < 1e-5
        assert two.versions == (-1,) * cut + (0,) * (12 - cut)


def test_a_prefix_that_is_complete_comes_back_as_it_is(engine):
    prefix = Completion(token_ids=(5, 259), logprobs=(-0.5, -1.0), versions=(2, 3), stop=Stop.ABORT)
    replies = generate(
        engine,
        [request("p", [1], 0, prefix=prefix, end_ids=()), request("p", [1], 0, prefix=prefix, max_tokens=2)],
    )
    assert [reply.stop for reply in replies] == [Stop.EOS, Stop.LENGTH]
    assert all(reply.token_ids == (5, 259) and reply.versions == (2, 3) for reply in replies)


def test_requests_join_a_batch_that_is_decoding(engine, model):
    import asyncio

    async def overlap():
        first = asyncio.create_task(engine.generate([request("p", [1, 2], 0, max_tokens=300)]))
        await asyncio.sleep(0.05)
        late = await engine.generate(
            [request("p", list(range(60)), 1, max_tokens=5), request("p", [3], 2, max_tokens=9)]
        )
        early = not first.done()
        return early, late, await first

    early, late, first = run(overlap())
    assert early, "the short requests were held until the long one ended"
    assert max_difference(late[0].logprobs, plain_logprobs(model, range(60), late[0].token_ids)) < 1e-4
    assert max_difference(late[1].logprobs, plain_logprobs(model, [3], late[1].token_ids)) < 1e-4
    assert max_difference(first[0].logprobs, plain_logprobs(model, [1, 2], first[0].token_ids)) < 1e-4


def test_a_cancelled_call_stops_its_rows(engine):
    import asyncio

    async def cancel():
        running = asyncio.create_task(engine.generate([request("p", [1], 0, max_tokens=2000)]))
        await asyncio.sleep(0.05)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        for _ in range(200):
            if not engine.workers[0].jobs:
                return
            await asyncio.sleep(0.01)

    run(cancel())
    assert not engine.workers[0].jobs


def test_a_request_that_cannot_run_gets_its_own_error_and_the_others_go_on(engine):
    replies = run(
        engine.generate(
            [
                request("p", [1, 2], 0, max_tokens=3),
                request("solvr", [1], 0),
                request("p", [], 0),
                request("p", [5000], 0),
                request("p", [1] * 2048, 0),
            ]
        )
    )
    assert isinstance(replies[0], Completion)
    assert all(isinstance(reply, EngineError) for reply in replies[1:])
    for reply, words in zip(replies[1:], ("'solvr'", "empty prompt", "5000", "2048 positions"), strict=True):
        assert words in str(reply)


def test_a_request_that_breaks_the_worker_in_a_way_nobody_thought_of_is_answered_and_not_waited_for(engine):
    strange = request("p", [None], 0)  # type: ignore[list-item]
    replies = run(asyncio.wait_for(engine.generate([strange]), timeout=30))
    assert isinstance(replies[0], EngineError)
    assert "asked to generate" in str(replies[0])
    generate(engine, [request("p", [1, 2], 0, max_tokens=3)])


def test_a_batch_that_outgrows_its_tokens_puts_rows_back_in_line_without_a_trace(folder, engine):
    asked = [request("p", prompt, seed, max_tokens=90) for seed, prompt in enumerate(ragged_prompts(12))]
    free = generate(engine, asked)
    settings = LocalSettings(mode="inline", max_batch_tokens=500)
    tight = LocalEngine([PolicySpec(name="p", kind="model", model=folder)], settings)
    held = []
    step = Batch.step

    def spy(batch):
        held.append(len(batch.rows) * (batch.cache.write - batch.cache.low + 1))
        return step(batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Batch, "step", spy)
        replies = generate(tight, asked)
    tight.shut_down()
    assert max(held) <= 500
    differing = [one.token_ids != two.token_ids for one, two in zip(free, replies, strict=True)]
    assert sum(differing) <= 1  # a near-tie
    for one, two, other in zip(free, replies, differing, strict=True):
        assert other or max_difference(one.logprobs, two.logprobs) < 1e-5


def architectures():
    import transformers as tf

    small = {
        "vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 256, "initializer_range": 0.2, "eos_token_id": 2,
        "pad_token_id": 0, "bos_token_id": 1,
    }  # fmt: skip
    windows = {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"], "head_dim": 8}
    return {
        "llama": tf.LlamaConfig(**small),
        "llama_scaled_rope": tf.LlamaConfig(**small, rope_parameters={"rope_type": "linear", "factor": 2.0}),
        "qwen2": tf.Qwen2Config(**small),
        "qwen3_windows": tf.Qwen3Config(**small, use_sliding_window=True, **windows),
        "mistral_window": tf.MistralConfig(**small, sliding_window=4),
        "gemma2": tf.Gemma2Config(**small, **windows, query_pre_attn_scalar=8),
        "gpt2": tf.GPT2Config(vocab_size=97, n_embd=32, n_layer=2, n_head=4, n_positions=256, initializer_range=0.2),
        "gpt_neox": tf.GPTNeoXConfig(**{**small, "num_key_value_heads": 4}),
        "opt": tf.OPTConfig(
            vocab_size=97, hidden_size=32, word_embed_proj_dim=32, ffn_dim=48, num_hidden_layers=2,
            num_attention_heads=4, max_position_embeddings=256, init_std=0.2,
        ),
        "bloom": tf.BloomConfig(vocab_size=97, hidden_size=32, n_layer=2, n_head=4, initializer_range=0.2),
        "qwen3_moe": tf.Qwen3MoeConfig(
            **small, head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16
        ),
    }  # fmt: skip


@pytest.mark.parametrize("name", sorted(architectures()))
def test_every_architecture_decodes_as_its_plain_forward_pass(name, tmp_path):
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(architectures()[name]).save_pretrained(tmp_path)
    model = read_model(str(tmp_path))
    engine = LocalEngine(
        [PolicySpec(name="p", kind="model", model=str(tmp_path))], LocalSettings(mode="inline", prefill_tokens=40)
    )
    prompts = [[id % 97 for id in prompt] for prompt in ragged_prompts(7)]
    requests = [request("p", prompt, i, max_tokens=6 + 3 * i) for i, prompt in enumerate(prompts)]
    replies = generate(engine, requests)
    scores = run(engine.score("p", [(r.prompt_ids, c.token_ids) for r, c in zip(requests, replies, strict=True)]))
    engine.shut_down()
    for asked, reply, score in zip(requests, replies, scores, strict=True):
        expected = plain_logprobs(model, asked.prompt_ids, reply.token_ids)
        assert max_difference(reply.logprobs, expected) < 1e-4
        assert max_difference(score, expected) < 1e-4


@pytest.mark.parametrize("name", ["llama", "llama_scaled_rope", "qwen2", "qwen3"])
def test_the_fast_forward_pass_agrees_with_the_models_own(name, tmp_path, folder):
    from transformers import AutoModelForCausalLM

    path = folder
    if name != "qwen3":
        torch.manual_seed(1)
        AutoModelForCausalLM.from_config(architectures()[name]).save_pretrained(tmp_path)
        path = str(tmp_path)
    logits = []
    for fast in (True, False):
        base = load_base(path, "float32", [], fast=fast)
        assert type(base.runner).__name__ == ("FastRunner" if fast else "GenericRunner")
        cache = ColumnCache(rows=3, columns=9)
        ids = torch.arange(27).reshape(3, 9)
        start = torch.tensor([0, 4, 7])
        with torch.no_grad():
            parts = [base.runner.forward(ids[:, a:b], start, cache, b - a) for a, b in ((0, 5), (5, 8), (8, 9))]
        logits.append(torch.log_softmax(torch.cat(parts, dim=1), dim=-1))
    inside = torch.arange(9) >= start[:, None]
    assert (logits[0] - logits[1])[inside].abs().max() < 1e-5


def test_a_model_without_key_value_layers_is_refused_by_name(tmp_path):
    from transformers import MambaConfig, MambaForCausalLM

    from rolecall.errors import ConfigError

    MambaForCausalLM(MambaConfig(vocab_size=32, hidden_size=16, num_hidden_layers=1)).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="attention layers only"):
        LocalEngine([PolicySpec(name="p", kind="model", model=str(tmp_path))], INLINE)


def test_bfloat16_logprobs_stay_near_the_plain_forward_pass(folder, model):
    engine = LocalEngine([PolicySpec(name="p", kind="model", model=folder, dtype="bfloat16")], INLINE)
    asked = [request("p", prompt, i) for i, prompt in enumerate(ragged_prompts(5))]
    replies = generate(engine, asked)
    engine.shut_down()
    for a, reply in zip(asked, replies, strict=True):
        assert max_difference(reply.logprobs, plain_logprobs(model, a.prompt_ids, reply.token_ids)) < 0.2


def test_the_keys_of_a_dropped_cache_are_freed_at_once_without_the_collector() -> None:
    """In the process of a run the collector hardly ever runs; a cycle kept every cache: 50 MB a step."""
    cache = ColumnCache(rows=2, columns=8)
    cache.update(torch.ones(2, 1, 3, 4), torch.ones(2, 1, 3, 4), 0)
    keys = weakref.ref(cache.layers[0].keys)
    enabled = gc.isenabled()
    gc.disable()
    try:
        assert keys() is not None
        del cache
        assert keys() is None
    finally:
        if enabled:
            gc.enable()
