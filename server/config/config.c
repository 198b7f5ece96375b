/* config.c: where settings come from (defaults, then the file, the environment, the flags, each
 * over the one before) and how they must fit together. Which settings there are is the table's
 * matter, config_settings.c.
 *
 * Two passes over the flags: the first finds --config and the commands, because the file is read
 * before the flags are applied. Every value remembers its source, so that an error about two
 * settings that do not fit can say where each came from. */
#include "config.h"

#include "config_settings.h"
#include "file.h"
#include "xn_mem.h"
#include "xn_proto.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#define FILE_BYTES_MAX (256 * 1024)
#define PLACE_MAX 120 /* of "app.conf:12" */
#define LABEL_MAX 160 /* of that with a setting's name */
#define PATH_SHOWN_MAX 100

typedef enum { FROM_DEFAULT, FROM_FILE, FROM_ENVIRONMENT, FROM_FLAG } origin;

typedef struct loader {
    xn_config config;
    const char *path;     /* of the file; NULL: none */
    const char *named_by; /* what gave the path: "--config" or "XNORD_CONFIG" */
    struct {
        origin origin;
        int line;
    } from[XN_SETTINGS_MAX];
} loader;

/* "app.conf:12"; of a long path the end, which tells more than its start. */
static void label_line(const char *path, int line, char label[PLACE_MAX]) {
    size_t length = strlen(path), most = PATH_SHOWN_MAX;
    bool cut = length > most;
    snprintf(label, PLACE_MAX, "%s%s:%d", cut ? "..." : "", path + (cut ? length - most : 0), line);
}

/* A setting with its source, in the user's words: "--port", "XNORD_PORT", "app.conf:12: port". */
static void label_of(const loader *l, int index, char label[LABEL_MAX]) {
    const char *name = xn_settings[index].name;
    char place[PLACE_MAX];
    switch (l->from[index].origin) {
    case FROM_DEFAULT:
        snprintf(label, LABEL_MAX, "%s (default)", name);
        break;
    case FROM_FILE:
        label_line(l->path, l->from[index].line, place);
        snprintf(label, LABEL_MAX, "%s: %.36s", place, name);
        break;
    case FROM_ENVIRONMENT:
        xn_setting_environment(&xn_settings[index], label);
        break;
    case FROM_FLAG:
        snprintf(label, LABEL_MAX, "--%s", name);
        break;
    }
}

static xn_status apply(loader *l, int index, origin from, int line, const char *value,
                       xn_error *error) {
    char label[LABEL_MAX];
    bool again = l->from[index].origin == from; /* only of a list can there be more than one */
    l->from[index].origin = from;
    l->from[index].line = line;
    label_of(l, index, label);
    return (again ? xn_setting_add : xn_setting_parse)(&xn_settings[index], value, label,
                                                       &l->config, error);
}

/* ---- names that do not exist ---- */

/* Levenshtein's distance of two names, by one row of the table. */
static size_t name_distance(const char *a, size_t a_length, const char *b, size_t b_length) {
    size_t row[XN_SETTING_ENV_MAX + 1];
    if (a_length > XN_SETTING_ENV_MAX)
        return a_length;
    for (size_t i = 0; i <= a_length; i++)
        row[i] = i;
    for (size_t j = 1; j <= b_length; j++) {
        size_t diagonal = row[0];
        row[0] = j;
        for (size_t i = 1; i <= a_length; i++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[i];
            best = row[i] + 1 < best ? row[i] + 1 : best;
            row[i] = row[i - 1] + 1 < best ? row[i - 1] + 1 : best;
        }
    }
    return row[a_length];
}

/* where: what is wrong, up to "no such ..."; name: as the table writes it; from: how to write the
 * name that was perhaps meant. */
