#!/usr/bin/env bash
# What `make run` does: the daemon in the foreground with the demo's network, and when it is ready
# three lines that work as they stand, in another terminal: deploy/demo/run.sh PROGRAM PORT
set -euo pipefail

readonly xnord=${1:?the daemon} port=${2:?the port}
readonly url=http://127.0.0.1:$port
daemon=''

is_ready() { curl -q --noproxy '*' -fs -o /dev/null "$url/v2/health/ready"; }

if ! [[ $port =~ ^[0-9]+$ ]] || ((10#$port < 1 || 10#$port > 65535)); then
    echo "run: PORT is \"$port\"; 1 to 65535 are possible" >&2
    exit 2
fi
if (: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
    echo "run: something listens on $url already; end it, or: make run PORT=8081" >&2
    exit 1
fi

# The terminal's Ctrl-C reaches the daemon too, which drains; we wait for its end.
trap : INT
trap 'kill -TERM "$daemon" 2>/dev/null' TERM

# Keys, certificates or a configuration file of yours do not apply: the lines would need them.
env -u XNORD_CONFIG -u XNORD_API_KEYS_FILE -u XNORD_TLS_CERT -u XNORD_TLS_KEY \
    "$xnord" --listen 127.0.0.1 --port "$port" --model digits=deploy/demo/digits &
daemon=$!
until is_ready; do
    kill -0 "$daemon" 2>/dev/null || break
    sleep 0.1
done
if kill -0 "$daemon" 2>/dev/null; then
    cat <<END

Ready. In a browser: $url/
In another terminal (Ctrl-C here ends it): a convolution, a digit for the network, and what was counted.

curl -sS $url/conv -H 'Content-Type: application/json' -d '{"input": {"shape": [1,1,3,3], "datatype": "FP32", "data": [1,-2,3,-4,5,-6,7,-8,9]}, "weights": {"shape": [1,1,3,3], "datatype": "FP32", "data": [1,-1,1,-1,1,-1,1,-1,1]}}'

curl -sS $url/v2/models/digits/infer -d '{"inputs": [{"name": "input", "shape": [1,8,8,1], "datatype": "UINT8", "data": [0,1,15,16,10,0,0,0, 0,4,16,9,16,4,0,0, 0,2,12,5,16,3,0,0, 0,0,0,6,16,3,0,0, 0,0,1,15,13,0,0,0, 0,0,8,16,4,0,0,0, 0,2,16,13,4,4,3,0, 0,2,13,16,16,16,16,2]}], "outputs": [{"name": "scores", "parameters": {"classification": 2}}]}'

curl -fsS $url/metrics | grep '^xnord_requests_total.* [^0]'

END
fi

# A signal that is trapped ends `wait` early.
status=0
wait "$daemon" || status=$?
while kill -0 "$daemon" 2>/dev/null; do
    status=0
    wait "$daemon" || status=$?
done
exit "$status"
