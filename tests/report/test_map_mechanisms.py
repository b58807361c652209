"""The part of a map that looks for causes: roles, pairs of cells, capture, early signs.

Behaviours locked here, all by hand: sums, last values and means of a role come from the right keys; what an arm changes
is paired by seed; the copied role is measured against the others; the heaviest role of a shared policy and how far its
way of speaking spread; signs make no claim on few falls; unfinished cells count nowhere.
"""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tomli_w

from rolecall.matrix.map import read_map, write_map
from rolecall.report.map_data import Fall, Figure, MapCell, MapData, RoleFigures
from rolecall.report.map_mechanisms import capture_section, paired_section, roles_section, signs_section
from rolecall.report.map_paired import copied_over_others, heaviest, leaked, pairs, ratio_of

SHARED = {"voter": "shared", "aggregator": "shared"}


def role(update: float = 1.0, kl: float = 0.1, *, copies: bool = False, **rest: Any) -> RoleFigures:
    given: dict[str, Any] = {"policy": "p", "optimizer_steps": 10.0, **rest}
    return RoleFigures(copies=copies, update_norm=update, kl_base=kl, **given)


def cell(arm: str, seed: int, last: float, voter: RoleFigures, other: RoleFigures, **rest: Any) -> MapCell:
    def exact(mean: float) -> Figure:
        return Figure(mean=mean, low=mean - 0.05, high=mean + 0.05)

    fall = Fall(
        base=exact(0.5),
        peak=exact(0.8),
        peak_step=10,
        last=exact(last),
        fall=exact(0.8 - last),
        fell=last < 0.7,
        below_base=last < 0.5,
    )
    return MapCell(
        name=f"Voting-{arm}-s{seed}",
        axes={"workflow": "Voting", "arm": arm},
        seed=seed,
        seeded=True,
        fall=fall,
        test=(exact(0.5), exact(0.8)),
        roles={"voter": voter, "aggregator": other},
        **rest,
    )


def matrix_of(*cells: MapCell, **rest: Any) -> MapData:
    axes = {"workflow": ("Voting",), "arm": ("plain", "averaged")}
    return MapData(name="m", axes=axes, seeds=(0, 1), cells=cells, **rest)


def test_an_arm_is_paired_with_the_first_value_of_its_axis_by_seed():
    data = matrix_of(
        cell("plain", 0, 0.5, role(4.0), role()),
        cell("plain", 1, 0.6, role(8.0), role()),
        cell("averaged", 0, 0.7, role(2.0), role()),
        cell("averaged", 1, 0.7, role(2.0), role(), missing="unfinished"),
    )
    (pair,) = pairs(data, "arm")
    assert (pair.setting, pair.first, pair.other, len(pair.cells)) == ("Voting", "plain", "averaged", 1)
    found = pair.difference(lambda one: one.fall.last.mean if one.fall else math.nan)
    assert (found.mean, math.isnan(found.low)) == (pytest.approx(0.2), True)
    assert pair.ratio(lambda one: one.roles["voter"].update_norm).mean == pytest.approx(0.5)
    page = paired_section(data)
    assert "<h3>Arms against plain</h3>" in page
    assert "voter 0.50×, 1.00×; aggregator 1.00×, 1.00×" in page
    assert "1 and 0" in page  # fell without and with
    assert "Sharing against" not in page


def test_ratios_are_geometric_means_with_the_interval_of_the_logarithm():
    found = ratio_of([(2.0, 1.0), (8.0, 1.0), (0.0, 1.0), (math.nan, 1.0)])
    half = 12.706 * 1.0  # of log2: 1 and 3, standard deviation sqrt(2), over sqrt(2)
    assert found.mean == pytest.approx(4.0)
    assert math.log2(found.high) == pytest.approx(2 + half)
    assert not ratio_of([(0.0, 1.0)]).known


def test_every_column_of_roles_and_capture_is_explained_below_its_table():
    heavy, light = role(mass=0.7), role(mass=0.3)
    data = matrix_of(cell("plain", 0, 0.4, heavy, light))
    for page in (roles_section(data), capture_section(data)):
        columns = page.split("</thead>")[0].count('<th scope="col">')
        assert page.count("<dt>") >= columns - 2


def test_the_copied_role_is_measured_against_the_mean_of_the_others():
    cells = [cell("plain", 0, 0.8, role(6.0, copies=True, turns=3.0), role(2.0, turns=1.0))]
    assert copied_over_others(cells, lambda one: one.update_norm).mean == pytest.approx(3.0)
    nobody = [cell("plain", 0, 0.8, role(6.0), role(2.0))]
    assert not copied_over_others(nobody, lambda one: one.update_norm).known
    page = roles_section(matrix_of(*cells))
    assert "voter (copies)" in page
    assert "<td>1</td><td>3</td><td>1.00×</td><td>3.00×</td><td>1.00×</td>" in page  # seeds, turns, steps, update, KL


