/* json_tree.c: the only file that knows Jansson; see xn_json_tree.h. */
#include "xn_json_tree.h"
#include "xn_mem.h"
#include "xn_proto.h"
#include "xn_text.h"

#include <jansson.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#if JANSSON_VERSION_HEX < 0x020b00
#error "Jansson 2.11 or later is needed: ordered members and json_error_code"
#endif

/* ---- the memory of a parse ----
 *
 * Jansson drops a character of a token when the memory for it cannot grow, and goes on as if it
 * were there; the next step back writes past its buffer. So no allocation inside it may fail: a
 * parse takes one block, before it starts, that is large enough for all of it, and gives it back
 * whole. What it frees meanwhile is not used again. One that asked for more all the same would not
 * get a null pointer: the parse is left by longjmp. Jansson holds nothing but memory, all of it in
 * the block, so nothing is lost by that. */

#define ARENA_ALIGNMENT 16 /* of malloc, which Jansson expects */

typedef struct arena {
    unsigned char *at;
    size_t left;
    jmp_buf ran_out;
} arena;

static _Thread_local arena *active; /* of the parse on this thread; else NULL */

static void *json_alloc(size_t bytes) {
    arena *a = active;
    if (!a) /* nothing here asks for memory outside a parse */
        return NULL;
    if (bytes > a->left || a->left - bytes < ARENA_ALIGNMENT)
        longjmp(a->ran_out, 1);
    size_t taken = (bytes + ARENA_ALIGNMENT - 1) / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
    void *memory = a->at;
    a->at += taken;
    a->left -= taken;
    return memory;
}

static void json_release(void *memory) {
    (void)memory;
}

static void set_up(void) {
    json_set_alloc_funcs(json_alloc, json_release);
    json_object_seed(0); /* from the system's random source, before threads could race for it */
}

void xn_proto_init(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_up);
}

/* The sum of all that Jansson 2.14 allocates for a text, freed or not, each rounded up to 16 bytes.
 * Whatever it makes has consumed a character of its own, so these are counted wherever they stand,
 * also inside strings; L is the text's length.
 *     {   an object (72) and its 8 buckets (128)
 *     [   an array (40), its first 8 elements (64), and a value that is no container (32)
 *     :   a member: what holds the key (56, the key, a 0); its share of larger bucket tables: with
 *         m members they double up to fewer than 2m buckets of 16 bytes, 64 m in all; a value
 *     ,   an element's share of larger tables, likewise 32; a value
 *     ""  a string's text: no longer than it stands in the input, and a 0
 *     L   texts and keys, at most L each; the lexer's buffer, 16 bytes that double while the
 *         longest token does not fit: less than 2 (L + 1) at last, 4 (L + 1) in all
 * and a value when the text is nothing else. */
size_t xn_json_parse_bound(const char *text, size_t length) {
    enum { OBJECT = 80 + 128, ARRAY = 48 + 64, VALUE = 32, MEMBER = 72 + 64, ELEMENT = 32 };
    size_t objects = 0, arrays = 0, members = 0, elements = 0, quotes = 0;
    for (size_t i = 0; i < length; i++) {
        objects += text[i] == '{';
        arrays += text[i] == '[';
        members += text[i] == ':';
        elements += text[i] == ',';
        quotes += text[i] == '"';
    }
    return objects * OBJECT + arrays * (ARRAY + VALUE) + members * (MEMBER + VALUE) +
           elements * (ELEMENT + VALUE) + quotes / 2 * ARENA_ALIGNMENT + 6 * length + 32 + VALUE;
}

static xn_status check_values(const xn_json_scan *scan, const char *what, xn_error *error) {
    size_t values = 0;
    for (size_t i = 0; i < scan->skeleton_length; i++)
        values += scan->skeleton[i] == '{' || scan->skeleton[i] == '[' ||
                  scan->skeleton[i] == ':' || scan->skeleton[i] == ',';
    if (values <= scan->limits->values)
        return XN_OK;
    return xn_fail(error, XN_ERR_MALFORMED, "", "%s has more than %zu values%s, the limit%s", what,
                   scan->limits->values, scan->limits->beside, scan->limits->instead);
}

