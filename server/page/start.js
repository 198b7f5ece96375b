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
    if (view === "watch")
        tick();
    if (view === "docs")
        showDocuments();
}

let docs; // their script and style, loaded, and them shown

function showDocuments() {
    if (!docs)
        document.head.append(make("link", { rel: "stylesheet", href: "/docs.css" }));
    docs ||= Promise.all([import("/docs.js"), request("/openapi.yaml").then(answer => answer.text())])
        .then(([script, text]) => script.showDocs(text, { byId, make }))
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
    takePicture();
    await findNetworks().catch(error => byId("networks-hint").textContent = error.message);
    showView();
}

startTry();
startNetworks();
startWatch();
copyButtons();
followLinks();
showView();
byId("key-button").addEventListener("click", () => askForKey(false).then(load, () => {}));
byId("samples").firstElementChild.setAttribute("aria-pressed", "true");
load();
setInterval(pollReady, POLL_MS);
