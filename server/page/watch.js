// watch.js: /metrics once a second, as plots of the last two minutes.

const KEPT = 120, PERIOD_MS = 1000;
const LATENCY_WINDOW = 10, BATCH_WINDOW = 60; // samples
const MOST_LINES = 4;

const samples = []; // {time, values}, oldest first: values by the series' text
const plots = new Map();
let paused = false, ticking = false;

// "name{labels} value" lines by what stands before the value.
function parseMetrics(text) {
    const values = new Map();
    for (const line of text.split("\n")) {
        const cut = line.lastIndexOf(" ");
        if (cut > 0 && line[0] !== "#")
            values.set(line.slice(0, cut), Number(line.slice(cut + 1)));
    }
    return values;
}

// [labels, value] of a family; labels as text.
function* family(values, name) {
    for (const [series, value] of values)
        if (series.startsWith(`${name}{`))
            yield [series.slice(name.length), value];
}

const labelOf = (labels, name) =>
    labels.match(new RegExp(`[{,]${name}="((?:[^"\\\\]|\\\\.)*)"`))?.[1].replace(/\\(.)/g, "$1");

// What a counter rose by between two samples; from 0 where the daemon was started anew.
function rise(now, before, series) {
    const to = now.values.get(series) ?? 0, from = before.values.get(series) ?? 0;
    return to < from ? to : to - from;
}

const seconds = (now, before) => (now.time - before.time) / 1000;

// Lines of a counter a second, one for each name that nameOf(labels) gives: the MOST_LINES that rose
// most since the oldest sample, the rest as one.
function ratesBy(counter, nameOf) {
    const [first, last] = [samples[0], samples.at(-1)], series = new Map();
    for (const [labels] of family(last.values, counter)) {
        const name = nameOf(labels);
        if (name && rise(last, first, counter + labels))
            series.set(name, [...series.get(name) ?? [], counter + labels]);
    }
    const risen = (now, before, list) => list.reduce((sum, one) => sum + rise(now, before, one), 0);
    const lines = [...series].sort((a, b) => risen(last, first, b[1]) - risen(last, first, a[1]));
    const rest = lines.splice(MOST_LINES).flatMap(line => line[1]);
    lines.sort(); // a name keeps its colour
    return [...lines, ...rest.length ? [["others", rest]] : []].map(([name, list]) =>
        [name, (now, before) => risen(now, before, list) / seconds(now, before)]);
}

const modelOf = labels => `${labelOf(labels, "model")} ${labelOf(labels, "version")}`;
const refusedOf = labels => "23".includes(labelOf(labels, "code")[0]) ? ""
    : `${labelOf(labels, "code")} ${labelOf(labels, "route")}`;

// [[upper bound, count in the bucket]] of what a histogram counted between two samples.
function buckets(now, before, name, label) {
    const found = [];
    let below = 0;
    for (const [labels] of family(now.values, `${name}_bucket`)) {
        if (label && !labels.includes(label))
            continue;
        const upTo = rise(now, before, `${name}_bucket${labels}`);
        found.push([Number(labelOf(labels, "le").replace("+Inf", "Infinity")), upTo - below]);
        below = upTo;
    }
    return found;
}

// Linear within its bucket, as Prometheus has it; null where there is nothing.
function quantile(counts, share) {
    const total = counts.reduce((sum, [, count]) => sum + count, 0);
    let rank = share * total, low = 0;
    for (const [high, count] of counts) {
        if (count && rank <= count)
            return high === Infinity ? low : low + (high - low) * rank / count;
        rank -= count;
        low = high;
    }
    return null;
}

const latency = (now, window, share) => {
    const value = quantile(buckets(now, window, "xnord_stage_seconds", 'stage="total"'), share);
    return value === null ? null : value * 1e6;
};

const gauge = name => now => now.values.get(name) ?? null;
const perSecond = value => `${number(value)}/s`;
const count = value => String(Math.round(value));
const mebibytes = name => now => (now.values.get(name) ?? 0) / 2 ** 20;

