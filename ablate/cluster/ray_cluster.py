"""Ray: a driver keeps a task of Ray Core for each pilot; a task starts the pilot as a process, and
waits for it.

A task is a pilot and not a run, because pilots already share runs by leases, save when they are
asked to, and report through files. The driver therefore has no state: after its death, another
submission continues.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from types import FrameType
from typing import Any

from ablate.cluster.profiles import Profile
from ablate.config.memory import CPU_MICRO_BATCH
from ablate.errors import UsageError
from ablate.formatting import plural, size
from ablate.launch.devices import CPU_MEMORY_SHARE, PADDING, SMALLEST_MICRO_BATCH, sizing_memory
from ablate.store.jobs import ClusterJob, JobFolder
from ablate.store.machine import CPUS_VARIABLE, MEMORY_VARIABLE
from ablate.streams import echo
from ablate.study import Study

CONNECTED = "connected"  # a line of a driver, once it has found a cluster that fits its pilots
SYSTEM_RETRIES = (
    3  # of a task whose worker or node has died; a pilot that has ended is not started again
)
WAIT_SECONDS = 1.0
LIBRARY_BYTES = (
    500_000_000  # of the interpreter and its libraries in a process; assumed, not measured
)
CONNECT_SECONDS = 10.0


def require_ray() -> None:
    """Check that Ray is installed.

    Raises:
        UsageError: it is not.
    """
    if find_spec("ray") is None:
        raise UsageError("Ray is not installed: pip install 'ablate-transformer[ray]'")


def needed_memory(profile: Profile, study: Study) -> int | None:
    """Bytes of memory to request for a pilot: the profile's, else the need of runs on all its
    cores; None with GPUs.

    Raises:
        UsageError: the profile's are fewer than the largest run needs.
    """
    given = profile.each.memory_bytes
    if profile.each.gpus:
        return given
    if given is None:  # for the micro-batches that a machine with enough memory would choose
        return profile.each.cpus * _bytes_per_slot(study, CPU_MICRO_BATCH)
    least = _bytes_per_slot(study, SMALLEST_MICRO_BATCH)
    if given < least:
        raise UsageError(
            f"each: memory: {profile.each.memory} is less than the {size(least)} of the largest run"
        )
    return given


def _bytes_per_slot(study: Study, micro_batch_tokens: int) -> int:
    """Bytes of memory for any run of a study on a CPU, such that estimates fill the usual share of
    it.
    """
    peaks = (
        sizing_memory(
            run.config,
            run.data.vocab_size,
            min(micro_batch_tokens, PADDING * run.config.batch_tokens),
        )
        for run in study.all_runs()
    )
    return LIBRARY_BYTES + int(max(peaks) / CPU_MEMORY_SHARE)


# Submission


def start_driver(folder: JobFolder, job: ClusterJob, pilots: int) -> str:
    """Start the driver in a session of its own, so that it survives this process and its shell; its
    process id.

    Raises:
        UsageError: it cannot reach the cluster, or no node there fits a pilot.
    """
    require_ray()
    log, (read, write) = folder.logs / "driver.log", os.pipe()
    command = [
        job.python,
        "-m",
        "ablate",
        "work",
        "--job",
        str(folder.path),
        "--drive",
        str(pilots),
    ]
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, write, 1),
        (os.POSIX_SPAWN_OPEN, 2, str(log), append, 0o644),
    ]
    process = os.posix_spawn(
        job.python, command, dict(os.environ), file_actions=actions, setsid=True
    )
    os.close(write)
    with os.fdopen(read) as output:
        if any(
            line.strip() == CONNECTED for line in output
        ):  # Ray or a site's start-up may print lines before it
            return str(process)
    os.waitpid(process, 0)
    lines = log.read_text(errors="replace").strip().splitlines()
    raise UsageError(lines[-1] if lines else f"the driver has ended; see {log}")


# The driver


def drive(folder: JobFolder, pilots: int, log: Callable[[str], None]) -> bool:
    """Run pilots as tasks of Ray until all have ended; False if a signal has ended them.

    Args:
        folder: of the job.
        pilots: their number.
        log: receives a line for each event.

    Raises:
        UsageError: there is no cluster at the job's address, or no node there fits a pilot, at once
            or, with an autoscaler, in `node_wait` seconds.
    """
    job, signals = folder.read_job(), list[int]()

    def on_signal(number: int, frame: FrameType | None) -> None:
        signals.append(number)

    ray = _connect(job.address)
    try:
        if not job.node_wait:
            refuse_too_large(job, _nodes(ray))
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, on_signal)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        echo(CONNECTED)
        os.dup2(2, 1)  # the submitting process has closed the pipe
        log(f"{plural(pilots, 'pilot')} on Ray at {job.address}")
        waiting = _submit(ray, folder, job, pilots)  # which is what an autoscaler starts nodes for
        has_node, deadline, is_cancelled = (
            not job.node_wait,
            time.monotonic() + job.node_wait,
            False,
        )
        while waiting:
            done, _ = ray.wait(list(waiting), num_returns=1, timeout=WAIT_SECONDS)
            for task in done:
                log(f"pilot {waiting.pop(task)}: {_outcome(ray, task)}")
            if (signals or folder.stop.exists()) and not is_cancelled:
                is_cancelled = True
                log("asked to stop: pilots save and leave")
                for task in waiting:
                    ray.cancel(task)
            if not has_node and not is_cancelled:
                has_node = _has_node(folder, job, _nodes(ray), is_last=time.monotonic() >= deadline)
    finally:
        ray.shutdown()
    return not signals


def _nodes(ray: Any) -> list[Mapping[str, float]]:
    """Resources of each living node."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _has_node(
    folder: JobFolder, job: ClusterJob, nodes: Sequence[Mapping[str, float]], is_last: bool
) -> bool:
    """Whether some node fits a pilot by now. After the last look, a job without one is closed.

    Raises:
        UsageError: it was the last look, and no node fits.
    """
    try:
        refuse_too_large(job, nodes)
    except UsageError as error:
        if not is_last:
            return False
        folder.close(f"{error}; waited {job.node_wait} s")
        raise
    return True


