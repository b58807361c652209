"""The catalogue of hostile programs: all contained, none scored right, and what would be seen if one was not."""

from __future__ import annotations

import json
import os
import socket
import sys

import pytest
from typer.testing import CliRunner

from rolecall.cli import app
from rolecall.code_problems import CallTest
from rolecall.debugging.check_sandbox import check_sandbox
from rolecall.debugging.witness import Witness
from rolecall.errors import SandboxError
from rolecall.sandbox.hostile import ATTACKS
from rolecall.sandbox.hostile.catalogue import Attack


@pytest.mark.slow
def test_every_attack_is_contained_and_none_is_scored_right():
    assert len(ATTACKS) >= 60
    words, found = check_sandbox()
    assert "bubblewrap" in words
    assert [one for one in found if not one.good] == []
    assert [one.name for one in found] == [attack.name for attack in ATTACKS] + ["the end of all sandboxes"]


def test_a_leak_would_be_seen(monkeypatch):
    """The same check, given programs that know the secret or reach the listener, complains."""
    seen: dict[str, str] = {}
    filled = Attack.filled

    def told(attack: Attack, holes: dict[str, str]) -> str:
        if attack.name == "told":
            return f"print({seen['secret']!r})"
        if attack.name == "reached":
            with socket.create_connection(("127.0.0.1", int(holes["PORT"])), timeout=5):
                pass
        if attack.name == "written":
            with open(os.path.join(holes["FOLDER"], "kept.txt"), "a") as file:
                file.write("x")
        return filled(attack, holes)

    made = Witness.__init__

    def make(witness: Witness) -> None:
        made(witness)
        seen["secret"] = witness.secret

    monkeypatch.setattr(Witness, "__init__", make)
    monkeypatch.setattr(Attack, "filled", told)
    attacks = [Attack(name=name, kind="stdio", source="pass") for name in ("told", "reached", "written")]
    _, found = check_sandbox(attacks)
    assert [(one.contained, one.scored) for one in found[:3]] == [(True, True), (False, False), (False, False)]
    assert "reached the TCP listener" in found[1].why
    assert "kept.txt changed" in found[2].why


def test_nothing_hostile_runs_without_protection(monkeypatch):
    monkeypatch.setattr(
        sys.modules["rolecall.sandbox.protection"], "_strongest", lambda: (None, ("no bwrap is installed",))
    )
    with pytest.raises(SandboxError, match=r"no bwrap is installed.*rolecall\[sandbox\].*unsandboxed = true"):
        check_sandbox()


def test_the_command_prints_a_line_for_each_attack_or_json(monkeypatch):
    few = tuple(attack for attack in ATTACKS if attack.name in ("shell", "exit with 0", "no function"))
    check = sys.modules["rolecall.debugging.check_sandbox"]
    monkeypatch.setattr(check.check_sandbox, "__defaults__", (few, None, ""))
    done = CliRunner().invoke(app, ["check", "sandbox", "--json"])
    assert done.exit_code == 0, done.output
    assert "bubblewrap (no network" in done.stderr, "which protection is active is said at the start"
    rows = json.loads(done.stdout)
    assert isinstance(rows, list)
    assert [row["name"] for row in rows] == [*(attack.name for attack in few), "the end of all sandboxes"]
    assert all(set(row) == {"name", "contained", "scored", "seconds"} for row in rows)
    assert all(row["contained"] and not row["scored"] for row in rows)
    told = Attack(name="told", kind="call", source="def answer():\n    return 1")
    monkeypatch.setattr(check, "_test", lambda attack, secret: CallTest(function="answer", arguments=(), expected=1))
    monkeypatch.setattr(check.check_sandbox, "__defaults__", ((told,), None, ""))
    done = CliRunner().invoke(app, ["check", "sandbox"])
    assert done.exit_code == 1
    assert "SCORED RIGHT" in done.output
    assert "1 of them not contained or scored right" in done.output
