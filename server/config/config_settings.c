/* config_settings.c: the one table of settings, and all that is said or read by it: a value from
 * its text and back, --help, and the configuration as a file. Where values come from and how they
 * fit together is config.c's. */
#include "config_settings.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define KI (INT64_C(1) << 10)
#define MI (INT64_C(1) << 20)
#define GI (INT64_C(1) << 30)
#define DAY_MS INT64_C(86400000)

/* The enums are read and written as int, their value being the position in `choices`. */
_Static_assert(sizeof(xn_log_format) == sizeof(int), "enums are stored as int");
_Static_assert(sizeof(xn_log_level) == sizeof(int), "enums are stored as int");
_Static_assert(sizeof(xn_access_format) == sizeof(int), "enums are stored as int");
_Static_assert(sizeof(xn_loss_policy) == sizeof(int), "enums are stored as int");
_Static_assert(XN_LOG_TEXT == 0 && XN_LOG_JSON == 1, "text|json");
_Static_assert(XN_LOSS_EXIT == 0 && XN_LOSS_CPU == 1, "exit|cpu");
_Static_assert(sizeof(xn_warmup) == sizeof(int), "enums are stored as int");
_Static_assert(XN_WARMUP_ON == 0 && XN_WARMUP_OFF == 1, "on|off");
_Static_assert(XN_ACCESS_OFF == 0 && XN_ACCESS_JSON == 2, "off|text|json");
_Static_assert(XN_LOG_DEBUG == 0 && XN_LOG_ERROR == 3, "debug|info|warn|error");

#define FIELD(field) offsetof(xn_config, field), sizeof(((xn_config *)0)->field)
#define TEXT(name, field, argument, initial, help)                                                 \
    { GROUP, name, argument, XN_SETTING_TEXT, FIELD(field), 0, 0, 0, initial, NULL, help }
#define LIST(name, field, argument, help)                                                          \
    { GROUP, name, argument, XN_SETTING_LIST, FIELD(field), 0, 0, 0, "", NULL, help }
#define CHOICE(name, field, choices, initial, help)                                                \
    { GROUP, name, "NAME", XN_SETTING_CHOICE, FIELD(field), 0, 0, 0, initial, choices, help }
#define ENUM(name, field, choices, initial, help)                                                  \
    { GROUP, name, "NAME", XN_SETTING_ENUM, FIELD(field), 0, 0, initial, NULL, choices, help }
#define BOOL(name, field, initial, help)                                                           \
    { GROUP, name, "", XN_SETTING_BOOL, FIELD(field), 0, 1, initial, NULL, "true|false", help }
#define NUMBER(name, field, argument, low, high, initial, help)                                    \
    { GROUP, name, argument, XN_SETTING_NUMBER, FIELD(field), low, high, initial, NULL, NULL, help }
#define BYTES(name, field, low, high, initial, help)                                               \
    { GROUP, name, "BYTES", XN_SETTING_BYTES, FIELD(field), low, high, initial, NULL, NULL, help }

