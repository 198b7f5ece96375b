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

async function showServer() {
    const place = byId("server");
    try {
        const { version, backend, devices } = await (await request("/v2")).json();
        const ready = (await fetch("/v2/health/ready")).ok;
        place.className = ready ? "ready" : "unready";
        place.replaceChildren(make("span", {}, ready ? "ready" : "not ready"),
            make("span", {}, devices[0] ? `${devices[0].id}: ${devices[0].description}` : backend),
            make("span", {}, `xnord ${version}`));
    } catch (error) {
        place.className = "unready";
        place.replaceChildren(make("span", {}, error instanceof TypeError ? "no answer" : "no key"));
    }
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
