"""The map of a matrix: its figures, its words for what is missing, its files.

Behaviours locked here: base, peak, terminal and fall by hand; missing cells are named with the reason; text is escaped
in HTML and LaTeX; one page that loads nothing; several seeds become a mean with the interval of Student's t.
"""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tomli_w
from typer.testing import CliRunner

from rolecall.cli import app
from rolecall.errors import UsageError
from rolecall.matrix.map import read_map, write_map
from rolecall.report.map_curves import mean_series
from rolecall.report.map_data import Figure, over_seeds
from rolecall.report.read import Series


def estimate(mean: float) -> dict[str, float]:
    return {"mean": mean, "low": mean - 0.04, "high": mean + 0.04, "n": 100, "num_tasks": 100}


def write_run(folder: Path, curve: list[float], *, roles: dict[str, str], finished: bool = True) -> None:
    """A run folder with a validation every ten steps, as `read_run` reads it."""
    (folder / "metrics").mkdir(parents=True)
    (folder / "config.toml").write_text(tomli_w.dumps({"name": folder.name, "steps": 10 * (len(curve) - 1)}))
    rows = []
    for place, mean in enumerate(curve):
        for key, value in (("", mean), ("_low", mean - 0.04), ("_high", mean + 0.04)):
            rows.append((10 * place, f"validation/team{key}", value))
        for i, role in enumerate(roles):
            rows.append((10 * place, f"dynamics/{role}/grad_norm", 0.1 * (i + 1)))
            rows.append((10 * place, f"dynamics/{role}/mass_share", (i + 1) / 3))
    steps, keys, values = zip(*rows, strict=True)
    table = pa.table({"step": list(steps), "key": list(keys), "value": list(values)})
    pq.write_table(table, folder / "metrics" / "00000000-00000099.parquet")
    sides = {"before": curve[0], "after": max(curve)}
    for when, mean in sides.items():
        figures = {"sampled": {"team": estimate(mean), "roles": {role: {} for role in roles}, "tokens": 500}}
        (folder / f"evaluation_{when}.json").write_text(json.dumps(figures))
    if finished:
        summary = {"roles_to_policies": roles, "steps": 30, "tokens": {"generated": 1234}}
        (folder / "summary.json").write_text(json.dumps(summary))


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    """Four cells: one that fell, one under way, one that failed, one not begun."""
    shared = {"voter": "shared", "aggregator": "shared"}
    write_run(tmp_path / "Voting-SP-0.8M", [0.4, 0.6, 0.8, 0.8, 0.3, 0.3], roles=shared)
    write_run(tmp_path / "Voting-IP-0.8M", [0.4, 0.5], roles={r: r for r in shared}, finished=False)
    cells = [
        {"name": f"Voting-{sharing}-{scale}", "axes": {"workflow": "Voting", "sharing": sharing, "scale": scale}}
        for sharing in ("IP", "SP")
        for scale in ("0.8M", "3M")
    ]
    index: dict[str, Any] = {
        "name": "<b>tiny</b>",
        "axes": {"workflow": ["Voting"], "sharing": ["IP", "SP"], "scale": ["0.8M", "3M"]},
        "seeds": [0],
        "cells": [{**cell, "seed": 0, "tokens_of": None, "teams": []} for cell in cells],
        "failures": {
            "Voting-IP-3M": {"exit_code": 1, "reason": "<script>alert(1)</script> & no space", "log": "l", "times": 2}
        },
    }
    (tmp_path / "matrix.json").write_text(json.dumps(index))
    return tmp_path


def test_base_peak_terminal_and_fall_are_those_of_the_validations(matrix):
    cell = next(cell for cell in read_map(matrix).cells if cell.name == "Voting-SP-0.8M")
    fall = cell.fall
    assert fall is not None
    assert (fall.base.mean, fall.base.low) == (0.4, pytest.approx(0.36))
    assert (fall.peak.mean, fall.peak_step) == (pytest.approx(0.8), 30)
    assert fall.last.mean == pytest.approx(0.3)
    assert fall.fall.mean == pytest.approx(0.5)
    assert fall.fall.high - fall.fall.mean == pytest.approx(0.04 * 2**0.5)
    assert fall.is_cliff
    assert cell.test[1].mean == 0.8
    assert cell.tokens == 1234


def test_what_is_missing_is_said_in_words(matrix):
    page = write_map(matrix)[0].read_text()
    assert "1 of 4 cells have come to their end; 1 of 1 teams learned, 1 fell from their peak, 0 more" in page
    for words in (
        "<b>Voting-IP-0.8M</b>: unfinished: step 10 of 10",
        "<b>Voting-SP-3M</b>: not begun",
        "failed, 2 times (exit code 1): &lt;script&gt;alert(1)&lt;/script&gt; &amp; no space; its log: l",
    ):
        assert words in page