/* clang-format off: a row is read as a row. */
const xn_setting xn_settings[] = {
#define GROUP "Address and access"
    TEXT("listen", listen, "ADDRESS", "127.0.0.1", "Numeric IPv4 or IPv6 address to listen on."),
    NUMBER("port", port, "N", 0, 65535, 8080, "TCP port; 0 takes any free one and logs it."),
    TEXT("tls-cert", tls_cert, "FILE", "",
         "PEM certificate chain; with --tls-key it turns HTTPS on."),
    TEXT("tls-key", tls_key, "FILE", "", "PEM private key of --tls-cert."),
    TEXT("tls-ciphers", tls_ciphers, "PRIORITIES", "NORMAL",
         "What TLS may use, as a priority string of GnuTLS; never less than TLS 1.2."),
    TEXT("api-keys-file", api_keys_file, "FILE", "",
         "Bearer keys that clients must show, one a line; none means no authentication."),
    BOOL("allow-unauthenticated", allow_unauthenticated, false,
         "Listen beyond loopback although no --api-keys-file is given."),
    LIST("allowed-hosts", allowed_hosts, "NAME",
         "Without keys, a further name that Host may have, besides localhost, the machine's host "
         "name and IP addresses; * means any. May be given again."),
    LIST("allowed-origins", allowed_origins, "ORIGIN",
         "An origin, such as https://app.example, whose web pages may send requests and read the "
         "answers (CORS); * means any. May be given again."),
    BOOL("allow-client-shm", allow_client_shm, false,
         "Let clients on this host register POSIX shared memory for inputs and outputs: any that "
         "the "
         "daemon's user may open."),
#undef GROUP
#define GROUP "Backends and threads"
    CHOICE("backend", backend, "auto|cuda|cpu|ref", "auto",
           "What computes; auto takes the GPUs where there are any, else the CPU."),
    TEXT("devices", devices, "LIST", "all", "CUDA devices to use: all, or ordinals such as 0,2."),
    CHOICE("cpu-isa", cpu_isa, "auto|amx|avx512-vpopcnt|avx512|avx2|neon|portable", "auto",
           "Instruction set of the CPU's kernels; auto takes the best that the machine has."),
    NUMBER("workers", workers, "N", 0, 256, 0,
           "Workers of each device; 0 means 3 a GPU and one a CPU thread."),
    NUMBER("threads", threads, "N", 0, 4096, 0,
           "CPU threads for all computation together; 0 means all the process may use, by its "
           "container's quota too."),
    BOOL("cpu-pin", cpu_pin, false,
         "Keep each helper thread of the CPU's kernels on a core of its own."),
    NUMBER("http-threads", http_threads, "N", 0, 64, 0,
           "Threads that speak HTTP; 0 means by the number of cores, 1 to 8, with a GPU 1 to 16."),
    NUMBER(
        "inline-us", inline_us, "US", 0, 10000, 100,
        "A request estimated to take no longer than this, by one core or on the GPU, is computed "
        "by the HTTP thread that read it, if no other waits; 0 means never."),
    ENUM("on-device-loss", on_device_loss, "exit|cpu", XN_LOSS_EXIT,
         "When a GPU is lost: exit non-zero to be restarted, or go on with the CPU."),
    NUMBER("canary-interval-ms", canary_interval_ms, "MS", 0, DAY_MS, 10000,
           "How often each device is checked with a known result; 0 means only at start."),
#undef GROUP
#define GROUP "Batches and the queue"
    NUMBER("max-batch-images", max_batch_images, "N", 1, 65536, 256,
           "The most images that share one launch."),
    NUMBER("batch-delay-us", batch_delay_us, "US", 0, 10000000, 0,
           "How long a request may wait for others to join; 0 joins only what is waiting."),
    NUMBER("queue-depth", queue_depth, "N", 1, 1000000, 1024,
           "Requests accepted and not yet answered; more are refused with 429."),
    BYTES(
        "queue-bytes", queue_bytes, 4 * MI, 65536 * GI, GI,
        "Bodies, weights and outputs of all accepted requests, as they come to hold them, and the "
        "headers of open connections; more is refused with 429."),
    NUMBER("max-requests-per-client", max_requests_per_client, "N", 0, 1000000, 0,
           "Accepted requests of one client address, and of one key; 0 means three quarters of "
           "--queue-depth."),
    BYTES(
        "max-bytes-per-client", max_bytes_per_client, 0, 65536 * GI, 0,
        "What one client address, and one key, may hold of --queue-bytes; 0 means three quarters."),
#undef GROUP
#define GROUP "Limits of one request"
    BYTES("max-body-bytes", max_body_bytes, 1, 1024 * GI, 256 * MI, "The largest request body."),
    NUMBER("max-elements", max_elements, "N", 1, INT64_C(1) << 40, INT64_C(1) << 27,
           "The most elements of any one tensor."),
    BYTES("max-output-bytes", max_output_bytes, 1, 1024 * GI, 256 * MI,
          "The largest output tensor."),
    NUMBER("max-operations", max_operations, "N", 1, INT64_C(1000000000000000000),
           INT64_C(20000000000000), "The most multiply-adds of one convolution."),
    NUMBER("max-picture-pixels", max_picture_pixels, "N", 1, INT64_C(4290250000), INT64_C(64000000),
           "The most pixels of a picture, JPEG or PNG, as its header says, before it is decoded."),
    NUMBER("timeout-ms", timeout_ms, "MS", 1, DAY_MS, 30000,
           "The deadline of a request that names none."),
    NUMBER("max-timeout-ms", max_timeout_ms, "MS", 1, DAY_MS, 300000,
           "The longest deadline a request may name."),
#undef GROUP
#define GROUP "Connections"
    NUMBER("max-active", max_active, "N", 0, 1000000, 0,
           "Requests with a body of more than 16 KiB that are received, computed and answered at a "
           "time, and never more than --queue-depth; others wait at their headers. One counts for "
           "100 ms at most. 0 means 16 a core, at least 64."),
    NUMBER("max-connections", max_connections, "N", 1, 1000000, 1024,
           "Connections open at the same time."),
    NUMBER("max-connections-per-address", max_connections_per_address, "N", 0, 1000000, 256,
           "Connections of one client address; 0 means no limit."),
    NUMBER("header-timeout-ms", header_timeout_ms, "MS", 1, DAY_MS, 10000,
           "Time for a request's headers to arrive."),
    NUMBER("body-timeout-ms", body_timeout_ms, "MS", 1, DAY_MS, 60000,
           "Time for a request's body to arrive."),
    BYTES("body-min-rate", body_min_rate, 0, GI, KI,
          "Bytes a second a body must keep up after its first 5 seconds, and the reader of an "
          "answer; "
          "0 means any."),
    NUMBER("send-timeout-ms", send_timeout_ms, "MS", 1, DAY_MS, 20000,
           "Time for a client to take some of its answer, at least what --body-min-rate asks for; "
           "the answer is dropped after it, whatever its size."),
    NUMBER("idle-timeout-ms", idle_timeout_ms, "MS", 1, DAY_MS, 60000,
           "How long a connection may stay open between requests."),
    NUMBER("grace-ms", grace_ms, "MS", 0, DAY_MS, 30000,
           "Time to finish accepted requests after SIGTERM."),
#undef GROUP
#define GROUP "Weights"
    NUMBER("max-weights", max_weights, "N", 0, 1000000, 1024, "Registered weights, by number."),
    BYTES("max-weights-bytes", max_weights_bytes, 0, 65536 * GI, 4 * GI,
          "Host memory of all registered weights."),
    BYTES("weights-cache-bytes", weights_cache_bytes, 0, 65536 * GI, 256 * MI,
          "Host memory of inline weights kept to be recognised; 0 keeps none."),
    TEXT("weights-dir", weights_dir, "DIR", "",
         "Folder that registered weights are kept in; several daemons may share it."),
    NUMBER("weights-poll-ms", weights_poll_ms, "MS", 0, DAY_MS, 1000,
           "How often --weights-dir is looked at for changes; 0 means only at start and SIGHUP."),
#undef GROUP
#define GROUP "Answers"
    BYTES("response-cache-bytes", response_cache_bytes, 0, 65536 * GI, 0,
          "Host memory of a cache of answers: the same input, weights and parameters are not "
          "computed again; 0 has none."),
#undef GROUP
#define GROUP "Models"
    TEXT("model-repository", model_repository, "DIR", "",
         "Folder of model folders, each served under its name; read anew at SIGHUP."),
    LIST("model", models, "[NAME=]DIR",
         "Folder of a model to serve, under NAME or the name it has in itself; may be given again, "
         "or several with commas between them."),
    TEXT("version-policy", version_policy, "POLICY", "latest:1",
         "Which numbered folders of a model are served: latest:N, all, or specific:N,N; a request "
         "that names no version gets the highest of them."),
    ENUM("warmup", warmup, "on|off", XN_WARMUP_ON,
         "Whether a model is ready only once batches of 1, 8 and its most images have run on each "
         "device."),
    NUMBER("max-models", max_models, "N", 0, 100000, 256, "Models by number, loaded or not."),
    BYTES("max-models-bytes", max_models_bytes, 0, 65536 * GI, 8 * GI,
          "Host memory of all loaded models."),
    BYTES("max-image-bytes", max_image_bytes, 0, 65536 * GI, 0,
          "Host memory that a model may take between its layers for one image, at most half of "
          "--queue-bytes, which counts it; 0 means a quarter."),
#undef GROUP
#define GROUP "Logs"
    ENUM("log-format", log_format, "text|json", XN_LOG_TEXT, "Form of the log lines."),
    ENUM("log-level", log_level, "debug|info|warn|error", XN_LOG_INFO,
         "The least severe lines that are written."),
    TEXT("log-file", log_file, "FILE", "",
         "Append log lines to FILE instead of stderr; SIGHUP opens it anew."),
    ENUM("access-log", access_log, "off|text|json", XN_ACCESS_OFF,
         "A line for each request, when it is over, to where the log goes."),
#undef GROUP
#define GROUP "Traces"
    TEXT("otlp-endpoint", otlp_endpoint, "URL", "",
         "OpenTelemetry collector that spans are sent to as OTLP/HTTP JSON, such as "
         "http://127.0.0.1:4318; /v1/traces is its path where URL has none."),
    TEXT("otlp-sample", otlp_sample, "RATIO", "1",
         "Which part of requests without a traceparent is traced, from 0 to 1; one that has it "
         "is traced as its flag says."),
#undef GROUP
};
/* clang-format on */

