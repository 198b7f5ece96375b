// race.js: the same layers in one bit and in floats, by turns: one of 256 channels, and all that are
// binary in a Bi-Real-18, the binary ResNet-18. Input and weights are random signs.

// 3 x 3 layers: [channels in, channels out, side of the output, stride, how many there are]
const RACES = [["layer", [[256, 256, 14, 1, 1]]],
    ["network", [[64, 64, 56, 1, 4], [64, 128, 28, 2, 1], [128, 128, 28, 1, 3], [128, 256, 14, 2, 1],
        [256, 256, 14, 1, 3], [256, 512, 7, 2, 1], [512, 512, 7, 1, 3]]]];
const GPU_IMAGES = 16; // one picture is a launch's latency there, in bits as in floats
const LAPS = 5, SHOWN_S = 1.6; // what a full bar takes to grow (page.css)
const HERE = ["127.0.0.1", "localhost", "[::1]"];

let images = 1; // a request
let signs; // enough for the largest tensor

function randomSigns(count) {
    let state = 1;
    return Int8Array.from({ length: count }, () => {
        state = (Math.imul(state, 1664525) + 1013904223) | 0;
        return state < 0 ? -1 : 1;
    });
}

function runLayer([from, to, output, stride], mode) {
    const inside = output * stride, inputs = images * from * inside * inside, weights = to * from * 9;
    signs ||= randomSigns(Math.max(512 * 512 * 9, images * 64 * 56 * 56));
    const tensor = (shape, bytes) => ({ shape, datatype: "INT8", parameters: { binary_data_size: bytes } });
    return convolve(JSON.stringify({ input: tensor([images, from, inside, inside], inputs),
        weights: tensor([to, from, 3, 3], weights), padding: 1, stride, mode, scaling: "alpha",
        output_datatype: "BITS", // the next layer's input
        ...mode === "float" && { precision: "fp16" } }), // where there are matrix units for it
    signs.subarray(0, inputs), signs.subarray(0, weights));
}

// Of each layer the best of what computing it took, once for each that there is: what else runs on
// the machine, this browser too, only adds.
async function lap(layers, outdated) {
    const times = { xnor: [], float: [] };
    let answer;
    for (const layer of layers) {
        const laps = { xnor: [], float: [] };
        for (let i = 0; i <= LAPS && !outdated(); i++) // the first makes plans
            for (const mode of ["xnor", "float"]) {
                answer = await runLayer(layer, mode);
                if (i)
                    laps[mode].push(answer.timing.compute);
            }
        for (const mode of ["xnor", "float"])
            times[mode].push(...Array(layer[4]).fill(Math.min(...laps[mode])));
    }
    return { ...times, by: `${answer.precision} on ${answer.backend}` };
}

function showRace(id, { xnor, float, by }) {
    const sum = times => times.reduce((all, time) => all + time), slower = Math.max(sum(xnor), sum(float));
    const ratio = sum(float) / sum(xnor);
    const bar = (name, kind, times) => timeBar(name, kind, times.map(time => ["compute", time]), slower);
    byId(id).replaceChildren(bar("1-bit", "bits", xnor), bar("float", "floats", float));
    byId(`${id}-ratio`).textContent = ratio >= 1 ? `${number(ratio, 2)}× faster` : `${number(1 / ratio, 2)}× slower`;
    byId("race-by").textContent = `Floats: ${by}. ${images > 1 ? `${images} pictures at a time, the` : "One picture, the"} best of ${LAPS}, computing alone; the bars run ` +
        `${number(SHOWN_S * 1e6 / slower, 2)} times slower.`;
}

const race = onlyLatest(async (outdated, ids) => {
    byId("race").disabled = true;
    try {
        for (const [id, layers] of ids) {
            const times = await lap(layers, outdated);
            if (!outdated())
                showRace(id, times);
        }
    } finally {
        byId("race").disabled = false;
    }
});
