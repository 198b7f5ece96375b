// try.js: a picture through a kernel: in one bit, in floats, and K; the times, the curl line.

const STAGES = ["receive", "decode", "queue", "upload", "compute", "download", "encode", "other"];

// ---- kernels ----

// Filters of 7 x 7, one a direction: a wave under a bell, without its mean.
function gaborFilter(angle) {
    const taps = [];
    for (let i = 0; i < 49; i++) {
        const x = i % 7 - 3, y = Math.floor(i / 7) - 3;
        const across = x * Math.cos(angle) + y * Math.sin(angle);
        taps.push(Math.exp(-(x * x + y * y) / 8) * Math.cos(across * 1.4));
    }
    const mean = taps.reduce((sum, tap) => sum + tap) / taps.length;
    return taps.map(tap => Number((tap - mean).toFixed(3)));
}

const GABOR_FILTERS = 8;
const KERNELS = [
    { name: "Edge", hint: "Above against below.", size: 3,
      weights: [1, 2, 1, 0.25, -0.5, 0.25, -1, -2, -1] },
    { name: "Emboss", hint: "One corner against the other.", size: 3,
      weights: [-2, -1, -0.5, -1, 0.5, 1, 0.5, 1, 2] },
    { name: "Gabor bank", hint: "Eight directions, 7 × 7 taps each.", size: 7,
      weights: Array.from({ length: GABOR_FILTERS },
          (_, i) => gaborFilter(i * Math.PI / GABOR_FILTERS)).flat() },
    { name: "Own 3 × 3", hint: "Click a sign to turn it.", size: 3, own: true,
      weights: [1, 1, 1, 1, 1, 1, -1, -1, -1] },
];

let source = SAMPLES[0]; // or {file, bitmap} of the user
let input = null; // what is convolved
let kernel = KERNELS[0];
let channel = 0;
let answers = null; // {xnor, float, k}: {values, timing, backend}

const filtersOf = one => one.weights.length / (one.size * one.size);
const tapsOf = (one, filter) =>
    one.weights.slice(filter * one.size ** 2, (filter + 1) * one.size ** 2);
const signOf = value => value >= 0 ? 1 : -1;
const alphaOf = taps => taps.reduce((sum, tap) => sum + Math.abs(tap), 0) / taps.length;

function turnSign(index) {
    const own = KERNELS.find(one => one.own);
    const signs = kernel.weights.map(signOf);
    signs[index] = -signs[index];
    own.weights = signs;
    chooseKernel(own);
    byId("kernel").children[index].focus();
}

function showKernel() {
    const fixed = kernel.size !== 3, taps = tapsOf(kernel, channel);
    const most = Math.max(...taps.map(Math.abs));
    byId("kernel").style.setProperty("--size", kernel.size);
    byId("kernel").replaceChildren(...taps.map((tap, i) => {
        const row = Math.floor(i / kernel.size) + 1, column = i % kernel.size + 1;
        const cell = make("button", { type: "button", class: tap >= 0 ? "plus" : "minus",
            disabled: fixed, "aria-pressed": String(tap >= 0),
            "aria-label": `row ${row}, column ${column}: ${tap >= 0 ? "plus" : "minus"}`,
            onclick: () => turnSign(i) },
            ...fixed ? [] : [tap >= 0 ? "+" : MINUS, make("small", {}, String(Math.abs(tap)))]);
        if (fixed)
            cell.style.opacity = 0.25 + 0.75 * Math.abs(tap) / most;
        return cell;
    }));
    byId("kernel-hint").textContent = kernel.hint;
}

function chooseKernel(one) {
    kernel = one;
    channel = Math.min(channel, filtersOf(one) - 1);
    const radio = byId(`kernel-${KERNELS.indexOf(one)}`);
    radio.checked = true;
    showOperation(false);
    showKernel();
    compute();
}

// ---- requests ----

// The header of an OIP binary request: the input's bytes follow it.
function conversation(weights, size, more) {
    return JSON.stringify({
        input: { shape: [1, 1, side, side], datatype: "FP32",
            parameters: { binary_data_size: 4 * side * side } },
        weights: { shape: [weights.length / (size * size), 1, size, size], datatype: "FP32",
            data: weights },
        padding: "same", ...more });
}

async function convolve(header, ...values) {
    const response = await request("/conv", { method: "POST",
        headers: { "Content-Type": "application/octet-stream",
            "Inference-Header-Content-Length": String(header.length) },
        body: new Blob([header, ...values]) });
    const body = await response.arrayBuffer();
    const length = Number(response.headers.get("Inference-Header-Content-Length"));
    return { ...JSON.parse(new TextDecoder().decode(body.slice(0, length))),
        values: new Float32Array(body.slice(length)) };
}

