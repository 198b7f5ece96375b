/* Programs of several steps: what is refused, memory that fails, layouts of bits that no network
 * has, and that a step of a batch sees each image's own tensors. */
#include "nw_net.h"

#include "countdown.h"
#include "xn_arith.h"
#include "xn_backend.h"
#include "xn_mem.h"
#include "xn_program.h"

#include <string.h>

/* ref, opened. */
typedef struct bench {
    const xn_backend *backend;
    xn_device *device;
    xn_stream *stream;
} bench;

static bench open_backend(const char *name) {
    bench b = {.backend = xn_backend_find(name)};
    const xn_stream_options options = {0};
    ck_assert_ptr_nonnull(b.backend);
    ck_assert_int_eq(b.backend->device_open(0, &b.device, NULL), XN_OK);
    ck_assert_int_eq(b.backend->stream_create(b.device, &options, &b.stream, NULL), XN_OK);
    return b;
}

static void close_backend(bench *b) {
    b->backend->stream_free(b->stream);
    b->backend->device_close(b->device);
}

/* A map of [c, h, w], FP32 to FP32. */
static xn_step map_step(int32_t input, int32_t output, int32_t c, int32_t h, int32_t w) {
    const xn_conv conv = {.channels = c,
                          .height = h,
                          .width = w,
                          .out_channels = c,
                          .kernel_h = 1,
                          .kernel_w = 1,
                          .out_height = h,
                          .out_width = w,
                          .groups = 1,
                          .group_channels = c,
                          .group_out_channels = c,
                          .stride_h = 1,
                          .stride_w = 1,
                          .dilation_h = 1,
                          .dilation_w = 1,
                          .mode = XN_MODE_FLOAT};
    xn_step step;
    xn_step_of_conv(&conv, &step);
    step.kind = XN_STEP_MAP;
    step.input = input;
    step.output = output;
    step.weights = XN_NO_WEIGHTS;
    return step;
}

static xn_status create(const bench *b, const xn_step *steps, int count, int64_t images,
                        xn_program **out, xn_error *error) {
    return xn_program_create_steps(b->backend, b->stream, steps, count, images, out, error);
}

/* ---- refusals ---- */

