// network.js: what served networks say of the picture, and of a digit that is drawn.

const DIGIT_SIDE = 8, DIGIT_INK = 16; // what deploy/demo/digits was trained with
let network = null; // chosen for the picture: its configuration
let digits = null; // the one that takes digits
let served = []; // configurations of all

const dimsOf = config => config.input[0].dims;
const isDigits = config => dimsOf(config).join() === "8,8,1" &&
    config.input[0].data_type === "TYPE_UINT8";

// {height, width, channels} of a network that takes pictures, else null.
function pictureOf(config) {
    const { dims, format } = config.input[0];
    if (dims.length !== 3)
        return null;
    const [height, width, channels] = format === "FORMAT_NHWC" ? dims : [dims[1], dims[2], dims[0]];
    return channels === 1 || channels === 3 ? { height, width, channels } : null;
}

async function servedNetworks() {
    const index = await (await request("/v2/repository/index", { method: "POST" })).json();
    const ready = index.filter(one => one.state === "READY").slice(0, 100);
    const configs = await Promise.all(ready.map(async ({ name, version }) => {
        const path = `/v2/models/${encodeURIComponent(name)}/versions/${version}`;
        const config = await (await request(`${path}/config`)).json();
        return { ...config, path, version, label: version > 1 ? `${name} ${version}` : name };
    }));
    return configs.filter(config => config.platform === "xnord_network");
}

// ---- inference ----

function question(config, data) {
    const [one] = config.input, [output] = config.output;
    return {
        inputs: [{ name: one.name, shape: [1, ...one.dims],
            datatype: one.data_type.slice("TYPE_".length), ...data }],
        outputs: [{ name: output.name,
            parameters: { classification: Math.min(10, output.dims.at(-1)) } }] };
}

// [{score, index, label}], best first, and the times.
async function infer(config, query, type, body) {
    const response = await request(`${config.path}/infer${query}`,
        { method: "POST", headers: { "Content-Type": type }, body });
    const { outputs, parameters } = await response.json();
    const classes = outputs[0].data.map(entry => {
        const [score, index, ...label] = entry.split(":");
        return { score: Number(score), index: Number(index), label: label.join(":") || index };
    });
    return { classes, parameters };
}

function showScores(list, classes) {
    const most = Math.max(...classes.map(one => one.score), 1e-9);
    const shares = classes.every(one => one.score >= 0 && one.score <= 1);
    list.replaceChildren(...classes.map((one, i) => {
        const bar = make("i");
        bar.style.setProperty("--share", shares ? one.score : Math.max(one.score / most, 0));
        return make("li", { class: one.score === most ? "best" : "" }, make("b", {}, one.label), bar,
            make("span", {}, shares ? one.score.toFixed(3) : number(one.score)));
    }));
}

const inferTime = parameters => `${microseconds(parameters.compute_ns / 1000)} computing, ` +
    `${microseconds(parameters.total_ns / 1000)} in the daemon`;

// ---- of the picture ----

// A file that the daemon decodes: the user's own if it can, else what is drawn here, as PNG.
async function encodedPicture() {
    const file = source.file;
    if (["image/jpeg", "image/png"].includes(file?.type))
        return { file, name: file.name };
    const drawn = await new Promise(resolve => paintSource(512).toBlob(resolve, "image/png"));
    return { file: drawn, name: "picture.png" };
}

const recognise = onlyLatest(async outdated => {
    if (!network || byId("recognition").hidden)
        return;
    const { height, width, channels } = pictureOf(network), { file, name } = await encodedPicture();
    if (outdated())
        return;
    const canvas = paintSource(224);
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", "The picture");
    byId("seen").replaceChildren(make("figure", {}, canvas, make("figcaption", {},
        make("b", {}, "Picture"), make("span", {}, `becomes ${height} × ${width} × ${channels}`))));
    const text = isDigits(network) && JSON.stringify(question(network, { data: [...cellsOfPicture()] }));
    byId("curl").textContent = text ? curlOf(network, text)
        : `curl -sS '${location.origin}${network.path}/infer?classes=10'${curlKey()} \\\n    --data-binary @${quoted(name)}`;
    offerToSave(file, name, file.type);
    const { classes, parameters } = text ? await infer(network, "", "application/json", text)
        : await infer(network, "?classes=10", file.type, file);
    if (outdated())
        return;
    showScores(byId("classes"), classes);
    byId("classes-time").textContent = inferTime(parameters);
});

