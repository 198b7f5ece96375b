// start.js: the views, which of them the address means, and the beginning of all.

const VIEWS = { try: "Try", watch: "Watch", docs: "Docs" };

const viewOf = place => place.pathname === "/docs" ? "docs"
    : place.hash === "#watch" ? "watch" : "try";

function showView() {
    const view = viewOf(location);
    for (const name of Object.keys(VIEWS))
        byId(name).hidden = name !== view;
    for (const link of document.querySelectorAll("nav a"))
        link.ariaCurrent = link.dataset.view === view ? "page" : null;
    document.title = `${VIEWS[view]} · xnord`;
    if (view === "try")
        raceUnasked();
    if (view === "watch")
        tick();
    if (view === "docs")
        showDocuments();
}

// A path of the documents with a network that is served.
const fill = path => served.length ? path.replace("{model}", encodeURIComponent(served[0].name))
    .replace("{version}", served[0].version) : path;

let docs; // their script and style, loaded, and them shown

function showDocuments() {
    if (!docs)
        document.head.append(make("link", { rel: "stylesheet", href: "/docs.css" }));
    docs ||= Promise.all([import("/docs.js"), request("/openapi.yaml").then(answer => answer.text())])
        .then(([script, text]) => script.showDocs(text, { byId, make, answerTo, fill }))
        .catch(error => {
            docs = null;
            byId("docs-about").textContent = error.message;
        });
}

// Without loading the page again, which would forget the key.
function followLinks() {
    for (const link of document.querySelectorAll("a[data-view]"))
        link.addEventListener("click", event => {
            if (event.ctrlKey || event.metaKey || event.shiftKey || event.button)
                return;
            event.preventDefault();
            history.pushState(null, "", link.getAttribute("href"));
            showView();
            scrollTo(0, 0);
        });
    addEventListener("popstate", showView);
}

const POLL_MS = 2000, NOT_REACHABLE = "not reachable";
let knowsServer = false; // else what is shown says why

function showState(text, ready) {
    byId("server").className = ready ? "ready" : "unready";
    byId("server").firstElementChild.textContent = text;
}

async function showServer() {
    const place = byId("server");
    try {
        const { version, backend, devices } = await (await request("/v2")).json();
        knowsServer = true;
        images = backend === "cuda" ? GPU_IMAGES : 1;
        place.replaceChildren(make("span", {}),
            make("span", {}, devices[0] ? `${devices[0].id}: ${devices[0].description}` : backend),
            make("span", {}, `xnord ${version}`));
        await showReady();
    } catch (error) {
        knowsServer = error instanceof TypeError;
        place.replaceChildren(make("span", {}));
        showState(knowsServer ? NOT_REACHABLE : "no key", false);
    }
}

// Health needs no key.
async function showReady() {
    const answer = await fetch("/v2/health/ready").catch(() => null);
    showState(!answer ? NOT_REACHABLE : answer.ok ? "ready" : "not ready", answer?.ok);
}

function pollReady() {
    if (knowsServer && !document.hidden)
        showReady();
}

async function load() {
    await showServer();
    const computed = takePicture();
    await findNetworks().catch(error => byId("networks-hint").textContent = error.message);
    showView();
    await computed;
    raceUnasked();
}

// Once, where it is looked at; all of it where the daemon is near.
let raced = false;
function raceUnasked() {
    if (raced || !knowsServer || byId("try").hidden)
        return;
    raced = true;
    race(RACES.slice(0, HERE.includes(location.hostname) ? 2 : 1));
}

startTry();
startNetworks();
startWatch();
copyButtons();
followLinks();
showView();
byId("key-button").addEventListener("click", () => askForKey(false).then(load, () => {}));
byId("race").addEventListener("click", () => race(RACES));
byId("samples").firstElementChild.setAttribute("aria-pressed", "true");
load();
setInterval(pollReady, POLL_MS);
