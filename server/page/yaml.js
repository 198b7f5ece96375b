// yaml.js: the YAML that proto/openapi.yaml is written in: block mappings and sequences, literal
// text (|), flow collections and scalars of one line. Anchors, tags, folded text: not here.

const YAML_WORDS = new Map([["true", true], ["false", false], ["null", null], ["~", null]]);

function parseScalar(text) {
    if (text[0] === "'")
        return text.slice(1, -1).replaceAll("''", "'");
    if (text[0] === "\"")
        return JSON.parse(text);
    if (/^-?\d+(\.\d+)?([eE][-+]?\d+)?$/.test(text))
        return Number(text);
    return YAML_WORDS.has(text) ? YAML_WORDS.get(text) : text;
}

// [..] and {..} of one line, and scalars.
function parseFlow(text) {
    let at = 0;
    const blanks = () => { while (text[at] === " ") at++; };
    const token = end => {
        const found = /^('(?:[^']|'')*'|"(?:[^"\\]|\\.)*")/.exec(text.slice(at))?.[0] ??
            text.slice(at).match(end)[0];
        at += found.length;
        return parseScalar(found.trim());
    };
    const members = (close, add) => {
        for (at++, blanks(); text[at] !== close; blanks()) {
            add();
            blanks();
            if (text[at] === ",")
                at++;
            else if (text[at] !== close)
                throw new Error(`not understood: ${text}`);
        }
        at++;
    };
    const value = inside => {
        blanks();
        if (text[at] === "[") {
            const list = [];
            members("]", () => list.push(value(true)));
            return list;
        }
        if (text[at] === "{") {
            const object = {};
            members("}", () => {
                const name = token(/^[^:]*/);
                at++;
                object[name] = value(true);
            });
            return object;
        }
        return token(inside ? /^[^,\]}]*/ : /^.*/);
    };
    return value(false);
}

export function parseYaml(text) {
    const lines = text.split("\n");
    let at = 0;
    const depthOf = line => line.search(/\S/);
    const skip = () => {
        while (at < lines.length && /^\s*(#|$)/.test(lines[at]))
            at++;
        return at < lines.length ? depthOf(lines[at]) : -1;
    };
    const isItem = () => /^\s*-( |$)/.test(lines[at]);

    function literal(depth) {
        const taken = [];
        for (at++; at < lines.length && (!lines[at].trim() || depthOf(lines[at]) > depth); at++)
            taken.push(lines[at]);
        const margin = depthOf(taken.find(line => line.trim()) ?? "");
        return `${taken.map(line => line.slice(margin)).join("\n").trimEnd()}\n`;
    }
    // What follows a key at a depth.
    function valueOf(rest, depth) {
        if (rest === "|")
            return literal(depth);
        at++;
        if (rest)
            return parseFlow(rest);
        const next = skip();
        return next > depth || (next === depth && isItem()) ? block(next) : null;
    }
    function mapping(depth) {
        const object = {};
        while (skip() === depth && !isItem()) {
            const [, name, rest] = /^\s*('[^']*'|"[^"]*"|.*?):(?: +(.*))?$/.exec(lines[at]);
            object[parseScalar(name)] = valueOf(rest?.trim(), depth);
        }
        return object;
    }
    function sequence(depth) {
        const list = [];
        while (skip() === depth && isItem()) {
            const rest = lines[at].slice(depth + 2);
            if (/^[^'"[{][^ ]*?:( |$)/.test(rest)) { // a mapping that begins beside the dash
                lines[at] = " ".repeat(depth + 2) + rest;
                list.push(mapping(depth + 2));
            } else {
                list.push(valueOf(rest.trim(), depth));
            }
        }
        return list;
    }
    const block = depth => isItem() ? sequence(depth) : mapping(depth);
    return block(skip());
}
