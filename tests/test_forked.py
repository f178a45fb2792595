"""What tests take for processes of the command line: forks of a server without threads."""

from __future__ import annotations

import sys
from pathlib import Path

import forked
import pytest

SCRIPT = """\
import multiprocessing, os, sys
print(len(os.listdir(f"/proc/{os.getppid()}/task")), multiprocessing.get_start_method())
print(os.getcwd(), sorted(os.environ), *sys.argv[1:])
print("half a pair: \\ud800", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks the system by /proc")
def test_a_fork_is_a_process_of_its_own_and_the_server_has_one_thread(tmp_path: Path) -> None:
    """A lock that another thread of the server held would be held in the fork for ever."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    ended = forked.run(["7"], tmp_path, {"HOME": str(tmp_path)}, 300, script)
    assert ended.returncode == 7
    assert ended.stdout == f"1 fork\n{tmp_path} {['HOME', 'TOKENIZERS_PARALLELISM']} 7\n"
    assert ended.stderr == "half a pair: \\ud800\n"
