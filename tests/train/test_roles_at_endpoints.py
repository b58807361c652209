"""Training beside a role that an endpoint serves: a whole run against a real server on this machine."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from endpoint_server import error, serve
from rolecall.assemble import make_plan
from rolecall.config import make_config
from rolecall.engines.specs import RequestSettings
from rolecall.errors import EngineError
from rolecall.progress import PlainLines
from rolecall.run_folder import RunFolder
from rolecall.train import train

KEY = "sk-not-to-be-found"


def team(url: str, **judge):
    """The verifier at an endpoint, the others one local policy."""
    roles = {"solver": {"policy": "own"}, "corrector": {"policy": "own"}, "verifier": {"policy": "judge"}}
    served = {"kind": "api", "endpoint": url, "model": "m", "requests": {"max_retries": 1}} | judge
    return {"policies": {"judge": served}, "roles": roles, "deterministic": False}


@pytest.fixture
def with_judge(small, random_model):
    def make(url, **judge):
        changes = team(url, **judge)
        changes["policies"]["own"] = {"model": random_model}
        return small(
            steps=2,
            model={"model": "builtin:tiny"},
            workflow={"name": "solve_verify_correct", "prompts": "tiny", "answer_format": "text", "max_rounds": 1},
            evaluation={"every_steps": 0, "greedy": False},
            **changes,
        )

    return make


def test_a_run_trains_beside_a_judge_at_an_endpoint(with_judge, tmp_path, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", KEY)
    words = "that is not right Verdict: wrong"
    with serve(lambda asked: words) as server:
        summary = train(with_judge(server.url, api_key_env="JUDGE_KEY"), tmp_path / "r", PlainLines(2, ()))
        assert {asked.headers["authorization"] for asked in server.asked} == {f"Bearer {KEY}"}
        assert all(asked.last.startswith("Check") for asked in server.asked)
    assert summary["roles_to_policies"]["verifier"] == "judge"
    metrics = {(step, key): value for step, key, value in RunFolder.open(tmp_path / "r").read_metrics()}
    for step in (1, 2):
        assert metrics[step, "behaviour/verifier/length"] == len(words.split())
        assert metrics[step, "behaviour/verifier/says_wrong"] == 1.0
        assert metrics[step, "policy/own/version"] == step
    assert not any("/judge/" in key for _, key in metrics)
    held = [path for path in (tmp_path / "r").rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    assert held == []


def test_episodes_whose_endpoint_fails_are_counted_and_its_words_are_told(with_judge, tmp_path, capsys):
    with serve(lambda asked: error(400, "no such model")) as server:
        summary = train(with_judge(server.url), tmp_path / "r", PlainLines(2, ()))
    assert summary["outcomes"]["error"] == 2 * 4 * 4
    assert "answered 400: no such model" in capsys.readouterr().out


def test_a_run_whose_endpoint_is_not_there_does_not_start(with_judge, tmp_path):
    with pytest.raises(EngineError, match="cannot be reached"):
        train(with_judge("http://127.0.0.1:9/v1"), tmp_path / "r", PlainLines(2, ()))


def test_the_recipe_of_the_page_on_endpoints_resolves():
    page = (Path(__file__).resolve().parents[2] / "docs" / "endpoints.md").read_text()
    recipe = tomllib.loads(re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)[0])
    rest = {
        "workflow": {"name": "solve_verify_correct"},
        "tasks": {"name": "jsonl", "path": "f"},
        "algorithm": {"name": "agent_grpo"},
    }
    plan = make_plan(make_config(recipe | rest))
    assert plan.table.train_roles == ("solver", "corrector")
    assert plan.table.specs["judge"].endpoint.requests == RequestSettings()  # the page shows the defaults
