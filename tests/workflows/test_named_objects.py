from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from rolecall.errors import ConfigError
from rolecall.registry import load_named
from rolecall.workflows import check_roles, load_workflow
from rolecall.workflows.solve_verify_correct import SolveVerifyCorrect


@dataclass(frozen=True, kw_only=True)
class Knobs:
    size: int
    rate: float = 0.5
    mode: Literal["a", "b"] = "a"
    names: tuple[str, ...] = ()
    limit: int | None = None
    weights: dict[str, float] | None = None
    on: bool = False


def load(**params: Any) -> Knobs:
    return load_named("knobs", {"knobs": Knobs}, "thing", params)


def test_values_of_simple_types_are_accepted_and_made_the_fields_type() -> None:
    knobs = load(size=2, rate=1, mode="b", names=["x", "y"], limit=None, weights={"solver": 1}, on=True)
    assert knobs == Knobs(size=2, rate=1.0, mode="b", names=("x", "y"), weights={"solver": 1.0}, on=True)
    assert isinstance(knobs.rate, float)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"size": 1, "raet": 1.0}, "has no setting 'raet'; did you mean 'rate'"),
        ({}, "needs a value for 'size'"),
        ({"size": "3"}, "'3' is str, wanted int"),
        ({"size": True}, "True is bool, wanted int"),
        ({"size": 1.5}, "1.5 is float, wanted int"),
        ({"size": 1, "mode": "c"}, "'c' is not one of 'a', 'b'"),
        ({"size": 1, "names": "xy"}, "'xy' is str, wanted a list"),
        ({"size": 1, "limit": "x"}, "wanted int | None"),
        ({"size": 1, "on": 1}, "1 is int, wanted bool"),
    ],
)
def test_a_wrong_setting_says_what_was_wanted(params: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(**params)
    assert words in str(raised.value)


def test_an_unknown_name_gives_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'solve_verify_correct'"):
        load_workflow("solve_verify_corect")


def test_a_workflow_is_loaded_by_name_with_its_knobs() -> None:
    assert load_workflow("solve_verify_correct", {"max_rounds": 3}) == SolveVerifyCorrect(max_rounds=3)
    with pytest.raises(ConfigError, match="max_rounds is 0; wanted 1 or more"):
        load_workflow("solve_verify_correct", {"max_rounds": 0})


def test_a_module_that_fails_to_import_keeps_its_own_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_flow.py").write_text("import math\nmath.no_such_thing\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(AttributeError, match="no_such_thing") as raised:
        load_workflow("broken_flow:Flow")
    assert raised.traceback[-1].path.name == "broken_flow.py"


def test_a_module_whose_own_import_is_missing_keeps_its_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needy_flow.py").write_text("import a_package_that_nobody_has\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="a_package_that_nobody_has"):
        load_workflow("needy_flow:Flow")
    with pytest.raises(ConfigError, match="there is no module 'needy' on the Python path"):
        load_workflow("needy.flow:Flow")


def test_a_class_that_is_not_a_dataclass_or_not_a_workflow_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "odd_flow.py").write_text(
        "from dataclasses import dataclass\nclass Plain: pass\n@dataclass\nclass Other: pass\nname = 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="wanted a frozen keyword-only dataclass"):
        load_workflow("odd_flow:Plain")
    with pytest.raises(ConfigError, match="'odd_flow:Other' is a Other; wanted a subclass"):
        load_workflow("odd_flow:Other")
    with pytest.raises(ConfigError, match="module odd_flow has no 'Othr'; did you mean 'Other'"):
        load_workflow("odd_flow:Othr")


@pytest.mark.parametrize("name", [":", "a:", ":A", "../x:Y", "a b:C", "a:b c"])
def test_a_name_that_no_module_and_class_can_have_is_one_clear_error(name: str) -> None:
    with pytest.raises(ConfigError, match="is not of the form module:Name"):
        load_workflow(name)


@pytest.mark.parametrize(
    ("roles", "words"),
    [
        ("solver", r"roles is 'solver' \(str\); wanted a tuple"),
        ((), "names no roles"),
        (("",), "role 0 is ''"),
        (("solver", 2), "role 1 is 2"),
        (("a\nb",), r"role 0 is 'a\\nb'"),
        (("solver", "solver"), "names the role 'solver' twice"),
    ],
    ids=str,
)
def test_roles_that_are_no_distinct_names_are_refused_before_anything_runs(roles: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_roles("mine", roles)


def test_roles_may_have_any_printable_name() -> None:
    check_roles("mine", ("a b", "a.b", "ü", "a_b", "1", "solver/x", "..", "%41", "x" * 300))