function chooseNetwork(config) {
    network = config;
    showOperation(true);
    recognise();
}

// ---- of a digit ----

const PAPER = 256, PEN = 22, STEP = 16;
const EXAMPLES = [
    [[70, 80, 100, 50, 150, 50, 178, 84, 160, 124, 80, 204, 186, 204]],
    [[72, 56, 186, 56, 116, 208]],
    [[150, 44, 92, 132, 92, 186, 130, 208, 164, 184, 158, 146, 122, 134, 94, 156]],
    [[154, 208, 154, 46, 76, 160, 196, 160]],
];
let strokes = []; // of points x, y, x, y ...
let pen = null; // of the keyboard: {x, y, down}
let nextExample = 0;

const inkOf = id => byId(id).getContext("2d", { willReadFrequently: true });

function drawStrokes(ink) {
    ink.lineWidth = PEN;
    ink.lineCap = ink.lineJoin = "round";
    for (const points of strokes) {
        ink.beginPath();
        ink.moveTo(points[0], points[1]);
        for (let i = 0; i < points.length; i += 2)
            ink.lineTo(points[i], points[i + 1]);
        ink.stroke();
    }
}

function showPaper() {
    const ink = inkOf("paper"), style = getComputedStyle(byId("paper"));
    ink.clearRect(0, 0, PAPER, PAPER);
    ink.strokeStyle = style.color;
    drawStrokes(ink);
    if (!pen)
        return;
    ink.strokeStyle = style.getPropertyValue("--accent");
    ink.lineWidth = 3;
    ink.beginPath();
    ink.arc(pen.x, pen.y, PEN / 2 - (pen.down ? 4 : 0), 0, 2 * Math.PI);
    ink.stroke();
}

// The ink's bounding square in 8 x 8 cells, each the mean of its pixels: as deploy/demo has it.
function cellsOf(alpha) {
    let left = PAPER, top = PAPER, right = 0, bottom = 0;
    for (let i = 0; i < alpha.length; i++)
        if (alpha[i] > 127) {
            left = Math.min(left, i % PAPER);
            right = Math.max(right, i % PAPER + 1);
            top = Math.min(top, Math.floor(i / PAPER));
            bottom = Math.floor(i / PAPER) + 1;
        }
    const square = Math.max(right - left, bottom - top);
    left -= (square - right + left) >> 1;
    top -= (square - bottom + top) >> 1;
    return Uint8Array.from({ length: DIGIT_SIDE ** 2 }, (_, i) => {
        const edge = (from, cell) => from + Math.floor(square * cell / DIGIT_SIDE);
        const column = i % DIGIT_SIDE, row = Math.floor(i / DIGIT_SIDE);
        return Math.round(meanOf(alpha, edge(left, column), edge(left, column + 1),
            edge(top, row), edge(top, row + 1)) * DIGIT_INK / 255);
    });
}

function meanOf(alpha, left, right, top, bottom) {
    let sum = 0, count = 0;
    for (let y = Math.max(top, 0); y < Math.min(bottom, PAPER); y++)
        for (let x = Math.max(left, 0); x < Math.min(right, PAPER); x++, count++)
            sum += alpha[y * PAPER + x];
    return count ? sum / count : 0;
}

// A picture's dark is ink.
const cellsOfPicture = () =>
    cellsOf(Uint8Array.from(brightness(paintSource(PAPER)), light => 255 * (1 - light)));

const curlOf = (config, text) =>
    `curl -sS ${location.origin}${config.path}/infer${curlKey()} -d ${quoted(text)}`;

function readDigit() {
    const canvas = make("canvas", { width: PAPER, height: PAPER }), ink = canvas.getContext("2d");
    drawStrokes(ink);
    const { data } = ink.getImageData(0, 0, PAPER, PAPER);
    return cellsOf(Uint8Array.from({ length: PAPER * PAPER }, (_, i) => data[4 * i + 3]));
}

