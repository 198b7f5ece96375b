#!/usr/bin/env bash
# The demo: starts the daemon on a free port, sends it a picture through an edge kernel, leaves the
# answer as a picture to open, and has a digit recognised by a trained network. Called by
# `make demo [IMAGE=picture.pgm|.ppm] [DIGIT=number|picture.pgm|.ppm]`, which builds what it needs;
# BUILD names the build folder. Needs curl and nothing else that a shell does not have.
#   deploy/demo/demo.sh check    only says whether IMAGE and DIGIT can be read, before all is built
set -euo pipefail

readonly build=${BUILD:-build}
readonly image=${IMAGE:-} digit=${DIGIT:-42}
readonly network=deploy/demo/digits
readonly record=66 # bytes of a picture in held_out.u8: 64 pixels, what it shows, what is recognised
readonly xnord=$build/xnord pnm=$build/xnord-demo-pnm work=$build/demo
readonly log=$work/xnord.log
readonly start_seconds=60 # opening several GPUs takes a while
daemon='' started=''

stop_daemon() { # its exit status
    local pid=$daemon
    daemon=''
    kill -TERM "$pid" 2>/dev/null || true
    wait "$pid"
}

on_exit() {
    local status=$?
    trap - EXIT
    if [[ -n $daemon ]]; then
        stop_daemon || true
    fi
    if ((status != 0)); then
        echo "demo: FAILED" >&2
        if [[ $started && -s $log ]]; then
            echo "---- the daemon's log, $log:" >&2
            tail -n 40 "$log" >&2
        fi
    fi
    exit "$status"
}
trap on_exit EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fail() {
    echo "demo: $*" >&2
    exit 1
}

title() { printf '\n== %s\n' "$*"; }

# Everything goes to our own daemon: no proxy, no surprises from ~/.curlrc (-q must come first).
# "Expect:" spares large bodies the round trip of 100-continue.
request() { curl -q --noproxy '*' --silent --show-error --max-time 120 -H 'Expect:' "$@"; }

# Sends the arguments to curl; the answer's head and body go to these files. Fails unless HTTP says
# 2xx, showing what the server answered.
send() { # head file, body file, curl arguments
    local head=$1 body=$2 status
    shift 2
    status=$(request -D "$head" -o "$body" -w '%{http_code}' "$@") || fail "curl could not send the request"
    if [[ $status != 2?? ]]; then
        fail "the server answered $status: $(head -c 2000 "$body")"
    fi
}

header() { # name, head file: the header's value
    awk -v name="$1" -F': *' 'tolower($1) == tolower(name) {
        sub(/^[^:]*: */, ""); sub(/\r$/, ""); print; exit }' "$2"
}

show() { # a text file, with a line end whether it has one or not
    sed -e 's/[ ]*$//' -e '/^$/d' "$1"
    if [[ -n $(tail -c1 "$1") ]]; then
        echo
    fi
}

# "receive;dur=0.01, decode;dur=0.2" as one readable line
timings() {
    header Server-Timing "$1" | sed -E 's/;[ ]*dur=/ /g; s/$/ (ms)/'
}

start_daemon() {
    local tenths
    : >"$log" # there before it is looked into
    # The demo's own settings: keys, certificates or a configuration file of yours do not apply.
    env -u XNORD_CONFIG -u XNORD_API_KEYS_FILE -u XNORD_TLS_CERT -u XNORD_TLS_KEY \
        "$xnord" --listen 127.0.0.1 --port 0 --log-format text --log-level info \
        --model "digits=$network" >"$log" 2>&1 &
    daemon=$! started=1
    for ((tenths = 0; tenths < start_seconds * 10; tenths++)); do
        if ! kill -0 "$daemon" 2>/dev/null; then
            daemon=''
            fail "the daemon did not start"
        fi
        url=$(sed -nE 's/.*listening on (http:[^ ]+).*/\1/p' "$log" | head -n1)
        if [[ -n $url ]] && request -f -o "$work/ready.json" "$url/v2/health/ready" 2>/dev/null; then
            return
        fi
        sleep 0.1
    done
    fail "the daemon was not ready after $start_seconds seconds"
}

