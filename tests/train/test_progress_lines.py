"""Progress in plain lines, and what the end of a pipe does to it."""

from __future__ import annotations

import subprocess
import sys

from rolecall.progress import PlainLines, bar, clock, time_left


def test_times_are_printed_as_people_write_them():
    assert clock(187.2) == "3:07"
    assert clock(3723) == "1:02:03"
    assert time_left(2, 10, 20.0) == "1:20"
    assert time_left(0, 10, 20.0) == "-:--"


def test_a_bar_stays_within_its_width_whatever_the_share():
    assert [bar(share, 4) for share in (-1.0, 0.5, 2.0)] == ["░░░░", "██░░", "████"]


def test_a_step_is_one_line_with_reward_and_mass_of_each_role(capsys):
    PlainLines(3, ("solver", "judge")).step(
        1, {"reward/team": 0.5, "reward/solver/total": 0.25, "validation/team": 1.0}
    )
    line = capsys.readouterr().out
    assert "step 1/3" in line
    assert "team 0.500  solver 0.250  judge -  validation 1.000" in line


def test_mass_is_told_where_roles_share_a_policy(capsys):
    lines = PlainLines(3, ("solver", "judge"))
    masses = {"dynamics/solver/mass_share": 1.0, "dynamics/judge/mass_share": 0.0}
    lines.step(1, masses)
    lines.step(2, dict.fromkeys(masses, 1.0))  # each has a policy of its own
    first, second = capsys.readouterr().out.splitlines()
    assert "solver - mass 1.00  judge - mass 0.00" in first
    assert "mass" not in second


def test_a_reader_who_goes_away_does_not_end_the_run():
    code = (
        "from rolecall.progress import PlainLines\n"
        "lines = PlainLines(1, ())\n"
        "for number in range(200_000): lines.note(str(number))\n"
        "lines.close()\n"
        "import sys; sys.stderr.write('went on')\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "0\n"
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == "went on"
    assert process.wait(30) == 0