const xn_command_flag xn_command_flags[] = {
    {"help", "", XN_COMMAND_HELP, "Show this and exit."},
    {"version", "", XN_COMMAND_VERSION, "Show the version and exit."},
    {"check-config", "", XN_COMMAND_CHECK_CONFIG,
     "Check all settings, and the files and devices they name, print them as a file, and exit."},
    {"list-devices", "", XN_COMMAND_LIST_DEVICES,
     "Show what can compute on this machine and exit."},
    {"config", "FILE", XN_COMMAND_SERVE, "Read settings from FILE. [default none, XNORD_CONFIG]"}};
const int xn_command_flag_count = sizeof xn_command_flags / sizeof xn_command_flags[0];

_Static_assert(sizeof xn_settings / sizeof xn_settings[0] <= XN_SETTINGS_MAX, "room for all");
const int xn_setting_count = sizeof xn_settings / sizeof xn_settings[0];

int xn_setting_find(const char *name, size_t length) {
    for (int i = 0; i < xn_setting_count; i++)
        if (strlen(xn_settings[i].name) == length && !memcmp(xn_settings[i].name, name, length))
            return i;
    return -1;
}

void xn_setting_environment(const xn_setting *setting, char name[XN_SETTING_ENV_MAX]) {
    snprintf(name, XN_SETTING_ENV_MAX, "XNORD_%s", setting->name);
    for (char *c = name; *c; c++)
        *c = *c == '-' ? '_' : *c >= 'a' && *c <= 'z' ? (char)(*c - 'a' + 'A') : *c;
}

