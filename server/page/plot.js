// plot.js: lines over time, and bars, as SVG.

const PLOT_WIDTH = 300, PLOT_HEIGHT = 84;

// A round number that is at least `value`: where an axis ends.
function roundUp(value) {
    const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-9)));
    return [1, 2, 5, 10].find(step => step * power >= value * 0.999) * power;
}

// Values oldest first, `count` of them fill the width; null is a gap.
function linePath(values, count, top) {
    let path = "", down = false;
    values.forEach((value, i) => {
        if (value === null) {
            down = false;
            return;
        }
        const x = (i + count - values.length) * PLOT_WIDTH / (count - 1);
        const y = PLOT_HEIGHT - Math.min(value / top, 1) * (PLOT_HEIGHT - 2) - 1;
        path += `${down ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
        down = true;
    });
    return path;
}

function plotFrame(title) {
    const svg = make("svg", { viewBox: `0 0 ${PLOT_WIDTH} ${PLOT_HEIGHT}`,
        preserveAspectRatio: "none", role: "img", "aria-label": title });
    const value = make("b", { class: "value" }), top = make("span", { class: "top" });
    const legend = make("div", { class: "legend" });
    const card = make("section", { class: "panel plot", "aria-label": title },
        make("div", { class: "row" }, make("h2", {}, title), make("span", { class: "spacer" }), value),
        make("div", { class: "frame" }, svg, top), legend);
    return { card, svg, value, top, legend };
}

// lines: [{name, values, show}], show makes text of a value.
function drawLines(plot, title, lines, count) {
    const known = lines.flatMap(line => line.values).filter(value => value !== null);
    const top = roundUp(Math.max(...known, 0) || 1), show = lines[0]?.show || number;
    plot.svg.replaceChildren(...[0.5, 1].map(share => make("line", { class: "rule", x1: 0,
        x2: PLOT_WIDTH, y1: PLOT_HEIGHT * share, y2: PLOT_HEIGHT * share })),
        ...lines.map((line, i) => make("path",
            { class: `line line-${i}`, d: linePath(line.values, count, top) })));
    plot.top.textContent = known.length ? show(top) : "";
    const now = line => line.values.at(-1) ?? null;
    const text = line => now(line) === null ? "–" : line.show(now(line));
    plot.value.textContent = lines.length ? text(lines[0]) : "–";
    plot.legend.replaceChildren(...lines.map((line, i) => make("span", {},
        make("i", { class: `key line-${i}` }), `${line.name} ${text(line)}`)));
    plot.svg.setAttribute("aria-label",
        `${title}: ${lines.map(line => `${line.name} ${text(line)}`).join(", ") || "nothing yet"}`);
}

// bars: [[upper bound, count]].
function drawBars(plot, title, bars, value) {
    const most = Math.max(...bars.map(bar => bar[1]), 1), pitch = PLOT_WIDTH / bars.length;
    plot.svg.replaceChildren(...bars.map(([, count], i) => {
        const height = count / most * (PLOT_HEIGHT - 2);
        return make("rect", { class: "column", x: i * pitch + 1, width: pitch - 2,
            y: PLOT_HEIGHT - height, height });
    }), make("line", { class: "rule", x1: 0, x2: PLOT_WIDTH, y1: PLOT_HEIGHT, y2: PLOT_HEIGHT }));
    plot.value.textContent = value;
    plot.legend.replaceChildren(...bars.map(([bound]) => make("span", { class: "tick" },
        bound === Infinity ? "+" : bound < 1000 ? bound : "1k")));
    plot.svg.setAttribute("aria-label", `${title}: ${bars.filter(bar => bar[1])
        .map(bar => `${bar[1]} of ≤${bar[0]}`).join(", ") || "none yet"}`);
}
