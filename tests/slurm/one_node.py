"""A Slurm of one node, started by the test itself: munge, slurmctld and slurmd as processes,
without systemd.

It needs the packages slurmctld, slurmd, slurm-client and munge, and root, because slurmd starts
jobs as their user.
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "sinfo")
START_SECONDS = 90

CONFIG = """\
ClusterName=ablate
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.sock
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmdParameters=config_overrides
JobRequeue=1
KillWait=5
MinJobAge=300
MaxArraySize={max_array}
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=low Nodes={host} Default=YES MaxTime=60 State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=20
PartitionName=high Nodes={host} MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""


def why_not() -> str | None:
    """Why a Slurm cannot be started here; None if it can."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return (
            f"not installed: {', '.join(missing)} (apt-get install slurmctld slurmd slurm-client "
            f"munge)"
        )
    return None if os.geteuid() == 0 else "slurmd needs root"


class OneNodeSlurm:
    """A running Slurm. `environment` makes the commands of Slurm talk to it."""

    def __init__(self, folder: Path, max_array: int = 1001) -> None:
        self.folder, self.processes = folder, {}
        for name in ("state", "spool"):
            (folder / name).mkdir(parents=True)
        host = socket.gethostname().partition(".")[0]
        ports = free_ports(2)
        self.config = folder / "slurm.conf"
        self.config.write_text(
            CONFIG.format(host=host, folder=folder, ports=ports, max_array=max_array)
        )
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        self.host = host
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
        self.environment["SLURM_CONF"] = str(self.config)

    def __enter__(self) -> "OneNodeSlurm":
        self.start(
            "munged",
            "--foreground",
            "--force",
            *(
                f"--{name}={self.folder}/munge.{end}"
                for name, end in (
                    ("key-file", "key"), ("socket", "sock"), ("pid-file", "pid"),
                    ("log-file", "log"), ("seed-file", "seed"),
                )
            ),
        )  # fmt: skip
        self.wait_for(lambda: (self.folder / "munge.sock").exists(), "munged")
        self.start_controller()
        self.start("slurmd", "-D", "-c", "-f", str(self.config), "-N", self.host)
        self.wait_for(lambda: "idle" in self.ask("sinfo", "-h", "-o", "%T"), "an idle node")
        return self

    def start_controller(self, forget: bool = True) -> None:
        """Start slurmctld; it forgets all jobs or takes them up again."""
        self.start("slurmctld", "-D", *(["-i", "-c"] if forget else []), "-f", str(self.config))

    def start(self, *command: str) -> None:
        """Start a daemon in the foreground, as a child of this process."""
        output = (self.folder / f"{command[0]}.out").open("ab")
        self.processes[command[0]] = subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            env=self.environment,
            cwd=self.folder,
            start_new_session=True,
        )
        output.close()

    def kill(self, name: str) -> None:
        """Kill a daemon at once."""
        self.processes[name].kill()
        self.processes.pop(name).wait()

    def ask(self, *command: str) -> str:
        """The output of a command of Slurm; empty while Slurm does not answer."""
        return self._done(*command).stdout.strip()

    def order(self, *command: str) -> None:
        """Run a command of Slurm, again until Slurm has accepted it: one that is lost while Slurm
        does not answer would let a trial go on undisturbed.
        """
        what = f"{' '.join(command)} to be accepted"
        self.wait_for(lambda: self._done(*command).returncode == 0, what)

    def jobs(self) -> list[str] | None:
        """A line for each job or array task that has not ended: id and state. None while Slurm does
        not answer, as when its controller starts again.
        """
        done = self._done("squeue", "-h", "-r", "-o", "%i %T %j")
        return done.stdout.splitlines() if done.returncode == 0 else None

    def _done(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, capture_output=True, text=True, env=self.environment, timeout=60, check=False
        )

    def wait_for(self, condition, what: str, seconds: float = START_SECONDS):
        """Wait until a condition holds, and return its value."""
        end = time.monotonic() + seconds
        while not (value := condition()):
            if time.monotonic() > end:
                logs = "\n".join(
                    f"{p.name}: {p.read_text()[-2000:]}" for p in self.folder.glob("*.log")
                )
                raise AssertionError(f"waited in vain for {what}\n{self.jobs()}\n{logs}")
            time.sleep(0.1)
        return value

    def __exit__(self, *_: object) -> None:
        self.ask("scancel", "--me", "--signal=KILL", "--full")
        self.ask("scancel", "--me")
        end = time.monotonic() + 15
        while self.jobs() and time.monotonic() < end:
            time.sleep(0.2)
        for process in reversed(list(self.processes.values())):
            process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def free_ports(count: int) -> list[int]:
    """Ports that no process listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
