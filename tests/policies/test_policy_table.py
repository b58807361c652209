from __future__ import annotations

from typing import Any

import pytest

from rolecall.engines.specs import PolicySpec
from rolecall.errors import ConfigError
from rolecall.policies.table import make_table

ROLES = ("solver", "verifier", "corrector")


def spec(name: str, kind: Any = "model") -> PolicySpec:
    return PolicySpec(name=name, kind=kind, model="builtin:tiny")


def test_shared_gives_all_roles_one_policy() -> None:
    table = make_table(ROLES, sharing="shared", template=spec("team"))
    assert dict(table.roles) == dict.fromkeys(ROLES, "team")
    assert table.roles_of("team") == ROLES == table.train_roles


def test_isolated_gives_each_role_its_own_even_when_there_is_only_one() -> None:
    table = make_table(ROLES, sharing="isolated", template=spec("any"))
    assert {role: table.specs[table.policy(role)].name for role in ROLES} == {role: role for role in ROLES}
    assert dict(make_table(("alone",), sharing="isolated", template=spec("any")).roles) == {"alone": "alone"}


def test_role_names_are_keys_and_never_parsed() -> None:
    roles = ("solver_a", "solver_b", "gen1", "gen2")
    table = make_table(roles, sharing="isolated", template=spec("any"))
    assert len({table.policy(role) for role in roles}) == 4


def test_rows_mix_trained_and_frozen_policies() -> None:
    table = make_table(
        ROLES,
        specs={"team": spec("team"), "judge": spec("judge", "frozen")},
        role_policies={"solver": "team", "verifier": "judge", "corrector": "team"},
    )
    assert table.roles_of("team") == ("solver", "corrector") == table.train_roles


def test_train_roles_leave_a_role_on_an_updating_policy_untrained() -> None:
    table = make_table(ROLES, sharing="shared", template=spec("team"), train_roles=["solver"])
    assert table.train_roles == ("solver",)
    assert table.policy("verifier") == "team"


TEAM = {"team": spec("team")}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"sharing": "sharred", "template": spec("t")}, "did you mean 'shared'"),
        ({"sharing": "shared"}, "takes a model"),
        ({"sharing": "shared", "template": spec("t"), "specs": TEAM}, "no rows"),
        ({"specs": TEAM, "role_policies": {"solver": "team"}}, "role 'verifier' has no policy"),
        (
            {"specs": TEAM, "role_policies": {**dict.fromkeys(ROLES, "team"), "verifer": "team"}},
            "which the workflow does not have; did you mean 'verifier'",
        ),
        (
            {"specs": TEAM, "role_policies": {**dict.fromkeys(ROLES, "team"), "solver": "tema"}},
            "policy 'tema'; did you mean 'team'",
        ),
        (
            {"specs": {**TEAM, "spare": spec("spare")}, "role_policies": dict.fromkeys(ROLES, "team")},
            "policy 'spare' is used by no role",
        ),
        ({"sharing": "shared", "template": spec("t"), "train_roles": ["solvr"]}, "did you mean 'solver'"),
        ({"sharing": "shared", "template": spec("t"), "train_roles": []}, "train_roles is empty"),
        ({"sharing": "shared", "template": spec("t", "frozen"), "train_roles": ["solver"]}, "is frozen"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_with_the_nearest_name(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_table(ROLES, **arguments)


def test_asking_for_an_unknown_role_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'corrector'"):
        make_table(ROLES, sharing="shared", template=spec("team")).policy("correctr")


def test_an_adapter_without_a_shape_is_refused_with_one() -> None:
    with pytest.raises(ConfigError, match=r"without a saved adapter; give it its shape, such as lora = \{ rank = 16"):
        PolicySpec(name="shared", kind="adapter", model="builtin:tiny")
