"""Ray: a driver process submits a task of Ray Core for each pilot. The task starts the pilot as a
process, and waits for its end.

A task is a pilot and not a run, because pilots already share runs by leases, save when they are
asked to, and report through files. So the driver has no state: if it dies, another submission
continues.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from types import FrameType
from typing import Any, ClassVar, Literal

from pydantic import Field
from typing_extensions import override

from ablate.cluster.engine import Engine, least_memory, refuse_too_little_memory
from ablate.config.memory import CPU_MICRO_BATCH
from ablate.errors import Fault, UsageError
from ablate.formatting import first_line, plural, size
from ablate.stdio import echo
from ablate.store.jobs import STOPPED, ClusterJob, JobFolder, Submission
from ablate.store.machine import CPUS_VARIABLE, DEFAULT_RESOURCES, MEMORY_VARIABLE, Resources
from ablate.study import Run
from ablate.study.typed import Keyed

CONNECTED = "connected"  # the driver prints it once it has found a cluster with room for a pilot
SYSTEM_RETRIES = 3  # how often Ray repeats a task whose worker or node has died
WAIT_SECONDS = 1.0  # between two looks at the tasks
CONNECT_SECONDS = 10.0  # longest time to connect to an address


class TaskResources(Keyed):
    """What Ray reserves for a pilot."""

    cpus: int = Field(1, ge=1, le=4096, description="cores")
    gpus: int = Field(0, ge=0, le=64, description="GPUs")
    memory: str | None = Field(
        None,
        pattern=r"^[1-9]\d{0,9}[MGT]$",
        description="memory such as 32G; unset: the memory of the largest run",
    )

    @property
    def memory_bytes(self) -> int | None:
        """`memory` in bytes."""
        if self.memory is None:
            return None
        return int(self.memory[:-1]) << 10 * " KMGT".index(self.memory[-1])


class Ray(Engine):
    """Submits pilots as tasks of Ray Core, by a driver process on this host."""

    engine: Literal["ray"] = "ray"
    address: str = Field(
        "auto", min_length=1, description="of the Ray cluster: auto, local, or as ray.init takes it"
    )
    each: TaskResources = Field(
        default_factory=TaskResources, description="resources of a pilot: cpus, gpus, memory"
    )
    node_wait: int = Field(
        0,
        ge=0,
        le=86_400,
        description="seconds in which an autoscaler must start a node that fits a pilot",
    )

    gpus_setting: ClassVar[str] = "each: {gpus: N} in its profile"

    @property
    @override
    def gpus(self) -> int:
        return self.each.gpus

    @override
    def options_text(self) -> str:
        cores, gpus = plural(self.each.cpus, "core"), plural(self.each.gpus, "GPU")
        return f"ray at {self.address}, {cores}, {gpus} each"

    @override
    def check(self, runs: Iterable[Run], resources: Resources = DEFAULT_RESOURCES) -> None:
        super().check(runs, resources)
        require_ray()
        given = self.each.memory_bytes
        if given is not None and not self.gpus:
            refuse_too_little_memory("each: memory", self.each.memory, given, runs)

    @override
    def resolved(self, runs: Iterable[Run]) -> Ray:
        if self.each.memory is not None or self.gpus:
            return self
        # Enough for a run on each core, with the micro-batches of a machine with plenty of memory.
        needed = self.each.cpus * least_memory(runs, CPU_MICRO_BATCH)
        resources = self.each.model_copy(update={"memory": f"{math.ceil(needed / 2**20)}M"})
        return self.model_copy(update={"each": resources})

    @override
    def submit(
        self, folder: JobFolder, job: ClusterJob, pilots: int
    ) -> tuple[tuple[str, ...], str | None]:
        return (start_driver(folder, job.python, pilots),), None

    @override
    def submitted_text(self, folder: JobFolder, submission: Submission) -> str:
        return f"driver {submission.ids[0]} on this host prints the table at the end"

    @override
    def drive(
        self, folder: JobFolder, python: str, pilots: int, log: Callable[[str], None]
    ) -> bool:
        signals: list[int] = []

        def on_signal(number: int, frame: FrameType | None) -> None:
            signals.append(number)

        ray = _connect(self.address)
        try:
            if not self.node_wait:
                refuse_too_large(self, _nodes(ray))
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, on_signal)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            echo(CONNECTED)
            os.dup2(2, 1)  # print to the log from now on: the submitting process closes the pipe
            log(f"{plural(pilots, 'pilot')} on Ray at {self.address}")
            # Also if no node fits yet: an autoscaler starts nodes for waiting tasks.
            pilot_of = _submit(ray, self, folder, python, pilots)  # index of the pilot by task
            has_node = not self.node_wait
            is_cancelled = False
            deadline = time.monotonic() + self.node_wait
            while pilot_of:
                done, _ = ray.wait(list(pilot_of), num_returns=1, timeout=WAIT_SECONDS)
                for task in done:
                    log(f"pilot {pilot_of.pop(task)}: {_outcome(ray, task)}")
                reason = STOPPED if signals else folder.stop_reason()
                if reason is not None and not is_cancelled:
                    is_cancelled = True
                    log(f"{reason.text}: pilots save and leave")
                    for task in pilot_of:
                        ray.cancel(task)
                if not has_node and not is_cancelled:
                    is_last = time.monotonic() >= deadline
                    has_node = _has_node(folder, self, _nodes(ray), is_last)
        finally:
            ray.shutdown()
        return not signals


def require_ray() -> None:
    """Check that Ray is installed.

    Raises:
        UsageError: Ray is not installed.
    """
    if find_spec("ray") is None:
        raise UsageError("Ray is not installed: pip install ray")


def start_driver(folder: JobFolder, python: str, pilots: int) -> str:
    """Start the driver in a new session, so that it survives this process and its shell.

    Returns:
        The process id of the driver.

    Raises:
        UsageError: the driver cannot reach the cluster, or no node there has room for a pilot.
    """
    require_ray()
    log, (read, write) = folder.logs / "driver.log", os.pipe()
    command = [*folder.pilot_command(python), "--drive", str(pilots)]
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, write, 1),
        (os.POSIX_SPAWN_OPEN, 2, str(log), append, 0o644),
    ]
    process = os.posix_spawn(python, command, dict(os.environ), file_actions=actions, setsid=True)
    os.close(write)
    with os.fdopen(read) as output:
        for line in output:
            if line.strip() == CONNECTED:  # Ray or Python's start-up may print other lines first
                return str(process)
    os.waitpid(process, 0)
    lines = log.read_text(errors="replace").strip().splitlines()
    if not lines:
        raise UsageError(Fault("the driver has ended", remedy=f"see {log}"))
    raise UsageError(lines[-1])


# The driver


def _nodes(ray: Any) -> list[Mapping[str, float]]:
    """Resources of each living node."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _has_node(
    folder: JobFolder, profile: Ray, nodes: Sequence[Mapping[str, float]], is_last: bool
) -> bool:
    """Whether a node has room for a pilot. If there is none at the last check, the job is closed.

    Raises:
        UsageError: there is none at the last check.
    """
    try:
        refuse_too_large(profile, nodes)
    except UsageError as error:
        if not is_last:
            return False
        folder.close(f"{error}; waited {profile.node_wait} s")
        raise
    return True


