// picture.js: where the input comes from: samples that are drawn here, or a picture of the user's,
// as brightness in a square; and what is subtracted from it so that it has signs.

const BOX_RADIUS = 7; // of the local mean, as the demo's

function drawRings(ink, side) {
    const image = ink.createImageData(side, side);
    for (let i = 0; i < side * side; i++) {
        const x = i % side / side - 0.5, y = Math.floor(i / side) / side - 0.5;
        image.data.fill(127.5 + 110 * Math.cos(150 * (x * x + y * y)), 4 * i, 4 * i + 3);
        image.data[4 * i + 3] = 255;
    }
    ink.putImageData(image, 0, 0);
}

function drawBall(ink, x, y, radius) {
    const light = ink.createRadialGradient(x - radius / 3, y - radius / 3, 0, x, y, radius);
    light.addColorStop(0, "#fff");
    light.addColorStop(1, "#333");
    ink.fillStyle = light;
    ink.beginPath();
    ink.arc(x, y, radius, 0, 2 * Math.PI);
    ink.fill();
}

// In a square of 100.
function drawScene(ink) {
    const sky = ink.createLinearGradient(0, 0, 0, 100);
    sky.addColorStop(0, "#666");
    sky.addColorStop(0.62, "#ccc");
    sky.addColorStop(0.62, "#555");
    sky.addColorStop(1, "#999");
    ink.fillStyle = sky;
    ink.fillRect(0, 0, 100, 100);
    ink.fillStyle = "#3a3a3a";
    for (const [x, width, top] of [[6, 9, 40], [17, 7, 30], [26, 11, 47], [82, 12, 36]])
        ink.fillRect(x, top, width, 62 - top);
    ink.fillStyle = "#bbb";
    for (let i = 0; i < 24; i++)
        ink.fillRect(84 + i % 4 * 2.4, 39 + Math.floor(i / 4) * 3.6, 1.3, 1.9);
    ink.strokeStyle = "#333";
    for (let i = -6; i <= 6; i++) {
        ink.beginPath();
        ink.moveTo(50 + 3 * i, 62);
        ink.lineTo(50 + 22 * i, 100);
        ink.stroke();
    }
    drawBall(ink, 58, 56, 19);
}

function drawLetters(ink) {
    ink.fillStyle = "#ddd";
    ink.fillRect(0, 0, 100, 100);
    ink.fillStyle = "#222";
    ink.textAlign = "center";
    ink.font = "bold 42px Georgia, serif";
    ink.fillText("XN", 50, 46, 90);
    ink.fillText("OR", 50, 87, 90);
}

const SAMPLES = [
    { name: "Scene", draw: drawScene, unit: 100 },
    { name: "Rings", draw: drawRings },
    { name: "Letters", draw: drawLetters, unit: 100 },
];

// A canvas of `side` pixels; paint draws on it.
function paint(side, draw) {
    const canvas = make("canvas", { width: side, height: side });
    draw(canvas.getContext("2d", { willReadFrequently: true }), side);
    return canvas;
}

function paintSample(sample, side) {
    return paint(side, ink => {
        if (sample.unit)
            ink.scale(side / sample.unit, side / sample.unit);
        sample.draw(ink, side);
    });
}

// The square in the middle of a picture.
function paintPicture(bitmap, side) {
    return paint(side, ink => {
        const cut = Math.min(bitmap.width, bitmap.height);
        ink.fillStyle = "#fff"; // behind what is transparent
        ink.fillRect(0, 0, side, side);
        ink.imageSmoothingQuality = "high";
        ink.drawImage(bitmap, (bitmap.width - cut) / 2, (bitmap.height - cut) / 2, cut, cut, 0, 0,
            side, side);
    });
}

// Brightness, 0 to 1, row by row.
function brightness(canvas) {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    return Float32Array.from({ length: data.length / 4 }, (_, i) =>
        (0.299 * data[4 * i] + 0.587 * data[4 * i + 1] + 0.114 * data[4 * i + 2]) / 255);
}

// The sums over all rectangles from the corner.
function sumsOf(values, side) {
    const sums = new Float64Array((side + 1) * (side + 1)), pitch = side + 1;
    for (let y = 1; y <= side; y++)
        for (let x = 1; x <= side; x++)
            sums[y * pitch + x] = values[(y - 1) * side + x - 1] + sums[(y - 1) * pitch + x] +
                sums[y * pitch + x - 1] - sums[(y - 1) * pitch + x - 1];
    return sums;
}

// Minus the mean of the box around each value: what is brighter than its surroundings is positive.
function minusMean(values, side, radius) {
    const sums = sumsOf(values, side), pitch = side + 1;
    return values.map((value, i) => {
        const x = i % side, y = Math.floor(i / side);
        const left = Math.max(x - radius, 0), right = Math.min(x + radius + 1, side);
        const top = Math.max(y - radius, 0), bottom = Math.min(y + radius + 1, side);
        const sum = sums[bottom * pitch + right] - sums[top * pitch + right] -
            sums[bottom * pitch + left] + sums[top * pitch + left];
        return value - sum / ((right - left) * (bottom - top));
    });
}
