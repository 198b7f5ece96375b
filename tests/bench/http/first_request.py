#!/usr/bin/env python3
"""How long the first request after ready takes beside the steady ones, with --warmup on and off.

    first_request.py XNORD MODEL_FOLDER [-- DAEMON_FLAGS]

Each round starts a daemon with each setting, in turn, waits for the model's readiness, and sends
requests of one size over one connection that has carried a request for metadata. Prints medians
over the rounds; the last column is the largest ratio of first to steady of a round.
"""
import http.client
import json
import re
import statistics
import subprocess
import sys
import threading
import time

ROUNDS, REQUESTS, BATCHES = 5, 20, (1, 8)
BYTES = {"FP32": 4, "FP16": 2, "UINT8": 1}


def body_of(connection, batch):
    """The request's header and zeroes behind it."""
    connection.request("GET", "/v2/models/m")
    tensor = json.loads(connection.getresponse().read())["inputs"][0]
    shape = [batch] + tensor["shape"][1:]
    size = BYTES[tensor["datatype"]]
    for extent in shape:
        size *= extent
    head = json.dumps({"inputs": [{"name": tensor["name"], "datatype": tensor["datatype"],
                                   "shape": shape,
                                   "parameters": {"binary_data_size": size}}]}).encode()
    return len(head), head + bytes(size)


def await_ready(connection):
    while True:
        connection.request("GET", "/v2/models/m/ready")
        answer = connection.getresponse()
        answer.read()
        if answer.status == 200:
            return
        time.sleep(0.005)


def one_round(binary, folder, flags, warmup, batch):
    """Milliseconds until ready, of the first request, and of those from the third on."""
    began = time.perf_counter()
    daemon = subprocess.Popen([binary, "--port", "0", "--model", "m=" + folder,
                               "--warmup", warmup] + flags, stderr=subprocess.PIPE, text=True)
    try:
        for line in daemon.stderr:
            found = re.search(r"listening on http://[^:]+:(\d+)", line)
            if found:
                break
        threading.Thread(target=daemon.stderr.read, daemon=True).start()
        connection = http.client.HTTPConnection("127.0.0.1", int(found[1]))
        await_ready(connection)
        ready = time.perf_counter() - began
        length, body = body_of(connection, batch)
        headers = {"Content-Type": "application/octet-stream",
                   "Inference-Header-Content-Length": str(length)}
        times = []
        for _ in range(REQUESTS):
            start = time.perf_counter()
            connection.request("POST", "/v2/models/m/infer", body, headers)
            answer = connection.getresponse()
            text = answer.read()
            times.append(time.perf_counter() - start)
            assert answer.status == 200, text
        return [1e3 * t for t in (ready, times[0], statistics.median(times[2:]))]
    finally:
        daemon.terminate()
        daemon.wait()


def main():
    binary, folder = sys.argv[1:3]
    flags = sys.argv[4:]
    print("images  warmup  ready ms  first ms  steady ms  first/steady  most")
    for batch in BATCHES:
        rounds = {"on": [], "off": []}
        for _ in range(ROUNDS):
            for warmup, results in rounds.items():
                results.append(one_round(binary, folder, flags, warmup, batch))
        for warmup, results in rounds.items():
            ready, first, steady = (statistics.median(r[i] for r in results) for i in range(3))
            most = max(r[1] / r[2] for r in results)
            print(f"{batch:6}  {warmup:6}  {ready:8.0f}  {first:8.2f}  {steady:9.2f}"
                  f"  {first / steady:12.2f}  {most:4.2f}")


if __name__ == "__main__":
    main()
