"""Configuration: strict keys that name the nearest, overrides, recipes on top of recipes, one table of policies."""

from __future__ import annotations

import json

import pytest

from rolecall.assemble import config_fingerprint, make_plan, make_renderers
from rolecall.config import apply_overrides, load_config, make_config, overlay
from rolecall.errors import ConfigError
from tiny_models import make_tiny_model

BASE = {
    "workflow": {"name": "solve_verify_correct"},
    "tasks": {"name": "jsonl", "path": "tasks.jsonl"},
    "algorithm": {"name": "mas_grpo"},
}
ROLES = ("solver", "verifier", "corrector")


def config(**changes):
    return make_config(overlay(BASE, changes))


def api(**changes):
    return {"kind": "api", "endpoint": "http://a/v1", "model": "m"} | changes


def judged_elsewhere(**changes):
    """The verifier at an endpoint, the others trained here."""
    roles = {"solver": {"policy": "own"}, "corrector": {"policy": "own"}, "verifier": {"policy": "judge"}}
    policies = {"own": {}, "judge": api(api_key_env="KEY", extra={"chat_template_kwargs": {"enable_thinking": True}})}
    return overlay({"policies": policies, "roles": roles, "deterministic": False}, changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"learner": {"lrr": 1e-4}}, "unknown key 'learner.lrr'; did you mean 'lr'"),
        ({"stepz": 3}, "unknown key 'stepz'; did you mean 'steps'"),
        ({"roles": {"solver": {"polcy": "x"}}}, "unknown key 'roles.solver.polcy'; did you mean 'policy'"),
        ({"evaluation": {"sampling": {"temprature": 1}}}, "did you mean 'temperature'"),
        ({"sampling": {"top_p": 1.5}}, "sampling.top_p is 1.5; wanted in (0, 1]"),
        ({"seed": 2**32}, "seed: Input should be less than 4294967296 (got 4294967296)"),
        ({"steps": -1}, "steps"),
        ({"learner": {"lr": "fast"}}, "learner.lr"),
        ({"learner": {"lr": float("nan")}}, "learner.lr (nan)"),
        ({"learner": {"betas": [0.9, 1.0]}}, "learner.betas are [0.9, 1.0]; wanted two numbers in [0, 1)"),
        ({"learner": {"warmup_steps": -1}}, "learner.warmup_steps is -1; wanted 0 or more"),
        ({"learner": {"min_lr_ratio": 10.0}}, "learner.min_lr_ratio is 10.0"),
        ({"model": {"lora": {"rank": 0}, "kind": "adapter"}}, "lora.rank is 0"),
        ({"sharing": "shared", "policies": {"a": {}}}, "contradict each other"),
        ({"roles": {"solver": {"policy": "x"}}}, "needs a [policies.x] table"),
        ({"model": {"model": "some/model"}, "policies": {"a": {}}}, "[model] is read only under `sharing`"),
        ({"policies": {"a": {"kind": "frozen", "learner": {"lr": 1.0}}}}, "nothing reads its 'learner' table"),
        ({"policies": {"a": {"kind": "frozen", "lora": {"rank": 2}}}}, "nothing reads its 'lora' table"),
        ({"policies": {"a": {"endpoint": "http://a/v1"}}}, "nothing reads its 'endpoint'; leave it out, or set kind"),
        ({"policies": {"a": api(lora={"rank": 2})}}, "nothing reads its 'lora' table"),
        ({"policies": {"a": api(chat_template={"x": 1})}}, "put chat_template_kwargs into `extra`"),
        ({"policies": {"a": {"kind": "api", "model": "m"}}}, "has kind = 'api' and no 'endpoint'"),
        ({"policies": {"a": {"kind": "api", "endpoint": "http://a/v1"}}}, "has kind = 'api' and no 'model'"),
        ({"policies": {"a": api(requests={"max_retry": 1})}}, "did you mean 'max_retries'"),
        ({"policies": {"a": api(requests={"timeout_s": 0})}}, "requests.timeout_s is 0"),
        ({"policies": {"a": api()}}, "need not write the same text twice; set deterministic = false"),
    ],
)
def test_a_wrong_key_or_value_is_named_with_what_was_wanted(changes, words):
    with pytest.raises(ConfigError) as error:
        config(**changes)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"workflow": {"max_round": 1}}, "did you mean 'max_rounds'"),
        ({"workflow": {"name": "solve_verify"}}, "did you mean 'solve_verify_correct'"),
        ({"algorithm": {"estimatr": "mean"}}, "did you mean 'estimator'"),
        ({"algorithm": {"loss": {"clip_hi": 1}}}, "clip_high"),
        ({"roles": {"verifer": {}}}, "did you mean 'verifier'"),
        ({"train_roles": ["verifer"]}, "did you mean 'verifier'"),
        ({"algorithm": {"loss": {"kl_by_role": {"verifer": 1.0}}}}, "did you mean 'verifier'"),
        ({"policies": {"a": {}}, "roles": {"solver": {"policy": "a"}}}, "role 'verifier' has no policy"),
        ({"sampling": {"temperature": 0.0}}, "temperature"),
        ({"sampling": {"top_k": 5}}, "top_k"),
        ({"model": {"learner": {"lrr": 1}}}, "did you mean 'lr'"),
        ({"algorithm": {"name": "workflow_grpo", "merge_copies": ["verifer"]}}, "did you mean 'verifier'"),
        (
            {
                "algorithm": {
                    "reward": {"name": "mixed", "weights": {"team": 1.0}, "by_role": {"verifer": {"team": 1.0}}}
                }
            },
            "reward.by_role names the unknown role 'verifer'; did you mean 'verifier'",
        ),
        (judged_elsewhere(train_roles=["verifier"]), "is served by an endpoint and can never be trained"),
        (judged_elsewhere(policies={"judge": {"endpoint": "a"}}), "is no URL such as 'http://localhost:8000/v1'"),
        (judged_elsewhere(sampling={"overlong": "truncate_left"}), "Set roles.verifier.sampling.overlong = 'fail'"),
        ({"workflow": {"name": "rolecall.records:Outcome", "answer": "5"}}, "wanted a subclass of rolecall.workflows"),
        ({"workflow": {"name": "no_such_module:Flow"}}, "there is no module 'no_such_module' on the Python path"),
        ({"algorithm": {"name": "no_such_module:mine"}}, "there is no module 'no_such_module' on the Python path"),
    ],
)
def test_a_part_that_does_not_fit_the_workflow_is_named(changes, words):
    with pytest.raises(ConfigError) as error:
        make_plan(config(**changes))
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"interventions": {"solver": {"damping": True}}}, "interventions.solver.damping is True; wanted a number"),
        ({"interventions": {"solver": {"average_copies": 1}}}, "average_copies is 1; wanted true or false"),
        ({"learner": {"lr": "1e-3"}}, "learner.lr is '1e-3'; wanted a number"),
        ({"evaluation": {"greedy": "yes"}}, "evaluation.greedy is 'yes'; wanted true or false"),
        ({"steps": True}, "steps is True; wanted a number"),
        ({"learner": {"betas": [0.9, "0.95"]}}, "learner.betas.1 is '0.95'; wanted a number"),
    ],
)
def test_a_value_of_another_kind_is_not_read_as_one(changes, words):
    with pytest.raises(ConfigError) as error:
        config(**changes)
    assert words in str(error.value)


