"""The only place that starts Ray: without reports, a dashboard, or questions to the addresses of clouds."""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from domainadaptor.errors import BadOption
from domainadaptor.extras import require_extra
from domainadaptor.lab.data.image_cache import cache_folder
from domainadaptor.lab.files import make_folder, replacing

_CONFIG = "ray_bootstrap_config.yaml"  # that Ray looks for in HOME; without it, it asks which cloud it is in
_LOOPBACK = "127.0.0.1"
_STARTS = 5


@dataclass(frozen=True)
class Workers:
    """How many workers there are, and what each of them has.

    Args:
        address: Of a running cluster, as `ray start` prints it, or "auto"; None starts Ray on this machine.
        count: How many there are. Default: as many as the CPUs allow.
        threads: CPU threads that each of them uses.
        gpus: GPUs that each of them has; a fraction shares one.
        block: Rows of Ray Data that each of them gets at a time.
    """

    address: str | None = None
    count: int | None = None
    threads: int = 1
    gpus: float = 0.0
    block: int = 1

    @contextmanager
    def session(self) -> Iterator["Workers"]:
        """Connect to the cluster, or start Ray on this machine; yield what there is room for."""
        cores = os.cpu_count() or 1
        with ray_session(self.address, cpus=max(cores, (self.count or 1) * self.threads)):
            yield self._fitting()

    def _fitting(self) -> "Workers":
        """Return the workers that the cluster has room for."""
        import ray

        found = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        room = sum(self._room(resources) for resources in found)
        if not room:
            most = max((resources.get("GPU", 0) for resources in found), default=0)
            raise BadOption(f"No machine of the cluster has {self.gpus:g} GPUs; the most that one has is {most:g}")
        return replace(self, count=min(self.count or room, room))

    def _room(self, resources: dict[str, float]) -> int:
        """Return how many workers fit on a machine; one on any with a CPU, which may have fewer than the threads."""
        by_cpu = max(int(resources.get("CPU", 0) // self.threads), int(resources.get("CPU", 0) >= 1))
        return min(by_cpu, int(resources.get("GPU", 0) // self.gpus)) if self.gpus else by_cpu

    def reserved(self) -> dict[str, float]:
        """Return what Ray reserves for each worker."""
        import ray

        most = max(int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"])
        fewest = min(most, self.threads)
        return {"num_cpus": fewest, "num_gpus": self.gpus}


@contextmanager
def quiet_environment(loopback: bool = True) -> Iterator[None]:
    """Set what Ray's processes read when they start; each of them must be started inside of this context.

    Args:
        loopback: Whether this machine alone takes part.
    """
    home = cache_folder() / "ray"
    make_folder(home)
    with replacing(home / _CONFIG) as config:
        config.write_text("provider: {type: local}\n", encoding="utf-8")
    own = {
        "HOME": str(home),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_BACKEND_LOG_LEVEL": os.environ.get("RAY_BACKEND_LOG_LEVEL", "fatal"),  # it warns of what is repaired
        "RAY_worker_niceness": "0",  # the workers are the work; by default all other processes come first
    }
    if loopback:  # otherwise Ray finds the machine's address with a socket to 8.8.8.8, and listens on it
        own["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def ray_session(address: str | None = None, *, cpus: int = 1, nodes: int = 1) -> Iterator[Any]:
    """Connect to a cluster, or start Ray on this machine, and leave it at the end.

    Args:
        address: Of a running cluster; None starts Ray on this machine.
        cpus: That each node started here has.
        nodes: How many to start here. With several, the cluster is yielded, to which `add_node` adds more.
    """
    require_extra("ray", "--engine ray")
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    common: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    cluster = None
    loopback = (address or _LOOPBACK).startswith((_LOOPBACK, "localhost"))
    with quiet_environment(loopback):
        import ray  # it reads the environment
        from ray._private import ray_constants

        ray_constants.ENABLE_RAY_CLUSTER = not loopback  # as it would have read, if it was imported before
        if nodes > 1:
            from ray.cluster_utils import Cluster

            cluster = Cluster()
            for _ in range(nodes):
                add_node(cluster, cpus)
            address = cluster.address
        own = {"include_dashboard": False, "_node_ip_address": _LOOPBACK, "num_cpus": cpus} if address is None else {}
        try:
            _patiently(lambda: ray.init(address or "local", **own, **common))
        except (ConnectionError, ValueError, TimeoutError) as error:
            raise BadOption(f"Cannot connect to --address {address!r}: {str(error).splitlines()[0]}") from error
    try:
        yield cluster
    finally:
        ray.shutdown()
        if cluster is not None:
            cluster.shutdown()


def add_node(cluster: Any, cpus: int = 1) -> Any:
    """Add a node on this machine to a local cluster, and return it."""
    with quiet_environment():
        given = {"num_cpus": cpus, "include_dashboard": False, "node_ip_address": _LOOPBACK}
        return _patiently(lambda: cluster.add_node(**given))


def _patiently(start: Callable[[], Any]) -> Any:
    """Start something of Ray; what took longer than Ray waits for, as on a busy machine, is tried again."""
    import ray

    for left in reversed(range(_STARTS)):
        try:
            return start()
        except Exception as error:  # of no class of its own
            if "timed out during startup" not in str(error) or not left:
                raise
            ray.shutdown()
    raise AssertionError("the last try returns or raises")


def start_serve() -> None:
    """Start Ray Serve inside a session, without a server for HTTP."""
    from ray import serve

    serve.start(proxy_location="Disabled")
