/* model_labels.c: a file of labels; see xn_model_config.h. */
#include "xn_mem.h"
#include "xn_model_config.h"
#include "xn_text.h"

#include <inttypes.h>
#include <string.h>

static xn_status fail_line(int64_t line, const char *what, xn_error *error) {
    return xn_fail(error, XN_ERR_MALFORMED, "labels",
                   "line %" PRId64 " of the labels %s; a label a line, in UTF-8", line, what);
}

/* The text has a NUL behind its end, where a character that is cut short ends. */
static xn_status check_text(const char *text, size_t length, int64_t most, int64_t *lines,
                            xn_error *error) {
    const char *end = text + length;
    int64_t line = 1;
    for (const char *at = text; at < end;) {
        const size_t bytes = xn_text_utf8(at);
        if (!*at)
            return fail_line(line, "holds a NUL", error);
        if (!bytes)
            return fail_line(line, "is no valid UTF-8", error);
        if (line > most)
            return xn_fail(error, XN_ERR_MALFORMED, "labels",
                           "there is a line %" PRId64 " of labels; the output has %" PRId64
                           " classes: at most as many",
                           line, most);
        line += *at == '\n';
        at += bytes;
    }
    *lines = length && end[-1] == '\n' ? line - 1 : line - !length;
    return XN_OK;
}

/* Ends each line where its end was. */
static void split(char *text, size_t length, int64_t count, char **labels) {
    char *at = text, *end = text + length;
    for (int64_t i = 0; i < count; i++) {
        char *line_end = memchr(at, '\n', (size_t)(end - at));
        labels[i] = at;
        line_end = line_end ? line_end : end;
        at = line_end + (line_end < end);
        *line_end = 0;
        if (line_end > labels[i] && line_end[-1] == '\r')
            line_end[-1] = 0;
    }
}

/* Splits text, which it may change. */
static xn_status split_text(char *text, size_t length, int64_t most, char ***labels, int64_t *count,
                            xn_error *error) {
    int64_t lines = 0;
    xn_status status = check_text(text, length, most, &lines, error);
    if (status)
        return status;
    char **list = xn_mem_zalloc((size_t)lines + 1, sizeof *list);
    if (!list)
        return xn_fail(error, XN_ERR_NO_MEMORY, "labels", "no memory for %" PRId64 " labels",
                       lines);
    split(text, length, lines, list);
    *labels = list;
    *count = lines;
    return XN_OK;
}

xn_status xn_model_labels_parse(const char *text, size_t length, int64_t most, char ***labels,
                                int64_t *count, char **memory, xn_error *error) {
    static const char mark[] = "\xef\xbb\xbf"; /* of the byte order */
    if (length > XN_MODEL_LABELS_BYTES)
        return xn_fail(error, XN_ERR_LIMIT, "labels",
                       "the labels have %zu bytes, more than %d, the limit", length,
                       XN_MODEL_LABELS_BYTES);
    if (length >= sizeof mark - 1 && !memcmp(text, mark, sizeof mark - 1)) {
        text += sizeof mark - 1;
        length -= sizeof mark - 1;
    }
    char *copy = xn_mem_alloc(length + 1);
    if (!copy)
        return xn_fail(error, XN_ERR_NO_MEMORY, "labels", "no memory for %zu bytes of labels",
                       length);
    memcpy(copy, text, length);
    copy[length] = 0;
    xn_status status = split_text(copy, length, most, labels, count, error);
    if (status)
        xn_mem_free(copy);
    else
        *memory = copy;
    return status;
}