// Of each line what it is at a sample, given the one before it and the one a window ago.
const LINE_PLOTS = [
    { title: "Requests by route", show: perSecond,
        lines: () => ratesBy("xnord_requests_total", labels => labelOf(labels, "route")) },
    { title: "Refused by code and route", show: perSecond,
        lines: () => ratesBy("xnord_requests_total", refusedOf) },
    { title: "Images by model and version", show: perSecond,
        lines: () => ratesBy("xnord_model_images_total", modelOf) },
    { title: "Computing by model and version", show: value => `${number(value, 2)} s/s`,
        lines: () => ratesBy("xnord_model_compute_seconds_total", modelOf) },
    { title: "Latency in the daemon", show: microseconds, lines: () => [
        ["p50", (now, _, window) => latency(now, window, 0.5)],
        ["p90", (now, _, window) => latency(now, window, 0.9)],
        ["p99", (now, _, window) => latency(now, window, 0.99)]] },
    { title: "Queue", show: count, lines: () => [
        ["waiting", gauge("xnord_queue_depth")],
        ["in flight", gauge("xnord_inflight_requests")]] },
    { title: "Device use", show: value => `${number(value, 2)} busy`, lines: () =>
        [...family(samples.at(-1).values, "xnord_device_busy_seconds_total")].map(([labels]) =>
            [labelOf(labels, "device"), (now, before) => rise(now, before,
                `xnord_device_busy_seconds_total${labels}`) / seconds(now, before)]) },
    { title: "Memory", show: value => `${number(value)} MiB`, lines: () => [
        ["resident", mebibytes("process_resident_memory_bytes")],
        ["in flight", mebibytes("xnord_inflight_bytes")]] },
];
const BATCHES = "Images a launch";

function showLinePlot({ title, show, lines }) {
    const drawn = lines().map(([name, of]) => ({ name, show,
        values: samples.slice(1).map((now, i) =>
            of(now, samples[i], samples[Math.max(i + 1 - LATENCY_WINDOW, 0)])) }));
    const newest = samples.at(-1).time;
    drawLines(plots.get(title), title, drawn,
        samples.slice(1).map(({ time }) => 1 - (newest - time) / (KEPT * PERIOD_MS)));
}

function showBatches() {
    const now = samples.at(-1), before = samples.at(-Math.min(BATCH_WINDOW, samples.length));
    const counts = buckets(now, before, "xnord_batch_images", "");
    const launches = rise(now, before, "xnord_batch_images_count");
    const mean = rise(now, before, "xnord_batch_images_sum") / launches;
    drawBars(plots.get(BATCHES), BATCHES, counts, launches ? `${number(mean)} on average` : "–");
}

function showSamples() {
    if (samples.length < 2)
        return;
    LINE_PLOTS.forEach(showLinePlot);
    showBatches();
}

function sayState(text) {
    if (byId("watch-state").textContent !== text)
        byId("watch-state").textContent = text;
}

async function takeSample() {
    const values = parseMetrics(await (await request("/metrics")).text());
    samples.push({ time: performance.now(), values });
    samples.splice(0, samples.findIndex(({ time }) => time > samples.at(-1).time - KEPT * PERIOD_MS));
    sayState(paused ? "paused" : values.get("xnord_ready") ? "live" : "live, not ready");
    showSamples();
}

const isWatching = () => !paused && !byId("watch").hidden && !document.hidden;

async function tick() {
    if (ticking || !isWatching())
        return;
    ticking = true;
    await takeSample().catch(error => sayState(error instanceof TypeError
        ? "the server does not answer" : error.message));
    setTimeout(() => { ticking = false; tick(); }, PERIOD_MS);
}

function startWatch() {
    for (const { title } of [...LINE_PLOTS, { title: BATCHES }]) {
        plots.set(title, plotFrame(title, title === BATCHES ? [] : ["2 min ago", "1 min ago", "now"]));
        byId("plots").append(plots.get(title).card);
    }
    byId("load").textContent = `build/bench-http load --port ${location.port || 80} --workloads 64k --rate 500`;
    byId("pause").addEventListener("click", event => {
        paused = !paused;
        event.target.setAttribute("aria-pressed", String(paused));
        sayState(paused ? "paused" : "live");
        tick();
    });
    document.addEventListener("visibilitychange", tick);
}
