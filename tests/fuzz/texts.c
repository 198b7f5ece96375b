/* texts.c: what is read from headers, single numbers, the configuration file and the file of keys.
 */
#include "auth.h"
#include "config.h"
#include "fuzz.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void xf_headers(const uint8_t *data, size_t size) {
    char *text = xf_text(data, size);
    xn_form form = XN_FORM_JSON, answer;
    for (int with = 0; with < 2; with++)
        if (xn_form_parse(text, with, &form))
            xf_require(form < XN_FORM_COUNT && xn_form_media_type(form), "media type");
    for (int i = 0; i < XN_FORM_COUNT; i++)
        if (xn_form_negotiate(text, (xn_form)i, &answer))
            xf_require(answer < XN_FORM_COUNT, "negotiated form");
    if (xn_proto_name_valid(text))
        xf_require(strlen(text) <= XN_PROTO_MAX_NAME && !strchr(text, '/'), "a long name");
    if (xn_proto_id_valid(text))
        xf_require(strlen(text) <= XN_PROTO_MAX_ID && !strchr(text, '"'), "a long id");
    free(text);
}

void xf_number(const uint8_t *data, size_t size) {
    char *exact = xf_alloc(size);
    memcpy(exact, data, size);
    const char *at = exact;
    float value;
    if (xn_float_read(&at, exact + size, &value)) {
        xf_require(at > exact && at <= exact + size, "the reader left its text");
        char *copy = xf_text(exact, (size_t)(at - exact));
        float expected = strtof(copy, NULL);
        xf_require(!memcmp(&value, &expected, sizeof value), "strtof reads another float");
        free(copy);
    }
    free(exact);
}

/* A file in memory with a name. */
static int make_file(const uint8_t *data, size_t size, char path[64]) {
    int fd = memfd_create("xnord-fuzz", MFD_CLOEXEC);
    xf_require(fd >= 0 && write(fd, data, size) == (ssize_t)size, "no file");
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

void xf_config(const uint8_t *data, size_t size) {
    char path[64], program[] = "xnord", flag[] = "--config";
    char *const arguments[] = {program, flag, path, NULL}, *const environment[] = {NULL};
    static xn_config config;
    xn_command command;
    xn_error error = {.status = XN_OK};
    int fd = make_file(data, size, path);
    xn_status status = xn_config_load(3, arguments, environment, &config, &command, &error);
    if (status)
        xf_check_error(status, &error);
    else
        xf_require(command == XN_COMMAND_SERVE && config.port >= 0 && config.port <= 65535,
                   "settings out of range");
    close(fd);
}

/* A first line "?TEXT" is a header to be judged by the keys of the rest. */
void xf_keys(const uint8_t *data, size_t size) {
    char path[64], *header = NULL;
    const uint8_t *end = size && data[0] == '?' ? memchr(data, '\n', size) : NULL;
    size_t at = end ? (size_t)(end - data) + 1 : 0;
    xn_auth *auth = NULL;
    xn_error error = {.status = XN_OK};
    if (end)
        header = xf_text(data + 1, at - 2);
    int fd = make_file(data + at, size - at, path);
    xn_status status = xn_auth_load(path, &auth, &error);
    if (status) {
        xf_check_error(status, &error);
    } else {
        bool allowed = xn_auth_match(auth, header, NULL);
        xf_require(!allowed || (header && strlen(header) >= 16 + 7), "a short key is let in");
        xf_require(!xn_auth_match(auth, NULL, NULL), "no key is let in");
    }
    xn_auth_free(auth);
    free(header);
    close(fd);
}
