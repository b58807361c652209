"""costs.toml: every key is read or refused by name, and what the curves say."""

from __future__ import annotations

from pathlib import Path

import pytest

from rolecall.assemble import make_plan
from rolecall.config import load_config
from rolecall.errors import ConfigError
from rolecall.simulation.costs import EngineCosts, load_costs, make_costs
from rolecall.simulation.workload import make_workload

ROOT = Path(__file__).resolve().parents[2]
FIXED = {"kind": "fixed", "tokens": 5}
SMALL = {
    "engines": {"count": 1, "slots": 4, "token_s": 1.0},
    "learners": {"token_s": 0.1},
    "roles": {
        "solver": {"right": 0.5, "lengths": FIXED},
        "verifier": {"recall": 0.5, "lengths": FIXED},
        "corrector": {"right": 0.5, "lengths": FIXED},
    },
}


def changed(**tables: object) -> dict[str, object]:
    return {**SMALL, **tables}


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        (
            {"engines": {"count": 1, "slots": 4, "tokens_s": 1}},
            "unknown key 'engines.tokens_s'; did you mean 'token_s'",
        ),
        ({"learner": {"token_s": 1}}, "unknown key 'learner'; did you mean 'learners'"),
        ({"engines": {"count": 1}}, "'engines.slots' is missing"),
        ({"engines": {"count": 0, "slots": 4}}, "engines.count: .* (got 0)"),
        ({"schedules": {"overlaped": {}}}, "schedules.overlaped is no schedule; did you mean 'overlapped'"),
        ({"schedules": {"overlapped": {"update_row": 3}}}, "unknown key .*update_row'; did you mean 'update_rows'"),
        (
            {"roles": {"solver": {"right": 0.5, "lengths": {"kind": "lognormal", "median": 3, "sigm": 1}}}},
            "unknown key .*sigm'; did you mean 'sigma'",
        ),
        (
            {"roles": {"solver": {"right": 0.5, "lengths": {"kind": "lognormal", "median": 3}}}},
            "kind = 'lognormal' wants 'sigma'",
        ),
        (
            {"roles": {"solver": {"right": 0.5, "lengths": {"kind": "fixed", "tokens": 3, "sigma": 1}}}},
            "kind = 'fixed' does not read 'sigma'",
        ),
        ({"roles": {"solver": {"right": 0.5, "recall": 0.5, "lengths": FIXED}}}, "one of the two"),
        ({"roles": {"solver": {"lengths": FIXED}}}, "one of the two"),
        ({"roles": {"solver": {"right": 0.5, "lengths": []}}}, "`lengths` is empty"),
        ({"engines": {"count": 1, "slots": 2, "token_s": 1, "measured": [[1, 2.0]]}}, "keep one of them"),
        ({"engines": {"count": 1, "slots": 2, "measured": [[4, 2.0], [2, 1.0]]}}, "increasing"),
        (
            {"engines": {"count": 1, "slots": 9, "measured": [[1, 2.0], [2, 1.5]]}},
            "falls to -2 s with all 9 slots taken",
        ),
        ({"engines": {"count": 1, "slots": 4, "token_s": float("inf")}}, "engines.token_s: .* finite"),
        ({"engines": {"count": 1, "slots": 4, "token_s": 1.0, "load_s": float("nan")}}, "engines.load_s: "),
        (
            {"roles": {"solver": {"right": 0.5, "lengths": {"kind": "lognormal", "median": float("inf"), "sigma": 1}}}},
            "median: .* finite",
        ),
        ({"path": []}, "path: .* at least 1 item"),
    ],
)
def test_what_cannot_be_read_is_named(tables, words):
    with pytest.raises(ConfigError) as raised:
        make_costs(changed(**tables))
    raised.match(words.replace("(got", r"\(got").replace("0)", r"0\)"))


def test_a_file_that_is_none_and_one_that_is_not_toml_are_named(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"costs file .*none.toml' cannot be read"):
        load_costs(tmp_path / "none.toml")
    (tmp_path / "broken.toml").write_text("steps = ")
    with pytest.raises(ConfigError, match=r"broken.toml' is not TOML"):
        load_costs(tmp_path / "broken.toml")


def test_the_seconds_of_a_token_by_rows_and_the_best_rates():
    line = EngineCosts(count=1, slots=4, token_s=1.0, token_row_s=0.5)
    assert line.seconds() == [0.0, 1.5, 2.0, 2.5, 3.0]
    assert line.best_token_s == 0.75  # 3 s for 4 tokens
    assert line.quickest_token_s == 1.5
    curve = EngineCosts(count=1, slots=5, measured=((2, 1.0), (4, 2.0)))
    assert curve.seconds() == [0.0, 1.0, 1.0, 1.5, 2.0, 2.5]
    assert curve.best_token_s == 0.5
    assert EngineCosts(count=1, slots=3, measured=((1, 2.0),)).seconds() == [0.0, 2.0, 2.0, 2.0]


def test_lengths_may_differ_by_call_of_a_role():
    second = {"kind": "fixed", "tokens": 9}
    made = make_costs(changed(roles={**SMALL["roles"], "verifier": {"recall": 0.5, "lengths": [FIXED, second]}}))
    assert [made.roles["verifier"].lengths_of(call).tokens for call in (0, 1, 2)] == [5, 9, 9]


def plan(*overrides: str):
    return make_plan(load_config(ROOT / "recipes" / "marsrl_tiny.toml", overrides))


def test_a_workload_takes_groups_limits_and_policies_from_the_recipe():
    made = make_workload(plan("algorithm.stages=3", "algorithm.n=4", "sharing=isolated"), make_costs(SMALL))
    assert [(one.role, one.call, one.policy, one.max_tokens) for one in made.calls] == [
        ("solver", 0, "solver", 32),
        ("verifier", 0, "verifier", 32),
        ("corrector", 0, "corrector", 32),
    ]
    assert made.sampler.n == 4
    assert made.train_roles == {"solver", "verifier", "corrector"}


@pytest.mark.parametrize(
    ("tables", "overrides", "words"),
    [
        ({"roles": {**SMALL["roles"], "solvr": SMALL["roles"]["solver"]}}, (), "roles.solvr is no role .*'solver'"),
        ({"roles": {"solver": SMALL["roles"]["solver"]}}, (), r"calls 'verifier', and there is no \[roles.verifier\]"),
        ({"path": ["solver", "judge"]}, (), "path names 'judge'"),
        ({}, ("rollout.refill=true",), "refill is not simulated"),
        ({}, ("workflow.mode=system",), "list them, e.g. path"),
    ],
)
def test_costs_that_do_not_fit_the_recipe_are_refused(tables, overrides, words):
    with pytest.raises(ConfigError, match=words):
        make_workload(plan(*overrides), make_costs(changed(**tables)))


def test_a_recipe_of_independent_episodes_is_refused():
    with pytest.raises(ConfigError, match="draws independent episodes"):
        make_workload(make_plan(load_config(ROOT / "recipes" / "demo.toml")), make_costs(SMALL))


@pytest.mark.parametrize("path", sorted((ROOT / "recipes" / "costs").glob("*.toml")), ids=lambda path: path.stem)
def test_the_costs_files_that_are_shipped_can_be_read(path: Path):
    assert load_costs(path).engines.count >= 1
