"""Workers, actors and machines die at random moments, and the table stays that of one process."""

import random
import signal
import time

import psutil
import pytest

from domainadaptor.lab.cluster.start import add_node, ray_session
from tests.cli.test_predict import folder
from tests.cli.test_predict_on_cluster import run, start

__all__ = ["folder"]
pytest.importorskip("ray", reason="it needs the extra ray")


def kill_a_worker(rng, cluster, second):
    """Kill one of the processes of Ray that do the work, wherever it is."""
    workers = [
        process
        for node in (cluster.head_node, *second)
        for found in node.all_processes.get("raylet", [])
        if psutil.pid_exists(found.process.pid)
        for process in psutil.Process(found.process.pid).children()
        if process.is_running() and "ray::MapWorker" in " ".join(process.cmdline())
    ]
    if workers:
        rng.choice(workers).send_signal(signal.SIGKILL)
        return 1
    return 0


def kill_a_node(cluster, second):
    """Take the second machine away, and bring another one."""
    cluster.remove_node(second.pop(), allow_graceful=False)
    second.append(add_node(cluster))
    return 1


def survives(images, kills, seed, table="many.csv"):
    """Predict in a cluster of two nodes whose parts die; return how many did."""
    rng, died = random.Random(seed), 0
    with ray_session(nodes=2) as cluster:
        second = list(cluster.worker_nodes)
        while died < kills:
            process = start(
                images, "--output", table, "--engine", "ray", "--address", cluster.address, "--workers", "2"
            )
            while process.poll() is None:
                time.sleep(rng.uniform(1, 8))
                if died < kills:
                    died += kill_a_node(cluster, second) if rng.random() < 0.3 else kill_a_worker(rng, cluster, second)
            said = process.communicate()[1]
            assert process.returncode == 0, said
            assert (images.parent / table).read_bytes() == (images.parent / "one.csv").read_bytes()
    return died


def many_images(folder, count):
    image = (folder / "cat" / "0.jpg").read_bytes()
    for at in range(count):
        (folder / "cat" / f"more-{at:04}.jpg").write_bytes(image)
    run(folder, "--output", "one.csv")


@pytest.mark.slow
def test_a_killed_worker_and_a_killed_machine_change_nothing(folder):
    many_images(folder, 150)
    assert survives(folder, 2, seed=4) >= 2


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
def test_twenty_random_kills_change_nothing(folder):
    many_images(folder, 1500)
    assert survives(folder, 20, seed=0) >= 20
