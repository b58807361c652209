"""The viewer's endpoints: what they answer, whom they refuse, and how the server starts."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import sys
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from viewer_runs import EPISODES, METRICS, add_step, episode_row, finish, make_run, step_metrics, task_rows, write

from rolecall.errors import UsageError
from rolecall.viewer.app import make_app
from rolecall.viewer.runs import Root
from rolecall.viewer.serve import hosts, listen

PORT = 8642
HOME = f"http://127.0.0.1:{PORT}"
EPISODE = "sum:3:0/s3/0"
STATIC = files("rolecall.viewer") / "static"


def client_of(folder):
    return TestClient(make_app(Root(folder), hosts=hosts(PORT)), base_url=HOME)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    finish(make_run(root / "one", steps=3), 3)
    make_run(root / "table" / "two", steps=2, seed=1, of=9)
    (root / "secret.toml").write_text("token = 1")
    return root


@pytest.fixture(scope="module")
def client(runs):
    return client_of(runs)


def get(client, path, **params):
    answer = client.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_list_of_runs_says_how_each_stands(client):
    found = get(client, "/api/runs")["runs"]
    assert [(run["name"], run["status"]["state"], run["status"]["step"]) for run in found] == [
        ("one", "finished", 3),
        ("table/two", "running", 2),
    ]
    assert (found[0]["before"]["mean"], found[0]["after"]["mean"]) == (0.5, 0.9)
    assert (found[1]["workflow"], found[1]["seed"], found[1]["status"]["steps"]) == ("solve_verify_correct", 1, 9)


def test_a_run_names_its_roles_keys_and_sources(client):
    found = get(client, "/api/run", run="one")
    assert found["roles"] == ["solver", "verifier", "corrector"]
    assert found["policies"] == ["shared"]
    assert found["sources"] == {"training": 24, "after": 3}
    assert "behaviour/verifier/accuracy" in found["keys"]
    assert found["problems"] == []


def test_series_of_several_runs_come_together_and_a_key_that_one_lacks_is_left_out(client):
    found = get(client, "/api/series", run=["one", "table/two"], key=["reward/team", "nothing"])
    assert {name: list(keys) for name, keys in found.items()} == {"one": ["reward/team"], "table/two": ["reward/team"]}
    assert found["table/two"]["reward/team"]["steps"] == [1, 2]


def test_steps_are_listed_from_the_newest_and_one_step_has_its_tasks(client):
    found = get(client, "/api/steps", run="one", limit=2)
    assert ([row["step"] for row in found["rows"]], found["total"], found["more"]) == ([3, 2], 3, True)
    assert found["rows"][0]["time_s"] == pytest.approx(0.9)
    earlier = get(client, "/api/steps", run="one", before=2)
    assert ([row["step"] for row in earlier["rows"]], earlier["more"]) == ([1], False)
    step = get(client, "/api/step", run="one", step=3)
    assert [(task["task"], len(task["episodes"])) for task in step["tasks"]] == [("sum:3:0", 4), ("sum:3:1", 4)]
    assert (step["values"]["engine/tokens"], step["earlier"]["engine/tokens"]) == (7003.0, 7002.0)


def test_an_episode_comes_with_its_neighbours_and_its_peers(client):
    found = get(client, "/api/episode", run="one", id=EPISODE, role="corrector")
    assert (found["previous"], found["next"]) == (None, "sum:3:1/s3/0")
    assert [one["episode"] for one in found["siblings"]] == [f"sum:3:0/s3/{index}" for index in range(4)]
    assert [turn["name"] for turn in found["turns"]] == ["solver:0", "verifier:0", "corrector:0"]


def test_tokens_and_differences_come_on_demand(client):
    turn = f"{EPISODE}/corrector:0"
    tokens = get(client, "/api/tokens", run="one", id=EPISODE, turn=turn)
    assert len(tokens["ids"]) == len(tokens["logprobs"]) == len(tokens["pieces"]) == tokens["num_prompt"] + 7
    diff = get(client, "/api/diff", run="one", id=EPISODE, turn=turn, base=f"{EPISODE}/solver:0")
    assert diff == {"parts": [["same", "7+5="], ["removed", "11"], ["added", "12"]], "equal": False}


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/api/run?run=three", 404, "there is no run 'three'"),
        ("/api/run", 400, "/api/run needs run= in its address"),
        ("/api/step?run=one&step=77", 404, "run 'one' has no step 77; its last step is 3"),
        ("/api/step?run=one&step=-1", 400, "step is '-1'; wanted a whole number from 0 on"),
        ("/api/episode?run=one&id=zzz", 404, "there is no episode 'zzz' among the 24 of 'training'"),
        ("/api/tokens?run=one&id=sum:3:0/s3/0&turn=zzz", 404, "the episode has no turn 'zzz'"),
        ("/api/episodes?run=one&order=best", 400, "order is 'best'; wanted one of newest, oldest, turns"),
        ("/api/episodes?run=one&team=maybe", 400, "team is 'maybe'"),
        ("/api/episodes?run=one&reward_min=much", 400, "reward_min is 'much'; wanted a number"),
        ("/api/nothing", 404, "there is no page /api/nothing"),
        ("/report?run=one", 404, "run 'one' has no report.html; write it with rolecall report"),
    ],
)
def test_what_is_wrong_with_a_request_is_said(client, path, status, words):
    answer = client.get(path)
    assert answer.status_code == status
    assert words in answer.json()["error"]


@pytest.mark.parametrize(
    "path", ["/", "/curves?run=one", "/episodes?run=one&role=solver", f"/episode?run=one&id={EPISODE}"]
)
def test_every_page_can_be_opened_by_its_address(client, path):
    answer = client.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"


@pytest.mark.parametrize(
    "path", ["/curves?run=no", "/episode?run=one&id=zzz", "/episode?run=one&source=no&id=zzz", "/other"]
)
def test_a_page_of_something_that_is_not_there_is_a_404(client, path):
    assert client.get(path).status_code == 404


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8642", "127.0.0.1:80", "127.0.0.1", "", "localhost.evil:8642"]
)
def test_a_request_under_another_name_is_refused(client, host):
    for path in ("/", "/api/runs", "/static/app.js"):
        answer = client.get(path, headers={"host": host})
        assert answer.status_code == 421
        assert "one" not in answer.text.split()


def test_another_sites_page_gets_no_data(client):
    for site in ("cross-site", "same-site"):
        assert client.get("/api/runs", headers={"sec-fetch-site": site}).status_code == 403
    assert client.get("/api/runs", headers={"sec-fetch-site": "same-origin"}).status_code == 200


def test_the_viewer_only_reads(client):
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert client.request(method, "/api/runs").status_code == 405


def test_every_answer_carries_a_policy_that_allows_our_own_files_alone(client):
    for path in ("/", "/api/runs", "/static/app.js", "/nothing"):
        policy = client.get(path).headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        assert "require-trusted-types-for 'script'" in policy
        assert client.get(path).headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2f..%2fcli.py",
        "/static/index.html",
        "/api/run?run=..",
        "/api/run?run=../../etc",
        "/api/run?run=one/../one",
        "/report?run=../one",
        "/api/episodes?run=one&source=../episodes/00000001-00000001",
    ],
)
def test_no_address_leads_out_of_the_runs(client, path):
    answer = client.get(path)
    assert answer.status_code == 404
    assert "def " not in answer.text


def test_a_report_is_shown_in_a_sandbox_that_can_read_nothing(runs):
    (runs / "one" / "report.html").write_text("<script>fetch('/api/runs')</script>")
    answer = client_of(runs).get("/report?run=one")
    (runs / "one" / "report.html").unlink()
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts; default-src 'none';")
    assert "allow-same-origin" not in policy
    assert "connect-src" not in policy


def test_our_own_pages_use_no_outside_resource_and_never_parse_markup():
    for item in STATIC.iterdir():
        text = item.read_text(encoding="utf-8")
        outside = [url for url in re.findall(r"(?:https?:)?//[\w.-]+\.\w+", text) if "www.w3.org" not in url]
        assert outside == [], item.name
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert word not in text, f"{item.name} uses {word}"


def test_static_files_are_short_enough_to_read():
    for item in STATIC.iterdir():
        assert len(item.read_text(encoding="utf-8").splitlines()) <= 350, item.name


def test_a_pulse_changes_when_a_step_is_written_and_not_otherwise(tmp_path):
    run = make_run(tmp_path / "live", steps=1, of=5)
    client = client_of(tmp_path)
    before = get(client, "/api/pulse", run="live")
    assert get(client, "/api/pulse", run="live") == before
    add_step(run, 2)
    assert get(client, "/api/pulse", run="live") != before
    assert get(client, "/api/run", run="live")["status"]["step"] == 2


def test_a_step_that_is_folded_away_between_two_looks_is_still_found(tmp_path, monkeypatch):
    run = make_run(tmp_path / "live", steps=3)
    from rolecall.viewer.records import Records

    plain, rows = (
        Records.record,
        [row for step in (1, 2, 3) for task in range(2) for row in task_rows(step, task, 4, 0)],
    )

    def fold_first(self, part, row):
        if part.span[0] == part.span[1]:
            write(run / "episodes" / "00000001-00000003.parquet", rows, EPISODES)
            for step in (1, 2, 3):
                (run / "episodes" / f"{step:08d}-{step:08d}.parquet").unlink(missing_ok=True)
        return plain(self, part, row)

    monkeypatch.setattr(Records, "record", fold_first)
    found = get(client_of(tmp_path), "/api/episode", run="live", id="sum:2:0/s2/0")
    assert found["id"] == "sum:2:0/s2/0"


def test_numbers_that_json_cannot_hold_become_null(tmp_path):
    run = make_run(tmp_path / "run", steps=0, of=1)
    row = episode_row(step=1, task="t", index=0, wrong=False)
    record = json.loads(row["record"])
    record["rewards"]["t/s1/0/solver:0"]["parts"]["odd"] = float("nan")
    write(run / "episodes" / "00000001-00000001.parquet", [row | {"record": json.dumps(record)}], EPISODES)
    (solver, _) = get(client_of(tmp_path), "/api/episode", run="run", id="t/s1/0")["turns"]
    assert solver["reward"]["parts"] == {"correct": 1.0, "odd": None}


def test_an_empty_folder_is_served_and_shows_a_run_as_soon_as_there_is_one(tmp_path):
    client = client_of(tmp_path)
    assert get(client, "/api/runs")["runs"] == []
    make_run(tmp_path / "first", steps=1)
    assert [run["name"] for run in get(client, "/api/runs")["runs"]] == ["first"]


def test_a_run_that_has_only_begun_can_be_opened(tmp_path):
    make_run(tmp_path / "new", steps=0, of=5)
    client = client_of(tmp_path)
    assert get(client, "/api/run", run="new")["status"]["step"] == 0
    assert get(client, "/api/episodes", run="new")["total"] == 0
    assert get(client, "/api/steps", run="new")["rows"] == []
    assert get(client, "/api/sparks", run="new") == {"new": None}


def test_a_port_in_use_is_said_with_another_that_is_free():
    with listen(0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=rf"port {port} is in use; try rolecall view --port (\d+)") as failure:
            listen(port)
        other = int(str(failure.value).rsplit(" ", 1)[1])
        listen(other).close()


def test_answers_on_a_connection_kept_open_do_not_wait_for_each_other():
    """Without TCP_NODELAY each answer waits about 40 ms for the reader's acknowledgement of its headers."""

    class Seen(asyncio.Protocol):
        def connection_made(self, transport):
            delays.append(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            transport.close()

    async def connect():
        server = await asyncio.get_running_loop().create_server(Seen, sock=listener)
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        await reader.read()
        writer.close()
        server.close()

    delays = []
    with listen(0) as listener:
        asyncio.run(connect())
    assert delays == [1]


def test_the_server_listens_on_the_loopback_address_alone():
    with listen(0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


COMMAND = (
    "import sys, typer; from rolecall.commands_view import register; app = typer.Typer(); app.callback()(lambda: None);"
    "register(app); app(['view', *sys.argv[1:]])"
)


def test_the_command_serves_says_where_and_ends_when_interrupted(tmp_path):
    make_run(tmp_path / "run", steps=1)
    command = [sys.executable, "-c", COMMAND, str(tmp_path), "--port", "0", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        port = int(re.match(r"http://127\.0\.0\.1:(\d+)/  \(1 run in ", line).group(1))
        with socket.create_connection(("127.0.0.1", port), timeout=10) as link:
            link.sendall(f"GET /api/runs HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
            assert link.recv(200).startswith(b"HTTP/1.1 200")
        process.send_signal(2)
        assert process.wait(timeout=10) == 0


def test_the_viewer_imports_nothing_of_the_training_side():
    code = (
        "import rolecall.viewer.app, rolecall.viewer.serve, sys;"
        "heavy = {'torch', 'transformers', 'tokenizers', 'rolecall.config', 'rolecall.run_folder'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_pages_are_read_without_pandas_whose_import_takes_longer_than_the_reading(tmp_path):
    finish(make_run(tmp_path / "one", steps=3), 3)
    code = (
        "import sys; from pathlib import Path; from rolecall.viewer.service import Service;"
        "from rolecall.viewer.runs import Root; from rolecall.viewer.episodes import Query;"
        f"service = Service(Root(Path({str(tmp_path)!r})));"
        "service.run('one'), service.sparks(['one']), service.steps('one', None, 9), service.step('one', 3);"
        "service.episodes('one', Query(team='right', task='sum:3:0', outcome='ok'), 0, 9);"
        f"service.episode('one', Query(), {EPISODE!r});"
        "assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def big_run(folder: Path, steps: int) -> Path:
    """500 steps of 200 turns, folded as a long run folds them: one large file and some small ones."""
    make_run(folder, steps=0, of=steps)
    first_step = [row for task in range(20) for row in task_rows(1, task, 4, 0)]
    first_step += [row for task in range(20, 22) for row in task_rows(1, task, 5, 0)][:9]
    groups: dict[tuple[int, int], list[int]] = {}
    for step in range(1, steps + 1):
        groups.setdefault((1, steps - 60) if step <= steps - 60 else (step, step), []).append(step)
    for (first, last), members in groups.items():
        episodes, metrics = [], []
        for step in members:
            rows = [at_step(row, step) for row in first_step]
            episodes += rows
            values = step_metrics(step, rows, 0) | {f"learner/shared/more_{i}": float(i) for i in range(110)}
            metrics += [{"step": step, "key": key, "value": value} for key, value in values.items()]
        name = f"{first:08d}-{last:08d}.parquet"
        write(folder / "episodes" / name, episodes, EPISODES)
        write(folder / "metrics" / name, metrics, METRICS)
    return folder


def at_step(row: dict[str, Any], step: int) -> dict[str, Any]:
    """A row of step 1 as one of another step: quicker than to make each anew."""
    moved = {
        name: value.replace("sum:1:", f"sum:{step}:").replace("/s1/", f"/s{step}/") if isinstance(value, str) else value
        for name, value in row.items()
    }
    return moved | {"step": step}


@pytest.mark.slow
def test_the_first_page_of_500_steps_and_100_000_turns_is_there_in_a_second(tmp_path):
    """Processor time of the server, cold, so that other work on the machine does not count."""
    run = big_run(tmp_path / "big", 500)
    client = client_of(tmp_path)
    turns = {}
    for name, paths in {
        "runs": ["/", "/api/runs", "/api/sparks?run=big"],
        "run": ["/curves?run=big", "/api/run?run=big", "/api/series?run=big&key=reward/team&key=validation/team"],
        "episodes": ["/episodes?run=big", "/api/run?run=big", "/api/episodes?run=big"],
    }.items():
        begun = time.process_time()
        answers = [client.get(path) for path in paths]
        turns[name] = time.process_time() - begun
        assert all(answer.status_code == 200 for answer in answers)
    assert sum(len(json.loads(row)["graded"]["episode"]["turns"]) for row in _records(run)) >= 100_000
    assert max(turns.values()) < 1.0, turns


def _records(run: Path):
    import pyarrow.parquet as pq

    for path in sorted((run / "episodes").glob("*.parquet")):
        yield from pq.read_table(path, columns=["record"])["record"].to_pylist()
