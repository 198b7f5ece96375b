"""How much more several daemons do behind HAProxy than one, and what HAProxy costs:
bench_cluster.py [--workloads "4k 64k heavy"] [--quota 0.2] [--rounds 3] [--seconds 4];
with --buffers "16384 81920", how much of it one daemon does with each size of HAProxy's buffers.

Each daemon stands for a host: it is held to that share of one core (a control group of cpu; root).
A closed loop, so that a daemon has always something to do. The sides take turns."""
import argparse
import contextlib
import os
import pathlib
import statistics

import setting  # noqa: F401
from cluster import Cluster, Haproxy, Load
from processes import request, wait_until

CONNECTIONS = 32
PERIOD_US = 10_000
KEEP = {"MALLOC_TRIM_THRESHOLD_": "268435456", "MALLOC_MMAP_THRESHOLD_": "33554432"}
SIDES = ((1, False), (1, True), (2, True), (4, True))


class Quota:
    """A control group for a process, with a share of one core; gone with the context."""

    def __init__(self, pid, share):
        root = pathlib.Path("/sys/fs/cgroup")
        self.second = (root / "cgroup.controllers").exists()
        self.folder = (root if self.second else root / "cpu") / f"xnord-bench-{pid}"
        self.folder.mkdir()
        quota = int(share * PERIOD_US)
        if self.second:
            (self.folder / "cpu.max").write_text(f"{quota} {PERIOD_US}")
        else:
            (self.folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (self.folder / "cpu.cfs_quota_us").write_text(str(quota))
        (self.folder / "cgroup.procs").write_text(str(pid))

    def remove(self):
        with contextlib.suppress(OSError):
            wait_until(lambda: not (self.folder / "cgroup.procs").read_text(), "still in use", 10)
            self.folder.rmdir()


def measured(cluster, port, workload, seconds):
    load = Load(cluster.path, port, workload, seconds + 0.5, connections=CONNECTIONS)
    outcome = load.over()
    if outcome.count["good"] != outcome.due:
        raise RuntimeError(f"answers are missing: {outcome}")
    return outcome.row


def one(count, balanced, options, workload):
    """Requests a second, p50 and p99 in milliseconds, and the least and the most of what each
    daemon answered, as shares of an equal part."""
    quotas = []
    with Cluster(count) as cluster:
        Load(cluster.path, cluster.daemons[0].port, workload, 1, rate=10).over()
        for daemon in cluster.daemons:
            wait_until(
                lambda: request(f"{daemon.url}/weights/{workload}").status == 200, "no weights"
            )
            quotas.append(Quota(daemon.process.pid, options.quota))
        port = cluster.haproxy.port if balanced else cluster.daemons[0].port
        row = measured(cluster, port, workload, options.seconds)
        shares = [int(r["hrsp_2xx"]) for r in cluster.haproxy.servers().values()]
    for quota in quotas:
        quota.remove()
    equal = sum(shares) / count or 1
    return (row["good_per_s"], row["good_p50_ms"], row["good_p99_ms"],
            min(shares) / equal, max(shares) / equal)


def spread(rates):
    return f"{statistics.median(rates):8.0f}/s ({min(rates):.0f} to {max(rates):.0f})"


def compare_buffers(options):
    """One daemon without a quota, 4 KiB; each size with the C library as it is, and told to keep
    what is freed."""
    sides = [(size, kept) for size in options.buffers.split() for kept in (False, True)]
    found = {side: [] for side in [None, *sides]}
    with Cluster(1) as cluster:
        ports = cluster.ports()
        Load(cluster.path, *ports, "4k", 1, rate=10).over()
        for _ in range(options.rounds):
            found[None].append(measured(cluster, *ports, "4k", options.seconds)["good_per_s"])
            for size, kept in sides:
                cluster.haproxy.kill()
                cluster.haproxy = Haproxy(cluster.path, ports, size, KEEP if kept else None)
                row = measured(cluster, cluster.haproxy.port, "4k", options.seconds)
                found[size, kept].append(row["good_per_s"])
    for side, rates in found.items():
        name = f"{side[0]}{', memory kept' if side[1] else ''}" if side else "without HAProxy"
        print(f"{name:22} {spread(rates)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", default="4k 64k heavy")
    parser.add_argument("--quota", type=float, default=0.2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--buffers", help="sizes of HAProxy's buffers, to compare")
    options = parser.parse_args()
    if options.buffers:
        compare_buffers(options)
        return
    print(f"{CONNECTIONS} connections, each daemon {options.quota:g} of a core, medians of "
          f"{options.rounds} rounds (least to most); this machine has {os.cpu_count()} cores")
    for workload in options.workloads.split():
        found = {side: [] for side in SIDES}
        for _ in range(options.rounds):
            for side in SIDES:
                found[side].append(one(*side, options, workload))
        alone = statistics.median(f[0] for f in found[SIDES[1]])
        for (count, balanced), rows in found.items():
            rate, p50, p99 = (statistics.median(r[i] for r in rows) for i in range(3))
            print(
                f"{workload:6} {count} {'by HAProxy' if balanced else 'alone':10} "
                f"{spread([r[0] for r in rows])}, {rate / alone:4.2f} of one, "
                f"p50 {p50:7.2f}, p99 {p99:7.2f} ms"
                + (f", shares {min(r[3] for r in rows):.2f} to {max(r[4] for r in rows):.2f}"
                   if count > 1 else ""),
                flush=True,
            )


if __name__ == "__main__":
    main()
