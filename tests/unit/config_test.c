/* config_test.c: the table of settings and its four sources. --list-devices loads without the
 * checks between settings, so single settings are tested with it. */
#include "config_settings.h"
#include "xn_mem.h"
#include "xn_test.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define WORDS_MAX 12
#define TEXT_BYTES (64 * 1024)

static char file_path[64]; /* of the test's own configuration file */
static char text[TEXT_BYTES];

static void write_file(const void *bytes, size_t length) {
    snprintf(file_path, sizeof file_path, "/tmp/xnord-config-XXXXXX");
    int fd = mkstemp(file_path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, bytes, length), (ssize_t)length);
    close(fd);
}

static void remove_file(void) {
    if (file_path[0])
        unlink(file_path);
    file_path[0] = 0;
}

/* Loads from words as typed in a shell (no quoting); file: contents of a --config file, or NULL. */
static xn_status load(const char *flags, const char *environment, const char *file, xn_config *out,
                      xn_command *command, xn_error *error) {
    char words[2][1024], *list[2][WORDS_MAX + 4];
    int counts[2] = {0, 0};
    snprintf(words[0], sizeof words[0], "xnord %s", flags ? flags : "");
    snprintf(words[1], sizeof words[1], "%s", environment ? environment : "");
    for (int i = 0; i < 2; i++) {
        char *rest = NULL;
        for (char *w = strtok_r(words[i], " ", &rest); w; w = strtok_r(NULL, " ", &rest)) {
            ck_assert_int_lt(counts[i], WORDS_MAX);
            list[i][counts[i]++] = w;
        }
    }
    char config_flag[] = "--config";
    if (file) {
        write_file(file, strlen(file));
        list[0][counts[0]++] = config_flag;
        list[0][counts[0]++] = file_path;
    }
    list[0][counts[0]] = list[1][counts[1]] = NULL;
    xn_status status = xn_config_load(counts[0], list[0], list[1], out, command, error);
    if (file)
        remove_file();
    return status;
}

static void load_ok(const char *flags, const char *environment, const char *file, xn_config *out) {
    xn_command command = XN_COMMAND_SERVE;
    xn_error error = {0};
    xn_status status = load(flags, environment, file, out, &command, &error);
    ck_assert_msg(status == XN_OK, "%s | %s | %s: %s", flags, environment, file ? file : "no file",
                  error.message);
}

static const char *print(const xn_config *config) {
    FILE *out = fmemopen(text, sizeof text, "w");
    ck_assert_ptr_nonnull(out);
    xn_config_print(config, out);
    fclose(out);
    return text;
}

/* Every byte of xn_config in front of what is read of texts belongs to one row, but for padding. */
START_TEST(table_covers_the_structure_once) {
    unsigned char owners[sizeof(xn_config)] = {0};
    for (int i = 0; i < xn_setting_count; i++) {
        const xn_setting *s = &xn_settings[i];
        for (size_t b = 0; b < s->size; b++)
            ck_assert_msg(!owners[s->offset + b]++, "%s shares its field", s->name);
        ck_assert_int_eq(xn_setting_find(s->name, strlen(s->name)), i);
        ck_assert_int_eq(xn_setting_find(s->name, strlen(s->name) - 1), -1);
        ck_assert(s->initial >= s->low || s->text || s->choices);
        ck_assert(s->initial <= s->high || s->text || s->choices);
        ck_assert_msg(s->help[strlen(s->help) - 1] == '.', "%s: no sentence", s->name);
        ck_assert_uint_lt(strlen(s->name) + strlen("XNORD_"), XN_SETTING_ENV_MAX);
    }
    for (size_t b = 0, gap = 0; b < offsetof(xn_config, versions); b++) {
        gap = owners[b] ? 0 : gap + 1;
        ck_assert_msg(gap < sizeof(int64_t), "no setting for the field at %zu", b - gap + 1);
    }
}
END_TEST

/* A value other than the default, as a user would write it. */
static const char *sample(const xn_setting *s, char value[64]) {
    const char *bar = s->choices ? strrchr(s->choices, '|') : NULL;
    if (s->kind == XN_SETTING_BOOL)
        snprintf(value, 64, "true");
    else if (bar)
        snprintf(value, 64, "%s", bar + 1);
    else if (s->text)
        snprintf(value, 64, "some/text.pem");
    else
        snprintf(value, 64, "%lld", (long long)s->high - 1);
    return value;
}

