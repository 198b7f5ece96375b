// figure.js: planes of numbers as pictures, and one crosshair over all of them.

const figures = new Map(); // by name: {canvas, range, cross, values}
let side = 0; // of the planes
let cross = null; // {x, y}

function addFigure(name, title, note, kind) {
    const canvas = make("canvas", { id: `figure-${name}`, role: "img", "aria-label": title });
    const range = make("span", { class: "range" });
    const mark = make("div", { class: "cross", hidden: true });
    const frame = make("div", { class: "frame" }, canvas, mark);
    byId("figures").append(make("figure", { class: kind }, frame,
        make("figcaption", {}, make("b", {}, title), make("span", {}, note), range)));
    figures.set(name, { canvas, range, mark, values: null });
    const follow = event => {
        const box = canvas.getBoundingClientRect();
        moveCross(Math.floor((event.clientX - box.left) / box.width * side),
            Math.floor((event.clientY - box.top) / box.height * side));
    };
    canvas.addEventListener("pointermove", follow);
    canvas.addEventListener("pointerdown", follow);
}

function extremes(values) {
    let low = Infinity, high = -Infinity;
    for (const value of values) {
        low = Math.min(low, value);
        high = Math.max(high, value);
    }
    return [low, high];
}

// Black is the least value, white the largest.
function shades(values, [low, high]) {
    const pixels = new Uint8ClampedArray(4 * values.length).fill(255);
    const unit = high > low ? 255 / (high - low) : 0;
    for (let i = 0; i < values.length; i++)
        pixels.fill(Math.round((values[i] - low) * unit), 4 * i, 4 * i + 3);
    return pixels;
}

function drawPlane(canvas, values, width, range) {
    canvas.width = width;
    canvas.height = values.length / width;
    canvas.getContext("2d").putImageData(
        new ImageData(shades(values, range), width, canvas.height), 0, 0);
}

function showPlane(name, values) {
    const figure = figures.get(name), range = extremes(values);
    figure.values = values;
    drawPlane(figure.canvas, values, side, range);
    figure.range.textContent = `${number(range[0])} … ${number(range[1])}`;
}

function clearPlanes() {
    for (const figure of figures.values()) {
        figure.values = null;
        figure.range.textContent = "";
    }
}

// ---- the crosshair ----

function moveCross(x, y) {
    const within = value => Math.min(Math.max(value, 0), side - 1);
    cross = { x: within(x), y: within(y) };
    showCross();
}

function showCross() {
    if (!cross || !side)
        return;
    for (const { mark } of figures.values()) {
        mark.hidden = false;
        mark.style.setProperty("--x", `${(cross.x + 0.5) / side * 100}%`);
        mark.style.setProperty("--y", `${(cross.y + 0.5) / side * 100}%`);
    }
    const parts = [`x ${cross.x}, y ${cross.y}`];
    for (const [name, label] of [["input", "input"], ["signs", "sign"], ["k", "K"],
        ["xnor", "1-bit"], ["float", "plain"]]) {
        const { values } = figures.get(name);
        if (values)
            parts.push(`${label} ${name === "signs"
                ? values[cross.y * side + cross.x] > 0 ? "+1" : `${MINUS}1`
                : number(values[cross.y * side + cross.x])}`);
    }
    byId("probe").replaceChildren(...parts.map(part => make("span", {}, part)));
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

function crossByKeys() {
    byId("figures").addEventListener("keydown", event => {
        const arrow = ARROWS[event.key], step = event.shiftKey ? 16 : 1;
        if (!arrow || !side)
            return;
        event.preventDefault();
        const from = cross || { x: side >> 1, y: side >> 1 };
        moveCross(from.x + arrow[0] * step, from.y + arrow[1] * step);
    });
}