def test_a_cell_that_cannot_be_read_and_a_majority_that_failed_are_named_and_the_rest_is_drawn(matrix):
    (matrix / "Voting-IP-0.8M" / "config.toml").write_text("name = ")
    write_run(matrix / "SA-0.8M", [0.4, 0.6, 0.6], roles={"solver": "shared"})
    index = json.loads((matrix / "matrix.json").read_text())
    control = {"name": "SA-0.8M", "axes": {"workflow": "SA", "scale": "0.8M"}, "seed": 0}
    index["cells"].append({**control, "tokens_of": "Voting-SP-0.8M", "teams": ["Voting-SP-0.8M", "Voting-IP-0.8M"]})
    failed = {"exit_code": 1, "reason": "no memory", "log": "logs/x.log", "times": 1}
    index["failures"]["SA-0.8M.majority-of-Voting-SP-0.8M"] = failed
    (matrix / "matrix.json").write_text(json.dumps(index))
    folder = matrix / "SA-0.8M" / "evaluations"
    folder.mkdir()
    (folder / "majority-of-Voting-IP-0.8M.json").write_text('{"majority_at_k": "odd", "samples": []}')
    page = write_map(matrix)[0].read_text()
    assert "<b>Voting-IP-0.8M</b>: " in page
    assert "config.toml&#x27; cannot be read" in page
    assert "<b>SA-0.8M, majority for the tokens of Voting-SP-0.8M</b>: failed (exit code 1): no memory" in page
    assert "1 of 1 teams learned" in page


def test_a_value_that_looks_like_a_seed_stays_in_the_name_of_a_matrix_with_one_seed(matrix):
    index = json.loads((matrix / "matrix.json").read_text())
    index["cells"] = [{**index["cells"][0], "name": "Voting-IP-0.8M-s0"}]
    (matrix / "matrix.json").write_text(json.dumps(index))
    assert read_map(matrix).cells[0].setting == "Voting-IP-0.8M-s0"
    index["seeds"] = [0, 1]
    (matrix / "matrix.json").write_text(json.dumps(index))
    assert read_map(matrix).cells[0].setting == "Voting-IP-0.8M"


def test_the_page_is_escaped_loads_nothing_and_is_light_and_dark(matrix):
    page = write_map(matrix)[0].read_text()
    assert "<b>tiny</b>" not in page
    assert "alert(1)</script>" not in page
    assert page.count("<script>") == 1
    assert not re.search(r'(src|href)="(?!#)', page)
    assert "@import" not in page
    assert "url(" not in page
    assert "prefers-color-scheme:dark" in page


def test_role_gradients_stand_beside_accuracy_and_masses_only_within_one_policy(matrix):
    page = write_map(matrix)[0].read_text()
    assert "Voting-SP-0.8M: gradient norm by role" in page
    assert "Voting-IP-0.8M: gradient norm by role" in page
    assert "Voting-SP-0.8M: share of gradient mass" in page
    assert "Voting-IP-0.8M: share of gradient mass" not in page


def test_the_csv_has_a_row_a_cell_and_empty_fields_where_nothing_is_known(matrix):
    rows = list(csv.DictReader(write_map(matrix)[1].read_text().splitlines()))
    assert [row["cell"] for row in rows] == ["Voting-IP-0.8M", "Voting-IP-3M", "Voting-SP-0.8M", "Voting-SP-3M"]
    assert (rows[2]["base"], rows[2]["fall"], rows[2]["cliff"], rows[2]["sharing"]) == ("0.4", "0.5", "1", "SP")
    assert (rows[1]["peak"], rows[1]["missing"][:6]) == ("", "failed")


def test_a_cell_under_way_has_no_verdict_yet_and_is_averaged_nowhere(matrix):
    page, table, _, latex = (path.read_text() for path in write_map(matrix))
    under_way = next(row for row in csv.DictReader(table.splitlines()) if row["cell"] == "Voting-IP-0.8M")
    assert (under_way["base"], under_way["cliff"], under_way["fell"]) == ("0.4", "", "")
    assert r"Voting-IP-0.8M & -- & -- & -- & -- & -- \\" in latex
    assert '<th scope="row">IP</th><td>0</td>' in page  # Shared or isolated
    assert '<td class="none"><b>45.0\u202f%</b>' in page  # its peak so far, hatched
    row = page.split('<th scope="row">Voting-IP-0.8M</th>')[-1].split("</tr>")[0]
    assert "<td>yes</td>" not in row
    assert "<td>no</td>" not in row