/* ---- parsing ---- */

/* The key in Jansson's "duplicate object key near '"key"'", or "". */
static const char *duplicate_key(const json_error_t *failure, char out[XN_TEXT_EXCERPT]) {
    out[0] = 0;
    const char *begin = strstr(failure->text, "'\""), *end = strrchr(failure->text, '\'');
    if (json_error_code(failure) == json_error_duplicate_key && begin && end - begin >= 4)
        xn_text_excerpt(begin + 2, (size_t)(end - begin - 3), out);
    return out;
}

/* A number that is well-formed and too large for 64 bits; end: where it ends in the skeleton. */
static xn_status fail_number(const xn_json_scan *scan, const char *what, size_t end,
                             xn_error *error) {
    char field[64], excerpt[XN_TEXT_EXCERPT];
    size_t begin = end = end < scan->skeleton_length ? end : scan->skeleton_length;
    while (begin > 0 && scan->skeleton[begin - 1] &&
           strchr("0123456789+-.eE", scan->skeleton[begin - 1]))
        begin--;
    xn_json_scan_path(scan, begin, field, sizeof field);
    xn_text_excerpt(scan->skeleton + begin, end - begin, excerpt);
    bool real = strpbrk(excerpt, ".eE") != NULL;
    return xn_fail(error, XN_ERR_MALFORMED, field, "%s is %s, before byte %zu of %s; %s",
                   field[0] ? field : "a number", excerpt, xn_json_scan_offset(scan, end), what,
                   real ? "no number there may overflow a double"
                        : "integers there must be within 64 bits, from -9223372036854775808 to "
                          "9223372036854775807");
}

static xn_status parse_failure(const xn_json_scan *scan, const char *what,
                               const json_error_t *failure, xn_error *error) {
    char key[XN_TEXT_EXCERPT];
    duplicate_key(failure, key);
    size_t at = failure->position > 0 ? (size_t)failure->position : 0;
    at = xn_json_scan_offset(scan, at);
    if (key[0])
        return xn_fail(error, XN_ERR_MALFORMED, key,
                       "%s has the key \"%s\" twice in one object, again before byte %zu", what,
                       key, at);
    if (json_error_code(failure) == json_error_numeric_overflow)
        return fail_number(scan, what, failure->position > 0 ? (size_t)failure->position : 0,
                           error);
    char text[JSON_ERROR_TEXT_LENGTH];
    size_t length = strlen(failure->text);
    for (size_t i = 0; i <= length; i++) /* it quotes the input */
        text[i] =
            (char)((unsigned char)failure->text[i] < ' ' && i < length ? ' ' : failure->text[i]);
    return xn_fail(error, XN_ERR_MALFORMED, "", "%s is not valid JSON before byte %zu: %s", what,
                   at, text);
}

/* NULL: not JSON, or *ran_out. */
static json_t *load(const xn_json_scan *scan, size_t bytes, json_error_t *failure, bool *ran_out) {
    arena a = {.at = scan->memory, .left = bytes};
    json_t *volatile root = NULL;
    *ran_out = true;
    active = &a;
    if (setjmp(a.ran_out) == 0) {
        root = json_loadb(scan->skeleton, scan->skeleton_length,
                          JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, failure);
        *ran_out = false;
    }
    active = NULL;
    return root;
}

xn_status xn_json_parse_within(xn_json_scan *scan, const char *what, size_t bytes,
                               const xn_json **out, xn_error *error) {
    json_error_t failure = {0};
    bool ran_out;
    xn_status status = check_values(scan, what, error);
    if (status)
        return status;
    xn_proto_init();
    xn_mem_free(scan->memory);
    scan->memory = xn_mem_alloc(bytes);
    if (!scan->memory)
        return xn_fail(error, XN_ERR_NO_MEMORY, "", "no memory to parse %s: %zu bytes", what,
                       bytes);
    json_t *root = load(scan, bytes, &failure, &ran_out);
    if (ran_out || (!root && !failure.text[0]))
        return xn_fail(error, XN_ERR_NO_MEMORY, "", "%zu bytes are not enough to parse %s", bytes,
                       what);
    if (!root)
        return parse_failure(scan, what, &failure, error);
    *out = (const xn_json *)root;
    return XN_OK;
}