/* Three steps in a row, edited so. */
#define REFUSED(...)                                                                               \
    do {                                                                                           \
        xn_step steps[3] = {map_step(0, 1, 2, 3, 3), map_step(1, 2, 2, 3, 3),                      \
                            map_step(2, 3, 2, 3, 3)};                                              \
        xn_program *program = NULL;                                                                \
        xn_error error = {0};                                                                      \
        __VA_ARGS__;                                                                               \
        ck_assert_msg(create(&b, steps, 3, 1, &program, &error) == XN_ERR_INTERNAL, "%s: %s",      \
                      #__VA_ARGS__, error.message);                                                \
        ck_assert_ptr_null(program);                                                               \
    } while (0)

START_TEST(steps_that_contradict_each_other_are_refused) {
    bench b = open_backend("ref");
    REFUSED(steps[1].input = 3);
    REFUSED(steps[1].residual = 2);
    REFUSED(steps[1].second = 3);
    REFUSED(steps[1].output = 0);
    REFUSED(steps[1] = map_step(1, 1, 2, 3, 4));
    REFUSED(steps[1].bits = 2);
    REFUSED(steps[1] = map_step(1, 2, 2, 3, 4), steps[2] = map_step(2, 3, 2, 3, 4));
    REFUSED(steps[2].residual = 1, steps[2].residual_datatype = XN_FP16);
    REFUSED(steps[2].kind = XN_STEP_MUL, steps[2].second = 1);
    REFUSED(steps[0].input = -2);
    REFUSED(steps[1].output = 3, steps[2].input = 3);
    REFUSED(steps[2].output = XN_NO_TENSOR);
    close_backend(&b);
}
END_TEST

START_TEST(a_backend_without_the_kind_refuses) {
    bench b = open_backend("cpu");
    xn_program *program = NULL;
    xn_error error = {0};
    const xn_step step = map_step(0, 1, 2, 3, 3);
    if (!(b.backend->kinds >> XN_STEP_MAP & 1)) {
        ck_assert_int_eq(create(&b, &step, 1, 1, &program, &error), XN_ERR_UNSUPPORTED);
        ck_assert_msg(strstr(error.message, "map") && strstr(error.message, "cpu"), "%s",
                      error.message);
    }
    xn_step part = step;
    part.kind = XN_STEP_CONV;
    part.output_view = (xn_view){0, 36};
    if (!b.backend->parts) {
        ck_assert_int_eq(create(&b, &part, 1, 1, &program, &error), XN_ERR_UNSUPPORTED);
        ck_assert_msg(strstr(error.message, "part of a tensor") != NULL, "%s", error.message);
    }
    close_backend(&b);
}
END_TEST

START_TEST(more_images_than_addresses_are_refused) {
    bench b = open_backend("ref");
    const xn_step steps[2] = {map_step(0, 1, 1 << 10, 1 << 10, 1 << 9),
                              map_step(1, 2, 1 << 10, 1 << 10, 1 << 9)};
    xn_program *program = NULL;
    xn_error error = {0};
    ck_assert_int_eq(create(&b, steps, 2, INT64_MAX / 4, &program, &error), XN_ERR_DEVICE_MEMORY);
    ck_assert_int_eq(create(&b, steps, 2, 0, &program, &error), XN_ERR_INTERNAL);
    close_backend(&b);
}
END_TEST

START_TEST(every_allocation_failed_in_turn) {
    bench b = open_backend("ref");
    xn_step steps[3] = {map_step(0, 1, 2, 3, 3), map_step(1, 2, 2, 3, 3), map_step(2, 3, 2, 3, 3)};
    int fail = 0;
    for (xn_status status = XN_ERR_INTERNAL; status != XN_OK; fail++) {
        xn_countdown c = {.left = fail};
        xn_program *program = NULL;
        xn_error error = {0};
        xn_mem_set_hook(xn_countdown_hook, &c);
        status = create(&b, steps, 3, 2, &program, &error);
        xn_mem_set_hook(NULL, NULL);
        ck_assert(status == XN_OK || status == XN_ERR_NO_MEMORY || status == XN_ERR_DEVICE_MEMORY);
        ck_assert((program != NULL) == (status == XN_OK));
        xn_program_free(program);
        ck_assert_int_lt(fail, 100);
    }
    ck_assert_int_gt(fail, 10);
    close_backend(&b);
}
END_TEST

/* ---- a run in one call ---- */

/* What a backend that takes them so was asked for. */
static struct {
    int calls, steps, made, freed;
    bool none; /* no memory to keep anything in */
    xn_status fails;
} recorded;

static xn_recordings *make_recordings(int steps) {
    ck_assert_int_eq(steps, 3);
    recorded.made++;
    return recorded.none ? NULL : (xn_recordings *)&recorded;
}

static xn_status run_all(xn_stream *stream, const xn_run *run, xn_recordings *recordings,
                         xn_run_times *times, xn_error *error) {
    const xn_backend *ref = xn_backend_find("ref");
    ck_assert_ptr_eq(recordings, recorded.none ? NULL : (xn_recordings *)&recorded);
    recorded.calls++;
    recorded.steps += run->count;
    ck_assert_int_eq(ref->begin(stream, run->batch, run->input, error), XN_OK);
    for (int i = 0; i < run->count; i++) {
        const xn_enqueued *step = &run->steps[i];
        ck_assert_int_eq(ref->enqueue(step->plan, step->prepared, &step->io, error), XN_OK);
    }
    ck_assert_int_eq(ref->end(stream, run->batch, run->output, times, error), XN_OK);
    return recorded.fails;
}

static void free_recordings(xn_recordings *recordings) {
    ck_assert_ptr_eq(recordings, recorded.none ? NULL : (xn_recordings *)&recorded);
    recorded.freed++;
}

START_TEST(a_backend_may_take_a_run_at_once) {
    bench b = open_backend("ref");
    xn_backend all = *b.backend;
    const xn_step steps[3] = {map_step(0, 1, 2, 3, 3), map_step(1, 2, 2, 3, 3),
                              map_step(2, 3, 2, 3, 3)};
    float input[18], output[18];
    const xn_batch_item item = {input, output, 1};
    xn_program *program = NULL;
    all.run = run_all;
    all.recordings_create = make_recordings;
    all.recordings_free = free_recordings;
    b.backend = &all;
    for (int i = 0; i < 18; i++)
        input[i] = (float)i;
    memset(&recorded, 0, sizeof recorded);
    recorded.none = _i;
    ck_assert_int_eq(create(&b, steps, 3, 1, &program, NULL), XN_OK);
    ck_assert_int_eq(recorded.made, 1);
    for (int run = 1; run <= 3; run++) {
        memset(output, 0, sizeof output);
        ck_assert_int_eq(xn_program_run(program, NULL, &item, 1, NULL, NULL), XN_OK);
        ck_assert_mem_eq(output, input, sizeof input);
        ck_assert_int_eq(recorded.calls, run);
        ck_assert_int_eq(recorded.steps, 3 * run);
    }
    recorded.fails = XN_ERR_DEVICE_LOST;
    ck_assert_int_eq(xn_program_run(program, NULL, &item, 1, NULL, NULL), XN_ERR_DEVICE_LOST);
    ck_assert_int_eq(recorded.freed, 0);
    xn_program_free(program);
    ck_assert_int_eq(recorded.freed, 1);
    close_backend(&b);
}
END_TEST

/* True so many times. */
static bool still_wanted(void *context) {
    int *left = context;
    return (*left)-- > 0;
}

START_TEST(a_run_that_is_not_wanted_ends) {
    bench b = open_backend(_i ? "cpu" : "ref");
    const xn_step steps[3] = {map_step(0, 1, 2, 3, 3), map_step(1, 2, 2, 3, 3),
                              map_step(2, 3, 2, 3, 3)};
    float input[18], output[18];
    const xn_batch_item item = {input, output, 1};
    xn_program *program = NULL;
    xn_error error;
    for (int i = 0; i < 18; i++)
        input[i] = (float)i;
    ck_assert_int_eq(create(&b, steps, 3, 1, &program, NULL), XN_OK);
    for (int steps_wanted = 0; steps_wanted <= 3; steps_wanted++) {
        int left = steps_wanted;
        memset(output, 0, sizeof output);
        xn_status status = xn_program_run_cancellable(
            program, NULL, &item, 1, &(xn_cancel_token){still_wanted, &left, 0}, NULL, &error);
        ck_assert_int_eq(status, steps_wanted < 3 ? XN_ERR_CANCELLED : XN_OK);
        if (steps_wanted < 3) {
            ck_assert_int_eq(left, -1); /* not asked again */
            ck_assert(output[17] == 0); /* the last step did not run */
        } else {
            ck_assert_mem_eq(output, input, sizeof input);
        }
        ck_assert_int_eq(xn_program_run(program, NULL, &item, 1, NULL, NULL), XN_OK);
    }
    xn_program_free(program);
    close_backend(&b);
}
END_TEST

static size_t arena_limit;

static xn_status reserve_within(xn_stream *stream, size_t bytes, xn_error *error) {
    if (bytes > arena_limit)
        return xn_fail(error, XN_ERR_DEVICE_MEMORY, NULL, "%zu bytes are too many", bytes);
    return xn_backend_find("ref")->arena_reserve(stream, bytes, error);
}

static int64_t eight_images(const xn_stream *stream, size_t image_bytes) {
    (void)stream;
    (void)image_bytes;
    return 8;
}

/* Where there is no memory for a pass of many images, passes have fewer. */
START_TEST(short_memory_makes_passes_smaller) {
    enum { IMAGES = 11, ELEMENTS = 180 };
    bench b = open_backend("ref");
    xn_backend small = *b.backend;
    const xn_step steps[3] = {map_step(0, 1, 20, 3, 3), map_step(1, 2, 20, 3, 3),
                              map_step(2, 3, 20, 3, 3)};
    static float input[IMAGES * ELEMENTS], output[IMAGES * ELEMENTS];
    const xn_batch_item item = {input, output, IMAGES};
    const size_t image_bytes = 2 * ELEMENTS * sizeof *input;
    small.arena_reserve = reserve_within;
    small.pass_images = eight_images;
    b.backend = &small;
    for (int i = 0; i < IMAGES * ELEMENTS; i++)
        input[i] = (float)i;
    for (size_t images = 1; images <= 8; images++) {
        xn_program *program = NULL;
        arena_limit = images * image_bytes + 1000;
        memset(output, 0, sizeof output);
        ck_assert_int_eq(create(&b, steps, 3, IMAGES, &program, NULL), XN_OK);
        ck_assert_int_eq(xn_program_run(program, NULL, &item, 1, NULL, NULL), XN_OK);
        ck_assert_mem_eq(output, input, sizeof input);
        xn_program_free(program);
    }
    xn_program *none = NULL;
    arena_limit = image_bytes / 2;
    ck_assert_int_eq(create(&b, steps, 3, IMAGES, &none, NULL), XN_ERR_DEVICE_MEMORY);
    ck_assert_ptr_null(none);
    close_backend(&b);
}
END_TEST

/* ---- bits ---- */

/* Channels of a pixel in words of one group each, as a convolution with groups reads them. */
static void pack_groups(const float *values, int32_t channels, int32_t groups, int32_t pixels,
                        uint32_t *words) {
    const int32_t share = channels / groups, each = xn_packed_words(share);
    memset(words, 0, (size_t)(groups * pixels * each) * sizeof *words);
    for (int32_t c = 0; c < channels; c++)
        for (int32_t p = 0; p < pixels; p++)
            if (values[c * pixels + p] >= 0)
                words[(c / share * pixels + p) * each + c % share / 32] |= 1u << (c % share % 32);
}

static void pack_bytes(const float *values, int32_t channels, int32_t pixels, uint8_t *bytes) {
    const int32_t each = (channels + 7) / 8;
    memset(bytes, 0, (size_t)(pixels * each));
    for (int32_t c = 0; c < channels; c++)
        for (int32_t p = 0; p < pixels; p++)
            if (values[c * pixels + p] >= 0)
                bytes[p * each + c / 8] |= (uint8_t)(1u << (c % 8));
}

enum { CHANNELS = 80, GROUPS = 2, PIXELS = 12, OUT = 6 };

/* The same step on reals, bytes and words of the group: equal results, and bits that are the signs
 * of the reals. */
static void run_step(const bench *b, const xn_step *step, const xn_prepared *prepared,
                     const void *input, void *output) {
    xn_program *program = NULL;
    xn_error error = {0};
    const xn_batch_item item = {input, output, 1};
    ck_assert_msg(create(b, step, 1, 1, &program, &error) == XN_OK, "%s", error.message);
    ck_assert_int_eq(xn_program_run(program, &prepared, &item, 1, NULL, &error), XN_OK);
    xn_program_free(program);
}

static void check_layouts(const bench *b, xn_step step, const xn_prepared *prepared,
                          const float *input) {
    uint32_t words[GROUPS * PIXELS * 2];
    uint8_t bytes[PIXELS * CHANNELS / 8], bits[PIXELS], expected[PIXELS];
    uint32_t out_words[PIXELS];
    float reals[OUT * PIXELS], again[OUT * PIXELS];
    run_step(b, &step, prepared, input, reals);

    step.conv.input_datatype = XN_BITS;
    pack_bytes(input, CHANNELS, PIXELS, bytes);
    run_step(b, &step, prepared, bytes, again);
    ck_assert_mem_eq(again, reals, sizeof reals);

    step.input_layout = XN_LAYOUT_WORDS;
    pack_groups(input, CHANNELS, GROUPS, PIXELS, words);
    run_step(b, &step, prepared, words, again);
    ck_assert_mem_eq(again, reals, sizeof reals);

    step.conv.epilogue.datatype = XN_BITS;
    step.conv.epilogue.bits = 1;
    step.output = XN_NO_TENSOR;
    step.bits = 1;
    run_step(b, &step, prepared, words, bits);
    pack_bytes(reals, OUT, PIXELS, expected);
    ck_assert_mem_eq(bits, expected, sizeof bits);
    step.bits_layout = XN_LAYOUT_WORDS;
    memset(out_words, 0xff, sizeof out_words);
    run_step(b, &step, prepared, words, out_words);
    for (int p = 0; p < PIXELS; p++)
        ck_assert_uint_eq(out_words[p], expected[p]);
}

START_TEST(bits_are_the_same_in_every_layout) {
    xn_rng rng = {xn_test_seed()};
    bench b = open_backend("ref");
    nw_net *net = nw_create(CHANNELS, 3, 4);
    const xn_weights_parts parts = {.weights =
                                        nw_random(net, &rng, false, OUT, CHANNELS / GROUPS, 3, 3),
                                    .bias = nw_random(net, &rng, false, OUT, 0, 0, 0)};
    const xn_tensor *input = nw_random(net, &rng, false, CHANNELS, 3, 4, 0);
    const xn_shape shape = {4, {1, CHANNELS, 3, 4}};
    xn_conv_params params;
    xn_weights *weights = NULL;
    xn_weights_shape weights_shape;
    xn_prepared *prepared;
    xn_conv conv;
    xn_step step;
    int64_t images;
    xn_conv_params_default(&params);
    params.padding_kind = XN_PADDING_SAME;
    params.groups = GROUPS;
    params.scaling = XN_SCALING_ALPHA;
    ck_assert_int_eq(xn_weights_create_parts(&parts, &weights, NULL), XN_OK);
    xn_weights_shape_of(weights, &weights_shape);
    ck_assert_int_eq(
        xn_conv_resolve(&params, XN_FP32, &shape, &weights_shape, &nw_limits, &conv, &images, NULL),
        XN_OK);
    ck_assert_int_eq(b.backend->weights_prepare(b.device, weights, &prepared, NULL), XN_OK);
    xn_step_of_conv(&conv, &step);
    check_layouts(&b, step, prepared, input->data);
    b.backend->weights_free(prepared);
    xn_weights_free(weights);
    nw_free(net);
    close_backend(&b);
}
END_TEST

/* Sizes of tensors as a whole, whatever part a step has of them. */
START_TEST(sizes_are_of_whole_tensors) {
    xn_step s = map_step(0, 1, 80, 3, 4);
    ck_assert_uint_eq(xn_step_input_bytes(&s), 80 * 12 * 4);
    ck_assert_uint_eq(xn_step_output_bytes(&s), 80 * 12 * 4);
    ck_assert_uint_eq(xn_step_bits_bytes(&s), 0);
    s.input_view = s.output_view = (xn_view){100, 2000};
    s.conv.input_datatype = XN_UINT8;
    ck_assert_uint_eq(xn_step_input_bytes(&s), 2000);
    ck_assert_uint_eq(xn_step_output_bytes(&s), 8000);
    s.bits = 2;
    ck_assert_uint_eq(xn_step_bits_bytes(&s), 12 * 10);
    s.bits_layout = XN_LAYOUT_WORDS;
    ck_assert_uint_eq(xn_step_bits_bytes(&s), 12 * 4 * 4); /* 80 channels: 3 words, 4 in packed */
    s.output = XN_NO_TENSOR;
    ck_assert_uint_eq(xn_step_output_bytes(&s), 0);
    s.conv.input_datatype = XN_BITS;
    s.input_layout = XN_LAYOUT_WORDS;
    ck_assert_uint_eq(xn_step_input_bytes(&s), 12 * 4 * 4);
    s.conv.channels = 64;
    ck_assert_uint_eq(xn_step_input_bytes(&s), 12 * 2 * 4);
    ck_assert(!xn_step_is_whole(&s));
}
END_TEST

XN_SUITE(networks_program) {
    Suite *s = suite_create("networks_program");
    TCase *t = xn_test_case(s, "program", 0);
    tcase_add_test(t, steps_that_contradict_each_other_are_refused);
    tcase_add_test(t, a_backend_without_the_kind_refuses);
    tcase_add_test(t, more_images_than_addresses_are_refused);
    tcase_add_test(t, every_allocation_failed_in_turn);
    tcase_add_loop_test(t, a_backend_may_take_a_run_at_once, 0, 2);
    tcase_add_test(t, short_memory_makes_passes_smaller);
    tcase_add_loop_test(t, a_run_that_is_not_wanted_ends, 0, 2);
    tcase_add_test(t, bits_are_the_same_in_every_layout);
    tcase_add_test(t, sizes_are_of_whole_tensors);
    return s;
}