def _connect(address: str) -> Any:
    """Ray, connected to a cluster.

    Raises:
        UsageError: there is none at this address.
    """
    require_ray()
    import ray

    try:
        _check_reachable(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UsageError(
            f"Ray: no cluster at address {address} ({reason}); `ray start --head` starts one"
        ) from None
    return ray


def _check_reachable(address: str) -> None:
    """Connect to an address such as `node1:6379` once: Ray itself would try for minutes.

    Raises:
        OSError: nothing answers there.
    """
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal() and "/" not in host:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()


def refuse_too_large(job: ClusterJob, nodes: Sequence[Mapping[str, float]]) -> None:
    """Check that a pilot fits a node, because Ray would let its task wait forever.

    Args:
        job: whose pilots are to run.
        nodes: resources of each node, as Ray names them: CPU, GPU, and memory in bytes.

    Raises:
        UsageError: no node has the resources of a pilot.
    """
    asked = {"CPU": job.cpus, "GPU": job.gpus, "memory": job.memory or 0}
    if any(all(node.get(name, 0) >= count for name, count in asked.items()) for node in nodes):
        return
    largest = max(
        nodes, key=lambda node: [node.get(name, 0) for name in ("GPU", "CPU", "memory")], default={}
    )
    raise UsageError(
        f"Ray: no node at {job.address} has {_resources(asked)} for a pilot; the largest has "
        f"{_resources(largest)}"
        f"{'' if job.node_wait else '; for an autoscaler, set node_wait'}"
    )


def _resources(of: Mapping[str, float]) -> str:
    parts = [plural(int(of.get("CPU", 0)), "core"), plural(int(of.get("GPU", 0)), "GPU")]
    return ", ".join([*parts, f"{size(of['memory'])} of memory"] if of.get("memory") else parts)


def _submit(ray: Any, folder: JobFolder, job: ClusterJob, pilots: int) -> dict[Any, int]:
    """Submit a task for each pilot; the pilots by task."""
    environment = {CPUS_VARIABLE: str(job.cpus)}
    if job.memory is not None:
        environment[MEMORY_VARIABLE] = str(job.memory)
    if "PYTHONPATH" in os.environ:
        environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
    pilot = ray.remote(pilot_task()).options(
        num_cpus=job.cpus,
        num_gpus=job.gpus,
        memory=job.memory,
        max_retries=SYSTEM_RETRIES,
        retry_exceptions=False,
        scheduling_strategy="SPREAD",
        name=f"ablate-{job.study}",
    )
    program = [job.python, "-m", "ablate", "work", "--job", str(folder.path), "--attached"]
    return {
        pilot.remote(
            [*program, "--index", str(i)], environment, str(folder.logs / f"pilot-{i}.log")
        ): i
        for i in range(pilots)
    }


def _outcome(ray: Any, task: Any) -> str:
    try:
        code = ray.get(task)
    except (ray.exceptions.RayError, KeyboardInterrupt) as error:
        return f"ended by {type(error).__name__}"
    return "left" if code == 0 else f"left with exit code {code}"


def pilot_task() -> Callable[[Sequence[str], dict[str, str], str], int]:
    """The function of a task. Defined inside, so that Ray sends its code, and its workers need
    nothing installed.
    """

    def pilot(command: Sequence[str], environment: dict[str, str], log: str) -> int:
        import os
        import subprocess
        import time
        from pathlib import Path

        inherited = {
            name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"
        }  # Ray sets it to 1
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
            # A task that is blocked in wait() would not notice that it is cancelled. If this worker
            # is killed, the pilot's standard input ends.
            while process.poll() is None:
                time.sleep(0.5)
        except BaseException:  # cancelled
            process.terminate()
            process.wait()
            raise
        return process.returncode

    return pilot


def leave_with_input() -> None:
    """Save and leave when standard input ends, because whatever has started this pilot is gone; for
    a thread.
    """
    with suppress(OSError):
        while os.read(0, 1 << 10):
            pass
    os.kill(os.getpid(), signal.SIGTERM)