START_TEST(each_setting_from_each_source) {
    const xn_setting *s = &xn_settings[_i];
    char value[64], name[XN_SETTING_ENV_MAX], words[256], got[XN_SETTING_TEXT_MAX],
        want[XN_SETTING_TEXT_MAX];
    xn_config expected, c;
    xn_error error = {0};
    xn_config_default(&expected);
    xn_setting_format(s, &expected, got);
    ck_assert_int_eq(xn_setting_parse(s, sample(s, value), "test", &expected, &error), XN_OK);
    xn_setting_format(s, &expected, want);
    ck_assert_str_ne(got, want);

    snprintf(words, sizeof words, "--list-devices --%s %s", s->name, value);
    load_ok(words, "", NULL, &c);
    ck_assert_mem_eq(&c, &expected, sizeof c);
    snprintf(words, sizeof words, "--%s=%s --list-devices", s->name, value);
    load_ok(words, "", NULL, &c);
    ck_assert_mem_eq(&c, &expected, sizeof c);
    xn_setting_environment(s, name);
    snprintf(words, sizeof words, "%s=%s", name, value);
    load_ok("--list-devices", words, NULL, &c);
    ck_assert_mem_eq(&c, &expected, sizeof c);
    snprintf(words, sizeof words, "%s = %s\n", s->name, value);
    load_ok("--list-devices", "", words, &c);
    ck_assert_mem_eq(&c, &expected, sizeof c);
}
END_TEST

