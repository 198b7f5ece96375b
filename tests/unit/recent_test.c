/* The last header of a connection: what is remembered of it is what parsing gives, wherever the
 * next body lies; and nothing is remembered of any other. */
#include "proto/proto_bodies.h"
#include "recent.h"
#include "xn_mem.h"
#include "xn_test.h"

#include <stdio.h>
#include <string.h>

enum { BODY = 4096, STEPS = 400 };

static const xn_proto_limits limits = {1 << 20};

typedef struct message {
    char bytes[BODY + 64];
    xn_proto_body body;
} message;

/* A header with some of the members there are, and values behind it; sometimes one that is wrong.
 */
static void make_message(message *m, xn_rng *rng) {
    const int side = 1 + (int)xn_rng_below(rng, 3), kernel = (int)xn_rng_below(rng, 2);
    char *text = m->bytes + xn_rng_below(rng, 2) * 4; /* anywhere */
    size_t values = (size_t)(4 * side * side), length;
    length = (size_t)snprintf(text, BODY,
                              "{\"input\": {\"shape\": [1,1,%d,%d], \"datatype\": \"FP32\", "
                              "\"parameters\": {\"binary_data_size\": %zu}}, \"padding\": %d",
                              side, side, values, (int)xn_rng_below(rng, 2));
    if (kernel) { /* as text, within the header */
        length += (size_t)snprintf(text + length, BODY - length,
                                   ", \"weights\": {\"shape\": [1,1,1,1], \"datatype\": \"FP32\", "
                                   "\"data\": [%d]}",
                                   (int)xn_rng_below(rng, 3));
    } else {
        length += (size_t)snprintf(text + length, BODY - length, ", \"weights\": \"name-%d\"",
                                   (int)xn_rng_below(rng, 3));
    }
    if (xn_rng_below(rng, 3) == 0) { /* too long to keep */
        length += (size_t)snprintf(text + length, BODY - length, "%600s", "");
    }
    length += (size_t)snprintf(text + length, BODY - length,
                               xn_rng_below(rng, 8) ? "}" : ", \"wrong\": 1}");
    memset(text + length, 1, values);
    size_t more = xn_rng_below(rng, 8) == 0 ? 4 : 0; /* bytes that belong to no tensor */
    m->body = (xn_proto_body){.form = XN_FORM_OIP_BINARY,
                              .bytes = text,
                              .length = length + values + more,
                              .has_header_length = true,
                              .header_length = length};
}

static void expect_tensor(const xn_tensor_ref *got, const xn_tensor_ref *expected) {
    ck_assert_int_eq(got->present, expected->present);
    if (!got->present)
        return;
    ck_assert_int_eq(got->datatype, expected->datatype);
    ck_assert_int_eq(got->shape.rank, expected->shape.rank);
    for (int i = 0; i < got->shape.rank; i++)
        ck_assert_int_eq(got->shape.dims[i], expected->shape.dims[i]);
    ck_assert_int_eq(got->elements, expected->elements);
    ck_assert_uint_eq(got->bytes, expected->bytes);
    ck_assert_ptr_eq(got->data, expected->data);
    ck_assert_ptr_eq(got->text, expected->text);
    ck_assert_uint_eq(got->text_length, expected->text_length);
}

static void expect_request(const xn_conv_request *got, const xn_conv_request *expected) {
    expect_tensor(&got->input, &expected->input);
    expect_tensor(&got->weights, &expected->weights);
    expect_tensor(&got->scale, &expected->scale);
    expect_tensor(&got->bias, &expected->bias);
    ck_assert_str_eq(got->weights_name, expected->weights_name);
    ck_assert_str_eq(got->backend, expected->backend);
    ck_assert_str_eq(got->id, expected->id);
    ck_assert_int_eq(got->timeout_ms, expected->timeout_ms);
    ck_assert_int_eq(got->params.padding[0], expected->params.padding[0]);
}

