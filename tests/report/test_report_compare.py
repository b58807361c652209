"""Several runs on one page: overlaid curves, figures side by side, settings that differ, runs that differ in kind."""

from __future__ import annotations

import pytest
import typer
from report_builders import ROLES, make_run, usual_metrics
from test_report_page import Outline
from typer.testing import CliRunner

from rolecall.commands_report import register
from rolecall.report import make_page
from rolecall.report.curves import by_setting, styles
from rolecall.report.read import read_run

ISOLATED = {role: role for role in ROLES}


@pytest.fixture
def app():
    app = typer.Typer()
    register(app)
    app.command("other")(lambda: None)
    return app


def table_row(page: str, head: str) -> str:
    start = page.index(f'<th scope="row">{head}</th>')
    return page[start : page.index("</tr>", start)]


def test_every_run_has_a_curve_in_one_chart_for_each_role(tmp_path):
    folders = [make_run(tmp_path / name) for name in ("one", "two")]
    charts = [a for tag, a in Outline(make_page(folders)).tags if tag == "figure" and "data-chart" in a]
    rewards = [a["data-chart"] for a in charts if '"k":"rate"' in a["data-chart"]]
    assert sum('"n":"one"' in text and '"n":"two"' in text for text in rewards) >= len(ROLES)


def test_figures_stand_side_by_side(tmp_path):
    folders = [make_run(tmp_path / "one", after=0.7), make_run(tmp_path / "two", after=0.9)]
    page = make_page(folders)
    cells = table_row(page, "team")
    assert cells.index("70.0") < cells.index("90.0")
    assert "two is best with" in Outline(page).text


def test_runs_that_do_not_differ_clearly_are_not_ranked(tmp_path):
    folders = [make_run(tmp_path / "one", after=0.88), make_run(tmp_path / "two", after=0.9)]
    assert "the best ones do not differ clearly" in Outline(make_page(folders)).text


def test_runs_with_other_metrics_and_roles_are_compared_where_they_can_be(tmp_path):
    one = make_run(tmp_path / "one")
    two = make_run(tmp_path / "two", roles=("solver", "judge"), metrics=usual_metrics(roles=("solver", "judge")))
    three = make_run(tmp_path / "three", metrics={}, before=None, after=None)
    text = Outline(make_page([one, two, three])).text
    assert "Reward: judge" in text
    assert "Not recorded by two and three." in text
    assert "three: 1 to look at" in text


def test_settings_that_differ_stand_first(tmp_path):
    one = make_run(tmp_path / "one", config={"learner": {"lr": 0.1}})
    two = make_run(tmp_path / "two", config={"learner": {"lr": 0.2}})
    page = make_page([one, two])
    configuration = page[page.index('id="configuration"') :]
    assert configuration.index("learner.lr") < configuration.index("that are the same")


def test_seeds_of_one_setting_share_a_colour_and_differ_in_dash(tmp_path):
    runs = [
        read_run(make_run(tmp_path / f"{sharing}-{seed}", config={"sharing": sharing, "seed": seed}))
        for sharing in ("shared", "isolated")
        for seed in (0, 1)
    ]
    assert [len(group) for group in by_setting(runs).values()] == [2, 2]
    assert [(s.colour, s.dash) for s in styles(runs)] == [("c0", 0), ("c0", 1), ("c1", 0), ("c1", 1)]
    text = Outline(make_page([run.path for run in runs])).text
    assert "sharing = shared" in text
    assert "sharing = isolated" in text


def test_runs_that_all_differ_in_seed_alone_have_a_colour_each(tmp_path):
    runs = [read_run(make_run(tmp_path / f"r{seed}", config={"seed": seed})) for seed in (0, 1)]
    assert [s.colour for s in styles(runs)] == ["c0", "c1"]


def test_folders_of_one_name_are_told_apart_and_one_folder_counts_once(tmp_path):
    one, two = make_run(tmp_path / "a" / "demo"), make_run(tmp_path / "b" / "demo")
    text = Outline(make_page([one, two, one])).text
    assert "2 runs" in text
    assert "a/demo" in text
    assert "b/demo" in text


def test_a_share_of_a_policy_of_its_own_is_not_drawn(tmp_path):
    metrics = usual_metrics() | {f"dynamics/{role}/mass_share": dict.fromkeys(range(1, 9), 1.0) for role in ROLES}
    text = Outline(make_page([make_run(tmp_path / "demo", metrics=metrics, policies=ISOLATED)])).text
    assert "Share of gradient mass" not in text
    assert "left out for roles with a policy of their own" in text


def test_the_command_writes_beside_the_run_or_where_it_is_told(tmp_path, app, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one, two = make_run(tmp_path / "one"), make_run(tmp_path / "two")
    runner = CliRunner()
    assert "report.html" in runner.invoke(app, ["report", str(one)]).output
    assert (one / "report.html").is_file()
    assert runner.invoke(app, ["report", str(one), str(two)]).exit_code == 0
    assert (tmp_path / "comparison.html").is_file()
    assert runner.invoke(app, ["report", str(one), str(two), "--out", "deep/page.html"]).exit_code == 0
    assert "2 runs" in (tmp_path / "deep" / "page.html").read_text()
    assert not list(tmp_path.rglob(".*.tmp"))