# A picture of the user's, before anything is built or started for it: there, and of a format that
# xnord-demo-pnm reads.
check_picture() { # variable, file
    local magic
    [[ -f $2 && -r $2 ]] || fail "$1=$2: there is no such file that can be read"
    magic=$(head -c 2 "$2" | tr -d '\0')
    [[ $magic == P[2356] ]] ||
        fail "$1=$2: a PGM or PPM (P2, P3, P5, P6) is needed, which ImageMagick makes: convert $2 picture.pgm"
}

if [[ -n $image ]]; then
    check_picture IMAGE "$image"
fi
pictures=$(($(wc -c <"$network/held_out.u8") / record))
readonly pictures
if [[ ! $digit =~ ^[0-9]+$ ]]; then
    check_picture DIGIT "$digit"
elif ((10#$digit >= pictures)); then
    fail "DIGIT=$digit: there are the pictures 0 to $((pictures - 1)), or a file of yours"
fi
if [[ ${1:-} == check ]]; then
    exit 0
fi

[[ -x $xnord && -x $pnm ]] || fail "$xnord or $pnm is not there: run 'make demo'"
command -v curl >/dev/null || fail "curl is not there: run deploy/install-deps.sh"
mkdir -p "$work"
rm -f "$work"/edges.png "$log"

# What can be wrong with the pictures is found before the daemon is started.
if [[ -n $image ]]; then
    source_picture=$image
else
    source_picture=$work/input.pgm
    "$pnm" draw "$source_picture"
fi
size=$("$pnm" floats "$source_picture" "$work/input.f32")
read -r width height <<<"$size"
"$pnm" png "$source_picture" "$work/input.png"
if [[ ! $digit =~ ^[0-9]+$ ]]; then
    "$pnm" digit "$digit" "$work/digit.u8"
fi

title "The daemon"
start_daemon
echo "$("$xnord" --version) at $url, log in $log"
echo "GET $url/v2/health/ready"
show "$work/ready.json"

title "A small convolution in JSON, in full"
json='{"input": {"shape": [1, 1, 3, 3], "datatype": "FP32", "data": [1, -2, 3, -4, 5, -6, 7, -8, 9]},
 "weights": {"shape": [1, 1, 3, 3], "datatype": "FP32", "data": [1, -1, 1, -1, 1, -1, 1, -1, 1]},
 "padding": "same"}'
cat <<END
curl $url/conv -H 'Content-Type: application/json' -d '$json'
END
send "$work/json.head" "$work/json.answer" "$url/conv" -H 'Content-Type: application/json' -d "$json"
show "$work/json.answer"

title "The picture"
if [[ -n $image ]]; then
    echo "yours: $image"
else
    echo "drawn: $source_picture (your own: make demo IMAGE=picture.pgm)"
fi
echo "$width x $height pixels; each less the mean around it, as floats: $work/input.f32"

# Binary weights are +1 or -1, so an edge kernel is one half against the other: above against
# below, and left against right. Two output channels: the two directions of the gradient.
title "The weights, registered under the name \"edge\""
weights='{"weights": {"shape": [2, 1, 4, 4], "datatype": "FP32", "data": [
  -1,-1,-1,-1, -1,-1,-1,-1,  1, 1, 1, 1,  1, 1, 1, 1,
  -1,-1, 1, 1, -1,-1, 1, 1, -1,-1, 1, 1, -1,-1, 1, 1]}}'
cat <<END
curl -X PUT $url/weights/edge -H 'Content-Type: application/json' -d '$weights'
END
send "$work/weights.head" "$work/weights.answer" -X PUT "$url/weights/edge" \
    -H 'Content-Type: application/json' -d "$weights"
show "$work/weights.answer"

title "The picture through the kernel, as raw floats"
bytes=$((width * height * 4))
start="{\"input\": {\"shape\": [1, 1, $height, $width], \"datatype\": \"FP32\", \"parameters\": {\"binary_data_size\": $bytes}}, \"weights\": \"edge\", \"padding\": [1, 1, 2, 2]}"
# One file, first the JSON, then the floats: curl sends a file without reading it all.
{
    printf '%s' "$start"
    cat "$work/input.f32"
} >"$work/request.bin"
call=("$url/conv" -H 'Content-Type: application/octet-stream'
    -H "Inference-Header-Content-Length: ${#start}" --data-binary "@$work/request.bin")
