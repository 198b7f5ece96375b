#!/usr/bin/env python3
"""bench_probe.py: how long a health probe waits while two clients send JSON bodies of 112 MB.

  bench_probe.py XNORD [SECONDS] [XNORD FLAGS ...]

Starts XNORD on a free port of loopback with --http-threads 2, sends a probe every 10 ms, and prints
the waits; `make bench-probe` gives daemon and clients two cores each.
"""
import http.client
import re
import subprocess
import sys
import threading
import time

PIXELS = (3500, 4000)
TAIL = b"]}, \"weights\": {\"shape\": [1,1,1,1], \"datatype\": \"FP32\", \"data\": [1]}}"


def make_body():
    head = '{"input": {"shape": [1,1,%d,%d], "datatype": "FP32", "data": [' % PIXELS
    return head.encode() + b",".join([b"0.12345"] * (PIXELS[0] * PIXELS[1])) + TAIL


def send_bodies(port, body, stop, answered):
    headers = {"Content-Type": "application/json", "Accept": "application/octet-stream"}
    while not stop.is_set():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/conv", body, headers)
        response = connection.getresponse()
        response.read()
        connection.close()
        answered.append(response.status)


def probe(port, seconds):
    waits = []
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begun = time.perf_counter()
        connection.request("GET", "/v2/health/live")
        connection.getresponse().read()
        waits.append(1e3 * (time.perf_counter() - begun))
        time.sleep(0.01)
    return sorted(waits)


def start(arguments):
    daemon = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
    for line in daemon.stderr:
        found = re.search(r"listening on \S+:(\d+)", line)
        if found:
            threading.Thread(target=daemon.stderr.read, daemon=True).start()
            return daemon, int(found.group(1))
    sys.exit("bench_probe: the daemon did not start")


def main():
    binary, seconds, flags = sys.argv[1], float((sys.argv[2:] or ["10"])[0]), sys.argv[3:]
    body = make_body()
    daemon, port = start([*binary.split(), "--port", "0", "--http-threads", "2", *flags])
    stop, answered = threading.Event(), []
    clients = [
        threading.Thread(target=send_bodies, args=(port, body, stop, answered)) for _ in range(2)
    ]
    try:
        for client in clients:
            client.start()
        waits = probe(port, seconds)
    finally:
        stop.set()
        for client in clients:
            client.join()
        daemon.terminate()
        daemon.wait()
    p99 = waits[int(0.99 * len(waits))]
    print(f"bodies of {len(body)} bytes: {len(answered)} answered; probes: {len(waits)}, "
          f"p50 {waits[len(waits) // 2]:.2f}, p99 {p99:.2f}, at most {waits[-1]:.2f} ms")
    sys.exit(0 if set(answered) == {200} else 1)


main()
