// base.js: what all parts share: elements, numbers as text, and requests with the key. The parts
// are one script, in the order that the Makefile gives, served without comments and indentation: so
// no text may go over several lines.

const byId = id => document.getElementById(id);

const SVG_TAGS = new Set(["svg", "path", "rect"]);

// An element with its attributes ("onclick": a listener) and its children, elements or text.
function make(tag, attributes = {}, ...children) {
    const element = SVG_TAGS.has(tag)
        ? document.createElementNS("http://www.w3.org/2000/svg", tag)
        : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
        if (name.startsWith("on"))
            element.addEventListener(name.slice(2), value);
        else if (value !== false && value !== undefined)
            element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children);
    return element;
}

// ---- numbers ----

const MINUS = "\u2212";

function number(value, digits = 3) {
    const text = Math.abs(value).toPrecision(digits);
    const plain = text.includes("e") ? String(Number(text)) : text;
    return (value < 0 ? MINUS : "") + plain;
}

function microseconds(value) {
    return value >= 99950 ? `${number(value / 1e6)} s` : value >= 999.5
        ? `${number(value / 1000)} ms` : `${value < 10 ? value.toFixed(1) : Math.round(value)} µs`;
}

function median(values) {
    const sorted = [...values].sort((a, b) => a - b);
    const middle = sorted.length >> 1;
    return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

// ---- what is said ----

function say(text) {
    byId("said").textContent = text;
}

function showProblem(error) {
    const place = byId("problem");
    place.hidden = !error;
    place.textContent = error ? error.message : "";
}

// Buttons with data-copy="id of what is to be copied".
function copyButtons() {
    for (const button of document.querySelectorAll("[data-copy]"))
        button.addEventListener("click", async () => {
            const source = byId(button.dataset.copy);
            try {
                await navigator.clipboard.writeText(source.textContent);
                button.textContent = "Copied";
            } catch { // over plain HTTP from elsewhere than this host there is no clipboard
                getSelection().selectAllChildren(source);
                button.textContent = "Selected";
            }
            say(button.textContent);
            setTimeout(() => button.textContent = "Copy", 1500);
        });
}

// ---- requests ----

let key = ""; // of this page's memory alone
let asking; // a promise while the question stands
let declined = false;

function askForKey(wrong) {
    const dialog = byId("key-dialog"), field = byId("key"), problem = byId("key-problem");
    if (asking)
        return asking;
    problem.hidden = !wrong;
    problem.textContent = wrong ? "The server does not know that key." : "";
    field.value = "";
    asking = new Promise((resolve, reject) => {
        byId("key-form").onsubmit = event => {
            event.preventDefault(); // nothing is sent: requests carry it
            key = field.value;
            dialog.close("used");
        };
        byId("key-cancel").onclick = () => dialog.close("");
        dialog.onclose = () => {
            declined = dialog.returnValue !== "used";
            asking = undefined;
            field.value = dialog.returnValue = "";
            byId("key-button").hidden = false;
            byId("key-button").textContent = declined ? "Enter key" : "Change key";
            if (declined)
                reject(new Error("This server answers nobody without a key."));
            else
                resolve();
        };
    });
    dialog.showModal();
    return asking;
}

async function messageOf(response) {
    const text = await response.text();
    try {
        const { error } = JSON.parse(text);
        return error.message || error;
    } catch {
        return `${response.status} ${response.statusText}`;
    }
}

// The response to a request, whatever it says, once there is a key that will do.
async function answerTo(path, options = {}) {
    for (;;) {
        const headers = new Headers(options.headers), sent = key;
        if (sent)
            headers.set("Authorization", `Bearer ${sent}`);
        const response = await fetch(path, { cache: "no-cache", ...options, headers });
        if (response.status !== 401)
            return response;
        if (key === sent && declined)
            throw new Error("This server answers nobody without a key.");
        if (key === sent)
            await askForKey(sent !== "");
    }
}

async function request(path, options) {
    const response = await answerTo(path, options);
    if (!response.ok)
        throw new Error(await messageOf(response));
    return response;
}

// For curl's command lines, which never show the key.
const curlKey = () => key ? " -H \"Authorization: Bearer $XNORD_KEY\"" : "";
const quoted = text => `'${text.replaceAll("'", "'\\''")}'`;

// Runs one task at a time: what is asked for meanwhile is done once, afterwards.
function onceMore(task) {
    let running = false, again = false;
    return async () => {
        again = true;
        if (running)
            return;
        running = true;
        while (again) {
            again = false;
            await task().catch(showProblem);
        }
        running = false;
    };
}

// Several may run, the newest counts: the others are told that they are outdated.
function onlyLatest(task) {
    let latest = 0;
    return async (...parameters) => {
        const mine = ++latest, outdated = () => mine !== latest;
        try {
            showProblem(null);
            await task(outdated, ...parameters);
        } catch (error) {
            if (!outdated())
                showProblem(error);
        }
    };
}
