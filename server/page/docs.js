// docs.js: openapi.yaml as something to read: with yaml.js a script of its own, which the page loads
// when it is asked for its documents.

const METHODS = ["get", "put", "post", "delete"];
let api = null; // the whole document
let byId, make, answerTo, fill; // the page's

function resolve(thing) {
    while (thing?.$ref)
        thing = thing.$ref.slice(2).split("/").reduce((place, name) => place[name], api);
    return thing ?? {};
}

const nameOf = thing => thing.$ref?.split("/").pop();

// Text whose `code` is code, in paragraphs.
function prose(text = "") {
    return text.trim().split(/\n\n+/).filter(Boolean).map(part => make("p", {},
        ...part.split("`").map((piece, i) => i % 2 ? make("code", {}, piece) : piece)));
}

const example = value => make("pre", { tabindex: 0 },
    typeof value === "string" ? value : JSON.stringify(value, null, 1));

// ---- schemas ----

function rangeOf(schema) {
    const parts = [];
    if (schema.enum || "const" in schema)
        parts.push((schema.enum || [schema.const]).map(value => JSON.stringify(value)).join(", "));
    if ("minimum" in schema || "maximum" in schema)
        parts.push("maximum" in schema ? `${schema.minimum ?? ""} … ${schema.maximum}` : `at least ${schema.minimum}`);
    if ("minItems" in schema || "maxItems" in schema)
        parts.push(`${schema.minItems ?? 0} to ${schema.maxItems ?? "any number of"} items`);
    if (schema.pattern)
        parts.push(schema.pattern);
    if ("default" in schema)
        parts.push(`default ${JSON.stringify(schema.default)}`);
    return parts.join("; ");
}

function typeOf(reference) {
    const schema = resolve(reference), several = schema.oneOf || schema.anyOf;
    if (nameOf(reference)) // schemas may hold themselves, by their names
        return nameOf(reference);
    if (several)
        return [...new Set(several.map(typeOf))].join(" or ");
    if (schema.type === "array")
        return `list of ${typeOf(schema.items || {})}`;
    return [schema.type ?? (schema.properties ? "object" : "any")].flat().join(" or ");
}

// What is inside: properties, members of a list, alternatives. Made when it is opened.
function insideOf(reference) {
    const schema = resolve(reference), parts = [...prose(schema.description)];
    for (const part of schema.oneOf || schema.anyOf || schema.allOf || [])
        parts.push(fold(part));
    if (schema.items)
        parts.push(fold(schema.items));
    const properties = Object.entries(schema.properties || {});
    if (properties.length)
        parts.push(table(["name", "type", ""], properties.map(([name, of]) =>
            [make("code", {}, name, schema.required?.includes(name) ? "*" : ""), ...cellsOfSchema(of)])));
    if (!parts.length)
        parts.push(make("p", { class: "hint" }, rangeOf(schema) || "nothing more is said"));
    return parts;
}

function fold(reference) {
    const inside = make("details", { class: "schema" }, make("summary", {}, typeOf(reference)));
    inside.addEventListener("toggle", () => inside.append(...insideOf(reference)), { once: true });
    return inside;
}

const hasInside = schema => Boolean(schema.properties || schema.items || schema.oneOf ||
    schema.anyOf || schema.allOf);

function cellsOfSchema(reference, about) {
    const schema = resolve(reference), range = rangeOf(schema);
    return [hasInside(schema) ? fold(reference) : typeOf(reference),
        make("div", {}, ...prose(about || schema.description),
            ...range ? [make("p", { class: "hint" }, range)] : [])];
}

function table(heads, rows) {
    return make("div", { class: "wide", tabindex: 0, role: "group", "aria-label": "table" }, make("table", {},
        make("thead", {}, make("tr", {}, ...heads.map(head => make("th", { scope: "col" }, head)))),
        make("tbody", {}, ...rows.map(row => make("tr", {}, ...row.map(cell => make("td", {}, cell)))))));
}

// ---- operations ----

function showContent(content = {}) {
    return Object.entries(content).flatMap(([type, { schema, example: one, examples }]) => [
        make("p", { class: "type" }, make("code", {}, type)), ...schema ? [fold(schema)] : [],
        ...[one, ...Object.values(examples || {}).map(entry => entry.value)]
            .filter(value => value !== undefined).map(example)]);
}

function showParameters(parameters) {
    return !parameters.length ? [] : [make("h3", {}, "Parameters"), table(["name", "type", ""],
        parameters.map(resolve).map(one => [make("span", {}, make("code", {}, one.name,
            one.required ? "*" : ""), make("small", {}, ` ${one.in}`)),
        ...cellsOfSchema(one.schema || {}, one.description)]))];
}

function showResponses(responses) {
    return [make("h3", {}, "Answers"), ...Object.entries(responses).map(([status, reference]) => {
        const one = resolve(reference);
        return make("details", { class: "answer" }, make("summary", {}, make("code", {}, status),
            ` ${one.description?.trim() ?? ""}`), ...showContent(one.content));
    })];
}

// ---- a request, as it is written here ----

const MOST_SHOWN = 20000; // characters of an answer