def test_an_episode_has_a_deadline_unless_said_otherwise():
    assert config().rollout.episode_timeout_s == 1800.0


def test_sharing_is_short_for_a_table():
    shared = make_plan(config(sharing="shared")).table
    isolated = make_plan(config(sharing="isolated")).table
    assert set(shared.roles.values()) == {"shared"}
    assert dict(isolated.roles) == {"solver": "solver", "verifier": "verifier", "corrector": "corrector"}


def test_any_mix_of_policies_is_a_table():
    table = make_plan(
        config(
            policies={"writer": {"learner": {"lr": 2e-5}}, "judge": {"kind": "frozen"}},
            roles={"solver": {"policy": "writer"}, "corrector": {"policy": "writer"}, "verifier": {"policy": "judge"}},
        )
    )
    assert table.table.policy("verifier") == "judge"
    assert table.table.train_roles == ("solver", "corrector")
    assert table.learners["writer"].lr == 2e-5
    assert "judge" not in table.learners


def test_a_role_at_an_endpoint_is_not_trained_and_has_no_tokenizer_here():
    made = config(**judged_elsewhere())
    plan = make_plan(made)
    spec = plan.table.specs["judge"]
    assert (plan.table.train_roles, tuple(plan.learners), tuple(plan.table.local)) == (ROLES[::2], ("own",), ("own",))
    assert (spec.model, spec.endpoint.url, spec.endpoint.api_key_env) == ("m", "http://a/v1", "KEY")
    assert spec.endpoint.extra == {"chat_template_kwargs": {"enable_thinking": True}}
    renderer = make_renderers(plan)["judge"]
    ids = [renderer.encode([{"role": "user", "content": text}]) for text in ("a", "a", "b")]
    assert ids[0] == ids[1] != ids[2]
    assert config_fingerprint(made) != config_fingerprint(config())


