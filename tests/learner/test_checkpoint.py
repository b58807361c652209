from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from learner_helpers import adapter_spec, identical, model_spec, policies_of, random_samples, snapshot
from rolecall.errors import CheckpointError
from rolecall.learner import checkpoint
from rolecall.learner.checkpoint import Fingerprints, best, latest, load_checkpoint, load_latest, save_checkpoint
from rolecall.learner.config import LearnerConfig
from rolecall.learner.learner import Learner

Tiny = Callable[..., str]
THIS = Fingerprints(config="c1", tasks="t1")
CONFIG = LearnerConfig(lr=1e-3, warmup_steps=2, schedule="cosine", schedule_steps=6, weight_decay=0.01, minibatches=2)


def fresh(folder: str) -> dict[str, Learner]:
    """Two adapters on one base, and a whole model."""
    specs = [adapter_spec("solver", folder), adapter_spec("ver/ifier", folder), model_spec("corrector", folder)]
    return {name: policy.learner for name, policy in policies_of(specs, CONFIG).items() if policy.learner is not None}


def train(learners: dict[str, Learner], steps: range) -> None:
    for step in steps:
        for name, learner in learners.items():
            learner.update(random_samples(6, policy=name, seed=random.randrange(1 << 30)), step)
            learner.version += 1


def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(tiny_model: Tiny, tmp_path: Path) -> None:
    folder = tiny_model()
    random.seed(1)
    straight = fresh(folder)
    train(straight, range(6))
    ending = (random.random(), torch.rand(1).item())

    random.seed(1)
    first = fresh(folder)
    train(first, range(3))
    save_checkpoint(tmp_path, first, 3, THIS, extra={"cursor": 7, "baselines": {"solver": 0.5}})
    random.seed(99)
    torch.manual_seed(99)

    resumed = fresh(folder)
    loaded = load_latest(tmp_path, resumed, THIS)
    assert loaded is not None
    assert (loaded.step, loaded.extra) == (3, {"cursor": 7, "baselines": {"solver": 0.5}})
    assert loaded.versions == {"solver": 3, "ver/ifier": 3, "corrector": 3}
    train(resumed, range(3, 6))
    for name, learner in resumed.items():
        assert identical(snapshot(learner), snapshot(straight[name]))
        assert learner.optimizer_steps == straight[name].optimizer_steps == 12
        mine, theirs = learner.optimizer.state_dict()["state"], straight[name].optimizer.state_dict()["state"]
        assert all(torch.equal(mine[k]["exp_avg_sq"], theirs[k]["exp_avg_sq"]) for k in theirs)
    assert random.random() == ending[0]


