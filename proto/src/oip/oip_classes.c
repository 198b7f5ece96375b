/* oip_classes.c: the best classes of a result, and their texts; see xn_oip_parts.h. */
#include "xn_oip_parts.h"
#include "xn_text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

bool xn_oip_classes_of(const xn_oip_result *result, xn_oip_classes *out) {
    const size_t element = xn_datatype_bytes(result->datatype);
    const bool ordered = result->datatype == XN_FP32 || result->datatype == XN_FP16 ||
                         result->datatype == XN_BF16 || result->datatype == XN_INT32;
    if (!ordered || result->shape.rank < 1 || result->shape.dims[0] < 1)
        return false;
    const int64_t rows = result->shape.dims[0];
    const int64_t classes = (int64_t)(result->bytes / element) / rows;
    *out = (xn_oip_classes){result, rows, classes, classes};
    if (result->classification < classes)
        out->best = result->classification;
    return true;
}

static double value_of(const xn_oip_classes *classes, int64_t row, int64_t index) {
    const xn_oip_result *result = classes->result;
    const void *values = result->values;
    const size_t at = (size_t)row * (size_t)classes->classes + (size_t)index;
    if (result->ranked) {
        float score;
        memcpy(&score,
               result->scores + (size_t)row * result->scores_pitch + (size_t)index * sizeof score,
               sizeof score);
        return (double)score;
    }
    switch (classes->result->datatype) {
    case XN_FP16:
        return xn_fp16_to_fp32(((const uint16_t *)values)[at]);
    case XN_BF16:
        return xn_bf16_to_fp32(((const uint16_t *)values)[at]);
    case XN_INT32:
        return ((const int32_t *)values)[at];
    default:
        return ((const float *)values)[at];
    }
}

/* ---- the best n, by a heap whose top is the worst of them ---- */

typedef struct ranking {
    const xn_oip_classes *classes;
    int64_t row;
    int64_t *heap;
    int64_t count;
} ranking;

static bool is_better(const ranking *r, int64_t a, int64_t b) {
    const double x = value_of(r->classes, r->row, a), y = value_of(r->classes, r->row, b);
    if (isnan(x) || isnan(y))
        return isnan(x) && isnan(y) ? a < b : isnan(y);
    return x > y || (x == y && a < b);
}

static void swap(int64_t *a, int64_t *b) {
    const int64_t old = *a;
    *a = *b;
    *b = old;
}

static void sift_up(ranking *r, int64_t at) {
    for (int64_t parent = (at - 1) / 2; at > 0 && is_better(r, r->heap[parent], r->heap[at]);
         at = parent, parent = (at - 1) / 2)
        swap(&r->heap[parent], &r->heap[at]);
}

static void sift_down(ranking *r) {
    for (int64_t at = 0, child = 1; child < r->count; at = child, child = 2 * at + 1) {
        if (child + 1 < r->count && is_better(r, r->heap[child], r->heap[child + 1]))
            child++; /* the worse of the two */
        if (!is_better(r, r->heap[at], r->heap[child]))
            return;
        swap(&r->heap[at], &r->heap[child]);
    }
}

void xn_oip_best_classes(const xn_oip_classes *classes, int64_t row, int64_t *best) {
    ranking r = {.classes = classes, .row = row, .heap = best};
    for (int64_t i = 0; i < classes->best && classes->result->ranked; i++)
        best[i] = i;
    if (classes->result->ranked)
        return;
    for (int64_t i = 0; i < classes->classes; i++) {
        if (r.count < classes->best) {
            best[r.count] = i;
            sift_up(&r, r.count++);
        } else if (r.count > 0 && is_better(&r, i, best[0])) {
            best[0] = i;
            sift_down(&r);
        }
    }
    while (r.count > 1) { /* the worst goes to the end */
        r.count--;
        swap(&best[0], &best[r.count]);
        sift_down(&r);
    }
}

/* ---- texts ---- */

/* As "%f" has it, with a point whatever the locale's is; NaN has no sign. */
static void write_value(xn_text *text, double value) {
    char number[64];
    int length = isnan(value) ? snprintf(number, sizeof number, "nan")
                              : snprintf(number, sizeof number, "%f", value);
    if (isfinite(value)) {
        size_t whole = strspn(number, "-0123456789");
        xn_text_bytes(text, number, whole);
        xn_text_string(text, ".");
        xn_text_bytes(text, number + length - 6, 6);
    } else {
        xn_text_bytes(text, number, (size_t)length);
    }
}

int64_t xn_oip_class_of(const xn_oip_classes *classes, int64_t row, int64_t at) {
    const int32_t *positions = classes->result->values;
    return classes->result->ranked ? positions[row * classes->classes + at] : at;
}

size_t xn_oip_class_text(const xn_oip_classes *classes, int64_t row, int64_t at,
                         char text[XN_OIP_CLASS_CHARS]) {
    xn_text out = xn_text_over(text, XN_OIP_CLASS_CHARS); /* 47 of a float, 20 of an index */
    write_value(&out, value_of(classes, row, at));
    xn_text_string(&out, ":");
    xn_text_int(&out, xn_oip_class_of(classes, row, at));
    return out.length;
}

const char *xn_oip_class_label(const xn_oip_classes *classes, int64_t row, int64_t at) {
    const xn_oip_result *result = classes->result;
    const int64_t index = xn_oip_class_of(classes, row, at);
    const char *label = result->labels && index < result->label_count ? result->labels[index] : "";
    return label && *label ? label : NULL;
}