START_TEST(what_parsing_gives) {
    xn_rng rng = {xn_test_seed()};
    void *kept = NULL;
    int hits = 0, misses = 0;
    message *m = xn_mem_alloc(sizeof *m);
    ck_assert_ptr_nonnull(m);
    for (int i = 0; i < STEPS; i++) {
        xn_conv_request parsed, found;
        xn_error error;
        make_message(m, &rng);
        xn_status status = xn_proto_parse_conv(&m->body, NULL, 0, &limits, &parsed, &error);
        bool hit = xn_recent_find(kept, &m->body, &found);
        hits += hit;
        misses += !hit;
        ck_assert(!hit || status == XN_OK); /* what is wrong is not remembered */
        if (hit)
            expect_request(&found, &parsed);
        if (status != XN_OK)
            continue;
        xn_recent_keep(&kept, &m->body, &parsed);
        bool is_short = m->body.header_length <= 512;
        ck_assert(!is_short || xn_recent_find(kept, &m->body, &found));
        if (is_short)
            expect_request(&found, &parsed);
    }
    ck_assert_int_gt(hits, 0);
    ck_assert_int_gt(misses, 0);
    xn_mem_free(kept);
    xn_mem_free(m);
}
END_TEST

/* The same bytes in another form, or with another length of header or body, mean something else. */
START_TEST(only_the_same) {
    static const char text[] =
        "{\"input\": {\"shape\": [1,1,1,1], \"datatype\": \"FP32\", "
        "\"parameters\": {\"binary_data_size\": 4}}, \"weights\": \"w\"}1234";
    const size_t length = sizeof text - 1;
    const xn_proto_body body = {.form = XN_FORM_OIP_BINARY,
                                .bytes = text,
                                .length = length,
                                .has_header_length = true,
                                .header_length = length - 4};
    xn_conv_request parsed, found;
    xn_error error;
    void *kept = NULL;
    ck_assert_int_eq(xn_proto_parse_conv(&body, NULL, 0, &limits, &parsed, &error), XN_OK);
    ck_assert(!xn_recent_find(kept, &body, &found));
    xn_recent_keep(&kept, &body, &parsed);
    ck_assert(xn_recent_find(kept, &body, &found));
    xn_proto_body other = body;
    other.form = XN_FORM_JSON;
    ck_assert(!xn_recent_find(kept, &other, &found));
    other = body;
    other.header_length--;
    ck_assert(!xn_recent_find(kept, &other, &found));
    other = body;
    other.length--;
    ck_assert(!xn_recent_find(kept, &other, &found));
    xn_mem_free(kept);
}
END_TEST

/* ---- inference requests ---- */

/* Names, shared memory, outputs, several inputs; sometimes wrong, and sometimes too long to keep:
 * for the header, or for the room behind it. */
static void make_infer(message *m, xn_rng *rng) {
    char *text = m->bytes + xn_rng_below(rng, 2) * 4;
    const int inputs = 1 + (int)xn_rng_below(rng, 2);
    const int outputs = (int)xn_rng_below(rng, xn_rng_below(rng, 4) ? 3 : 25);
    size_t length = 0, values = 0;
#define ADD(...) length += (size_t)snprintf(text + length, BODY - length, __VA_ARGS__)
    ADD("{\"inputs\": [");
    for (int i = 0; i < inputs; i++) {
        ADD("%s{\"name\": \"in%d\", \"shape\": [1,2], \"datatype\": \"FP32\", ", i ? "," : "", i);
        if (i && xn_rng_below(rng, 2)) {
            ADD("\"parameters\": {\"shared_memory_region\": \"r%d\", "
                "\"shared_memory_byte_size\": 8}}",
                (int)xn_rng_below(rng, 2));
        } else if (i) {
            ADD("\"data\": [1,%d]}", (int)xn_rng_below(rng, 2));
        } else {
            ADD("\"parameters\": {\"binary_data_size\": 8}}");
            values += 8;
        }
    }
    ADD("], \"outputs\": [");
    for (int i = 0; i < outputs; i++)
        ADD("%s{\"name\": \"%d\"}", i ? "," : "", i);
    ADD("]%*s%s", xn_rng_below(rng, 6) ? 1 : 600, "",
        xn_rng_below(rng, 8) ? "}" : ", \"wrong\": 1}");
#undef ADD
    memset(text + length, 1, values);
    m->body = (xn_proto_body){.form = XN_FORM_OIP_BINARY,
                              .bytes = text,
                              .length = length + values,
                              .has_header_length = xn_rng_below(rng, 8) > 0,
                              .header_length = length};
}