const inBits = () => convolve(conversation(kernel.weights, kernel.size, {}), input);
const inFloats = () => convolve(conversation(kernel.weights, kernel.size, { mode: "float" }), input);

// K of XNOR-Net: the mean of |input| under the kernel, which is a convolution too.
function meanSize() {
    const taps = kernel.size * kernel.size;
    return convolve(conversation(Array(taps).fill(1 / taps), kernel.size, { mode: "float" }),
        input.map(Math.abs));
}

const medians = timings => Object.fromEntries([...STAGES, "total"].map(stage =>
    [stage, median(timings.map(timing => timing[stage]))]));

// One after another, so that none waits for the other. The first run, which also makes plans, is not
// among those that are timed.
const compute = onlyLatest(async (outdated, runs = 5) => {
    if (!input || byId("convolution").hidden)
        return;
    byId("convolution").setAttribute("aria-busy", "true");
    showCurl();
    const xnor = await inBits(), float = await inFloats(), k = await meanSize();
    if (outdated())
        return;
    answers = { xnor, float, k };
    showAnswers();
    showTimes(xnor.timing, float.timing, "The first run.");
    byId("convolution").setAttribute("aria-busy", "false");
    const times = { xnor: [], float: [] };
    for (let i = 0; i < runs && !outdated(); i++) {
        times.xnor.push((await inBits()).timing);
        times.float.push((await inFloats()).timing);
    }
    if (!outdated())
        showTimes(medians(times.xnor), medians(times.float), `Medians of ${runs} runs, in turns.`);
});

// ---- what is shown ----

function likeness(a, b) {
    const mean = list => list.reduce((sum, value) => sum + value, 0) / list.length;
    const ma = mean(a), mb = mean(b);
    let both = 0, one = 0, other = 0;
    for (let i = 0; i < a.length; i++) {
        both += (a[i] - ma) * (b[i] - mb);
        one += (a[i] - ma) ** 2;
        other += (b[i] - mb) ** 2;
    }
    return one && other ? both / Math.sqrt(one * other) : 0;
}

const planeOf = answer => answer.values.subarray(channel * side * side, (channel + 1) * side * side);