static void *field_of(const xn_setting *setting, xn_config *config) {
    return (char *)config + setting->offset;
}

static void put_int(const xn_setting *setting, xn_config *config, int64_t value) {
    void *field = field_of(setting, config);
    int as_int = (int)value;
    bool as_bool = value != 0;
    if (setting->kind == XN_SETTING_BOOL)
        memcpy(field, &as_bool, sizeof as_bool);
    else if (setting->kind == XN_SETTING_ENUM)
        memcpy(field, &as_int, sizeof as_int);
    else
        memcpy(field, &value, sizeof value);
}

static int64_t get_int(const xn_setting *setting, const xn_config *config) {
    const void *field = (const char *)config + setting->offset;
    int64_t value = 0;
    int as_int = 0;
    bool as_bool = false;
    if (setting->kind == XN_SETTING_BOOL) {
        memcpy(&as_bool, field, sizeof as_bool);
        return as_bool;
    }
    if (setting->kind == XN_SETTING_ENUM) {
        memcpy(&as_int, field, sizeof as_int);
        return as_int;
    }
    memcpy(&value, field, sizeof value);
    return value;
}

void xn_setting_reset(const xn_setting *setting, xn_config *config) {
    if (setting->text)
        snprintf(field_of(setting, config), setting->size, "%s", setting->text);
    else
        put_int(setting, config, setting->initial);
}

