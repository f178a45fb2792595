"""The files that docs/scale.md shows: the script runs against stand-ins of Slurm, the job's words are torchrun's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml
from torch.distributed.run import get_args_parser

from .pages import PROJECT, files

SHOWN = files((PROJECT / "docs/scale.md").read_text(encoding="utf-8"))
STAND_INS = {
    "scontrol": 'case "$1" in show) echo first; echo second;; requeue) echo "requeued $2" >> "$TOLD";; esac',
    # Each of two machines' processes, one after another; the last exit code that is none of success is srun's.
    "srun": """
code=0
for rank in 0 1; do
  SLURM_PROCID=$rank SLURM_LOCALID=0 SLURM_NTASKS=2 SLURM_NTASKS_PER_NODE=1 "${@:2}" || code=$?
done
exit $code""",
    "vlcli": """
echo "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT $*" >> "$TOLD"
exit $ENDS""",
}


@pytest.mark.parametrize(("code", "requeued"), [(0, False), (85, True), (1, False)])
def test_the_slurm_script_starts_a_process_a_gpu_and_requeues_on_its_code_alone(
    tmp_path: Path, code: int, requeued: bool
) -> None:
    for name, body in STAND_INS.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    script, told = tmp_path / "vlcli.sbatch", tmp_path / "told"
    script.write_text(SHOWN["vlcli.sbatch"])
    given = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TOLD": str(told), "ENDS": str(code)}
    given |= {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]"}
    ended = subprocess.run(["bash", str(script), "own.yaml"], env={**os.environ, **given}, check=False)
    lines = told.read_text().splitlines()
    assert lines[:2] == [f"{rank} 0 2 1 first 20007 run own.yaml" for rank in (0, 1)]
    assert lines[2:] == ["requeued 7"] * requeued
    assert ended.returncode == code
    assert "#SBATCH --signal=USR1@" in script.read_text()


def test_the_kubernetes_job_says_what_torchrun_understands() -> None:
    job, service = yaml.safe_load_all(SHOWN["vlcli-job.yaml"])
    spec = job["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    first, *words = container["command"]
    assert first == "torchrun"
    given = get_args_parser().parse_args(words)
    assert (given.nnodes, given.nproc_per_node) == (str(job["spec"]["completions"]), "8")
    assert given.training_script == "vlcli"
    assert given.training_script_args[0] == "run"
    assert given.rdzv_endpoint.startswith(f"{job['metadata']['name']}-0.{service['metadata']['name']}:")
    assert spec["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": job["metadata"]["name"]}
    assert job["spec"]["parallelism"] == job["spec"]["completions"]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in spec["volumes"]}