xn_status xn_json_parse(xn_json_scan *scan, const char *what, const xn_json **out,
                        xn_error *error) {
    /* Twice the bound, for other versions of Jansson. */
    size_t bytes = 2 * xn_json_parse_bound(scan->skeleton, scan->skeleton_length);
    return xn_json_parse_within(scan, what, bytes, out, error);
}

static const json_t *node(const xn_json *value) {
    return (const json_t *)value;
}

xn_json_kind xn_json_kind_of(const xn_json *value) {
    switch (json_typeof(node(value))) {
    case JSON_OBJECT:
        return XN_JSON_OBJECT;
    case JSON_ARRAY:
        return XN_JSON_ARRAY;
    case JSON_STRING:
        return XN_JSON_STRING;
    case JSON_INTEGER:
        return XN_JSON_INTEGER;
    case JSON_REAL:
        return XN_JSON_REAL;
    case JSON_TRUE:
        return XN_JSON_TRUE;
    case JSON_FALSE:
        return XN_JSON_FALSE;
    default:
        return XN_JSON_NULL;
    }
}

const char *xn_json_string(const xn_json *value) {
    return json_string_value(node(value));
}

int64_t xn_json_integer(const xn_json *value) {
    return (int64_t)json_integer_value(node(value));
}

bool xn_json_number(const xn_json *value, double *out) {
    if (!json_is_number(node(value)))
        return false;
    *out = json_number_value(node(value));
    return true;
}

size_t xn_json_count(const xn_json *value) {
    return json_array_size(node(value));
}

const xn_json *xn_json_element(const xn_json *array, size_t index) {
    return (const xn_json *)json_array_get(node(array), index);
}

/* Jansson's iterators take the object unconst and do not change it. */
static json_t *unconst(const xn_json *value) {
    union {
        const xn_json *in;
        json_t *out;
    } cast = {.in = value};
    return cast.out;
}

bool xn_json_next(const xn_json *object, void **iterator, const char **key, const xn_json **value) {
    json_t *o = unconst(object);
    *iterator = *iterator ? json_object_iter_next(o, *iterator) : json_object_iter(o);
    if (!*iterator)
        return false;
    *key = json_object_iter_key(*iterator);
    *value = (const xn_json *)json_object_iter_value(*iterator);
    return true;
}

const xn_json *xn_json_member(const xn_json *object, const char *key) {
    return (const xn_json *)json_object_get(node(object), key);
}

const char *xn_json_describe(const xn_json *value, char out[XN_JSON_DESCRIPTION]) {
    static const char *const plain[] = {[XN_JSON_OBJECT] = "an object",
                                        [XN_JSON_ARRAY] = "an array",
                                        [XN_JSON_TRUE] = "true",
                                        [XN_JSON_FALSE] = "false",
                                        [XN_JSON_NULL] = "null"};
    char excerpt[XN_TEXT_EXCERPT];
    const json_t *v = node(value);
    xn_json_kind kind = xn_json_kind_of(value);
    if (kind == XN_JSON_STRING)
        snprintf(out, XN_JSON_DESCRIPTION, "the string \"%s\"",
                 xn_text_excerpt(json_string_value(v), json_string_length(v), excerpt));
    else if (kind == XN_JSON_INTEGER)
        snprintf(out, XN_JSON_DESCRIPTION, "%lld", (long long)json_integer_value(v));
    else if (kind == XN_JSON_REAL)
        snprintf(out, XN_JSON_DESCRIPTION, "the real number %.9g", json_real_value(v));
    else
        snprintf(out, XN_JSON_DESCRIPTION, "%s", plain[kind]);
    return out;
}
