/* oip_lines.c: answers for people: the best classes of each image, one a line; see xn_oip.h. */
#include "xn_mem.h"
#include "xn_oip_parts.h"
#include "xn_text.h"

#include <assert.h>
#include <string.h>

/* The text, and behind it the indices of a row while they are sorted, aligned. */
typedef struct sizes {
    size_t text, scratch;
} sizes;

static bool measure(const xn_oip_answer *answer, sizes *out) {
    *out = (sizes){8, 0};
    for (int i = 0; i < answer->result_count; i++) {
        xn_oip_classes classes;
        size_t lines, bytes, each, scratch;
        if (!xn_oip_classes_of(&answer->results[i], &classes) ||
            !xn_add_size(answer->results[i].longest_label, XN_OIP_CLASS_CHARS + 2, &each) ||
            !xn_mul_size((size_t)classes.rows, (size_t)classes.best + 1, &lines) ||
            !xn_mul_size(lines, each, &bytes) || !xn_add_size(out->text, bytes, &out->text) ||
            !xn_mul_size((size_t)classes.best, sizeof(int64_t), &scratch))
            return false;
        out->scratch = scratch > out->scratch ? scratch : out->scratch;
    }
    return xn_add_size(out->text, (size_t) - (ptrdiff_t)out->text % 8, &out->text);
}

bool xn_oip_lines_bound(const xn_oip_answer *answer, size_t *bytes) {
    sizes total;
    return measure(answer, &total) && xn_add_size(total.text, total.scratch, bytes);
}

/* What else would end a line, or move a cursor, is a space. */
static void write_label(xn_text *text, const char *label) {
    for (; *label; label++) {
        const char c = (unsigned char)*label < ' ' || *label == 0x7f ? ' ' : *label;
        xn_text_bytes(text, &c, 1);
    }
}

static void write_line(xn_text *text, const xn_oip_classes *classes, int64_t row, int64_t index) {
    char value[XN_OIP_CLASS_CHARS];
    const size_t length = xn_oip_class_text(classes, row, index, value);
    const char *colon = memchr(value, ':', length),
               *label = xn_oip_class_label(classes, row, index);
    xn_text_bytes(text, value, (size_t)(colon - value));
    xn_text_string(text, " ");
    if (label)
        write_label(text, label);
    else
        xn_text_int(text, xn_oip_class_of(classes, row, index));
    xn_text_string(text, "\n");
}

size_t xn_oip_lines_write(const xn_oip_answer *answer, char *text) {
    sizes total;
    if (!measure(answer, &total))
        return 0;
    int64_t *best = (int64_t *)(void *)(text + total.text);
    xn_text out = xn_text_over(text, total.text);
    for (int i = 0; i < answer->result_count; i++) {
        xn_oip_classes classes;
        if (!xn_oip_classes_of(&answer->results[i], &classes))
            continue;
        for (int64_t row = 0; row < classes.rows; row++) {
            xn_text_string(&out, i + row > 0 ? "\n" : "");
            xn_oip_best_classes(&classes, row, best);
            for (int64_t n = 0; n < classes.best; n++)
                write_line(&out, &classes, row, best[n]);
        }
    }
    assert(!out.overflow); /* the bound is one */
    return out.length;
}