const scoreDigit = onceMore(async () => {
    if (!digits)
        return;
    const cells = readDigit();
    drawPlane(byId("cells"), cells, DIGIT_SIDE, [0, DIGIT_INK]);
    const text = JSON.stringify(question(digits, { data: [...cells] }));
    byId("digit-curl").textContent = curlOf(digits, text);
    const { classes, parameters } = await infer(digits, "", "application/json", text);
    const [best] = classes;
    showScores(byId("scores"), classes.sort((a, b) => a.index - b.index));
    byId("digit-says").textContent = `It reads ${best.label}.`;
    byId("digit-time").textContent = inferTime(parameters);
    byId("digit-curl-box").hidden = false;
});

// At most once a frame.
let drawing = 0;
function digitChanged() {
    cancelAnimationFrame(drawing);
    drawing = requestAnimationFrame(() => {
        showPaper();
        byId("invitation").hidden = strokes.length > 0;
        if (strokes.length)
            scoreDigit();
    });
}

function clearDigit() {
    strokes = [];
    pen = null;
    byId("digit-says").textContent = byId("digit-time").textContent = "";
    byId("digit-curl-box").hidden = true;
    drawPlane(byId("cells"), new Uint8Array(DIGIT_SIDE ** 2), DIGIT_SIDE, [0, DIGIT_INK]);
    showScores(byId("scores"), Array.from({ length: 10 }, (_, i) => ({ score: 0, label: String(i) })));
    digitChanged();
}

function drawByPointer() {
    const paper = byId("paper");
    const point = event => {
        const box = paper.getBoundingClientRect();
        return [(event.clientX - box.left) / box.width * PAPER,
            (event.clientY - box.top) / box.height * PAPER];
    };
    paper.addEventListener("pointerdown", event => {
        paper.setPointerCapture(event.pointerId);
        pen = null;
        strokes.push(point(event));
        digitChanged();
    });
    paper.addEventListener("pointermove", event => {
        if (!paper.hasPointerCapture(event.pointerId))
            return;
        strokes.at(-1).push(...point(event));
        digitChanged();
    });
}

function movePen(arrow) {
    const within = value => Math.min(Math.max(value, STEP), PAPER - STEP);
    pen.x = within(pen.x + arrow[0] * STEP);
    pen.y = within(pen.y + arrow[1] * STEP);
    if (pen.down)
        strokes.at(-1).push(pen.x, pen.y);
}

function turnPen() {
    pen.down = !pen.down;
    if (pen.down)
        strokes.push([pen.x, pen.y]);
    byId("pen").textContent = pen.down ? "the pen is down" : "the pen is up";
}

function drawByKeys() {
    byId("paper").addEventListener("keydown", event => {
        pen ||= { x: PAPER / 2, y: PAPER / 2, down: false };
        if (ARROWS[event.key])
            movePen(ARROWS[event.key]);
        else if (event.key === " ")
            turnPen();
        else
            return;
        event.preventDefault();
        digitChanged();
    });
}

// ---- start ----

async function findNetworks() {
    const place = byId("networks");
    served = await servedNetworks();
    digits = served.find(isDigits);
    byId("no-digits").hidden = Boolean(digits);
    byId("digit").hidden = byId("example").hidden = byId("clear").hidden = !digits;
    place.replaceChildren();
    const pictures = served.filter(pictureOf);
    pictures.forEach((config, i) =>
        addChoice(place, `network-${i}`, config.label, () => chooseNetwork(config)));
    byId("networks-hint").textContent = pictures.length ? "The picture becomes what it takes."
        : "None that takes pictures is served.";
}

function startNetworks() {
    byId("example").addEventListener("click", () => {
        strokes = EXAMPLES[nextExample++ % EXAMPLES.length].map(points => [...points]);
        pen = null;
        digitChanged();
    });
    byId("clear").addEventListener("click", clearDigit);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showPaper);
    drawByPointer();
    drawByKeys();
    clearDigit();
}