static xn_status fail_unknown(const char *where, origin from, const char *name, size_t length,
                              xn_error *error) {
    size_t best = 4; /* farther away it would not be a misspelling */
    int near = -1;
    char meant[XN_SETTING_ENV_MAX + 8] = "";
    for (int i = 0; i < xn_setting_count; i++) {
        const char *other = xn_settings[i].name;
        size_t distance = name_distance(name, length, other, strlen(other));
        if (distance < best) {
            best = distance;
            near = i;
        }
    }
    if (near >= 0 && from == FROM_ENVIRONMENT)
        xn_setting_environment(&xn_settings[near], meant);
    else if (near >= 0)
        snprintf(meant, sizeof meant, "%s%.40s", from == FROM_FLAG ? "--" : "",
                 xn_settings[near].name);
    return xn_fail(error, XN_ERR_MALFORMED, NULL, "%s; %s%s%s--help lists all", where,
                   *meant ? "did you mean " : "", meant, *meant ? "? " : "");
}

/* Copies text for a message, not too much of it. */
static void show(const char *text, size_t length, char shown[LABEL_MAX]) {
    xn_setting_show(text, length, shown, 101);
}

/* ---- the file ---- */

static const char *skip_space(const char *at, const char *end) {
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\r'))
        at++;
    return at;
}

