"""Large arrays that were freed stay with the process, unless the environment says otherwise."""

import os
import subprocess
import sys

import pytest

from vlcli.engine import allocator

FAULTS = """
import resource, torch
from vlcli.engine.allocator import keep_freed_memory
raised = {call}
def work():
    torch.ones(2**24)  # 64 MiB
work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(40):
    work()
print(raised, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
pytestmark = pytest.mark.skipif(not allocator.can_keep_freed_memory(), reason="no glibc, or its variables are set")


def measured(call: str = "keep_freed_memory()", **variables: str) -> tuple[bool, int]:
    code = FAULTS.format(call=call)
    environment = {**os.environ, **variables}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    raised, faults = ended.stdout.split()
    return raised == "True", int(faults)


def test_freed_arrays_are_not_faulted_in_again() -> None:
    raised, faults = measured()
    assert raised
    raised, before = measured("False")
    assert not raised
    assert faults < before / 2  # not 0: glibc needs a few places for arrays of one size before it finds them again


@pytest.mark.parametrize("name", allocator.VARIABLES)
def test_the_environment_decides(name: str) -> None:
    value = "glibc.malloc.mmap_max=65536" if name == "GLIBC_TUNABLES" else "1000000"
    assert not measured(**{name: value})[0]
