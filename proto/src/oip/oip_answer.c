/* oip_answer.c: answers of inference requests, and errors, as bytes; see xn_oip.h. */
#include "xn_mem.h"
#include "xn_oip_parts.h"
#include "xn_wire_form.h"

#include <assert.h>
#include <string.h>

#define FRAME_BYTES                                                                                \
    1024 /* of an answer's header without names and results: 9 stages of 40, ...                   \
          */
#define RESULT_BYTES                                                                               \
    512               /* of a result's object without its names and its data: 10 numbers, ...      \
                       */
#define SIZE_CHARS 20 /* room for a number of bytes that is known later */
#define ALIGNMENT 8   /* of the values behind the header */

static bool is_shared(const xn_oip_result *result) {
    return result->shared != NULL;
}

static bool is_classified(const xn_oip_result *result) {
    return result->classification > 0 && !is_shared(result);
}

/* Its values stand behind the header. */
static bool is_behind(const xn_oip_result *result) {
    return result->binary && !is_shared(result);
}

/* ---- sizes ---- */

/* The text, and behind it the indices of the best classes of a row while they are sorted. */
typedef struct sizes {
    size_t text, scratch;
} sizes;

static bool add(size_t *total, size_t count, size_t each) {
    size_t product;
    return xn_mul_size(count, each, &product) && xn_add_size(*total, product, total);
}

static bool add_word(size_t *total, const char *word) {
    return add(total, strlen(word), 6); /* the most that a character takes is \u001f */
}

static bool add_classes(sizes *total, const xn_oip_result *result) {
    xn_oip_classes classes;
    size_t count, each = XN_OIP_CLASS_CHARS, scratch;
    if (!xn_oip_classes_of(result, &classes))
        return false;
    if (!add(&each, result->longest_label, result->binary ? 1 : 6) ||
        !add(&each, 1, sizeof "\"\"," + 1) ||
        !xn_mul_size((size_t)classes.rows, (size_t)classes.best, &count) ||
        !add(&total->text, count, each) ||
        !xn_mul_size((size_t)classes.best, sizeof(int64_t), &scratch))
        return false;
    total->scratch = scratch > total->scratch ? scratch : total->scratch;
    return true;
}

static bool add_result(sizes *total, const xn_oip_result *result) {
    if (!add(&total->text, 1, RESULT_BYTES) || !add_word(&total->text, result->name))
        return false;
    if (is_shared(result))
        return true;
    if (is_classified(result))
        return add_classes(total, result);
    if (result->binary)
        return result->apart || add(&total->text, 1, result->bytes);
    const size_t element = xn_datatype_bytes(result->datatype);
    const size_t number = xn_answer_number_bytes(result->datatype);
    return number && add(&total->text, result->bytes / element, number);
}

static bool measure(const xn_oip_answer *answer, sizes *out) {
    sizes total = {FRAME_BYTES, 0};
    bool fits = answer->result_count <= XN_OIP_MAX_OUTPUTS && add_word(&total.text, answer->id) &&
                add_word(&total.text, answer->model_name) &&
                add_word(&total.text, answer->model_version) &&
                add_word(&total.text, answer->backend);
    for (int i = 0; fits && i < answer->result_count; i++)
        fits = add_result(&total, &answer->results[i]);
    if (!fits || !add(&total.text, 1, (size_t) - (ptrdiff_t)total.text % ALIGNMENT))
        return false;
    *out = total;
    return true;
}

bool xn_oip_answer_bound(const xn_oip_answer *answer, size_t *bytes) {
    sizes total;
    return measure(answer, &total) && xn_add_size(total.text, total.scratch, bytes);
}

/* ---- writing ---- */

typedef struct writer {
    xn_text text;
    int64_t *scratch;
    size_t size_at[XN_OIP_MAX_OUTPUTS]; /* where binary_data_size is to be put */
} writer;

static void write_word(xn_text *text, const char *before, const char *word, const char *after) {
    xn_text_string(text, before);
    xn_text_escaped(text, word, text->size);
    xn_text_string(text, after);
}

static void write_number(xn_text *text, const char *before, int64_t value) {
    xn_text_string(text, before);
    xn_text_int(text, value);
}

/* Scalars, as the parameters of the protocol are. */
static void write_circumstances(xn_text *text, const xn_oip_answer *answer) {
    xn_answer_stage stages[XN_ANSWER_STAGES];
    xn_answer_stages(&answer->timing, stages);
    write_word(text, ",\"parameters\":{\"backend\":\"", answer->backend, "\"");
    write_word(text, ",\"precision\":\"", xn_precision_name(answer->precision), "\"");
    write_number(text, ",\"batch_requests\":", answer->batch_requests);
    write_number(text, ",\"batch_images\":", answer->batch_images);
    xn_text_string(text, answer->cached ? ",\"cached\":true" : "");
    for (int i = 0; i < XN_ANSWER_STAGES; i++) {
        write_word(text, ",\"", stages[i].name, "_ns\":");
        xn_text_int(text, stages[i].ns);
    }
    xn_text_string(text, "}");
}

static void write_length(xn_text *text, size_t length) {
    char bytes[4]; /* little-endian */
    for (int i = 0; i < 4; i++)
        bytes[i] = (char)(length >> (8 * i));
    xn_text_bytes(text, bytes, sizeof bytes);
}