def test_the_latex_table_has_a_row_a_setting(matrix):
    text = write_map(matrix)[3].read_text()
    assert (
        r"Voting-SP-0.8M & 40.0 [36.0, 44.0] & 80.0 [76.0, 84.0] & 30.0 [26.0, 34.0] & 50.0 [44.3, 55.7] & 1/1 \\"
        in text
    )
    assert r"Voting-SP-3M & -- & -- & -- & -- & -- \\" in text


def test_seeds_become_a_mean_with_the_interval_of_students_t():
    found = over_seeds([Figure(mean=0.5), Figure(mean=0.6), Figure(mean=0.7)])
    assert found.mean == pytest.approx(0.6)
    assert found.high - found.mean == pytest.approx(4.303 * 0.1 / 3**0.5)
    assert over_seeds([Figure(mean=0.5, low=0.4, high=0.6)]).low == 0.4
    assert not over_seeds([]).known


def test_a_curve_of_several_seeds_is_their_mean_where_all_have_a_value():
    first = Series(steps=(0, 5, 10, 15), values=(0.4, 0.5, math.nan, 0.9))
    second = Series(steps=(0, 5, 10), values=(0.6, 0.7, 0.8))
    mean, low, high = mean_series([first, second])
    assert mean.steps == (0, 5)
    assert mean.values == (pytest.approx(0.5), pytest.approx(0.6))
    assert high.values[0] - low.values[0] == pytest.approx(2 * 1.2706, abs=1e-4)
    assert mean_series([first]) == (first, Series(), Series())


def test_rolecall_report_knows_the_folder_of_a_matrix(matrix, tmp_path):
    result = CliRunner().invoke(app, ["report", str(matrix), "--out", str(tmp_path / "page" / "m.html")])
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in (tmp_path / "page").iterdir()) == [
        "m.html",
        "map.csv",
        "map.tex",
        "map_roles.csv",
    ]


@pytest.mark.parametrize("text", ['{"cells": [5]}', '{"cells": [{}]}', '{"axes": {"workflow": 5}, "cells": []}'])
def test_an_index_of_another_shape_is_named_by_rolecall_report(tmp_path, text):
    (tmp_path / "matrix.json").write_text(text)
    result = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert isinstance(result.exception, UsageError)
    assert f"reading the matrix {str(tmp_path)!r}" in str(result.exception)


def test_a_folder_that_is_no_matrix_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="is no matrix"):
        read_map(tmp_path)


def test_a_control_that_ended_short_of_its_tokens_is_missing_in_words(matrix):
    index = json.loads((matrix / "matrix.json").read_text())
    control = {"name": "SA-0.8M", "axes": {"workflow": "SA", "scale": "0.8M"}, "seed": 0, "teams": []}
    index["cells"].append({**control, "tokens_of": "Voting-SP-0.8M"})
    (matrix / "matrix.json").write_text(json.dumps(index))
    write_run(matrix / "SA-0.8M", [0.4, 0.6, 0.8], roles={"solver": "shared"})
    assert read_map(matrix).cells[-1].missing == ""  # both generated 1,234 tokens
    file = matrix / "SA-0.8M" / "summary.json"
    summary = json.loads(file.read_text())
    summary |= {"steps": 10, "tokens": {"generated": 200}}
    file.write_text(json.dumps(summary))
    words = "ended after 10 steps with 200 of the 1,234 tokens of Voting-SP-0.8M: give the control's set more steps"
    assert read_map(matrix).cells[-1].missing.startswith(words)
    assert "4 of 5 cells" not in write_map(matrix)[0].read_text()
    file.write_text(json.dumps(summary | {"cliff": {"stopped": True}}))
    assert read_map(matrix).cells[-1].missing == ""


def test_the_curve_of_a_setting_of_which_one_seed_has_begun_is_that_seed(matrix):
    index = json.loads((matrix / "matrix.json").read_text())
    named = {"axes": {"workflow": "One"}, "tokens_of": None, "teams": []}
    cells = [{**named, "name": f"One-s{seed}", "seed": seed} for seed in (0, 1)]
    (matrix / "matrix.json").write_text(json.dumps({**index, "axes": {"workflow": ["One"]}, "cells": cells}))
    write_run(matrix / "One-s0", [0.4, 0.5], roles={"solver": "shared"}, finished=False)
    page = write_map(matrix)[0].read_text()
    assert "One: validation" in page
    assert "(2 seeds)" not in page


def test_the_page_says_what_the_parts_of_a_name_are(matrix):
    page = write_map(matrix)[0].read_text()
    assert "in this order: workflow: Voting; sharing: IP and SP; scale: 0.8M and 3M." in page
