/* answer.c: results to bytes in all forms, and errors; see xn_proto.h and PROTOCOL.md. */
#include "xn_mem.h"
#include "xn_wire_form.h"

#include <assert.h>
#include <string.h>

/* ---- timing ---- */

void xn_answer_stages(const xn_timing *timing, xn_answer_stage out[XN_ANSWER_STAGES]) {
    const xn_answer_stage stages[XN_ANSWER_STAGES] = {
        {"receive", timing->receive_ns}, {"decode", timing->decode_ns},
        {"queue", timing->queue_ns},     {"upload", timing->upload_ns},
        {"compute", timing->compute_ns}, {"download", timing->download_ns},
        {"encode", timing->encode_ns},   {"other", timing->other_ns},
        {"total", timing->total_ns},
    };
    memcpy(out, stages, sizeof stages);
}

/* {"receive":12.345,...} in microseconds; quote is how a quotation mark is written (as \" inside a
 * string). */
void xn_answer_timing(xn_text *text, const xn_timing *timing, const char *quote) {
    xn_answer_stage stages[XN_ANSWER_STAGES];
    xn_answer_stages(timing, stages);
    for (int i = 0; i < XN_ANSWER_STAGES; i++) {
        xn_text_string(text, i ? "," : "{");
        xn_text_string(text, quote);
        xn_text_string(text, stages[i].name);
        xn_text_string(text, quote);
        xn_text_string(text, ":");
        xn_text_thousandths(text, stages[i].ns);
    }
    xn_text_string(text, "}");
}

void xn_proto_server_timing(const xn_timing *timing, char *text, size_t size) {
    if (size == 0)
        return;
    xn_answer_stage stages[XN_ANSWER_STAGES];
    xn_answer_stages(timing, stages);
    xn_text t = xn_text_over(text, size - 1);
    for (int i = 0; i < XN_ANSWER_STAGES; i++) {
        char metric[64];
        xn_text m = xn_text_over(metric, sizeof metric);
        xn_text_string(&m, i ? ", " : "");
        xn_text_string(&m, stages[i].name);
        xn_text_string(&m, ";dur=");
        int64_t ns = stages[i].ns; /* to the nearest microsecond */
        xn_text_thousandths(&m, ns / 1000 + (ns % 1000 >= 500) - (ns % 1000 <= -500));
        if (m.length > t.size - t.length)
            break; /* whole metrics only */
        xn_text_bytes(&t, metric, m.length);
    }
    text[t.length] = 0;
}

/* ---- pieces ---- */

void xn_answer_dims(xn_text *text, const xn_shape *shape) {
    for (int i = 0; i < shape->rank; i++) {
        xn_text_string(text, i ? "," : "");
        xn_text_int(text, shape->dims[i]);
    }
}

void xn_answer_shape(xn_text *text, const xn_shape *shape) {
    xn_text_string(text, "[");
    xn_answer_dims(text, shape);
    xn_text_string(text, "]");
}

/* An id or a device name, whose lengths are bounded: what is over is cut. */
void xn_answer_word(xn_text *text, const char *word) {
    bool overflow = text->overflow;
    xn_text_escaped(text, word, text->length + XN_PROTO_MAX_ID);
    text->overflow = overflow; /* a word that was cut still fits */
}

void xn_answer_circumstances(xn_text *text, const xn_answer *answer) {
    xn_text_string(text, ",\"backend\":\"");
    xn_answer_word(text, answer->backend);
    xn_text_string(text, "\",\"precision\":\"");
    xn_text_string(text, xn_precision_name(answer->precision));
    xn_text_string(text, "\",\"batch\":{\"requests\":");
    xn_text_int(text, answer->batch_requests);
    xn_text_string(text, ",\"images\":");
    xn_text_int(text, answer->batch_images);
    xn_text_string(text, answer->cached ? "},\"cached\":true" : "}");
    xn_text_string(text, ",\"timing\":");
    xn_answer_timing(text, &answer->timing, "\"");
    xn_text_string(text, "}");
}

void xn_answer_type(xn_text *text, const xn_answer *answer) {
    xn_text_string(text, "\"datatype\":\"");
    xn_text_string(text, xn_datatype_name(answer->datatype));
    xn_text_string(text, "\",\"shape\":");
    xn_answer_shape(text, &answer->shape);
}

/* ---- binary forms ---- */

void *xn_proto_write_binary_answer(xn_form form, const xn_answer *answer, void *tensor,
                                   size_t *header_length) {
    /* The longest header: 2 words of 128, 8 dimensions and 4 counts of 20 digits, 9 stages of 44,
     * and under 400 fixed characters, together under 1300. */
    char header[XN_PROTO_HEADROOM_BYTES];
    xn_text text = xn_text_over(header, sizeof header);
    xn_wire_form_of(form)->write_prefix(&text, answer);
    assert(!text.overflow);
    *header_length = text.length;
    return memcpy((char *)tensor - text.length, header, text.length);
}