def test_the_heaviest_role_and_how_far_its_way_of_speaking_spread():
    heavy = role(mass=0.7)
    light = role(mass=0.3, formats={"voter": 0.2}, taken_for={"voter": 0.4})
    one = cell("plain", 0, 0.4, heavy, light)
    assert heaviest(one) == "voter"
    assert leaked(one) == (0.2, 0.4)
    page = capture_section(matrix_of(one))
    assert "<td>voter (1)</td><td>70.0\u202f%</td><td>+20.0</td><td>+40.0</td><td>1 of 1</td>" in page
    alone = cell("plain", 0, 0.4, role(), role())
    assert heaviest(alone) is None
    assert all(map(math.isnan, leaked(alone)))
    assert capture_section(matrix_of(alone)) == ""


def test_signs_are_words_and_escaped():
    assert signs_section(matrix_of()) == ""
    assert "<li>a &lt; b.</li>" in signs_section(matrix_of(signs=("a < b",)))


def write_run(folder: Path, curve: list[float], roles: dict[str, str], figures: dict[str, list[float]]) -> None:
    """A finished run whose validation and `figures` have one value every five steps."""
    (folder / "metrics").mkdir(parents=True)
    (folder / "config.toml").write_text(tomli_w.dumps({"name": folder.name, "steps": 5 * (len(curve) - 1)}))
    given = {**figures, "validation/team": curve}
    given |= {f"validation/team_{side}": [m + d for m in curve] for side, d in (("low", -0.04), ("high", 0.04))}
    rows = [(5 * place, key, value) for key, values in given.items() for place, value in enumerate(values)]
    steps, keys, values = zip(*rows, strict=True)
    table = pa.table({"step": list(steps), "key": list(keys), "value": list(values)})
    pq.write_table(table, folder / "metrics" / "00000000-00000099.parquet")
    summary = {"roles_to_policies": roles, "tokens": {"generated": 10}}
    (folder / "summary.json").write_text(json.dumps(summary))


def test_figures_of_roles_come_from_the_metrics_of_a_run(tmp_path):
    shares = [0.0, 0.0, 0.3, 0.5, 0.6, 0.6, 0.7, 0.8]  # starts at .1; the last quarter, at least three: .7
    figures = {
        "dynamics/voter/total_update_norm": [1.0, 3.0, math.nan],
        "dynamics/voter/total_optimizer_steps": [2.0, 6.0],
        "dynamics/voter/kl_base": [0.1, 0.4],
        "dynamics/voter/copies": [3.0],
        "behaviour/voter/num_turns": [24.0, 8.0],
        "episodes/started": [8.0, 8.0],
        "dynamics/voter/mass_share": [0.6, 0.8],
        "dynamics/aggregator/mass_share": [0.4, 0.2],
        "behaviour/aggregator/format/voter": shares,
        "behaviour/aggregator/taken_for/voter": shares[:5],  # too few for a start and an end
        "behaviour/aggregator/told_apart": [1.0 - share for share in shares],
    }
    curve = [0.5, 0.7, 0.8, 0.8, 0.5, 0.5]
    write_run(tmp_path / "Voting-SP", curve, SHARED, figures)
    row = {"name": "Voting-SP", "axes": {"workflow": "Voting", "sharing": "SP"}, "seed": 0, "tokens_of": None}
    axes = {"workflow": ["Voting"], "sharing": ["SP"]}
    (tmp_path / "matrix.json").write_text(json.dumps({"name": "m", "axes": axes, "seeds": [0], "cells": [row]}))
    data = read_map(tmp_path)
    voter, aggregator = data.cells[0].roles["voter"], data.cells[0].roles["aggregator"]
    assert (voter.update_norm, voter.optimizer_steps, voter.kl_base, voter.copies) == (3.0, 6.0, 0.25, True)
    assert (voter.turns, math.isnan(aggregator.turns)) == (2.0, True)
    assert (voter.mass, aggregator.mass) == (pytest.approx(0.7), pytest.approx(0.3))
    assert aggregator.formats == {"voter": pytest.approx(0.6)}
    assert aggregator.taken_for == {}
    assert aggregator.lost == pytest.approx(0.6)
    assert math.isnan(aggregator.update_norm)
    assert any("no claim below 10" in words and "1 falls" in words for words in data.signs)
    assert data.signs[0].startswith("amplification of a role's copies over their number: amplification at 0.95")
    rows = list(csv.DictReader(write_map(tmp_path)[2].read_text().splitlines()))
    assert [(one["role"], one["copies"], one["update_norm"]) for one in rows] == [
        ("voter", "1", "3.0"),
        ("aggregator", "0", ""),
    ]
    assert rows[1]["formats"] == "voter=0.6"