cat <<END
(printf '%s' '$start'; cat $work/input.f32) > $work/request.bin
curl $url/conv -H 'Content-Type: application/octet-stream' \\
     -H 'Inference-Header-Content-Length: ${#start}' --data-binary @$work/request.bin
END
send "$work/first.head" "$work/answer.bin" "${call[@]}"
# A second time: what the first of its kind prepares (plans, memory) is there now.
send "$work/answer.head" "$work/answer.bin" "${call[@]}"

length=$(header Inference-Header-Content-Length "$work/answer.head")
[[ $length =~ ^[0-9]+$ ]] || fail "the answer does not say how long its JSON is"
head -c "$length" "$work/answer.bin" >"$work/answer.json"
echo "answer, and behind it the floats:"
show "$work/answer.json"
tail -c +$((length + 1)) "$work/answer.bin" >"$work/output.f32"
received=$(wc -c <"$work/output.f32")
((received == 2 * bytes)) || fail "the answer has $received bytes of floats instead of $((2 * bytes))"
"$pnm" picture "$work/output.f32" "$width" "$height" "$work/edges.pgm"
"$pnm" png "$work/edges.pgm" "$work/edges.png"

title "Timings"
echo "first request:  $(timings "$work/first.head")"
echo "second request: $(timings "$work/answer.head")"
echo "$width x $height pixels, 2 kernels of 4 x 4, backend" \
    "$(sed -nE 's/.*"backend": ?"([^"]*)".*/\1/p' "$work/answer.json")"

title "Files"
printf '%-18s %s\n' "the picture" "$source_picture" "as PNG" "$work/input.png" \
    "its edges" "$work/edges.png" "as PGM" "$work/edges.pgm" \
    "raw floats in" "$work/input.f32" "raw floats out" "$work/output.f32" \
    "the daemon's log" "$log"

title "A digit"
if [[ $digit =~ ^[0-9]+$ ]]; then
    # The reader of each pipe takes all of it: one that ends early would end the script.
    head -c $(((10#$digit + 1) * record)) "$network/held_out.u8" | tail -c "$record" >"$work/record"
    head -c 64 "$work/record" >"$work/digit.u8"
    echo "number $digit of the $pictures that were held out when the network was trained; it shows a" \
        "$(od -An -tu1 -j64 -N1 "$work/record" | tr -d ' ')" \
        "(another, or your own: make demo DIGIT=7, DIGIT=picture.pgm)"
else
    echo "yours: $digit, as 8x8 pixels of 0 to 16"
fi
# Two characters a pixel, which is about square.
od -An -v -w8 -tu1 "$work/digit.u8" | awk '{
    line = "    "
    for (i = 1; i <= NF; i++) {
        ink = substr(" .:-=+*#%@", int($i * 9 / 16) + 1, 1)
        line = line ink ink
    }
    print line }'

title "What the network takes it for"
pixels=$(od -An -v -w8 -tu1 "$work/digit.u8" | tr -s ' ' | sed 's/^ //; s/ /,/g' | paste -sd, -)
question="{\"inputs\": [{\"name\": \"input\", \"shape\": [1, 8, 8, 1], \"datatype\": \"UINT8\", \"data\": [$pixels]}],
 \"outputs\": [{\"name\": \"scores\", \"parameters\": {\"classification\": 10}}]}"
cat <<END
curl $url/v2/models/digits/infer -d '$question'
END
call=("$url/v2/models/digits/infer" -d "$question")
send "$work/first.head" "$work/digit.answer" "${call[@]}"
send "$work/answer.head" "$work/digit.answer" "${call[@]}"
show "$work/digit.answer"
echo
grep -oE '"[0-9.]+:[0-9]+:[^"]*"' "$work/digit.answer" | tr -d '"' | awk -F: '{
    bar = ""
    for (i = int($1 * 50 + 0.5); i > 0; i--)
        bar = bar "#"
    printf "    %s  %.4f  %s\n", $3, $1, bar }'
echo
echo "first request:  $(timings "$work/first.head")"
echo "second request: $(timings "$work/answer.head")"

stop_daemon || fail "the daemon left with exit status $?"