static const char *trim_end(const char *start, const char *end) {
    while (end > start && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r'))
        end--;
    return end;
}

/* Reads the value from `at`: bare up to a comment, or quoted with \" and \\. */
static bool read_value(const char *at, const char *end, char *value, size_t size) {
    size_t n = 0;
    if (at == end || *at != '"') {
        const char *stop = at;
        while (stop < end && !(*stop == '#' && (stop == at || stop[-1] == ' ' || stop[-1] == '\t')))
            stop++;
        stop = trim_end(at, stop);
        if ((size_t)(stop - at) >= size)
            return false;
        memcpy(value, at, (size_t)(stop - at));
        value[stop - at] = 0;
        return true;
    }
    for (at++; at < end && *at != '"'; at++) {
        at += *at == '\\' && at + 1 < end && (at[1] == '"' || at[1] == '\\');
        if (n + 1 >= size)
            return false;
        value[n++] = *at;
    }
    value[n] = 0;
    if (at == end)
        return false;
    at = skip_space(at + 1, end);
    return at == end || *at == '#';
}

static xn_status read_line(loader *l, const char *at, const char *end, int line, xn_error *error) {
    char label[PLACE_MAX], value[XN_SETTING_TEXT_MAX];
    at = skip_space(at, end);
    if (at == end || *at == '#')
        return XN_OK;
    label_line(l->path, line, label);
    const char *equals = memchr(at, '=', (size_t)(end - at));
    if (!equals || memchr(at, 0, (size_t)(end - at)))
        return xn_fail(error, XN_ERR_MALFORMED, NULL,
                       "%s: not a setting; a line is \"key = value\" or starts with '#'", label);
    size_t length = (size_t)(trim_end(at, equals) - at);
    int index = xn_setting_find(at, length);
    if (index < 0) {
        char shown[LABEL_MAX], where[2 * LABEL_MAX];
        show(at, length, shown);
        snprintf(where, sizeof where, "%s: there is no setting \"%s\"", label, shown);
        return fail_unknown(where, FROM_FILE, at, length, error);
    }
    if (l->from[index].origin == FROM_FILE && xn_settings[index].kind != XN_SETTING_LIST)
        return xn_fail(error, XN_ERR_MALFORMED, xn_settings[index].name,
                       "%s: %s is given twice; line %d has it too", label, xn_settings[index].name,
                       l->from[index].line);
    if (!read_value(skip_space(equals + 1, end), end, value, sizeof value))
        return xn_fail(error, XN_ERR_MALFORMED, xn_settings[index].name,
                       "%s: the value of %s is longer than %zu characters or its quotes are not "
                       "closed",
                       label, xn_settings[index].name, sizeof value - 1);
    return apply(l, index, FROM_FILE, line, value, error);
}

static xn_status slurp(const loader *l, char **text, size_t *length, xn_error *error) {
    char name[240];
    snprintf(name, sizeof name, "%s names %.200s", l->named_by, l->path);
    int fd = open(l->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return xn_fail(error, XN_ERR_IO, "config", "%s: %s", name, strerror(errno));
    xn_status status = xn_file_read(fd, "config", name, FILE_BYTES_MAX, text, length, error);
    close(fd);
    return status;
}

static xn_status read_file(loader *l, xn_error *error) {
    char *text = NULL;
    size_t length = 0;
    int line = 1;
    xn_status status = slurp(l, &text, &length, error);
    if (status != XN_OK)
        return status;
    const char *at = text, *stop = text + length;
    while (status == XN_OK && at < stop) {
        const char *end = memchr(at, '\n', (size_t)(stop - at));
        end = end ? end : stop;
        status = read_line(l, at, end, line++, error);
        at = end + 1;
    }
    xn_mem_free(text);
    return status;
}

/* ---- the environment ---- */

static bool has_suffix(const char *text, size_t length, const char *suffix) {
    size_t n = strlen(suffix);
    return length >= n && !memcmp(text + length - n, suffix, n);
}

/* Kubernetes and old Docker links describe a service called "xnord" or "xnord-..." to every pod in
 * variables such as XNORD_SERVICE_HOST or XNORD_PORT=tcp://10.0.0.1:8080. They are not settings. */
static bool is_service_link(const char *name, size_t length, const char *value) {
    static const char *const ends[] = {"_SERVICE_HOST", "_TCP_PORT",  "_TCP_PROTO", "_TCP_ADDR",
                                       "_UDP_PORT",     "_UDP_PROTO", "_UDP_ADDR"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (has_suffix(name, length, ends[i]))
            return true;
    return memmem(name, length, "_SERVICE_PORT", strlen("_SERVICE_PORT")) ||
           !strncmp(value, "tcp://", 6) || !strncmp(value, "udp://", 6);
}

static bool is_ours_but_no_setting(const char *name, size_t length) {
    return !strncmp(name, "XNORD_TEST_", 11) ||
           (length == 12 && !memcmp(name, "XNORD_CONFIG", 12)) ||
           (length == 9 && !memcmp(name, "XNORD_BIN", 9));
}

/* The index of the setting, or -1 and why. */
static int find_variable(const char *name, size_t length, xn_error *error) {
    char shown[LABEL_MAX], where[LABEL_MAX + 40], key[XN_SETTING_ENV_MAX];
    size_t n = 0;
    for (const size_t prefix = strlen("XNORD_"); n + prefix < length && n < sizeof key; n++) {
        const char c = name[n + prefix];
        key[n] = c == '_' ? '-' : c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
    }
    const int index = xn_setting_find(key, n);
    if (index >= 0) {
        xn_setting_environment(&xn_settings[index], shown);
        if (strlen(shown) == length && !memcmp(shown, name, length)) /* else in lower case */
            return index;
    }
    show(name, length, shown);
    snprintf(where, sizeof where, "there is no environment variable %s", shown);
    fail_unknown(where, FROM_ENVIRONMENT, key, n, error);
    return -1;
}

/* An empty variable counts as not set: that is how compose files pass what the user left out. */
static xn_status read_environment(loader *l, char *const *environment, xn_error *error) {
    for (; environment && *environment; environment++) {
        const char *name = *environment, *equals = strchr(name, '=');
        if (strncmp(name, "XNORD_", 6) || !equals || !equals[1])
            continue;
        size_t length = (size_t)(equals - name);
        if (is_ours_but_no_setting(name, length) || is_service_link(name, length, equals + 1))
            continue;
        const int index = find_variable(name, length, error);
        if (index < 0)
            return XN_ERR_MALFORMED;
        xn_status status = apply(l, index, FROM_ENVIRONMENT, 0, equals + 1, error);
        if (status != XN_OK)
            return status;
    }
    return XN_OK;
}

static const char *environment_value(char *const *environment, const char *name) {
    size_t length = strlen(name);
    for (; environment && *environment; environment++)
        if (!strncmp(*environment, name, length) && (*environment)[length] == '=')
            return *environment + length + 1;
    return NULL;
}

/* ---- the flags ---- */

/* One flag as it stands on the command line. */
typedef struct flag {
    int setting;        /* index, or -1: */
    xn_command command; /* a command, or SERVE: */
    const char *value;  /* the file of --config */
} flag;

static bool identify(const char *name, size_t length, flag *out) {
    *out = (flag){.setting = xn_setting_find(name, length), .command = XN_COMMAND_SERVE};
    if (out->setting >= 0)
        return true;
    for (int i = 0; i < xn_command_flag_count; i++) {
        const xn_command_flag *known = &xn_command_flags[i];
        if (strlen(known->name) == length && !memcmp(known->name, name, length)) {
            out->command = known->command;
            return true;
        }
    }
    return false;
}

/* A word that cannot be the value of the flag before it: a forgotten value must not eat a flag. */
static bool looks_like_flag(const char *word) {
    return word[0] == '-' && !(word[1] >= '0' && word[1] <= '9');
}

/* Reads the flag at argv[*at] and moves *at past it and its value. */
static xn_status next_flag(int argc, char *const *argv, int *at, flag *out, xn_error *error) {
    const char *word = argv[(*at)++];
    char shown[LABEL_MAX];
    size_t length = strcspn(word, "=");
    show(word, length, shown);
    if (strncmp(word, "--", 2) || length < 3)
        return xn_fail(error, XN_ERR_MALFORMED, NULL,
                       "\"%s\" is not a flag; settings are given as --flag value, --help lists all",
                       shown);
    if (!identify(word + 2, length - 2, out)) {
        char where[LABEL_MAX + 24];
        snprintf(where, sizeof where, "there is no flag %s", shown);
        return fail_unknown(where, FROM_FLAG, word + 2, length - 2, error);
    }
    const char *next = *at < argc ? argv[*at] : NULL;
    out->value = word[length] == '=' ? word + length + 1 : NULL;
    if (out->command != XN_COMMAND_SERVE) {
        if (out->value)
            return xn_fail(error, XN_ERR_MALFORMED, NULL, "%s takes no value", shown);
        return XN_OK;
    }
    if (out->value)
        return XN_OK;
    if (out->setting >= 0 && xn_settings[out->setting].kind == XN_SETTING_BOOL) {
        bool given = next && (!strcmp(next, "true") || !strcmp(next, "false"));
        out->value = given ? next : "true";
        *at += given;
        return XN_OK;
    }
    if (!next || looks_like_flag(next))
        return xn_fail(error, XN_ERR_MALFORMED, NULL, "%s needs a value", shown);
    out->value = next;
    (*at)++;
    return XN_OK;
}

/* --help and --version answer whatever else is on the line. */
static bool asks_for_text(int argc, char *const *argv, xn_command *command) {
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            *command = XN_COMMAND_HELP;
        else if (!strcmp(argv[i], "--version") || !strcmp(argv[i], "-V"))
            *command = XN_COMMAND_VERSION;
        else
            continue;
        return true;
    }
    return false;
}

static xn_status read_commands(int argc, char *const *argv, loader *l, xn_command *command,
                               xn_error *error) {
    for (int at = 1; at < argc;) {
        flag found;
        xn_status status = next_flag(argc, argv, &at, &found, error);
        if (status != XN_OK)
            return status;
        if (found.command != XN_COMMAND_SERVE)
            *command = found.command;
        else if (found.setting < 0) {
            l->path = found.value;
            l->named_by = "--config";
        }
    }
    if (l->path && !*l->path)
        return xn_fail(error, XN_ERR_MALFORMED, "config", "--config is empty; a file is needed");
    return XN_OK;
}

static xn_status read_flags(int argc, char *const *argv, loader *l, xn_error *error) {
    for (int at = 1; at < argc;) {
        flag found;
        xn_status status = next_flag(argc, argv, &at, &found, error);
        if (status == XN_OK && found.setting >= 0)
            status = apply(l, found.setting, FROM_FLAG, 0, found.value, error);
        if (status != XN_OK)
            return status;
    }
    return XN_OK;
}

/* ---- how the settings fit together ---- */

static void label_by_name(const loader *l, const char *name, char label[LABEL_MAX]) {
    label_of(l, xn_setting_find(name, strlen(name)), label);
}

/* The setting with its source, and what follows by the format. */
__attribute__((format(printf, 4, 5))) static xn_status
refuse(const loader *l, const char *name, xn_error *error, const char *format, ...) {
    char label[LABEL_MAX], why[sizeof error->message];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    label_by_name(l, name, label);
    return xn_fail(error, XN_ERR_MALFORMED, name, "%s%s", label, why);
}

int xn_config_http_threads(const xn_config *config, int cores, bool on_gpu) {
    const int usual = cores < 8 ? cores : 8, waiting = cores * 3 / 4 < 16 ? cores * 3 / 4 : 16;
    if (config->http_threads > 0)
        return (int)config->http_threads;
    return on_gpu && waiting > usual ? waiting : usual;
}

bool xn_config_is_loopback(const xn_config *config) {
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, config->listen, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, config->listen, &v6) != 1)
        return false;
    return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

static xn_status check_listen(const loader *l, xn_error *error) {
    const xn_config *config = &l->config;
    struct in6_addr address;
    if (inet_pton(AF_INET, config->listen, &address) != 1 &&
        inet_pton(AF_INET6, config->listen, &address) != 1)
        return refuse(l, "listen", error,
                      " is \"%s\"; a numeric IPv4 or IPv6 address is accepted, such as 127.0.0.1, "
                      "0.0.0.0 or ::1",
                      config->listen);
    if (!xn_config_is_loopback(config) && !config->api_keys_file[0] &&
        !config->allow_unauthenticated)
        return refuse(l, "listen", error,
                      " is %s, which others can reach, and no api-keys-file is given; give "
                      "--api-keys-file FILE, or --allow-unauthenticated if anybody may use it",
                      config->listen);
    return XN_OK;
}

static xn_status check_tls(const loader *l, xn_error *error) {
    bool cert = l->config.tls_cert[0], key = l->config.tls_key[0];
    char label[LABEL_MAX];
    if (cert == key)
        return XN_OK;
    label_by_name(l, cert ? "tls-cert" : "tls-key", label);
    return xn_fail(error, XN_ERR_MALFORMED, cert ? "tls-key" : "tls-cert",
                   "%s is given without %s; HTTPS needs both", label,
                   cert ? "tls-key" : "tls-cert");
}

static xn_status check_timeouts(const loader *l, xn_error *error) {
    char most[LABEL_MAX];
    if (l->config.timeout_ms <= l->config.max_timeout_ms)
        return XN_OK;
    label_by_name(l, "max-timeout-ms", most);
    return refuse(l, "timeout-ms", error, " is %lld; it must be at most %s, which is %lld",
                  (long long)l->config.timeout_ms, most, (long long)l->config.max_timeout_ms);
}

int64_t xn_config_image_bytes(const xn_config *config) {
    return config->max_image_bytes ? config->max_image_bytes : config->queue_bytes / 4;
}

/* Programs have half of the queue's bytes: a model that needs more for one image could never run.
 */
static xn_status check_image_bytes(const loader *l, xn_error *error) {
    char queue[LABEL_MAX];
    const xn_config *config = &l->config;
    if (config->max_image_bytes <= config->queue_bytes / 2)
        return XN_OK;
    label_by_name(l, "queue-bytes", queue);
    return refuse(l, "max-image-bytes", error,
                  " is %lld; it must be at most half of %s, which is %lld",
                  (long long)config->max_image_bytes, queue, (long long)config->queue_bytes);
}

/* "all", or ordinals 0..255 separated by commas, none twice. */
static xn_status check_devices(const loader *l, xn_error *error) {
    const char *at = l->config.devices;
    bool seen[256] = {false};
    if (!strcmp(at, "all"))
        return XN_OK;
    for (;; at++) {
        int ordinal = 0, digits = 0;
        for (; *at >= '0' && *at <= '9' && digits < 4; at++, digits++)
            ordinal = ordinal * 10 + (*at - '0');
        if (!digits || ordinal > 255 || (*at && *at != ','))
            return refuse(l, "devices", error,
                          " is \"%s\"; accepted is all, or ordinals from 0 to 255 separated by "
                          "commas, such as 0,2",
                          l->config.devices);
        if (seen[ordinal])
            return refuse(l, "devices", error, " is \"%s\"; it has %d twice", l->config.devices,
                          ordinal);
        seen[ordinal] = true;
        if (!*at)
            return XN_OK;
    }
}

/* Up to the next comma, or the end. */
static size_t item_length(const char *at) {
    return strcspn(at, ",");
}

static const char *name_end(const char *item, size_t length) {
    return memchr(item, '=', length);
}

bool xn_config_next_model(const char **list, xn_config_model *out) {
    const char *at = *list;
    size_t length = item_length(at);
    if (!*at)
        return false;
    const char *equals = name_end(at, length);
    const char *folder = equals ? equals + 1 : at;
    snprintf(out->name, sizeof out->name, "%.*s", equals ? (int)(equals - at) : 0, at);
    snprintf(out->folder, sizeof out->folder, "%.*s", (int)(at + length - folder), folder);
    *list = at + length + (at[length] == ',');
    return true;
}

static xn_status check_model(const loader *l, const char *item, size_t length, xn_error *error) {
    const char *equals = name_end(item, length);
    size_t name = equals ? (size_t)(equals - item) : 0;
    size_t folder = length - (equals ? name + 1 : 0);
    xn_config_model model;
    char shown[LABEL_MAX];
    show(item, length, shown);
    if (!folder || folder >= sizeof model.folder)
        return refuse(l, "model", error,
                      " has \"%s\", whose folder has %zu characters; accepted is NAME=DIR or DIR, "
                      "DIR of 1 to %zu characters, with commas between several",
                      shown, folder, sizeof model.folder - 1);
    xn_config_next_model(&item, &model);
    if (equals && (name > XN_CONFIG_MODEL_NAME || !xn_proto_name_valid(model.name)))
        return refuse(l, "model", error,
                      " has \"%s\", whose name is none for a model; accepted are 1 to %d of A-Z "
                      "a-z 0-9 . _ -, and not . or ..",
                      shown, XN_CONFIG_MODEL_NAME);
    return XN_OK;
}

/* Whether an item before this one has its name. */
static bool name_is_twice(const char *list, const char *item, const char *name) {
    xn_config_model other;
    while (*name && list < item && xn_config_next_model(&list, &other))
        if (!strcmp(other.name, name))
            return true;
    return false;
}

static xn_status check_models(const loader *l, xn_error *error) {
    const char *at = l->config.models, *next = at;
    xn_config_model model = {.name = ""};
    xn_status status = XN_OK;
    for (; *at && status == XN_OK; at = next) {
        status = check_model(l, at, item_length(at), error);
        if (status != XN_OK)
            return status;
        xn_config_next_model(&next, &model);
        if (name_is_twice(l->config.models, at, model.name))
            status = refuse(l, "model", error, " has two folders for the name \"%s\"", model.name);
        else if (!*next && next > at && next[-1] == ',')
            status = check_model(l, next, 0, error); /* nothing behind the last comma */
    }
    return status;
}

static xn_status read_version_policy(loader *l, xn_error *error) {
    xn_error why;
    if (xn_version_policy_parse(l->config.version_policy, &l->config.versions, &why) == XN_OK)
        return XN_OK;
    return refuse(l, "version-policy", error, ": %.300s", why.message);
}

static xn_status read_otlp(loader *l, xn_error *error) {
    xn_config *config = &l->config;
    char shown[LABEL_MAX];
    const char *value = config->otlp_endpoint;
    xn_error why;
    xn_status status = value[0] ? xn_otlp_target_parse(value, &config->otlp_target, &why) : XN_OK;
    if (status == XN_OK)
        status = xn_otlp_sample_parse(value = config->otlp_sample, &config->otlp_ids, &why);
    if (status == XN_OK)
        return XN_OK;
    show(value, strlen(value), shown);
    return refuse(l, why.field, error, " is \"%s\": %s", shown, why.message);
}

/* A host is a name without a port. */
static bool is_host(const char *at, size_t length) {
    return length && !memchr(at, '/', length) && !memchr(at, ':', length);
}

/* What browsers send as Origin: scheme, host and port, no path. */
static bool is_web_origin(const char *at, size_t length) {
    const char *colon = memmem(at, length, "://", 3);
    size_t scheme = colon ? (size_t)(colon - at) + 3 : length;
    return (length == 4 && !memcmp(at, "null", 4)) ||
           (colon > at && scheme < length && !memchr(at + scheme, '/', length - scheme));
}

static xn_status check_items(const loader *l, const char *name, const char *list,
                             bool (*valid)(const char *at, size_t length), const char *what,
                             xn_error *error) {
    while (*list) {
        size_t length = item_length(list);
        if (!(length == 1 && *list == '*') && !valid(list, length))
            return refuse(l, name, error, " has \"%.*s\"; it takes %s", (int)length, list, what);
        list += length + (list[length] == ',');
    }
    return XN_OK;
}

static xn_status check_pages(const loader *l, xn_error *error) {
    xn_status status =
        check_items(l, "allowed-hosts", l->config.allowed_hosts, is_host,
                    "names of hosts such as xnord.example, without a port, or *", error);
    return status ? status
                  : check_items(l, "allowed-origins", l->config.allowed_origins, is_web_origin,
                                "origins such as https://app.example:8443, without a path, or *",
                                error);
}

static xn_status check_together(loader *l, xn_error *error) {
    static xn_status (*const checks[])(const loader *, xn_error *) = {
        check_listen,  check_tls,    check_timeouts, check_image_bytes,
        check_devices, check_models, check_pages};
    xn_status status = XN_OK;
    for (size_t i = 0; status == XN_OK && i < sizeof checks / sizeof checks[0]; i++)
        status = checks[i](l, error);
    if (status == XN_OK)
        status = read_version_policy(l, error);
    return status == XN_OK ? read_otlp(l, error) : status;
}

xn_status xn_config_load(int argc, char *const *argv, char *const *environment, xn_config *out,
                         xn_command *command, xn_error *error) {
    loader l = {.path = environment_value(environment, "XNORD_CONFIG"), .named_by = "XNORD_CONFIG"};
    xn_command asked = XN_COMMAND_SERVE;
    xn_status status = XN_OK;
    if (l.path && !*l.path)
        l.path = NULL;
    xn_config_default(&l.config);
    if (!asks_for_text(argc, argv, &asked)) {
        status = read_commands(argc, argv, &l, &asked, error);
        if (status == XN_OK && l.path)
            status = read_file(&l, error);
        if (status == XN_OK)
            status = read_environment(&l, environment, error);
        if (status == XN_OK)
            status = read_flags(argc, argv, &l, error);
        /* Listing devices opens no listener: its settings need not be fit to serve. */
        if (status == XN_OK && asked != XN_COMMAND_LIST_DEVICES)
            status = check_together(&l, error);
    }
    if (status != XN_OK)
        return status;
    *out = l.config;
    *command = asked;
    return XN_OK;
}