/* ---- one value from its text ---- */

/* The position of value in "a|b|c", or -1. */
static int choice_index(const char *choices, const char *value) {
    size_t length = strlen(value);
    for (int index = 0;; index++) {
        size_t span = strcspn(choices, "|");
        if (span == length && !memcmp(choices, value, length))
            return index;
        if (!choices[span])
            return -1;
        choices += span + 1;
    }
}

static bool scale(int64_t *value, int64_t factor, int times) {
    for (int i = 0; i < times; i++)
        if (__builtin_mul_overflow(*value, factor, value))
            return false;
    return true;
}

/* A whole number with an optional "e4" (numbers) or K, M, G (bytes). */
static bool parse_number(const char *text, bool bytes, int64_t *out) {
    bool negative = *text == '-';
    int64_t value = 0;
    const char *at = text + negative;
    if (*at < '0' || *at > '9')
        return false;
    for (; *at >= '0' && *at <= '9'; at++)
        if (!scale(&value, 10, 1) || __builtin_add_overflow(value, *at - '0', &value))
            return false;
    if (bytes && *at) {
        const char *suffixes = "KkMmGg", *suffix = strchr(suffixes, *at);
        if (!suffix || at[1] || !scale(&value, KI, (int)(suffix - suffixes) / 2 + 1))
            return false;
    } else if (*at == 'e') {
        if (at[1] < '0' || at[1] > '9' || (at[2] && (at[2] < '0' || at[2] > '9' || at[3])))
            return false;
        if (!scale(&value, 10, atoi(at + 1)))
            return false;
    } else if (*at) {
        return false;
    }
    *out = negative ? -value : value;
    return true;
}

void xn_setting_show(const char *text, size_t length, char *shown, size_t size) {
    size_t n = 0;
    for (; n < length && n + 1 < size; n++)
        shown[n] = text[n] >= 0x20 && text[n] < 0x7f ? text[n] : '?';
    shown[n] = '\0';
}

static xn_status refuse(const xn_setting *setting, const char *source, const char *value,
                        const char *accepted, xn_error *error) {
    char shown[64];
    const size_t length = strlen(value);
    xn_setting_show(value, length, shown, sizeof shown);
    return xn_fail(error, XN_ERR_MALFORMED, setting->name, "%s is \"%s%s\"; accepted %s", source,
                   shown, length >= sizeof shown ? "..." : "", accepted);
}