function showAnswers() {
    const { xnor, float, k } = answers, taps = tapsOf(kernel, channel);
    showPlane("k", k.values);
    showPlane("xnor", planeOf(xnor));
    showPlane("float", planeOf(float));
    showChannels();
    showCross();
    const facts = [["α, mean of |W|", number(alphaOf(taps))],
        ["alike (r)", likeness(planeOf(xnor), planeOf(float)).toFixed(2).replace("-", MINUS)],
        ["weights", `${kernel.weights.length} bits, not ${4 * kernel.weights.length} bytes`],
        ["computed by", xnor.backend]];
    byId("facts").replaceChildren(...facts.map(([name, value]) =>
        make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

function showChannels() {
    const count = filtersOf(kernel), place = byId("channels");
    place.hidden = count === 1;
    if (place.hidden)
        return;
    const focused = place.contains(document.activeElement);
    place.replaceChildren(...Array.from({ length: count }, (_, i) => {
        const canvas = make("canvas");
        const plane = answers.xnor.values.subarray(i * side * side, (i + 1) * side * side);
        drawPlane(canvas, plane, side, extremes(plane));
        return make("button", { type: "button", "aria-pressed": String(i === channel),
            "aria-label": `filter ${i + 1} of ${count}, ${i * 180 / count} degrees`,
            onclick: () => { channel = i; showKernel(); showAnswers(); } },
            canvas, `${i * 180 / count}°`);
    }));
    if (focused)
        place.children[channel].focus();
}

// Receiving is the client's time more than the daemon's: it stands in the table only.
const answering = timing => STAGES.slice(1).reduce((sum, stage) => sum + timing[stage], 0);

// parts: [[class, microseconds]], one behind the other; `scale` microseconds fill the bar.
function timeBar(name, kind, parts, scale) {
    const total = microseconds(parts.reduce((sum, part) => sum + part[1], 0));
    const bar = make("div", { class: "bar", role: "img", "aria-label": `${name}: ` +
        parts.map(([part, time]) => `${part} ${microseconds(time)}`).join(", ") });
    for (const [part, time] of parts) {
        bar.append(make("i", { class: `stage-${part}` }));
        bar.lastChild.style.width = `${time / scale * 100}%`;
    }
    return make("div", { class: `times ${kind}` }, make("b", {}, name), bar, make("span", {}, total));
}

function showTimes(xnor, float, runs) {
    const scale = Math.max(answering(xnor), answering(float)) || 1;
    const bar = (name, kind, timing) =>
        timeBar(name, kind, STAGES.slice(1).map(stage => [stage, timing[stage]]), scale);
    const row = stage => make("tr", {}, make("th", { scope: "row" },
        make("i", { class: `swatch stage-${stage}` }), stage),
        ...[xnor, float].map(timing => make("td", {}, microseconds(timing[stage]))));
    const head = ["stage", "1-bit", "plain"].map(name => make("th", { scope: "col" }, name));
    byId("bars").replaceChildren(bar("1-bit", "bits", xnor), bar("plain", "floats", float), make("table", {}, make("thead", {},
            make("tr", {}, ...head)), make("tbody", {}, ...[...STAGES.filter(stage => xnor[stage] + float[stage]), "total"].map(row))));
    byId("runs").textContent = runs;
}

// ---- curl ----

let saved = ""; // what the link to save points at

function offerToSave(values, name, type = "application/octet-stream") {
    URL.revokeObjectURL(saved);
    saved = URL.createObjectURL(new Blob([values], { type }));
    const link = byId("save");
    link.href = saved;
    link.download = name;
    link.textContent = `Save ${name}`;
}

function showCurl() {
    const header = conversation(kernel.weights, kernel.size, {});
    byId("curl").textContent = `printf %s ${quoted(header)} |\n  cat - input.f32 | curl -sS ${location.origin}/conv${curlKey()} \\\n` +
        "    -H 'Content-Type: application/octet-stream' -H 'Accept: application/json' \\\n" +
        `    -H 'Inference-Header-Content-Length: ${header.length}' --data-binary @- -o answer.json`;
    offerToSave(input, "input.f32");
}

// ---- the picture ----

const paintSource = size => source.bitmap
    ? paintPicture(source.bitmap, size) : paintSample(source, size);

function takePicture() {
    side = Number(byId("side").value);
    const light = brightness(paintSource(side));
    input = minusMean(light, side, byId("centre").value === "local" ? BOX_RADIUS : side);
    clearPlanes();
    showPlane("input", input);
    showPlane("signs", input.map(signOf));
    if (cross)
        moveCross(cross.x, cross.y);
    recognise();
    return compute();
}

function chooseSource(one) {
    source = one;
    for (const button of byId("samples").children)
        button.setAttribute("aria-pressed", String(button.dataset.name === one.name));
    takePicture();
}

async function openPicture(file) {
    try {
        chooseSource({ file, bitmap: await createImageBitmap(file) });
        say(`${file.name} is the picture now`);
    } catch {
        showProblem(new Error(`${file.name || "That"} is no picture that this browser can read.`));
    }
}

function acceptDrops() {
    const place = byId("drop"), field = byId("file");
    field.addEventListener("change", () => field.files.length && openPicture(field.files[0]));
    for (const kind of ["dragover", "drop", "dragleave"])
        document.addEventListener(kind, event => {
            event.preventDefault();
            place.classList.toggle("over", kind === "dragover");
            if (kind === "drop" && event.dataTransfer.files.length)
                openPicture(event.dataTransfer.files[0]);
        });
}

// ---- the form ----

function addChoice(place, id, label, chosen) {
    const radio = make("input", { type: "radio", name: "operation", id, onchange: chosen });
    place.append(make("label", {}, radio, make("span", {}, label)));
}

// Either the convolution or a network's classes.
function showOperation(network) {
    byId("convolution").hidden = byId("stages").hidden = network;
    byId("recognition").hidden = !network;
    byId("kernel").hidden = byId("kernel-hint").hidden = network;
}

function startTry() {
    addFigure("input", "Input", "");
    addFigure("signs", "Signs", "");
    addFigure("k", "K", "mean |I|");
    addFigure("xnor", "1-bit", "dot·α·K", "bits");
    addFigure("float", "Plain", "floats", "floats");
    byId("figures").append(byId("facts"));
    for (const sample of SAMPLES)
        byId("samples").append(make("button", { type: "button", "data-name": sample.name,
            "aria-pressed": "false", onclick: () => chooseSource(sample) },
            paintSample(sample, 96), sample.name));
    KERNELS.forEach((one, i) =>
        addChoice(byId("kernels"), `kernel-${i}`, one.name, () => chooseKernel(one)));
    byId("controls").addEventListener("submit", event => event.preventDefault());
    byId("side").addEventListener("change", takePicture);
    byId("centre").addEventListener("change", takePicture);
    byId("repeat").addEventListener("click", () => compute(20));
    acceptDrops();
    crossByKeys();
    byId("kernel-0").checked = true;
    showKernel();
}
