"""How long the light verbs take to answer, and what their imports cost.

    python benchmarks/startup.py [--repeat 5]

Each verb runs in a fresh process; the best and the median of the repeats count. The goal is 0.4 s on two quiet cores.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

VERBS = {
    "--help": ["--help"],
    "run --help": ["run", "--help"],
    "ls": ["ls"],
    "validate quickstart": ["validate", "quickstart"],
    "completion": [],
}
COMPLETION = {"_VLCLI_COMPLETE": "complete_bash", "COMP_WORDS": "vlcli run quick", "COMP_CWORD": "2"}
GOAL = 0.4


def seconds(words: list[str]) -> float:
    """Wall time of one fresh process."""
    environment = {**os.environ, **({} if words else COMPLETION)}
    began = time.perf_counter()
    ended = subprocess.run([sys.executable, "-m", "vlcli", *words], capture_output=True, env=environment, check=False)
    took = time.perf_counter() - began
    assert ended.returncode == 0, ended.stderr.decode()
    return took


def imports(most: int = 8) -> list[tuple[float, str]]:
    """The costliest imports of the command line itself, in milliseconds."""
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import vlcli.cli"], capture_output=True, text=True, check=True
    )
    rows = [line.split("|") for line in ended.stderr.splitlines()[1:]]
    own = [(int(row[0].split(":")[1]) / 1000, row[2].strip()) for row in rows]
    return sorted(own, reverse=True)[:most]


def main() -> None:
    """Print one row per verb, then the costliest imports."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args().repeat
    print(f"{'verb':<22}{'best':>8}{'median':>8}   goal {GOAL} s")
    for name, words in VERBS.items():
        times = [seconds(words) for _ in range(repeat)]
        print(f"{name:<22}{min(times):>7.2f}s{statistics.median(times):>7.2f}s")
    print("\ncostliest imports of vlcli.cli (own time)")
    for cost, module in imports():
        print(f"{cost:>8.1f} ms  {module}")


if __name__ == "__main__":
    main()
