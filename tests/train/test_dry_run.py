"""What `--dry-run` says of memory: weights that are shared are counted once, and only where they are."""

from __future__ import annotations

import re

from rolecall.assemble import make_plan
from rolecall.config import make_config, overlay
from rolecall.dry_run import describe

BASE = {
    "workflow": {"name": "solve_verify_correct", "prompts": "tiny"},
    "tasks": {"name": "jsonl", "path": "tasks.jsonl"},
    "algorithm": {"name": "agent_grpo"},
    "engine": {"workers": 2},
    "sampling": {"max_tokens": 32},
}
ADAPTER = {"kind": "adapter", "lora": {"rank": 4}}


def said(**changes):
    """Learner and engine MiB of each policy, by name, and the number of MiB in all."""
    text = describe(make_plan(make_config(overlay(BASE, changes))))
    rows = re.findall(r"^  (\w+): .* learner ([\d.]+) MiB, engine ([\d.]+) MiB", text, re.MULTILINE)
    total = re.search(r"in all ([\d.]+) MiB", text)
    assert total is not None
    return {name: (float(learner), float(engine)) for name, learner, engine in rows}, float(total[1])


def test_adapters_of_one_base_share_it_in_the_learner_and_in_the_engine():
    shared, _ = said(sharing="shared", model=ADAPTER)
    isolated, total = said(sharing="isolated", model=ADAPTER)
    assert isolated["solver"] == shared["shared"]
    for role in ("verifier", "corrector"):
        assert isolated[role][0] < shared["shared"][0] / 2
        assert isolated[role][1] < shared["shared"][1] / 4
    assert abs(total - sum(map(sum, isolated.values()))) < 0.2


def test_whole_models_stand_side_by_side_and_an_inline_engine_has_one_copy():
    isolated, _ = said(sharing="isolated")
    assert isolated["solver"] == isolated["verifier"]
    inline, _ = said(sharing="isolated", engine={"mode": "inline"})
    assert abs(2 * inline["solver"][1] - isolated["solver"][1]) < 0.2


def test_a_frozen_policy_is_in_the_engine_alone():
    roles = {"solver": {"policy": "writer"}, "corrector": {"policy": "writer"}, "verifier": {"policy": "judge"}}
    rows, _ = said(policies={"writer": {}, "judge": {"kind": "frozen"}}, roles=roles)
    assert rows["judge"][0] == 0.0
    assert rows["judge"][1] == rows["writer"][1]


def test_a_policy_at_an_endpoint_takes_no_memory_and_is_named_by_where_it_is():
    roles = {"solver": {"policy": "writer"}, "corrector": {"policy": "writer"}, "verifier": {"policy": "judge"}}
    judge = {"kind": "api", "endpoint": "http://a/v1", "model": "some/judge"}
    changes = {"policies": {"writer": {}, "judge": judge}, "roles": roles, "deterministic": False}
    rows, _ = said(**changes)
    assert list(rows) == ["writer"]
    text = describe(make_plan(make_config(overlay(BASE, changes))))
    assert "verifier -> judge (some/judge at http://a/v1, not trained)" in text


def test_earlier_partners_are_further_copies_in_the_engine():
    sizes = {"tasks": {"sizes": {"validation": 4}}}
    plain, _ = said(sharing="shared")
    with_two, _ = said(sharing="shared", partners={"share": 0.25, "slots": 2}, **sizes)
    assert with_two["shared"][0] == plain["shared"][0]
    assert abs(with_two["shared"][1] - 3 * plain["shared"][1]) < 0.2


def test_interventions_are_told_where_they_differ_from_leaving_a_role_alone():
    table = {"verifier": {"damping": 0.3, "kl_anchor": 0.0}}
    text = describe(make_plan(make_config(overlay(BASE, {"sharing": "isolated", "interventions": table}))))
    assert "\ninterventions\n  verifier: damping = 0.3\n" in text
    assert "interventions" not in describe(make_plan(make_config(overlay(BASE, {"sharing": "isolated"}))))
