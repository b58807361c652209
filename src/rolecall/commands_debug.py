"""The commands for debugging by hand: `rolecall play`, `rolecall replay`, `rolecall check`."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from rolecall.errors import UsageError

EXIT_COMPLAINTS = 1
MAX_SHOWN = 5

Overrides = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, e.g. --set sampling.top_k=1")
]
Checkpoint = Annotated[str, typer.Option("--checkpoint", help="Of a run folder: best, last, base or a step")]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command()(play)
    app.command()(replay)
    app.command()(check)


def play(
    target: Annotated[Path, typer.Argument(metavar="RECIPE", help="A TOML recipe, or a run folder")],
    role: Annotated[list[str], typer.Option("--role", help="The role that you play; may be given again")],
    task: Annotated[str | None, typer.Option("--task", help="A task's id [default: the first of the split]")] = None,
    split: Annotated[str | None, typer.Option("--split", help="train, validation or test")] = None,
    episodes: Annotated[int, typer.Option("--episodes", "-n", min=1, help="How many episodes")] = 1,
    checkpoint: Checkpoint = "best",
    overrides: Overrides = [],  # noqa: B006 - typer reads the default
) -> None:
    """Type the replies of a role yourself; the recipe's policies play the others."""
    from rolecall.debugging.play import Person
    from rolecall.debugging.play import play as play_episodes
    from rolecall.debugging.show import Page
    from rolecall.debugging.stage import read_target

    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    config, where = read_target(target, overrides, checkpoint)
    person = Person(page=Page(), read_line=input)
    play_episodes(config, where, roles=role, person=person, task=task, split=split, episodes=episodes)


def replay(
    run: Annotated[Path, typer.Argument(help="A run folder")],
    episode: Annotated[str, typer.Argument(help="The id of an episode, as the viewer and the episodes file have it")],
    edit: Annotated[
        str | None, typer.Option("--edit", metavar="ROLE[.COPY]:CALL", help="The call whose reply is changed")
    ] = None,
    text: Annotated[str | None, typer.Option("--text", help="The new reply [default: opens $EDITOR]")] = None,
    file: Annotated[str | None, typer.Option("--file", help="A file with the new reply; - reads the input")] = None,
    source: Annotated[
        str | None, typer.Option("--from", help="training, or the name of an evaluation (before, after)")
    ] = None,
    checkpoint: Checkpoint = "best",
) -> None:
    """Change one reply of a recorded episode and run the rest; without --edit, check that it replays as recorded."""
    from rolecall.debugging.replay import ask_editor, replay_as_recorded, replay_edited
    from rolecall.debugging.show import Page

    page = Page()
    if edit is None:
        if text is not None or file is not None:
            raise UsageError("--text and --file say what a reply becomes; say which one with --edit, e.g. verifier:0")
        if not replay_as_recorded(run, episode, page, source=source):
            raise typer.Exit(EXIT_COMPLAINTS)
        return
    if text is not None and file is not None:
        raise UsageError("--text and --file both give the new reply; keep one of them")
    new = _read_reply(file) if file is not None else text
    replay_edited(
        run, episode, edit, ask_editor if new is None else lambda _: new, page, source=source, checkpoint=checkpoint
    )


def check(
    target: Annotated[
        str, typer.Argument(help="module:Name, or a short name such as solve_verify_correct; or sandbox")
    ],
    kind: Annotated[
        str | None, typer.Option("--kind", help="workflow, reward, algorithm or engine [default: found out]")
    ] = None,
    policy: Annotated[str, typer.Option("--policy", help="Of an engine: a policy that it has")] = "policy",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
    settings: Annotated[
        list[str], typer.Option("--set", metavar="KEY=VALUE", help="A knob of the target, e.g. --set max_rounds=1")
    ] = [],  # noqa: B006 - typer reads the default
    protection: Annotated[
        str, typer.Option("--protection", help="Of sandbox: bubblewrap or landlock [default: the strongest that works]")
    ] = "",
) -> None:
    """Check a workflow, reward, algorithm or engine of yours, or try to break the sandbox of programs; exit code 1 when
    there are complaints."""
    if target == "sandbox" and kind is None:
        _check_sandbox(as_json, protection)
        return
    if protection:
        raise UsageError(f"--protection {protection!r} is read by `rolecall check sandbox` alone; leave it out")
    from rolecall.config import apply_overrides
    from rolecall.debugging.check import check_target
    from rolecall.debugging.show import Page

    checked = check_target(target, kind, apply_overrides({}, settings), policy=policy)
    if as_json:
        found = {"target": target, "kind": checked.kind, "complaints": list(checked.complaints)}
        typer.echo(json.dumps(found, indent=2))
    else:
        page = Page()
        number = len(checked.complaints)
        for complaint in checked.complaints[:MAX_SHOWN]:
            page.line(f"- {complaint}")
        if number > MAX_SHOWN:
            page.line(f"- and {number - MAX_SHOWN} more, probably of the same cause; --json lists them")
        words = f"{number} complaint{'s' * (number > 1)}" if number else "no complaints"
        page.line(f"{checked.kind} {target}: {words}")
    if checked.complaints:
        raise typer.Exit(EXIT_COMPLAINTS)


def _check_sandbox(as_json: bool, name: str) -> None:
    """Every hostile program of the catalogue, a line each."""
    from rolecall.debugging.check_sandbox import Tried, check_sandbox
    from rolecall.debugging.show import Page
    from rolecall.sandbox.protection import protection

    page = Page()
    words = protection(name=name).words
    typer.echo(f"programs run under: {words}", err=True)

    def tell(tried: Tried) -> None:
        words = "contained" if tried.contained else f"NOT CONTAINED: {tried.why}"
        right = ", SCORED RIGHT" if tried.scored else ""
        page.line(f"{tried.name:<48} {words}{right}  {tried.seconds:.2f} s")

    _, found = check_sandbox(tell=None if as_json else tell, protected_by=name)
    if as_json:
        rows = [
            {"name": one.name, "contained": one.contained, "scored": one.scored, "seconds": round(one.seconds, 4)}
            for one in found
        ]
        typer.echo(json.dumps(rows, indent=2))
    else:
        bad = sum(not one.good for one in found)
        page.line(f"{len(found)} attacks, {bad or 'none'} of them not contained or scored right")
    if not all(one.good for one in found):
        raise typer.Exit(EXIT_COMPLAINTS)


def _read_reply(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--file {file!r} cannot be read ({error}); give a text file in UTF-8, or -") from None