async function textOf(response) {
    const bytes = await response.arrayBuffer(), type = response.headers.get("Content-Type") ?? "";
    if (!/^(text|application\/(json|yaml))/.test(type))
        return bytes.byteLength ? `${bytes.byteLength} bytes of ${type}` : "";
    const text = new TextDecoder().decode(bytes);
    return text.length > MOST_SHOWN ? `${text.slice(0, MOST_SHOWN)}\n… ${text.length - MOST_SHOWN} more characters` : text;
}

// To this server alone: what is no path of it is refused here, and by the page's policy.
async function sendRequest(method, path, headers, body) {
    if (path[0] !== "/" || new URL(path, location.origin).origin !== location.origin)
        throw new Error(`${path} is no path of this server: it begins with one /.`);
    if (/[{}]/.test(path.split("?")[0]))
        throw new Error(`Put a name in place of ${path.match(/{[^}]*}?|}/)[0]}.`);
    const lines = headers.split("\n").filter(line => line.trim()).map(line => line.match(/^([^:]*):(.*)$/) ?? [line]);
    const bad = lines.find(line => line.length < 3);
    if (bad)
        throw new Error(`${bad[0]} is no header: Name: value.`);
    const response = await answerTo(path, { method, headers: lines.map(([, name, value]) => [name.trim(), value.trim()]),
        ...method !== "GET" && { body } });
    return `${response.status} ${response.statusText}\n` +
        `${[...response.headers].map(([name, value]) => `${name}: ${value}\n`).join("")}\n${await textOf(response)}`;
}

function senderOf(path, method, content = {}) {
    const [type] = Object.keys(content), { example: one, examples } = content[type] ?? {};
    const body = one ?? Object.values(examples ?? {})[0]?.value, withBody = method !== "get";
    const target = make("input", { name: "path", value: fill(path), spellcheck: "false" });
    const headers = make("textarea", { name: "headers", rows: 2, spellcheck: "false" }, type ? `Content-Type: ${type}` : "");
    const text = make("textarea", { name: "body", rows: 5, spellcheck: "false" }, body === undefined ? "" : JSON.stringify(body));
    const file = make("input", { name: "file", type: "file", onchange: () =>
        headers.value = `Content-Type: ${file.files[0]?.type || "application/octet-stream"}` });
    const answer = make("pre", { tabindex: 0, "aria-label": "The answer", "aria-live": "polite", hidden: true });
    const send = async event => {
        event.preventDefault();
        answer.hidden = false;
        answer.textContent = "…";
        answer.textContent = await sendRequest(method.toUpperCase(), target.value, headers.value,
            file.files[0] ?? text.value).catch(error => error.message);
    };
    return [make("h3", {}, "Try it"), make("form", { class: "sender", onsubmit: send },
        make("label", {}, `${method.toUpperCase()}, path and query`, target), make("label", {}, "Headers, one a line", headers),
        ...withBody ? [make("label", {}, "Body", text), make("label", {}, "or a file as the body ", file)] : [],
        make("button", { class: "primary" }, "Send"), answer)];
}

// The page has ids of its own.
const idOf = operationId => `api-${operationId}`;

function operationElement(path, method, shared, operation) {
    const body = resolve(operation.requestBody);
    const details = make("details", { class: "route", id: idOf(operation.operationId) },
        make("summary", {}, make("b", { class: `method ${method}` }, method.toUpperCase()), " ",
            make("code", {}, path), make("span", {}, operation.summary ?? "")));
    details.addEventListener("toggle", () => details.append(make("div", {},
        ...prose(operation.description), ...showParameters([...shared, ...operation.parameters ?? []]),
        ...body.content ? [make("h3", {}, "Body"), ...prose(body.description), ...showContent(body.content)] : [],
        ...showResponses(operation.responses), ...senderOf(path, method, body.content))), { once: true });
    return details;
}

function operationsOf() {
    return Object.entries(api.paths).flatMap(([path, item]) => METHODS.filter(method => item[method])
        .map(method => ({ tag: item[method].tags?.[0] ?? "", operation: item[method],
            text: `${method} ${path} ${JSON.stringify(item[method])}`.toLowerCase(),
            element: operationElement(path, method, item.parameters ?? [], item[method]) })));
}

function findRoutes(operations) {
    const words = byId("find").value.toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    for (const { text, element } of operations) {
        element.hidden = !words.every(word => text.includes(word));
        found += !element.hidden;
    }
    for (const group of byId("routes").children)
        group.hidden = !group.querySelector(".route:not([hidden])");
    byId("found").textContent = words.length ? `${found} of ${operations.length} routes` : "";
}

// Shows the document's text in the page that these are of.
export function showDocs(text, page) {
    ({ byId, make, answerTo, fill } = page);
    api = parseYaml(text);
    const operations = operationsOf();
    byId("docs-about").replaceChildren(...prose(api.info.description).flatMap(part => [...part.childNodes]));
    byId("routes").replaceChildren(...api.tags.map(tag => make("section", {}, make("h2", {}, tag.name),
        ...prose(tag.description), ...operations.filter(one => one.tag === tag.name).map(one => one.element))));
    byId("find").addEventListener("input", () => findRoutes(operations));
    openNamed();
}

// The operation that the address names: /docs#conv.
function openNamed() {
    const named = location.pathname === "/docs" && byId(idOf(location.hash.slice(1)));
    if (named) {
        named.open = true;
        named.scrollIntoView();
    }
}