static xn_status parse_text(const xn_setting *setting, const char *value, const char *source,
                            xn_config *config, xn_error *error) {
    size_t length = strlen(value);
    if (length >= setting->size)
        return xn_fail(error, XN_ERR_MALFORMED, setting->name,
                       "%s is %zu characters long; at most %zu are accepted", source, length,
                       setting->size - 1);
    for (const char *c = value; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return refuse(setting, source, value, "is text without control characters", error);
    memcpy(field_of(setting, config), value, length + 1);
    return XN_OK;
}

static xn_status parse_choice(const xn_setting *setting, const char *value, const char *source,
                              xn_config *config, xn_error *error) {
    char accepted[120];
    int index = choice_index(setting->choices, value);
    if (index < 0) {
        snprintf(accepted, sizeof accepted, "is one of %s", setting->choices);
        return refuse(setting, source, value, accepted, error);
    }
    if (setting->kind == XN_SETTING_CHOICE)
        snprintf(field_of(setting, config), setting->size, "%s", value);
    else
        put_int(setting, config, setting->kind == XN_SETTING_BOOL ? index == 0 : index);
    return XN_OK;
}

xn_status xn_setting_add(const xn_setting *setting, const char *value, const char *source,
                         xn_config *config, xn_error *error) {
    const char *before = field_of(setting, config);
    char both[XN_SETTING_TEXT_MAX];
    if (setting->kind != XN_SETTING_LIST || !*before)
        return xn_setting_parse(setting, value, source, config, error);
    if (snprintf(both, sizeof both, "%s,%s", before, value) >= (int)sizeof both)
        both[sizeof both - 1] = '\0'; /* longer than any field */
    return parse_text(setting, both, source, config, error);
}

xn_status xn_setting_parse(const xn_setting *setting, const char *value, const char *source,
                           xn_config *config, xn_error *error) {
    if (setting->kind == XN_SETTING_TEXT || setting->kind == XN_SETTING_LIST)
        return parse_text(setting, value, source, config, error);
    if (setting->choices)
        return parse_choice(setting, value, source, config, error);
    bool bytes = setting->kind == XN_SETTING_BYTES;
    int64_t number = 0;
    if (!parse_number(value, bytes, &number) || number < setting->low || number > setting->high) {
        char accepted[160], range[80];
        xn_setting_range(setting, range, sizeof range);
        snprintf(accepted, sizeof accepted, "is a whole number in %s%s", range,
                 bytes ? ", with K, M or G for powers of 1024" : "");
        return refuse(setting, source, value, accepted, error);
    }
    put_int(setting, config, number);
    return XN_OK;
}

/* ---- and back to text ---- */

static void format_number(int64_t value, bool bytes, char *text, size_t size) {
    static const char *const units[] = {"", "K", "M", "G"};
    int power = 0;
    int64_t base = bytes ? KI : 10;
    for (int most = bytes ? 3 : 18; value && power < most && value % base == 0; power++)
        value /= base;
    if (bytes) {
        snprintf(text, size, "%lld%s", (long long)value, units[power]);
        return;
    }
    bool huge = power >= 9; /* 2e13 reads better than its zeros, 30000 better than 3e4 */
    for (; !huge && power; power--)
        value *= 10;
    snprintf(text, size, huge ? "%llde%d" : "%lld", (long long)value, power);
}

void xn_setting_range(const xn_setting *setting, char *text, size_t size) {
    bool bytes = setting->kind == XN_SETTING_BYTES;
    char low[32], high[32];
    format_number(setting->low, bytes, low, sizeof low);
    format_number(setting->high, bytes, high, sizeof high);
    if (setting->choices)
        snprintf(text, size, "%s", setting->choices);
    else if (setting->kind == XN_SETTING_TEXT || setting->kind == XN_SETTING_LIST)
        text[0] = 0;
    else
        snprintf(text, size, "%s..%s", low, high);
}

/* Text as it is, or in quotes where the file's syntax would read it otherwise. */
static void format_text(const char *value, char text[XN_SETTING_TEXT_MAX]) {
    size_t length = strlen(value), n = 0;
    assert(2 * length + 3 <= XN_SETTING_TEXT_MAX);
    bool plain = !length || (value[0] != ' ' && value[0] != '"' && value[length - 1] != ' ' &&
                             !strchr(value, '#'));
    if (plain) {
        memcpy(text, value, length + 1);
        return;
    }
    text[n++] = '"';
    for (const char *c = value; *c; c++) {
        if (*c == '"' || *c == '\\')
            text[n++] = '\\';
        text[n++] = *c;
    }
    text[n++] = '"';
    text[n] = 0;
}

void xn_setting_format(const xn_setting *setting, const xn_config *config,
                       char text[XN_SETTING_TEXT_MAX]) {
    const char *field = (const char *)config + setting->offset;
    if (setting->text) {
        format_text(field, text);
    } else if (setting->choices) {
        int64_t index = get_int(setting, config);
        const char *at = setting->choices;
        for (index = setting->kind == XN_SETTING_BOOL ? !index : index; index > 0; index--)
            at += strcspn(at, "|") + 1;
        snprintf(text, XN_SETTING_TEXT_MAX, "%.*s", (int)strcspn(at, "|"), at);
    } else {
        format_number(get_int(setting, config), setting->kind == XN_SETTING_BYTES, text,
                      XN_SETTING_TEXT_MAX);
    }
}

/* ---- the whole table as text ---- */

#define HELP_COLUMN 36
#define HELP_WIDTH 100

/* Writes words from the current column on, wrapped, and ends the line. */
static void wrap(FILE *out, const char *text, int column) {
    const char *gap = "";
    while (*text) {
        int span = (int)strcspn(text, " ");
        if (column + (int)strlen(gap) + span > HELP_WIDTH) {
            fprintf(out, "\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
            gap = "";
        }
        fprintf(out, "%s%.*s", gap, span, text);
        column += (int)strlen(gap) + span;
        gap = " ";
        text += span + (text[span] == ' ');
    }
    fputc('\n', out);
}

void xn_config_default(xn_config *config) {
    memset(config, 0, sizeof *config);
    for (int i = 0; i < xn_setting_count; i++)
        xn_setting_reset(&xn_settings[i], config);
    (void)xn_version_policy_parse(config->version_policy, &config->versions, NULL);
    (void)xn_otlp_sample_parse(config->otlp_sample, &config->otlp_ids, NULL);
}

static void help_row(FILE *out, const char *flag, const char *argument, const char *help) {
    char left[HELP_COLUMN];
    snprintf(left, sizeof left, "  --%s %s", flag, argument);
    fprintf(out, "%-*s", HELP_COLUMN, left);
    wrap(out, help, HELP_COLUMN);
}

static void help_setting(FILE *out, const xn_setting *setting) {
    char range[80], facts[320], name[XN_SETTING_ENV_MAX], value[XN_SETTING_TEXT_MAX];
    xn_config defaults;
    xn_config_default(&defaults);
    xn_setting_range(setting, range, sizeof range);
    xn_setting_environment(setting, name);
    xn_setting_format(setting, &defaults, value);
    snprintf(facts, sizeof facts, "[default %.100s, %s%s%s]", *value ? value : "none", range,
             *range ? ", " : "", name);
    help_row(out, setting->name, setting->argument, setting->help);
    fprintf(out, "%*s", HELP_COLUMN, "");
    wrap(out, facts, HELP_COLUMN);
}

void xn_config_help(FILE *out) {
    fputs("xnord " XN_VERSION ": XNOR (1-bit) convolution over HTTP, on GPU and CPU.\n\n"
          "Usage: xnord [--FLAG VALUE]...\n"
          "       xnord --check-config|--list-devices [--FLAG VALUE]...\n\n"
          "A flag stands over its environment variable, that over the configuration file, that\n"
          "over the default. The file has a line \"flag = value\" for each setting, the flag\n"
          "without its dashes, and comments after '#'.\n\nCommands:\n",
          out);
    for (int i = 0; i < xn_command_flag_count; i++)
        help_row(out, xn_command_flags[i].name, xn_command_flags[i].argument,
                 xn_command_flags[i].help);
    for (int i = 0; i < xn_setting_count; i++) {
        if (!i || strcmp(xn_settings[i].group, xn_settings[i - 1].group))
            fprintf(out, "\n%s:\n", xn_settings[i].group);
        help_setting(out, &xn_settings[i]);
    }
}

void xn_config_print(const xn_config *config, FILE *out) {
    char value[XN_SETTING_TEXT_MAX];
    for (int i = 0; i < xn_setting_count; i++) {
        if (!i || strcmp(xn_settings[i].group, xn_settings[i - 1].group))
            fprintf(out, "%s# %s\n", i ? "\n" : "", xn_settings[i].group);
        xn_setting_format(&xn_settings[i], config, value);
        fprintf(out, "%s =%s%s\n", xn_settings[i].name, *value ? " " : "", value);
    }
}
