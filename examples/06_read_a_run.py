"""Read a run folder with DuckDB (`pip install duckdb`). `python examples/06_read_a_run.py runs/demo`

Without a folder it reads the small run of 04_two_policies.py. Metrics are rows of (step, key, value); episodes have the
columns one filters on, and the whole episode as JSON in `record`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import duckdb
except ModuleNotFoundError:
    sys.exit("this example reads with DuckDB, which is not installed: pip install duckdb")


def main(run: Path) -> None:
    rows = duckdb.sql(f"""
        SELECT step, round(max(value) FILTER (key = 'reward/team'), 3) AS team,
               round(max(value) FILTER (key = 'engine/tokens')) AS tokens
        FROM '{run}/metrics/*.parquet' GROUP BY step ORDER BY step
    """).fetchall()
    for step, team, tokens in rows:
        print(f"step {step}: team accuracy {team}, {tokens:.0f} tokens")

    print("how episodes end:")
    ends = f"SELECT outcome, count(*), avg(num_turns) FROM '{run}/episodes/*.parquet' GROUP BY outcome ORDER BY outcome"
    for outcome, number, turns in duckdb.sql(ends).fetchall():
        print(f"  {outcome}: {number} episodes of {turns:.1f} turns")

    print("what each role says most often:")
    said = f"""
        WITH turns AS (
            SELECT unnest(from_json(record->'$.graded.episode.turns', '["JSON"]')) AS turn
            FROM '{run}/episodes/*.parquet'
        ), texts AS (
            SELECT turn->>'$.key[0]' AS role, turn->>'$.text' AS text, count(*) AS times FROM turns GROUP BY ALL
        )
        SELECT role, arg_max(text, times), max(times) FROM texts GROUP BY role ORDER BY role
    """
    for role, text, times in duckdb.sql(said).fetchall():
        print(f"  {role}: {text!r} ({times} times)")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            maker = Path(__file__).with_name("04_two_policies.py")
            subprocess.run([sys.executable, maker, f"{folder}/run"], check=True, stdout=subprocess.DEVNULL)
            main(Path(folder) / "run")
