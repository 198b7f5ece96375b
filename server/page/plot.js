// plot.js: lines over time, and bars, as SVG.

const PLOT_WIDTH = 300, PLOT_HEIGHT = 84;

// A round number that is at least `value`: where an axis ends.
function roundUp(value) {
    const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-9)));
    return [1, 2, 5, 10].find(step => step * power >= value * 0.999) * power;
}

// places: where each value stands, 0 at the left, 1 at the right; null is a gap.
function linePath(values, places, top) {
    let path = "", down = false;
    values.forEach((value, i) => {
        if (value === null) {
            down = false;
            return;
        }
        const x = places[i] * PLOT_WIDTH;
        const y = PLOT_HEIGHT - Math.min(value / top, 1) * (PLOT_HEIGHT - 2) - 1;
        path += `${down ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
        down = true;
    });
    return path;
}

// ticks: what stands below, from left to right.
function plotFrame(title, ticks) {
    const svg = make("svg", { viewBox: `0 0 ${PLOT_WIDTH} ${PLOT_HEIGHT}`,
        preserveAspectRatio: "none", role: "img", "aria-label": title });
    const value = make("b", { class: "value" }), top = make("span", { class: "top" });
    const legend = make("div", { class: "legend" });
    const card = make("section", { class: "panel plot", "aria-label": title },
        make("div", { class: "row" }, make("h2", {}, title), make("span", { class: "spacer" }), value),
        make("div", { class: "frame" }, svg, top),
        make("div", { class: "row ticks" }, ...ticks.map(tick => make("span", {}, tick))), legend);
    return { card, svg, value, top, legend };
}

// lines: [{name, values, show}], show makes text of a value.
function drawLines(plot, title, lines, places) {
    const known = lines.flatMap(line => line.values).filter(value => value !== null);
    const top = roundUp(Math.max(...known, 0) || 1), show = lines[0]?.show || number;
    plot.svg.replaceChildren(...[0, 0.5, 1].map(share => make("path", { class: "rule",
        d: `M0 ${PLOT_HEIGHT * share}H${PLOT_WIDTH}M${PLOT_WIDTH * share} 0V${PLOT_HEIGHT}` })),
        ...lines.map((line, i) => make("path",
            { class: `line line-${i}`, d: linePath(line.values, places, top) })));
    plot.top.textContent = known.length ? show(top) : "";
    const now = line => line.values.at(-1) ?? null;
    const text = line => now(line) === null ? "–" : line.show(now(line));
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
    }), make("path", { class: "rule", d: `M0 ${PLOT_HEIGHT}H${PLOT_WIDTH}` }));
    plot.value.textContent = value;
    plot.legend.replaceChildren(...bars.map(([bound]) => make("span", { class: "tick" },
        bound === Infinity ? "+" : bound < 1000 ? bound : "1k")));
    plot.svg.setAttribute("aria-label", `${title}: ${bars.filter(bar => bar[1])
        .map(bar => `${bar[1]} of ≤${bar[0]}`).join(", ") || "none yet"}`);
}
