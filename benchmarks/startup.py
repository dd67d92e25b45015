"""What the hook adds to the start of every Python of its environment, and how soon the command lines answer.

Two virtual environments are made that differ in the hook alone. Runs are interleaved, so that whatever else the machine
does meets both; the medians of wall-clock and of processor time are shown.

    python benchmarks/startup.py                # 40 starts of each, 5 of each command line
    python benchmarks/startup.py --starts 200
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from pathlib import Path

from rich.console import Console
from rich.table import Table

from obliq_eval._packaging import HOOK_FILE, HOOK_LINE

ALLOWED = {"hook": 0.003, "obliq": 0.4}  # seconds
Times = dict[str, list[tuple[float, float]]]


def environment(folder: Path, *, hook: bool) -> str:
    """Make a virtual environment, with the hook as a wheel brings it or without, and return its Python."""
    venv.create(folder, symlinks=True)
    places = {"base": str(folder), "platbase": str(folder)}
    if hook:
        site = Path(sysconfig.get_path("purelib", "venv", places))
        (site / HOOK_FILE).write_text(HOOK_LINE, "utf-8")
    return str(Path(sysconfig.get_path("scripts", "venv", places)) / "python")


def measure(commands: dict[str, list[str]], runs: int) -> Times:
    """Run each command in turn, `runs` times after one that does not count; return seconds of wall and processor."""
    times: Times = {name: [] for name in commands}
    for _ in range(runs + 1):
        for name, command in commands.items():
            before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
            times[name].append((wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
    return {name: values[1:] for name, values in times.items()}


def medians(values: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the median wall-clock and processor time."""
    return statistics.median(wall for wall, _ in values), statistics.median(cpu for _, cpu in values)


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=40)
    parser.add_argument("--commands", type=int, default=5)
    given = parser.parse_args()
    scripts = Path(sysconfig.get_path("scripts"))
    plain, hooked, mteb, obliq = "python, without the hook", "python, with the hook", "mteb --help", "obliq --help"
    with tempfile.TemporaryDirectory() as folder:
        starts = {
            plain: [environment(Path(folder) / "plain", hook=False), "-c", "pass"],
            hooked: [environment(Path(folder) / "hooked", hook=True), "-c", "pass"],
        }
        times = measure(starts, given.starts)
    helps = {name: [sys.executable, str(scripts / name.split()[0]), "--help"] for name in (mteb, obliq)}
    times |= measure(helps, given.commands)

    table = Table(title=f"Start-up, medians of {given.starts} and {given.commands} interleaved runs")
    for heading in ("what", "wall ms", "processor ms", "ratio of wall"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for peer, ours in ((plain, hooked), (mteb, obliq)):
        base = medians(times[peer])[0]
        for name in (peer, ours):
            wall, cpu = medians(times[name])
            table.add_row(name, f"{wall * 1e3:.1f}", f"{cpu * 1e3:.1f}", f"{wall / base:.2f}")
    console = Console(width=100)
    console.print(table)
    added = [ours - theirs for ours, theirs in zip(medians(times[hooked]), medians(times[plain]), strict=True)]
    console.print(
        f"The hook adds {added[0] * 1e3:.2f} ms of wall-clock and {added[1] * 1e3:.2f} ms of processor time; "
        f"allowed: {ALLOWED['hook'] * 1e3:.0f} ms."
    )
    console.print(f"obliq --help takes {medians(times[obliq])[0]:.2f} s; allowed: {ALLOWED['obliq']:.1f} s.")


if __name__ == "__main__":
    main()