def test_overrides_are_toml_values_and_plain_text_otherwise():
    data = apply_overrides(
        BASE, ["learner.lr=1e-4", "train_roles=['solver']", "sharing=isolated", "workflow.max_rounds=3"]
    )
    assert data["learner"]["lr"] == 1e-4
    assert data["train_roles"] == ["solver"]
    assert data["sharing"] == "isolated"
    assert data["workflow"] == {"name": "solve_verify_correct", "max_rounds": 3}


@pytest.mark.parametrize("text", ["[" * 5000, "9" * 5000, "1\nseed = 2"], ids=["brackets", "digits", "two lines"])
def test_a_value_that_toml_cannot_read_is_plain_text_that_its_setting_refuses(text):
    assert apply_overrides(BASE, [f"steps={text}"])["steps"] == text
    with pytest.raises(ConfigError, match="steps"):
        make_config(apply_overrides(BASE, [f"steps={text}"]))


@pytest.mark.parametrize("text", ["a = " + "[" * 5000, "a = " + "9" * 5000], ids=["brackets", "digits"])
def test_a_recipe_that_toml_cannot_hold_is_one_clear_error(tmp_path, text):
    (tmp_path / "odd.toml").write_text(text)
    with pytest.raises(ConfigError, match="is not TOML"):
        load_config(tmp_path / "odd.toml")


def test_an_override_of_a_component_name_starts_it_afresh():
    data = apply_overrides(overlay(BASE, {"algorithm": {"n": 4}}), ["algorithm.name=rae"])
    assert data["algorithm"] == {"name": "rae"}


def test_a_malformed_override_says_its_form():
    with pytest.raises(ConfigError, match="of the form key"):
        apply_overrides(BASE, ["learner.lr"])


def test_a_recipe_extends_another_and_circles_are_found(tmp_path):
    (tmp_path / "base.toml").write_text(
        'steps = 5\n[workflow]\nname = "single_agent"\n[tasks]\nname = "jsonl"\npath = "x"\n[algorithm]\nname = "rae"\n'
    )
    (tmp_path / "top.toml").write_text('extends = "base.toml"\nsteps = 7\n[algorithm]\nn = 2\n')
    loaded = load_config(tmp_path / "top.toml")
    assert loaded.steps == 7
    assert loaded.algorithm.params == {"n": 2}
    (tmp_path / "base.toml").write_text('extends = "top.toml"\n')
    with pytest.raises(ConfigError, match="extends itself"):
        load_config(tmp_path / "top.toml")