def test_saved_policies_load_with_transformers_and_peft_alone(tiny_model: Tiny, tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    folder = tiny_model()
    learners = fresh(folder)
    train(learners, range(2))
    path = save_checkpoint(tmp_path, learners, 2, THIS)
    ids = torch.tensor([[1, 2, 3, 4]])
    whole = AutoModelForCausalLM.from_pretrained(path / "policies" / "corrector" / "weights")
    base = AutoModelForCausalLM.from_pretrained(folder)
    adapted = PeftModel.from_pretrained(base, str(path / "policies" / "ver%2Fifier" / "weights"))
    for name, model in (("corrector", whole), ("ver/ifier", adapted)):
        scaled = model.eval()(input_ids=ids).logits[0].log_softmax(-1).detach()
        seen = [float(scaled[i, ids[0, i + 1]]) for i in range(3)]
        assert learners[name].score([([1], [2, 3, 4])])[0] == pytest.approx(seen, abs=1e-5)


def test_a_checkpoint_of_a_whole_model_is_a_folder_that_transformers_loads_tokenizer_and_all(
    tiny_model: Tiny, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = tiny_model()
    settings = Path(folder) / "generation_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"eos_token_id": [259, 260]}))
    learners = fresh(folder)
    path = save_checkpoint(tmp_path, learners, 1, THIS)
    weights = path / "policies" / "corrector" / "weights"
    tokenizer, given = AutoTokenizer.from_pretrained(weights), AutoTokenizer.from_pretrained(folder)
    said = [{"role": "user", "content": "12+30 = ?"}]
    ids = tokenizer.apply_chat_template(said, add_generation_prompt=True, return_dict=False)
    assert ids == given.apply_chat_template(said, add_generation_prompt=True, return_dict=False)
    model = AutoModelForCausalLM.from_pretrained(weights)
    assert model.generation_config.eos_token_id == [259, 260]
    written = model.generate(torch.tensor([ids]), max_new_tokens=3, do_sample=False)
    assert isinstance(tokenizer.decode(written[0]), str)
    load_checkpoint(path, learners, THIS)  # the tokenizer's files are in the manifest like all others
    (weights / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is not as it was written"):
        load_checkpoint(path, learners, THIS)


def test_a_save_that_fails_midway_leaves_the_earlier_checkpoint_to_load(
    tiny_model: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learners = fresh(tiny_model())
    train(learners, range(1))
    save_checkpoint(tmp_path, learners, 1, THIS, keep_last=1)
    held = snapshot(learners["solver"])
    train(learners, range(1, 2))

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(learners["corrector"].module, "save", full)
        with pytest.raises(CheckpointError, match="No space left"):
            save_checkpoint(tmp_path, learners, 2, THIS, keep_last=1)
    loaded = load_latest(tmp_path, learners, THIS)
    assert loaded is not None
    assert loaded.step == 1
    assert identical(snapshot(learners["solver"]), held)
    save_checkpoint(tmp_path, learners, 2, THIS, keep_last=1)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["step-00000002"]


def test_the_last_and_the_best_stay_and_others_are_pruned(tiny_model: Tiny, tmp_path: Path) -> None:
    learners = fresh(tiny_model())
    for step in range(1, 6):
        save_checkpoint(tmp_path, learners, step, THIS, keep_last=2, best=step == 2)
    assert sorted(path.name for path in tmp_path.glob("step-*")) == [
        "step-00000002",
        "step-00000004",
        "step-00000005",
    ]
    kept, newest = best(tmp_path), latest(tmp_path)
    assert kept is not None
    assert newest is not None
    assert (kept.name, newest.name) == ("step-00000002", "step-00000005")
    assert load_checkpoint(kept, learners, THIS).step == 2


def test_a_step_saved_again_takes_the_place_of_the_first(tiny_model: Tiny, tmp_path: Path) -> None:
    learners = fresh(tiny_model())
    save_checkpoint(tmp_path, learners, 1, THIS)
    train(learners, range(1))
    again = save_checkpoint(tmp_path, learners, 1, THIS, keep_last=1)
    assert latest(tmp_path) == again
    assert load_checkpoint(again, learners, THIS).versions["solver"] == 1


@pytest.fixture
def saved(tiny_model: Tiny, tmp_path: Path) -> tuple[dict[str, Learner], Path]:
    learners = fresh(tiny_model())
    train(learners, range(1))
    return learners, save_checkpoint(tmp_path, learners, 1, THIS)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (Fingerprints(config="c2", tasks="t1"), "another configuration"),
        (Fingerprints(config="c1", tasks="t2"), "another task set"),
    ],
)
def test_another_configuration_or_task_set_is_refused(
    saved: tuple[dict[str, Learner], Path], other: Fingerprints, words: str
) -> None:
    with pytest.raises(CheckpointError, match=words):
        load_checkpoint(saved[1], saved[0], other)
    assert load_checkpoint(saved[1], saved[0], None).step == 1


def test_a_half_written_or_changed_checkpoint_is_refused_and_nothing_is_touched(
    saved: tuple[dict[str, Learner], Path],
) -> None:
    learners, path = saved
    train(learners, range(1, 2))
    held = snapshot(learners["corrector"])
    weights = path / "policies" / "corrector" / "weights" / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(CheckpointError, match=r"model.safetensors is not as it was written"):
        load_checkpoint(path, learners, THIS)
    weights.unlink()
    with pytest.raises(CheckpointError, match=r"model.safetensors is missing"):
        load_checkpoint(path, learners, THIS)
    (path / "manifest.json").unlink()
    with pytest.raises(CheckpointError, match="half written"):
        load_checkpoint(path, learners, THIS)
    assert latest(path.parent) is None
    assert identical(snapshot(learners["corrector"]), held)


def test_policies_at_different_steps_are_refused(saved: tuple[dict[str, Learner], Path]) -> None:
    learners, path = saved
    later = save_checkpoint(path.parent, learners, 4, THIS)
    shutil.rmtree(later / "policies" / "solver")
    shutil.copytree(path / "policies" / "solver", later / "policies" / "solver")
    with pytest.raises(CheckpointError, match=r"of step 4, but its policies are at .*'solver': 1"):
        load_checkpoint(later, learners, THIS)


def test_missing_and_unknown_policies_are_refused_by_name(saved: tuple[dict[str, Learner], Path]) -> None:
    learners, path = saved
    with pytest.raises(CheckpointError, match="has no policy 'solve'; did you mean 'solver'"):
        load_checkpoint(path, {"solve": learners["solver"]}, THIS)
    with pytest.raises(CheckpointError, match="holds the policy 'corrector', which this run does not train"):
        load_checkpoint(path, {"solver": learners["solver"], "ver/ifier": learners["ver/ifier"]}, THIS)


def test_a_manifest_of_another_format_is_refused(saved: tuple[dict[str, Learner], Path]) -> None:
    learners, path = saved
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps(manifest | {"format": 99}))
    with pytest.raises(CheckpointError, match=f"format {checkpoint.FORMAT}"):
        load_checkpoint(path, learners, THIS)