def _connect(address: str) -> Any:
    """Import Ray and connect it to the cluster at an address.

    Raises:
        UsageError: there is no cluster, or Ray is not installed.
    """
    require_ray()
    import ray

    try:
        _check_reachable(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        problem = f"Ray: no cluster at address {address} ({first_line(error)})"
        raise UsageError(Fault(problem, remedy="`ray start --head` starts one")) from None
    return ray


def _check_reachable(address: str) -> None:
    """Try to connect to an address such as `node1:6379`. Ray itself would try for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal() and "/" not in host:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()


def refuse_too_large(profile: Ray, nodes: Sequence[Mapping[str, float]]) -> None:
    """Refuse pilots that fit no node: Ray would let their tasks wait forever.

    Args:
        profile: settings with the resources of a pilot.
        nodes: resources of each node, as Ray names them: CPU, GPU, and memory in bytes.

    Raises:
        UsageError: no node has the resources of a pilot.
    """
    wanted = profile.each
    needed = {"CPU": wanted.cpus, "GPU": wanted.gpus, "memory": wanted.memory_bytes or 0}
    largest: Mapping[str, float] = {}
    order = ("GPU", "CPU", "memory")
    for node in nodes:
        if all(node.get(name, 0) >= count for name, count in needed.items()):
            return
        largest = max(largest, node, key=lambda sizes: [sizes.get(name, 0) for name in order])
    text = (
        f"Ray: no node at {profile.address} has {_resources_text(needed)} for a pilot; "
        f"the largest has {_resources_text(largest)}"
    )
    if not profile.node_wait:
        text += "; for an autoscaler, set node_wait"
    raise UsageError(text)


def _resources_text(resources: Mapping[str, float]) -> str:
    cores, gpus = int(resources.get("CPU", 0)), int(resources.get("GPU", 0))
    text = f"{plural(cores, 'core')}, {plural(gpus, 'GPU')}"
    if resources.get("memory"):
        text += f", {size(resources['memory'])} of memory"
    return text


def _submit(ray: Any, profile: Ray, folder: JobFolder, python: str, pilots: int) -> dict[Any, int]:
    """Submit a task for each pilot; the number of the pilot, by task."""
    resources = profile.each
    environment = {CPUS_VARIABLE: str(resources.cpus)}
    if resources.memory_bytes is not None:
        environment[MEMORY_VARIABLE] = str(resources.memory_bytes)
    if "PYTHONPATH" in os.environ:
        environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
    task = ray.remote(pilot_task()).options(
        num_cpus=resources.cpus,
        num_gpus=resources.gpus,
        memory=resources.memory_bytes,
        max_retries=SYSTEM_RETRIES,
        retry_exceptions=False,
        scheduling_strategy="SPREAD",
        name=f"ablate-{folder.id}",
    )
    pilot_of = {}
    for i in range(pilots):
        command = [*folder.pilot_command(python), "--attached", "--index", str(i)]
        pilot_of[task.remote(command, environment, str(folder.logs / f"pilot-{i}.log"))] = i
    return pilot_of


def _outcome(ray: Any, task: Any) -> str:
    try:
        code = ray.get(task)
    except (ray.exceptions.TaskCancelledError, KeyboardInterrupt):
        return "left as asked"
    except ray.exceptions.RayError as error:
        return f"ended by {type(error).__name__}"
    return f"left with exit code {code}" if code else "left"


def pilot_task() -> Callable[[Sequence[str], dict[str, str], str], int]:
    """The function of a task. It is nested so that Ray sends its code to the workers, which need
    not import ablate.
    """

    def pilot(command: Sequence[str], environment: dict[str, str], log: str) -> int:
        import os
        import subprocess
        import time
        from pathlib import Path

        inherited = dict(os.environ)
        inherited.pop("OMP_NUM_THREADS", None)  # Ray sets it to 1
        with Path(log).open("ab") as file:
            process = subprocess.Popen(
                command,
                env={**inherited, **environment},
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        try:
            # Not process.wait(), in which Ray cannot cancel a task. If this worker is killed, the
            # standard input of the pilot ends, and the pilot exits.
            while process.poll() is None:
                time.sleep(0.5)
        except BaseException:  # cancelled
            process.terminate()
            process.wait()
            raise
        return process.returncode

    return pilot


def leave_with_input() -> None:
    """Wait until standard input ends, which means that the task has died; then save and exit."""
    with suppress(OSError):
        while os.read(0, 1 << 10):
            pass
    os.kill(os.getpid(), signal.SIGTERM)
