"""The clock of an engine: rows that come and go, prompts, loads; and how rows are spread."""

from __future__ import annotations

import math

import pytest

from rolecall.pipeline.scheduler import Group, Row
from rolecall.simulation.engine import Fleet, SimulatedEngine


def row(tokens: int = 0) -> Row:
    group = Group.of(1, chain=0, stage=0, number=0, policy="p", role="solver")
    group.rows[0].tokens = tokens
    return group.rows[0]


def engine(*seconds: float, prompt_token_s: float = 0.0) -> SimulatedEngine:
    """`seconds` a token by number of rows, from one row on."""
    return SimulatedEngine(0, [0.0, *seconds], prompt_token_s)


def test_a_second_row_slows_the_first_down_and_its_end_is_moved():
    one = engine(1.0, 2.0)
    first, second = row(), row()
    one.add(0.0, first, 10, 0)
    assert one.next_end() == 10.0
    one.add(4.0, second, 3, 0)  # the first has 6 left; both move at 2 s a token
    assert one.next_end() == 10.0  # the second: 3 tokens at 2 s
    assert one.take_ended(10.0) == [second]
    assert one.next_end() == 13.0  # the first had 3 of 6 since, and 3 are left at 1 s
    assert one.take_ended(13.0) == [first]
    assert one.next_end() == math.inf
    assert one.decoded == pytest.approx(13.0)
    assert one.times.held_s == 13.0
    assert one.times.rows_s == pytest.approx(4 + 12 + 3)


def test_rows_that_end_together_are_taken_together():
    one = engine(1.0, 1.0)
    rows = [row(), row()]
    for each in rows:
        one.add(0.0, each, 5, 0)
    assert one.take_ended(one.next_end()) == rows


def test_a_prompt_holds_up_the_whole_batch():
    one = engine(1.0, 1.0, prompt_token_s=0.1)
    one.add(0.0, row(), 10, 20)  # reads until 2
    assert one.next_end() == 12.0
    one.add(5.0, row(), 1, 30)  # reads until 8; the first has 3 of 10
    assert one.next_end() == 9.0
    one.take_ended(9.0)
    assert one.next_end() == 15.0
    assert one.prompt_s == pytest.approx(5.0)
    one.advance(15.0)
    assert one.times.stalled_s == pytest.approx(5.0)


def test_a_completion_that_goes_on_reads_its_own_tokens_again():
    one = engine(1.0, prompt_token_s=0.1)
    one.add(0.0, row(tokens=30), 10, 20)
    assert one.next_end() == 15.0
    assert one.prompt_s == 0.0  # none of it is a prompt that is read for the first time


def test_new_weights_hold_up_the_rows_and_what_they_have_is_computed_anew():
    one = engine(1.0, 1.0, prompt_token_s=0.1)
    one.add(0.0, row(), 10, 20)  # until 2
    one.add(2.0, row(), 10, 10)  # until 3; neither has a token
    one.load(7.0, 3.0, recompute=True)  # each has 4 tokens: 3 s, and 0.1 s for 20 + 4 + 10 + 4 tokens
    assert one.next_end() == pytest.approx(7 + 3 + 3.8 + 6)
    again = engine(1.0, prompt_token_s=0.1)
    again.add(0.0, row(), 10, 20)
    again.load(7.0, 3.0, recompute=False)
    assert again.next_end() == pytest.approx(2 + 10 + 3)


def test_a_load_without_rows_is_no_idle_time_and_holds_up_those_that_come():
    one = engine(1.0)
    one.load(5.0, 3.0, recompute=True)
    one.add(6.0, row(), 2, 0)
    assert one.next_end() == 10.0
    one.take_ended(10.0)
    assert one.times.held_s == pytest.approx(5.0)  # 5 to 10


def test_time_that_costs_nothing_passes_at_once():
    one = engine(0.0, 0.0)
    one.add(0.0, row(), 1000, 0)
    assert one.next_end() == 0.0
    assert len(one.take_ended(0.0)) == 1


def test_a_row_goes_to_an_engine_that_has_the_fewest():
    engines = [SimulatedEngine(number, [0.0, 1.0, 1.0, 1.0], 0.0) for number in range(3)]
    fleet = Fleet(engines, 3)
    taken = []
    for _ in range(7):
        one = fleet.take()
        one.add(0.0, row(), 5 + len(taken), 0)
        taken.append(one.number)
    assert taken == [0, 1, 2, 0, 1, 2, 0]
    assert fleet.free == 2
    ended = engines[2].take_ended(engines[2].next_end())
    fleet.give_back(engines[2], len(ended))
    assert fleet.free == 3
    assert fleet.take().number == 2
