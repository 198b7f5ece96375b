-- post.lua: wrk's script of `bench-http wrk`: POSTs one square single-channel fp32 image of SIDE
-- pixels. FORM: oip (header and values, as xnord takes it, with weights "bench") or values only.
local ffi = require("ffi")
local side = tonumber(os.getenv("SIDE") or "128")
local form = os.getenv("FORM") or "oip"

math.randomseed(7)
local values = ffi.new("float[?]", side * side)
for i = 0, side * side - 1 do
    values[i] = math.random() * 2 - 1
end
local bytes = ffi.string(values, side * side * 4)

wrk.method = "POST"
wrk.headers["Content-Type"] = "application/octet-stream"
if form == "oip" then
    local header = string.format(
        '{"input": {"shape": [1, 1, %d, %d], "datatype": "FP32", ' ..
        '"parameters": {"binary_data_size": %d}}, "weights": "bench", "padding": 1}',
        side, side, #bytes)
    wrk.headers["Inference-Header-Content-Length"] = tostring(#header)
    wrk.body = header .. bytes
else
    wrk.body = bytes
end

-- One line that bench-http reads.
function done(summary, latency, requests)
    local e = summary.errors
    io.write(string.format("RESULT %.1f %.1f %.1f %.1f %d\n",
        summary.requests / (summary.duration / 1e6), latency:percentile(50),
        latency:percentile(90), latency:percentile(99),
        e.connect + e.read + e.write + e.status + e.timeout))
end
