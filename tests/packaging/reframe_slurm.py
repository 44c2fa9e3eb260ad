"""Slurm's commands for ReFrame: a job's script runs at once, and its steps replay a recorded run."""

import sys
from pathlib import Path

_PROGRAM = """#!{python} -SE
import os, re, shutil, subprocess, sys
from pathlib import Path
name, argv, state, recorded = Path(sys.argv[0]).name, sys.argv[1:], Path({state!r}), Path({recorded!r})
away = state.with_name("away")  # how many questions slurmctld does not answer
if name in ("squeue", "srun") and away.exists():
    left = int(away.read_text())
    if name == "squeue":
        away.write_text(str(left - 1)) if left > 1 else away.unlink()
        sys.exit("slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
    sys.exit("srun: error: Unable to confirm allocation for job 1: Unable to contact slurm controller")
if name == "sbatch":
    script = Path(argv[-1])
    option = dict(re.findall(r"^#SBATCH --(nodelist|output|error)=(\\S+)$", script.read_text(), re.M))
    job = str(len(list(state.iterdir())) + 1)
    nodes = {{"SLURM_JOB_ID": job, "SLURM_JOB_NODELIST": option["nodelist"]}}
    with open(option["output"], "w") as out, open(option["error"], "w") as err:
        done = subprocess.run(["bash", script], stdout=out, stderr=err, env=os.environ | nodes)
    (state / job).write_text(str(done.returncode))
    print("Submitted batch job", job)
elif name == "sinfo":
    print("\\n".join(f"{{node}}|idle|none" for node in argv[2].partition("=")[2].split(",")))
elif argv[:2] == ["show", "hostnames"]:
    if os.environ.get("SLURMCTLD_GOES") and "SLURM_JOB_ID" in os.environ:
        away.write_text(os.environ["SLURMCTLD_GOES"])
    print(argv[2].replace(",", "\\n"))
elif argv[:3] == ["--oneliner", "show", "job"]:
    code = (state / argv[3]).read_text()
    ended = "COMPLETED" if code == "0" else "FAILED"
    print(f"JobId={{argv[3]}} JobState={{ended}} ExitCode={{code}}:0 Restarts=0")
elif name == "srun" and "shakedown.evidence.attest" in argv:
    for number, node in enumerate(os.environ["SLURM_JOB_NODELIST"].split(",")):
        task = {{"SLURMD_NODENAME": node, "SLURM_PROCID": str(number)}}
        subprocess.run(argv[argv.index("-m") - 1:], env=os.environ | task)
elif name == "srun" and any(word.startswith("shakedown.benchmarks.") for word in argv):
    subprocess.run([sys.executable, "-c", "import shakedown.onnode"], check=True)  # as the node's task would
    out = Path(argv[-1])
    for file in (recorded / "raw" / out.name).iterdir():
        if file.name not in ("job.json", "spec.json", "nodes.txt"):
            shutil.copy(file, out)
"""


def fake_slurm(folder: Path, recorded: Path) -> Path:
    """Write the commands that ReFrame and the guard use, and return their folder for PATH."""
    programs, state = folder / "slurm-bin", folder / "slurm-jobs"
    programs.mkdir()
    state.mkdir()
    text = _PROGRAM.format(python=sys.executable, state=str(state), recorded=str(recorded))
    for name in ("sbatch", "squeue", "scontrol", "sinfo", "srun", "sacct", "scancel"):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    return programs