def test_unreadable_recipes_are_named(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("steps = = 3")
    with pytest.raises(ConfigError, match="is not TOML"):
        load_config(tmp_path / "bad.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_config(tmp_path / "bytes.toml")
    with pytest.raises(ConfigError, match="'workflow' is missing"):
        make_config({})


def test_a_matrix_and_a_table_of_tasks_are_told_from_a_recipe(tmp_path):
    (tmp_path / "matrix.toml").write_text('base = "a.toml"\n[axes.task.Sums]')
    with pytest.raises(
        ConfigError, match=r"is a matrix of runs and no recipe; run it with: rolecall matrix .*matrix.toml"
    ):
        load_config(tmp_path / "matrix.toml")
    (tmp_path / "tasks.toml").write_text('[tasks]\nname = "reasoning_gym"')
    with pytest.raises(ConfigError, match=r"\[workflow\] and \[algorithm\] are missing.* extends = .*tasks.toml"):
        load_config(tmp_path / "tasks.toml")


def test_the_fingerprint_ignores_what_a_resumed_run_may_change():
    assert config_fingerprint(config()) == config_fingerprint(config(steps=500, evaluation={"every_steps": 3}))
    assert config_fingerprint(config()) != config_fingerprint(config(learner={"lr": 1e-3}))
    cosine = {"schedule": "cosine"}
    assert config_fingerprint(config(learner=cosine)) != config_fingerprint(config(learner=cosine, steps=500))


def test_the_fingerprint_holds_the_steps_when_one_policy_has_a_schedule_that_spans_the_run():
    def one(**learner):
        return {"policies": {"a": {"learner": learner}}, "roles": {role: {"policy": "a"} for role in ROLES}}

    cosine = one(schedule="cosine")
    assert config_fingerprint(config(**cosine)) != config_fingerprint(config(**cosine, steps=500))
    long = one(schedule="cosine", schedule_steps=100)
    assert config_fingerprint(config(**long)) == config_fingerprint(config(**long, steps=500))


def test_a_schedule_without_a_length_spans_the_run():
    plan = make_plan(config(learner={"schedule": "linear", "minibatches": 2}, steps=30))
    assert plan.learners["shared"].schedule_steps == 60


def test_roles_inherit_sampling_and_override_it():
    loaded = config(
        sampling={"max_tokens": 64},
        roles={"verifier": {"sampling": {"max_tokens": 8}}},
        evaluation={"sampling": {"temperature": 0.6, "top_p": 0.95}},
    )
    assert loaded.role_sampling("verifier").max_tokens == 8
    assert loaded.role_sampling("solver").max_tokens == 64
    assert loaded.eval_sampling("verifier").temperature == 0.6
    assert loaded.eval_sampling("verifier").max_tokens == 8
    assert loaded.eval_sampling("solver", greedy=True).top_p == 1.0


@pytest.mark.parametrize(
    ("tasks", "words"), [({"name": "jsonll"}, "jsonl"), ({"name": "jsonl", "pth": "x"}, "has no setting 'pth'")]
)
def test_a_task_source_that_cannot_be_made_is_found_before_anything_is_loaded(tasks, words):
    with pytest.raises(ConfigError, match=words):
        make_plan(make_config(BASE | {"tasks": tasks}))


def test_all_end_ids_that_a_model_names_end_its_completions(tmp_path):
    folder = make_tiny_model(tmp_path / "m")
    settings = tmp_path / "m" / "generation_config.json"
    own = json.loads(settings.read_text())["eos_token_id"]
    settings.write_text(json.dumps({"eos_token_id": [own, 256]}))
    renderers = make_renderers(make_plan(config(model={"model": folder})))
    assert renderers["shared"].end_ids == (own, 256)


def test_a_tokenizer_whose_ids_the_model_has_no_rows_for_is_refused(tmp_path):
    folder = make_tiny_model(tmp_path / "model")
    saved = json.loads((tmp_path / "model" / "config.json").read_text()) | {"vocab_size": 100}
    (tmp_path / "model" / "config.json").write_text(json.dumps(saved))
    with pytest.raises(ConfigError, match="has 100 rows of embeddings; model and tokenizer are not a pair"):
        make_renderers(make_plan(config(model={"model": folder})))