int xn_proto_answer_headers(xn_form form, const xn_answer *answer, size_t header_length,
                            xn_proto_header out[XN_PROTO_HEADERS]) {
    const xn_wire_form *row = xn_wire_form_of(form);
    return row->headers ? row->headers(answer, header_length, out) : 0;
}

/* ---- JSON ---- */

#define JSON_FRAME_BYTES XN_PROTO_HEADROOM_BYTES /* everything but the numbers */

size_t xn_answer_number_bytes(xn_datatype datatype) {
    const bool number = datatype == XN_INT32 || datatype == XN_FP32 || datatype == XN_FP16;
    return !number ? 0 : datatype == XN_INT32 ? 12 : XN_FLOAT_CHARS; /* both with a comma */
}

bool xn_proto_json_answer_bound(const xn_answer *answer, size_t *bytes) {
    const size_t element = xn_datatype_bytes(answer->datatype);
    size_t elements = element ? answer->output_bytes / element : 0, numbers, total;
    const size_t number = xn_answer_number_bytes(answer->datatype);
    if (!number || !xn_mul_size(elements, number, &numbers) ||
        !xn_add_size(numbers, JSON_FRAME_BYTES, &total))
        return false;
    *bytes = total;
    return true;
}

static size_t write_int32(int32_t value, char *text) {
    size_t sign = value < 0;
    text[0] = '-';
    uint32_t magnitude = value < 0 ? 0 - (uint32_t)value : (uint32_t)value;
    return sign + xn_text_u64(magnitude, text + sign);
}

size_t xn_answer_numbers(xn_datatype datatype, const void *values, size_t count, char *text) {
    char *p = text;
    const float *floats = values;
    const uint16_t *halves = values;
    const int32_t *ints = values;
    for (size_t i = 0; i < count; i++) {
        if (datatype == XN_INT32)
            p += write_int32(ints[i], p);
        else if (datatype == XN_FP16)
            p += xn_float_write(xn_fp16_to_fp32(halves[i]), p);
        else
            p += xn_float_write(floats[i], p);
        *p++ = ',';
    }
    return (size_t)(p - text) - (count > 0);
}

size_t xn_proto_json_answer_begin(const xn_answer *answer, const void *tensor, char *text) {
    xn_text head = xn_text_over(text, JSON_FRAME_BYTES / 2);
    xn_text_string(&head, "{\"id\":\"");
    xn_answer_word(&head, answer->id);
    xn_text_string(&head, "\",\"output\":{");
    xn_answer_type(&head, answer);
    xn_text_string(&head, ",\"data\":[");
    assert(!head.overflow);
    size_t count = answer->output_bytes / xn_datatype_bytes(answer->datatype);
    char *p = text + head.length;
    p += xn_answer_numbers(answer->datatype, tensor, count, p);
    *p++ = ']';
    *p++ = '}';
    return (size_t)(p - text);
}

size_t xn_proto_json_answer_end(const xn_answer *answer, char *text, size_t length) {
    xn_text tail = xn_text_over(text + length, JSON_FRAME_BYTES / 2);
    xn_answer_circumstances(&tail, answer);
    xn_text_string(&tail, "\n");
    assert(!tail.overflow);
    return length + tail.length;
}

/* ---- errors ---- */

size_t xn_proto_write_error(const char *code, const char *message, const char *field, char *text,
                            size_t size) {
    static const char end[] = "\"}}\n";
    char tail_text[512];
    xn_text tail = xn_text_over(tail_text, sizeof tail_text);
    xn_text_string(&tail, "\",\"field\":\"");
    xn_text_escaped(&tail, field ? field : "", sizeof tail_text - sizeof end);
    xn_text_string(&tail, end);
    if (size == 0)
        return 0;
    xn_text t = xn_text_over(text, size - 1);
    xn_text_string(&t, "{\"error\":{\"code\":\"");
    xn_text_escaped(&t, code, t.size);
    xn_text_string(&t, "\",\"message\":\"");
    if (t.overflow || t.size - t.length < tail.length) { /* no room for even an empty message */
        t = xn_text_over(text, size - 1);
        xn_text_string(&t, "{}");
    } else {
        xn_text_escaped(&t, message ? message : "", t.size - tail.length);
        xn_text_bytes(&t, tail_text, tail.length);
    }
    text[t.length] = 0;
    return t.length;
}