START_TEST(flag_over_environment_over_file_over_default) {
    static const struct {
        const char *flags, *environment, *file;
        int64_t port;
    } cases[] = {{"--port 3", "XNORD_PORT=2", "port=1", 3},
                 {"", "XNORD_PORT=2", "port=1", 2},
                 {"", "", "port=1", 1},
                 {"", "", "", 8080},
                 {"--port=3", "", "port=1", 3},
                 {"--port 3 --port 4", "", "", 4},
                 {"", "XNORD_PORT=", "port=1", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        xn_config c;
        load_ok(cases[i].flags, cases[i].environment, cases[i].file, &c);
        ck_assert_msg(c.port == cases[i].port, "case %zu: port %lld", i, (long long)c.port);
    }
}
END_TEST

/* Of one source all are taken, with commas between; another source's come in their place. */
START_TEST(lists_of_models) {
    static const struct {
        const char *flags, *environment, *file, *models;
    } cases[] = {
        {"--model a=/m", "", NULL, "a=/m"},
        {"--model a=/m --model /n --model=b=/o=p", "", NULL, "a=/m,/n,b=/o=p"},
        {"--model a=/m,/n --model b=o", "", NULL, "a=/m,/n,b=o"},
        {"", "XNORD_MODEL=a=/m,b=/n", "model = c=/o", "a=/m,b=/n"},
        {"", "", "model = a=/m\nport = 1\nmodel = b=/n, \n", "a=/m,b=/n,"},
        {"--model z=/z", "XNORD_MODEL=a=/m,b=/n", "model = c=/o", "z=/z"},
        {"--model=", "XNORD_MODEL=a=/m", NULL, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        xn_config c;
        load_ok(i == 4 ? "--list-devices" : cases[i].flags, cases[i].environment, cases[i].file,
                &c);
        ck_assert_str_eq(c.models, cases[i].models);
    }
    const xn_setting *setting = &xn_settings[xn_setting_find("model", strlen("model"))];
    char many[XN_SETTING_TEXT_MAX];
    xn_config c = {0};
    xn_error error = {0};
    memset(many, 'm', sizeof many);
    many[1000] = '\0';
    ck_assert_int_eq(xn_setting_add(setting, many, "--model", &c, &error), XN_OK);
    ck_assert_int_eq(xn_setting_add(setting, many, "--model", &c, &error), XN_ERR_MALFORMED);
    ck_assert_ptr_nonnull(strstr(error.message, "2001 characters long; at most 1535"));
    many[1000] = 'm';
    many[sizeof many - 1] = '\0';
    ck_assert_int_eq(xn_setting_add(setting, many, "--model", &c, &error), XN_ERR_MALFORMED);
    const char *list = "a=/m,/n,b=/o=p";
    xn_config_model model;
    ck_assert(xn_config_next_model(&list, &model));
    ck_assert(!strcmp(model.name, "a") && !strcmp(model.folder, "/m"));
    ck_assert(xn_config_next_model(&list, &model));
    ck_assert(!strcmp(model.name, "") && !strcmp(model.folder, "/n"));
    ck_assert(xn_config_next_model(&list, &model));
    ck_assert(!strcmp(model.name, "b") && !strcmp(model.folder, "/o=p"));
    ck_assert(!xn_config_next_model(&list, &model));
}
END_TEST

START_TEST(file_named_by_the_environment) {
    char variable[128];
    xn_config c;
    write_file("port = 77\n", 10);
    snprintf(variable, sizeof variable, "XNORD_CONFIG=%s", file_path);
    load_ok("", variable, NULL, &c);
    ck_assert_int_eq(c.port, 77);
    remove_file();
    load_ok("", "XNORD_CONFIG=", NULL, &c);
    ck_assert_int_eq(c.port, 8080);
}
END_TEST

START_TEST(commands) {
    static const struct {
        const char *flags;
        xn_command command;
    } cases[] = {{"", XN_COMMAND_SERVE},
                 {"--help", XN_COMMAND_HELP},
                 {"-h", XN_COMMAND_HELP},
                 {"--version", XN_COMMAND_VERSION},
                 {"-V", XN_COMMAND_VERSION},
                 {"--check-config --port 1", XN_COMMAND_CHECK_CONFIG},
                 {"--port 1 --list-devices", XN_COMMAND_LIST_DEVICES},
                 {"--listen 0.0.0.0 --list-devices", XN_COMMAND_LIST_DEVICES},
                 {"--port 99999999 --nonsense --help", XN_COMMAND_HELP}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        xn_config c;
        xn_command command = XN_COMMAND_SERVE;
        xn_error error = {0};
        ck_assert_int_eq(load(cases[i].flags, "", NULL, &c, &command, &error), XN_OK);
        ck_assert_msg(command == cases[i].command, "%s: %d", cases[i].flags, command);
    }
}
END_TEST

START_TEST(booleans_and_numbers_in_their_forms) {
    xn_config c;
    load_ok("--allow-unauthenticated --port 1", "", NULL, &c);
    ck_assert(c.allow_unauthenticated);
    load_ok("--allow-unauthenticated true --port 1", "", NULL, &c);
    ck_assert(c.allow_unauthenticated);
    load_ok("--allow-unauthenticated false", "XNORD_ALLOW_UNAUTHENTICATED=true", NULL, &c);
    ck_assert(!c.allow_unauthenticated);
    load_ok("--allow-unauthenticated=false", "", "allow-unauthenticated = true", &c);
    ck_assert(!c.allow_unauthenticated);
    load_ok("--queue-bytes 8192K --max-body-bytes 2m --max-output-bytes 1g --max-weights-bytes 7",
            "", NULL, &c);
    ck_assert_int_eq(c.queue_bytes, 8388608);
    ck_assert_int_eq(c.max_body_bytes, 2097152);
    ck_assert_int_eq(c.max_output_bytes, 1073741824);
    ck_assert_int_eq(c.max_weights_bytes, 7);
    load_ok("--max-operations 4e6 --max-elements 12e0", "", NULL, &c);
    ck_assert_int_eq(c.max_operations, 4000000);
    ck_assert_int_eq(c.max_elements, 12);
}
END_TEST

START_TEST(file_syntax) {
    xn_config c;
    load_ok("", "",
            "# a comment\r\n\r\n  port=5   # here too\r\n\tthreads\t=\t7\n"
            "tls-cert = \"/a b/#\\\"c\\\\d \" # quoted\ntls-key = /x#y\napi-keys-file =\n"
            "devices = 1,0",
            &c);
    ck_assert_int_eq(c.port, 5);
    ck_assert_int_eq(c.threads, 7);
    ck_assert_str_eq(c.tls_cert, "/a b/#\"c\\d ");
    ck_assert_str_eq(c.tls_key, "/x#y");
    ck_assert_str_eq(c.api_keys_file, "");
    ck_assert_str_eq(c.devices, "1,0");
}
END_TEST

START_TEST(service_links_are_not_settings) {
    xn_config c;
    load_ok("",
            "XNORD_PORT=tcp://10.0.0.1:8080 XNORD_SERVICE_HOST=10.0.0.1 XNORD_SERVICE_PORT=8080 "
            "XNORD_SERVICE_PORT_HTTP=8080 XNORD_PORT_8080_TCP=tcp://10.0.0.1:8080 "
            "XNORD_PORT_8080_TCP_PORT=8080 XNORD_PORT_8080_TCP_PROTO=tcp "
            "XNORD_PORT_8080_TCP_ADDR=10.0.0.1 XNORD_TEST_SEED=1 XNORD_BIN=x XNORDIC=y PATH=/bin",
            NULL, &c);
    ck_assert_int_eq(c.port, 8080);
}
END_TEST

#define LONG_TEXT                                                                                  \
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890"  \
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890"  \
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890"

#define VERY_LONG_TEXT                                                                             \
    LONG_TEXT LONG_TEXT LONG_TEXT LONG_TEXT LONG_TEXT LONG_TEXT LONG_TEXT LONG_TEXT LONG_TEXT      \
        LONG_TEXT LONG_TEXT LONG_TEXT LONG_TEXT

/* Each is refused, and the message says all of `says` (separated by '|'). */
static const struct {
    const char *flags, *environment, *file, *says;
} bad[] = {
    {"--port 65536", "", NULL, "--port|\"65536\"|0..65535"},
    {"--port -1", "", NULL, "--port|\"-1\"|0..65535"},
    {"--port 80x", "", NULL, "--port|80x"},
    {"--port=", "", NULL, "--port|\"\""},
    {"--port", "", NULL, "--port needs a value"},
    {"--tls-cert --tls-key", "", NULL, "--tls-cert needs a value"},
    {"--port 99999999999999999999999", "", NULL, "--port|0..65535"},
    {"--port 0x50", "", NULL, "--port|0x50"},
    {"--port 1e", "", NULL, "--port|1e"},
    {"--port 1e123", "", NULL, "--port|1e123"},
    {"--max-operations 1e19", "", NULL, "--max-operations|1..1e18"},
    {"--max-body-bytes 0", "", NULL, "--max-body-bytes|1..1024G"},
    {"--max-body-bytes 5Q", "", NULL, "--max-body-bytes|5Q|K, M or G"},
    {"--max-body-bytes 5KB", "", NULL, "--max-body-bytes|5KB"},
    {"--max-body-bytes 99999999999999999G", "", NULL, "--max-body-bytes|1024G"},
    {"--max-connections 5K", "", NULL, "--max-connections|5K"},
    {"--backend gpu", "", NULL, "--backend|gpu|auto|cuda|cpu|ref"},
    {"--backend aut", "", NULL, "--backend|aut"},
    {"--log-level=", "", NULL, "--log-level|debug|info|warn|error"},
    {"--allow-unauthenticated=yes", "", NULL, "--allow-unauthenticated|yes|true|false"},
    {"--devices 0,0", "", NULL, "--devices|0,0|twice"},
    {"--devices 0,", "", NULL, "--devices|all|0,2"},
    {"--devices ,1", "", NULL, "--devices"},
    {"--devices 256", "", NULL, "--devices|256|255"},
    {"--devices 99999999999", "", NULL, "--devices"},
    {"--devices=", "", NULL, "--devices"},
    {"--devices gpu0", "", NULL, "--devices|gpu0"},
    {"--listen localhost", "", NULL, "--listen|localhost|numeric"},
    {"--listen 127.0.0.1:80", "", NULL, "--listen|127.0.0.1:80"},
    {"--listen=", "", NULL, "--listen"},
    {"--listen 0.0.0.0", "", NULL, "--listen|0.0.0.0|--allow-unauthenticated|--api-keys-file"},
    {"", "XNORD_LISTEN=::", NULL, "XNORD_LISTEN|::|--allow-unauthenticated"},
    {"--tls-cert a.pem", "", NULL, "--tls-cert|without tls-key"},
    {"", "", "\n\ntls-key = a.pem", ":3: tls-key|without tls-cert"},
    {"--timeout-ms 5 --max-timeout-ms 4", "", NULL, "--timeout-ms is 5|--max-timeout-ms|is 4"},
    {"", "XNORD_MAX_TIMEOUT_MS=9", NULL, "timeout-ms (default) is 30000|XNORD_MAX_TIMEOUT_MS"},
    {"--tls-cert=" LONG_TEXT, "", NULL, "--tls-cert|273 characters|255"},
    {"--prot 1", "", NULL, "no flag --prot|--port"},
    {"--zzzzzzzzzz", "", NULL, "no flag --zzzzzzzzzz|--help"},
    {"--" LONG_TEXT, "", NULL, "no flag --0123"},
    {"port", "", NULL, "\"port\" is not a flag"},
    {"-p 1", "", NULL, "\"-p\" is not a flag"},
    {"--", "", NULL, "\"--\" is not a flag"},
    {"--=1", "", NULL, "not a flag"},
    {"--check-config=1", "", NULL, "--check-config takes no value"},
    {"--config", "", NULL, "--config needs a value"},
    {"--config=", "", NULL, "--config is empty"},
    {"--config /nonexistent/x.conf", "", NULL, "/nonexistent/x.conf|No such file"},
    {"--config /tmp", "", NULL, "/tmp|directory"},
    {"", "XNORD_CONFIG=/nonexistent/y.conf", NULL, "/nonexistent/y.conf"},
    {"", "XNORD_QUEUE_DEPT=1", NULL, "XNORD_QUEUE_DEPT|did you mean XNORD_QUEUE_DEPTH"},
    {"", "XNORD_port=1", NULL, "XNORD_port"},
    {"", "XNORD_PORT=abc", NULL, "XNORD_PORT|abc|0..65535"},
    {"", "XNORD_PORT_X=1", NULL, "XNORD_PORT_X"},
    {"", "XNORD_" LONG_TEXT "=1", NULL, "no environment variable XNORD_0123"},
    {"", "", "port = 1\nport = 2", ":2: port is given twice|line 1"},
    {"", "", "prot = 1", ":1: there is no setting \"prot\"|did you mean port"},
    {"", "", "config = x", ":1: there is no setting"},
    {"", "", "help = true", ":1: there is no setting"},
    {"", "", "--port = 1", ":1: there is no setting"},
    {"", "", "= 1", ":1: there is no setting"},
    {"", "", "port", ":1: not a setting|key = value"},
    {"", "", "port =", ":1: port|\"\""},
    {"", "", "\n\n port = 9 9", ":3: port|9 9"},
    {"", "", "port = 70000", ":1: port|70000|0..65535"},
    {"", "", "tls-cert = \"abc", ":1: the value of tls-cert|quotes"},
    {"", "", "tls-cert = \"abc\" def", ":1: the value of tls-cert|quotes"},
    {"", "", "tls-cert = \"abc\\\"", ":1: the value of tls-cert|quotes"},
    {"", "", "tls-cert = a\tb", ":1: tls-cert|control characters"},
    {"", "", "tls-cert = " LONG_TEXT LONG_TEXT LONG_TEXT, ":1: tls-cert|819 characters|255"},
    {"", "", "tls-cert = " VERY_LONG_TEXT, ":1: the value of tls-cert|longer"},
    {"--model a=/m --model a=/n", "", NULL, "--model has two folders for the name \"a\""},
    {"--model /m,a=/n,/o,a=/p", "", NULL, "--model has two folders for the name \"a\""},
    {"", "XNORD_MODEL=a=/m,,b=/n", NULL, "XNORD_MODEL has \"\"|0 characters|NAME=DIR"},
    {"", "XNORD_MODEL=a=/m,", NULL, "XNORD_MODEL has \"\"|0 characters"},
    {"", "XNORD_MODEL=,a=/m", NULL, "XNORD_MODEL has \"\""},
    {"--model a=", "", NULL, "--model has \"a=\"|0 characters"},
    {"--model a/b=/m", "", NULL, "--model has \"a/b=/m\"|whose name is none"},
    {"--model ..=/m", "", NULL, "--model has \"..=/m\"|not . or .."},
    {"--model ==", "", NULL, "whose name is none"},
    {"--model 0" LONG_TEXT "=/m", "", NULL, "whose name is none|1 to 128"},
    {"--model a=" LONG_TEXT, "", NULL, "--model has|273 characters|1 to 255"},
    {"", "", "model = a=/m\nmodel = a=/n", ":2: model has two folders for the name \"a\""},
    {"--max-models-bytes 1T", "", NULL, "--max-models-bytes|0..65536G"},
    {"--otlp-endpoint https://a:4318", "", NULL, "--otlp-endpoint is \"https://a:4318\"|https"},
    {"", "XNORD_OTLP_ENDPOINT=a:4318", NULL,
     "XNORD_OTLP_ENDPOINT is|scheme is not http|http://HOST"},
    {"--otlp-sample 1.5", "", NULL, "--otlp-sample is \"1.5\"|from 0 to 1"},
};

START_TEST(refused_with_source_value_and_limit) {
    xn_config c, untouched;
    xn_command command = XN_COMMAND_LIST_DEVICES;
    xn_error error = {0};
    char says[256], *rest = NULL;
    memset(&c, 0x5a, sizeof c);
    memcpy(&untouched, &c, sizeof c);
    xn_status status = load(bad[_i].flags, bad[_i].environment, bad[_i].file, &c, &command, &error);
    ck_assert_msg(status == XN_ERR_MALFORMED || status == XN_ERR_IO, "%s %s %s: accepted",
                  bad[_i].flags, bad[_i].environment, bad[_i].file ? bad[_i].file : "no file");
    ck_assert_int_eq(error.status, status);
    ck_assert_mem_eq(&c, &untouched, sizeof c);
    ck_assert_int_eq(command, XN_COMMAND_LIST_DEVICES);
    snprintf(says, sizeof says, "%s", bad[_i].says);
    for (char *part = strtok_r(says, "|", &rest); part; part = strtok_r(NULL, "|", &rest))
        ck_assert_msg(strstr(error.message, part) != NULL, "no \"%s\" in: %s", part, error.message);
    for (const char *m = error.message; *m; m++)
        ck_assert_msg(*m >= 0x20 && *m < 0x7f, "control character in: %s", error.message);
}
END_TEST

START_TEST(files_of_zeros_and_of_many_bytes) {
    static char bytes[256 * 1024 + 2];
    xn_config c;
    xn_command command;
    xn_error error = {0};
    char flag[] = "--config";
    char *argv[] = {flag, flag, file_path, NULL};
    write_file("port = 1\0x", 10);
    ck_assert_int_eq(xn_config_load(3, argv, NULL, &c, &command, &error), XN_ERR_MALFORMED);
    remove_file();
    memset(bytes, '\n', sizeof bytes);
    write_file(bytes, sizeof bytes);
    ck_assert_int_eq(xn_config_load(3, argv, NULL, &c, &command, &error), XN_ERR_MALFORMED);
    ck_assert_ptr_nonnull(strstr(error.message, "262144"));
    remove_file();
    write_file(bytes, 256 * 1024);
    ck_assert_int_eq(xn_config_load(3, argv, NULL, &c, &command, &error), XN_OK);
    remove_file();
}
END_TEST

START_TEST(no_memory_for_the_file) {
    atomic_int countdown = 0;
    xn_config c;
    xn_command command = XN_COMMAND_SERVE;
    xn_error error = {0};
    xn_mem_set_hook(xn_test_count_down, &countdown);
    xn_status status = load("", "", "port = 1", &c, &command, &error);
    xn_mem_set_hook(NULL, NULL);
    ck_assert_int_eq(status, XN_ERR_NO_MEMORY);
    ck_assert_ptr_nonnull(strstr(error.message, "no memory"));
}
END_TEST

/* A random value of a setting, of all that its parser accepts. */
static void randomise(const xn_setting *s, xn_rng *rng, xn_config *config) {
    static const char letters[] = "ab/._- #\"\\=,0\xc3\xa9";
    char value[300];
    xn_error error = {0};
    if (s->kind == XN_SETTING_TEXT) {
        size_t length = xn_rng_below(rng, s->size < 40 ? s->size : 40);
        for (size_t i = 0; i < length; i++)
            value[i] = letters[xn_rng_below(rng, sizeof letters - 1)];
        value[length] = 0;
    } else if (s->choices) {
        const char *at = s->choices;
        for (uint64_t skip = xn_rng_below(rng, 4); skip && strchr(at, '|'); skip--)
            at = strchr(at, '|') + 1;
        snprintf(value, sizeof value, "%.*s", (int)strcspn(at, "|"), at);
    } else {
        uint64_t span = (uint64_t)(s->high - s->low) + 1;
        int64_t n = s->low + (int64_t)xn_rng_below(rng, span);
        n = xn_rng_below(rng, 3) ? n : n / 1024 * 1024;
        n = xn_rng_below(rng, 3) || n < 1000000000 ? n : n / 1000000000 * 1000000000;
        snprintf(value, sizeof value, "%lld", (long long)(n < s->low ? s->low : n));
    }
    ck_assert_msg(xn_setting_parse(s, value, "test", config, &error) == XN_OK, "%s: %s", value,
                  error.message);
}

START_TEST(printed_configuration_reads_back) {
    xn_rng rng = {xn_test_seed()};
    for (int round = 0; round < 200; round++) {
        xn_config c, again;
        xn_config_default(&c);
        for (int i = 0; round && i < xn_setting_count; i++)
            randomise(&xn_settings[i], &rng, &c);
        load_ok("--list-devices", "", print(&c), &again);
        for (int i = 0; i < xn_setting_count; i++) {
            const xn_setting *s = &xn_settings[i];
            const char *a = (const char *)&c + s->offset, *b = (const char *)&again + s->offset;
            bool same = s->text ? !strcmp(a, b) : !memcmp(a, b, s->size);
            ck_assert_msg(same, "seed %llu round %d: %s differs",
                          (unsigned long long)xn_test_seed(), round, s->name);
        }
    }
}
END_TEST

START_TEST(help_lists_every_setting_within_100_columns) {
    FILE *out = fmemopen(text, sizeof text, "w");
    ck_assert_ptr_nonnull(out);
    xn_config_help(out);
    fclose(out);
    xn_config defaults;
    xn_config_default(&defaults);
    for (int i = 0; i < xn_setting_count; i++) {
        char flag[64], name[XN_SETTING_ENV_MAX + 2], initial[XN_SETTING_TEXT_MAX + 16],
            value[XN_SETTING_TEXT_MAX];
        snprintf(flag, sizeof flag, "\n  --%s ", xn_settings[i].name);
        const char *at = strstr(text, flag);
        ck_assert_msg(at != NULL, "no %s", flag);
        const char *end = strstr(at + 1, "\n  --");
        xn_setting_environment(&xn_settings[i], name);
        strcat(name, "]");
        xn_setting_format(&xn_settings[i], &defaults, value);
        snprintf(initial, sizeof initial, "default %s,", *value ? value : "none");
        const char *found = strstr(at, name);
        ck_assert_msg(found && (!end || found < end), "no %s under %s", name, flag);
        found = strstr(at, initial);
        ck_assert_msg(found && (!end || found < end), "no %s under %s", initial, flag);
    }
    static const char *const others[] = {"--help",         "--version",     "--check-config",
                                         "--list-devices", "--config FILE", "XNORD_CONFIG",
                                         "Usage:"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        ck_assert_msg(strstr(text, others[i]) != NULL, "no %s", others[i]);
    for (char *line = text; *line; line += strcspn(line, "\n") + 1)
        ck_assert_msg(strcspn(line, "\n") <= 100, "too wide: %.*s", (int)strcspn(line, "\n"), line);
}
END_TEST

START_TEST(loopback_addresses) {
    static const struct {
        const char *listen;
        bool loopback;
    } cases[] = {{"127.0.0.1", true},
                 {"127.8.9.10", true},
                 {"::1", true},
                 {"::ffff:127.0.0.1", true},
                 {"0.0.0.0", false},
                 {"::", false},
                 {"192.168.1.1", false},
                 {"128.0.0.1", false},
                 {"::ffff:1.2.3.4", false},
                 {"::2", false},
                 {"localhost", false},
                 {"", false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        xn_config c;
        xn_config_default(&c);
        snprintf(c.listen, sizeof c.listen, "%s", cases[i].listen);
        ck_assert_msg(xn_config_is_loopback(&c) == cases[i].loopback, "%s", cases[i].listen);
    }
    xn_config c;
    load_ok("--listen 0.0.0.0 --allow-unauthenticated", "", NULL, &c);
    load_ok("--listen :: --api-keys-file keys", "", NULL, &c);
}
END_TEST

/* What deploy/xnord.conf.example must be after its opening comment: each setting with its sentence
 * and its default, commented out. */
static void write_example(FILE *out) {
    xn_config defaults;
    xn_config_default(&defaults);
    for (int i = 0; i < xn_setting_count; i++) {
        const xn_setting *s = &xn_settings[i];
        char value[XN_SETTING_TEXT_MAX], range[80];
        if (!i || strcmp(s->group, xn_settings[i - 1].group))
            fprintf(out, "\n# ---- %s ----\n", s->group);
        xn_setting_format(s, &defaults, value);
        xn_setting_range(s, range, sizeof range);
        fprintf(out, "\n# %s%s%s\n#%s =%s%s\n", s->help, *range ? " " : "", range, s->name,
                *value ? " " : "", value);
    }
}

/* The file is found from the folder of the sources or, failing that, of the program. */
static FILE *open_example(void) {
    static const char name[] = "deploy/xnord.conf.example";
    char path[PATH_MAX + 64];
    FILE *file = fopen(name, "r");
    if (file)
        return file;
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
    if (length <= 0)
        return NULL;
    path[length] = 0;
    dirname(path);
    strcat(strcat(path, "/../"), name);
    return fopen(path, "r");
}

START_TEST(threads_that_speak_http) {
    static const struct {
        int given, cores, on_cpu, on_gpu;
    } cases[] = {
        {0, 1, 1, 1},    {0, 2, 2, 2},   {0, 8, 8, 8},    {0, 10, 8, 8},
        {0, 12, 8, 9},   {0, 16, 8, 12}, {0, 20, 8, 15},  {0, 22, 8, 16},
        {0, 192, 8, 16}, {3, 192, 3, 3}, {64, 1, 64, 64},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const xn_config c = {.http_threads = cases[i].given};
        ck_assert_int_eq(xn_config_http_threads(&c, cases[i].cores, false), cases[i].on_cpu);
        ck_assert_int_eq(xn_config_http_threads(&c, cases[i].cores, true), cases[i].on_gpu);
    }
}
END_TEST

START_TEST(example_file_has_every_setting_at_its_default) {
    static char file[TEXT_BYTES];
    FILE *in = open_example();
    ck_assert_msg(in != NULL, "no deploy/xnord.conf.example; run this from the repository");
    size_t length = fread(file, 1, sizeof file - 1, in);
    fclose(in);
    file[length] = 0;
    FILE *out = fmemopen(text, sizeof text, "w");
    ck_assert_ptr_nonnull(out);
    write_example(out);
    fclose(out);
    const char *settings = strstr(file, "\n# ---- ");
    ck_assert_ptr_nonnull(settings);
    ck_assert_str_eq(settings, text);

    xn_config c, defaults;
    xn_config_default(&defaults);
    load_ok("", "", file, &c);
    ck_assert_mem_eq(&c, &defaults, sizeof c);
    /* With its settings uncommented it says the same: that the defaults are stated truly. */
    for (char *at = file; (at = strstr(at, "\n#")); at++)
        if (at[2] != ' ')
            at[1] = ' ';
    load_ok("", "", file, &c);
    ck_assert_mem_eq(&c, &defaults, sizeof c);
}
END_TEST

XN_SUITE(config) {
    Suite *s = suite_create("config");
    TCase *t = tcase_create("config");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, table_covers_the_structure_once);
    tcase_add_loop_test(t, each_setting_from_each_source, 0, xn_setting_count);
    tcase_add_test(t, flag_over_environment_over_file_over_default);
    tcase_add_test(t, lists_of_models);
    tcase_add_test(t, file_named_by_the_environment);
    tcase_add_test(t, commands);
    tcase_add_test(t, booleans_and_numbers_in_their_forms);
    tcase_add_test(t, file_syntax);
    tcase_add_test(t, service_links_are_not_settings);
    tcase_add_loop_test(t, refused_with_source_value_and_limit, 0, sizeof bad / sizeof bad[0]);
    tcase_add_test(t, files_of_zeros_and_of_many_bytes);
    tcase_add_test(t, no_memory_for_the_file);
    tcase_add_test(t, printed_configuration_reads_back);
    tcase_add_test(t, help_lists_every_setting_within_100_columns);
    tcase_add_test(t, loopback_addresses);
    tcase_add_test(t, threads_that_speak_http);
    tcase_add_test(t, example_file_has_every_setting_at_its_default);
    suite_add_tcase(s, t);
    return s;
}