static void expect_infer(const xn_infer_request *got, const xn_infer_request *expected) {
    ck_assert_str_eq(got->id, expected->id);
    ck_assert_int_eq(got->input_count, expected->input_count);
    ck_assert_int_eq(got->output_count, expected->output_count);
    for (int i = 0; i < got->input_count; i++) {
        const xn_oip_input *a = &got->inputs[i], *b = &expected->inputs[i];
        ck_assert_str_eq(a->name, b->name);
        expect_tensor(&a->tensor, &b->tensor);
        ck_assert_int_eq(a->shared.present, b->shared.present);
        if (a->shared.present)
            ck_assert_str_eq(a->shared.region, b->shared.region);
    }
    for (int i = 0; i < got->output_count; i++)
        ck_assert_str_eq(got->outputs[i].name, expected->outputs[i].name);
}

typedef struct keeping {
    void **kept;
    const xn_proto_body *body;
    bool kept_it;
} keeping;

/* As the route does: where it is not kept, elsewhere. */
static xn_status take_kept(void *context, size_t bytes, void **out, xn_error *error) {
    keeping *k = context;
    *out = xn_recent_take_infer(k->kept, k->body, bytes);
    k->kept_it = *out != NULL;
    return *out ? XN_OK : proto_memory.take(proto_memory.context, bytes, out, error);
}

START_TEST(what_parsing_an_inference_gives) {
    xn_rng rng = {xn_test_seed()};
    void *kept = NULL;
    int hits = 0, short_ones = 0, long_ones = 0;
    message *m = xn_mem_alloc(sizeof *m);
    ck_assert_ptr_nonnull(m);
    for (int i = 0; i < 4 * STEPS; i++) {
        xn_infer_request parsed, found;
        xn_conv_request conv;
        xn_error error;
        if (xn_rng_below(&rng, 16) == 0) { /* another route's */
            make_message(m, &rng);
            ck_assert(!xn_recent_find_infer(kept, &m->body, &found));
            if (!xn_proto_parse_conv(&m->body, NULL, 0, &limits, &conv, &error))
                xn_recent_keep(&kept, &m->body, &conv);
            continue;
        }
        make_infer(m, &rng);
        ck_assert(!xn_recent_find(kept, &m->body, &conv));
        const bool hit = xn_recent_find_infer(kept, &m->body, &found);
        hits += hit;
        if (hit) { /* parsed elsewhere: the found one stays */
            ck_assert_int_eq(xn_oip_parse_infer(&m->body, &limits, &proto_memory, &parsed, &error),
                             XN_OK);
            expect_infer(&found, &parsed);
            continue;
        }
        keeping k = {&kept, &m->body, false};
        const xn_oip_memory memory = {take_kept, &k};
        xn_status status = xn_oip_parse_infer(&m->body, &limits, &memory, &parsed, &error);
        if (!status)
            xn_recent_keep_infer(kept, &m->body, &parsed);
        ck_assert_int_eq(xn_recent_find_infer(kept, &m->body, &found), !status && k.kept_it);
        if (!status && k.kept_it)
            expect_infer(&found, &parsed);
        short_ones += !status && k.kept_it;
        long_ones += !status && !k.kept_it;
    }
    ck_assert_int_gt(hits, 0);
    ck_assert_int_gt(short_ones, 0);
    ck_assert_int_gt(long_ones, 0);
    xn_mem_free(kept);
    xn_mem_free(m);
}
END_TEST

XN_SUITE(recent) {
    Suite *s = suite_create("recent");
    TCase *t = tcase_create("recent");
    tcase_add_test(t, what_parsing_gives);
    tcase_add_test(t, only_the_same);
    tcase_add_test(t, what_parsing_an_inference_gives);
    suite_add_tcase(s, t);
    return s;
}
