"""Publishing weights to the local engine: what it samples under, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import shutil

import pytest
import torch
from local_builders import generate, max_difference, plain_logprobs, read_model, request, run

from rolecall.engines.local import LocalEngine
from rolecall.engines.read_model import read_causal_lm
from rolecall.engines.specs import LocalSettings, PolicySpec, resolve_model
from rolecall.errors import ConfigError, EngineError
from rolecall.learner.modules import load_causal_lm

INLINE = LocalSettings(mode="inline")
SEQUENCES = [([1, 2, 3], list(range(30, 50)))]


def changed_model(folder: str, seed: int = 5):
    torch.manual_seed(seed)
    model = read_model(folder)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def plain(model) -> list[float]:
    return plain_logprobs(model, *SEQUENCES[0])


@pytest.fixture(scope="module")
def folder(tiny_model):
    return tiny_model()


@pytest.fixture(params=["fast", "generic"])
def engine(request, folder):
    made = LocalEngine(
        [
            PolicySpec(name="p", kind="model", model=folder),
            PolicySpec(name="other", kind="model", model=folder),
            PolicySpec(name="still", kind="frozen", model=folder),
        ],
        LocalSettings(mode="inline", fast=request.param == "fast"),
    )
    yield made
    made.shut_down()


def test_engine_logprobs_equal_the_plain_forward_pass_of_the_loaded_weights(engine, folder):
    model = changed_model(folder)
    run(engine.load("p", 7, model.state_dict()))
    assert engine.version("p") == 7
    for temperature in (1.0, 0.6):
        reply = generate(engine, [request("p", [1, 2, 3], 0, temperature=temperature)])[0]
        assert reply.versions == (7,) * 16
        expected = plain_logprobs(model, [1, 2, 3], reply.token_ids, temperature)
        assert max_difference(reply.logprobs, expected) < 1e-4
    assert max_difference(run(engine.score("p", SEQUENCES))[0], plain(model)) < 1e-4


def test_every_tensor_of_a_publish_reaches_the_engine(engine, folder):
    """Each tensor changed alone moves the scores, so that none is loaded to a place that nothing reads."""
    weights = {name: tensor.clone() for name, tensor in read_model(folder).state_dict().items()}
    run(engine.load("p", 1, weights))
    before = run(engine.score("p", SEQUENCES))[0]
    for name in engine.manifest["p"][0]:
        torch.manual_seed(0)
        other = dict(weights)
        other[name] = weights[name] + 0.2 * torch.randn_like(weights[name])
        other.pop("lm_head.weight")
        run(engine.load("p", 2, other))
        assert max_difference(run(engine.score("p", SEQUENCES))[0], before) > 1e-4, name
    run(engine.load("p", 3, weights))
    assert run(engine.score("p", SEQUENCES))[0] == before


def test_loading_one_whole_model_leaves_another_on_the_same_files_alone(engine, folder):
    before = [run(engine.score(name, SEQUENCES)) for name in ("other", "still")]
    run(engine.load("p", 1, changed_model(folder).state_dict()))
    assert [run(engine.score(name, SEQUENCES)) for name in ("other", "still")] == before
    assert engine.version("other") == 0
    replies = generate(engine, [request(name, [1, 2, 3], 0) for name in ("p", "other", "still")])
    assert replies[0].token_ids != replies[1].token_ids == replies[2].token_ids


def test_an_untied_head_is_a_tensor_of_its_own(tiny_model):
    folder = tiny_model(tie=False)
    engine = LocalEngine([PolicySpec(name="p", kind="model", model=folder)], INLINE)
    model = changed_model(folder)
    run(engine.load("p", 1, model.state_dict()))
    scores = run(engine.score("p", SEQUENCES))[0]
    without = {name: tensor for name, tensor in model.state_dict().items() if name != "lm_head.weight"}
    with pytest.raises(EngineError, match=r"missing: \['lm_head.weight'\]"):
        run(engine.load("p", 2, without))
    engine.shut_down()
    assert max_difference(scores, plain(model)) < 1e-4


def test_an_engine_whose_loader_does_nothing_is_told_by_its_scores(folder, monkeypatch):
    from rolecall.engines.local_host import Host

    monkeypatch.setattr(Host, "load", lambda self, policy, version, tensors: None)
    engine = LocalEngine([PolicySpec(name="p", kind="model", model=folder)], INLINE)
    model = changed_model(folder)
    run(engine.load("p", 1, model.state_dict()))
    scores = run(engine.score("p", SEQUENCES))[0]
    engine.shut_down()
    assert max_difference(scores, plain(model)) > 0.1
    assert max_difference(scores, plain(read_model(folder))) < 1e-4


def broken(weights, fault):
    weights = {name: tensor.clone() for name, tensor in weights.items()}
    name = "model.layers.0.mlp.up_proj.weight"
    if fault == "missing":
        del weights[name]
    elif fault == "unexpected":
        weights["model.layers.9.mlp.up_proj.weight"] = weights[name]
    elif fault == "shape":
        weights[name] = weights[name].T.contiguous()
    elif fault == "not finite":
        weights[name][3, 4] = float("nan")
    else:
        weights["lm_head.weight"] = weights["lm_head.weight"] + 1.0
    return weights


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("missing", r"missing: \['model.layers.0.mlp.up_proj.weight'\]"),
        ("unexpected", r"unexpected: \['model.layers.9.mlp.up_proj.weight'\]"),
        ("shape", r"'model.layers.0.mlp.up_proj.weight' has shape \(32, 64\); wanted \(64, 32\)"),
        ("not finite", "not finite"),
        ("head", "tied"),
    ],
)
def test_weights_that_do_not_fit_are_refused_whole_and_by_name(engine, folder, fault, words):
    before = run(engine.score("p", SEQUENCES))
    with pytest.raises(EngineError, match=words):
        run(engine.load("p", 1, broken(changed_model(folder).state_dict(), fault)))
    assert engine.version("p") == 0
    assert run(engine.score("p", SEQUENCES)) == before


def test_a_policy_that_nobody_loaded_is_an_error_and_never_the_base(engine, folder):
    with pytest.raises(EngineError, match="did you mean 'other'"):
        run(engine.load("othr", 1, {}))
    with pytest.raises(EngineError, match="unknown policy 'q'"):
        run(engine.score("q", SEQUENCES))
    with pytest.raises(EngineError, match="frozen"):
        run(engine.load("still", 1, read_model(folder).state_dict()))
    with pytest.raises(EngineError):
        engine.version("q")


def test_a_load_while_rows_decode_marks_each_token_with_its_version_and_recomputes_the_rest(engine, folder):
    old, new = read_model(folder), changed_model(folder)

    async def swap():
        running = asyncio.create_task(engine.generate([request("p", [1, 2, 3], 0, max_tokens=400)]))
        await asyncio.sleep(0.1)
        await engine.load("p", 1, new.state_dict())
        return (await running)[0]

    reply = run(swap())
    cut = reply.versions.index(1)
    assert 0 < cut < 400
    assert reply.versions == (0,) * cut + (1,) * (400 - cut)
    assert max_difference(reply.logprobs[:cut], plain_logprobs(old, [1, 2, 3], reply.token_ids)[:cut]) < 1e-4
    assert max_difference(reply.logprobs[cut:], plain_logprobs(new, [1, 2, 3], reply.token_ids)[cut:]) < 1e-4


def test_scores_of_a_big_vocabulary_never_hold_all_logits(folder, monkeypatch):
    from rolecall.engines import local_host
    from rolecall.engines.local_fast import FastRunner

    monkeypatch.setattr(local_host, "SCORE_LOGITS", 4 * 3 * 261)
    held = []
    forward = FastRunner.forward

    def spy(self, *arguments):
        logits = forward(self, *arguments)
        held.append(logits.numel())
        return logits

    monkeypatch.setattr(FastRunner, "forward", spy)
    engine = LocalEngine([PolicySpec(name="p", kind="model", model=folder)], INLINE)
    sequences = [([1, 2, 3], list(range(30, 50))), ([4], [5]), ([6] * 9, list(range(12)))]
    scores = run(engine.score("p", sequences))
    engine.shut_down()
    model = read_model(folder)
    for (prompt, completion), row in zip(sequences, scores, strict=True):
        assert max_difference(row, plain_logprobs(model, prompt, completion)) < 1e-4
    assert max(held) <= 4 * 3 * 261


def test_a_model_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"config\.json"):
        resolve_model(str(tmp_path))
    with pytest.raises(ConfigError, match="no folder and no hub id"):
        resolve_model(str(tmp_path / "none" / "here"))
    with pytest.raises(ConfigError, match="ships no built-in model 'tinny'"):
        resolve_model("builtin:tinny")
    assert resolve_model("Qwen/Qwen3-4B") == "Qwen/Qwen3-4B"


def test_a_model_whose_files_lack_weights_is_refused_and_never_filled_at_random(tiny_model, tmp_path):
    folder = tmp_path / "half"
    shutil.copytree(tiny_model(), folder)
    config = json.loads((folder / "config.json").read_text())
    config["num_hidden_layers"] += 1
    config.pop("layer_types", None)
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=r"hold no weights for 11 of its tensors \(model\.layers\.2\."):
        read_causal_lm(str(folder), torch.float32)
    with pytest.raises(ConfigError, match="hold no weights"):
        LocalEngine([PolicySpec(name="p", kind="frozen", model=str(folder))], INLINE)
    with pytest.raises(ConfigError, match="hold no weights"):
        load_causal_lm(str(folder), torch.float32, torch.device("cpu"))