/* One of "%f:index[:label]", as a JSON string or with its length in front. */
static void write_class(xn_text *text, const xn_oip_classes *classes, int64_t row, int64_t index) {
    char begin[XN_OIP_CLASS_CHARS];
    const size_t length = xn_oip_class_text(classes, row, index, begin);
    const char *label = xn_oip_class_label(classes, row, index);
    if (classes->result->binary)
        write_length(text, length + (label ? 1 + strlen(label) : 0));
    else
        xn_text_string(text, "\"");
    xn_text_bytes(text, begin, length);
    xn_text_string(text, label ? ":" : "");
    if (classes->result->binary)
        xn_text_string(text, label ? label : "");
    else
        write_word(text, "", label ? label : "", "\"");
}

static void write_classes(writer *w, const xn_oip_result *result) {
    xn_oip_classes classes;
    if (!xn_oip_classes_of(result, &classes))
        return;
    for (int64_t row = 0; row < classes.rows; row++) {
        xn_oip_best_classes(&classes, row, w->scratch);
        for (int64_t i = 0; i < classes.best; i++) {
            if (!result->binary && row + i > 0)
                xn_text_string(&w->text, ",");
            write_class(&w->text, &classes, row, w->scratch[i]);
        }
    }
}

static void write_type(xn_text *text, const xn_oip_result *result) {
    xn_oip_classes classes;
    xn_shape shape = result->shape;
    const char *datatype = xn_datatype_name(result->datatype);
    if (is_classified(result) && xn_oip_classes_of(result, &classes)) {
        shape = (xn_shape){2, {classes.rows, classes.best}};
        datatype = "BYTES";
    }
    write_word(text, ",\"datatype\":\"", datatype, "\",\"shape\":");
    xn_answer_shape(text, &shape);
}

static void write_data(writer *w, const xn_oip_result *result) {
    xn_text_string(&w->text, ",\"data\":[");
    if (is_classified(result)) {
        write_classes(w, result);
    } else {
        const size_t count = result->bytes / xn_datatype_bytes(result->datatype);
        w->text.length += xn_answer_numbers(result->datatype, result->values, count,
                                            w->text.data + w->text.length);
    }
    xn_text_string(&w->text, "]");
}

static void write_result(writer *w, const xn_oip_result *result, size_t *size_at) {
    write_word(&w->text, "{\"name\":\"", result->name, "\"");
    write_type(&w->text, result);
    if (is_shared(result)) {
        /* Nothing: perf_analyzer takes parameters for those of values behind the header. */
    } else if (result->binary) {
        xn_text_string(&w->text, ",\"parameters\":{\"binary_data_size\":");
        *size_at = w->text.length;
        if (is_classified(result))
            xn_text_bytes(&w->text, "                    ", SIZE_CHARS);
        else
            xn_text_int(&w->text, (int64_t)result->bytes);
        xn_text_string(&w->text, "}");
    } else {
        write_data(w, result);
    }
    xn_text_string(&w->text, "}");
}

static void write_header(writer *w, const xn_oip_answer *answer) {
    xn_text *text = &w->text;
    xn_text_string(text, "{");
    if (answer->id[0])
        write_word(text, "\"id\":\"", answer->id, "\",");
    write_word(text, "\"model_name\":\"", answer->model_name, "\"");
    write_word(text, ",\"model_version\":\"", answer->model_version, "\"");
    write_circumstances(text, answer);
    xn_text_string(text, ",\"outputs\":[");
    for (int i = 0; i < answer->result_count; i++) {
        xn_text_string(text, i ? "," : "");
        write_result(w, &answer->results[i], &w->size_at[i]);
    }
    xn_text_string(text, "]}");
}

/* Values behind the header. Only of texts their size was not known when that was written: it is put
 * there right-aligned, with blanks in front. */
static void write_behind(writer *w, const xn_oip_result *result, size_t size_at) {
    char digits[SIZE_CHARS];
    const size_t begin = w->text.length;
    if (!is_classified(result)) {
        if (!result->apart)
            xn_text_bytes(&w->text, result->values, result->bytes);
        return;
    }
    write_classes(w, result);
    const size_t length = xn_text_u64(w->text.length - begin, digits);
    memcpy(w->text.data + size_at + SIZE_CHARS - length, digits, length);
}

size_t xn_oip_answer_write(const xn_oip_answer *answer, char *text, size_t *header_length) {
    sizes total;
    bool behind = false;
    *header_length = 0;
    if (!measure(answer, &total))
        return 0;
    writer w = {.text = xn_text_over(text, total.text),
                .scratch = (int64_t *)(void *)(text + total.text)};
    write_header(&w, answer);
    for (int i = 0; i < answer->result_count; i++)
        behind = behind || is_behind(&answer->results[i]);
    while (behind && w.text.length % ALIGNMENT)
        xn_text_bytes(&w.text, " ", 1);
    if (behind)
        *header_length = w.text.length;
    else
        xn_text_string(&w.text, "\n");
    for (int i = 0; i < answer->result_count; i++)
        if (is_behind(&answer->results[i]))
            write_behind(&w, &answer->results[i], w.size_at[i]);
    assert(!w.text.overflow); /* the bound is one */
    return w.text.length;
}

size_t xn_oip_write_error(const char *message, char *text, size_t size) {
    static const char end[] = "\"}\n";
    if (size == 0)
        return 0;
    xn_text t = xn_text_over(text, size - 1);
    xn_text_string(&t, "{\"error\":\"");
    if (t.overflow || t.size - t.length < sizeof end - 1) {
        t = xn_text_over(text, size - 1);
        xn_text_string(&t, "{}");
    } else {
        xn_text_escaped(&t, message ? message : "", t.size - (sizeof end - 1));
        xn_text_string(&t, end);
    }
    text[t.length] = 0;
    return t.length;
}
