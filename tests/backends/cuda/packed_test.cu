/* packed_test.cu: steps of the CUDA backend that requests to /conv do not make: inputs and outputs
 * in bits of every layout, residuals, activations, reals and bits at once; on every path that can.
 * The geometries are the integer cases of the table and random ones. Dots come from ref; the rest
 * of the epilogue is of numbers that fp32 holds exactly, so all is compared bit by bit. */
#include "backends/bk_run.h"
#include "cu_memory.h"
#include "xn_cuda.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <vector>

enum { GUARD = 256, POISON = 0xa5, USUAL_RANDOM = 150, MOST_PATHS = 32 };

/* What an epilogue has; scale: with the bias; shift: bits are of y + shift. And where reals are
 * parts of tensors: whole vectors of them, or any. */
enum { BITS = 1, SCALE = 2, SHIFT = 4, RESIDUAL = 8, CLIP = 16, PRELU = 32, PART = 64, ODD = 128 };

struct variant {
    const char *name;
    xn_datatype input;  /* XN_BITS in the layout, or the case's where that is FP32 here */
    xn_layout layout;   /* of bits in and out */
    xn_datatype output; /* XN_BITS: none but bits */
    int has;            /* of those above */
};

static const variant variants[] = {
    {"words to INT32", XN_BITS, XN_LAYOUT_WORDS, XN_INT32, 0},
    {"words to FP16", XN_BITS, XN_LAYOUT_WORDS, XN_FP16, SCALE},
    {"words to words", XN_BITS, XN_LAYOUT_WORDS, XN_BITS, BITS | SCALE | SHIFT},
    {"reals to words", XN_FP32, XN_LAYOUT_WORDS, XN_BITS, BITS | SHIFT},
    {"bytes to FP32", XN_BITS, XN_LAYOUT_BYTES, XN_FP32, SCALE},
    {"bytes to bytes", XN_BITS, XN_LAYOUT_BYTES, XN_BITS, BITS | SCALE | SHIFT},
    {"reals to INT32 and bytes", XN_FP32, XN_LAYOUT_BYTES, XN_INT32, BITS | SHIFT},
    {"residual, clip", XN_FP32, XN_LAYOUT_BYTES, XN_FP32, SCALE | RESIDUAL | CLIP},
    {"residual, clip to FP16 and words", XN_BITS, XN_LAYOUT_WORDS, XN_FP16,
     BITS | SCALE | SHIFT | RESIDUAL | CLIP},
    {"prelu to FP32 and bytes", XN_BITS, XN_LAYOUT_BYTES, XN_FP32, BITS | SCALE | SHIFT | PRELU},
    {"residual to bytes", XN_FP32, XN_LAYOUT_BYTES, XN_BITS, BITS | SCALE | RESIDUAL},
    {"part to part", XN_FP32, XN_LAYOUT_BYTES, XN_FP32, SCALE | PART},
    {"words to odd part, FP16", XN_BITS, XN_LAYOUT_WORDS, XN_FP16, SCALE | ODD},
    {"parts with residual, clip to FP16 and words", XN_BITS, XN_LAYOUT_WORDS, XN_FP16,
     BITS | SCALE | SHIFT | RESIDUAL | CLIP | PART},
    {"odd part to words with residual", XN_FP32, XN_LAYOUT_WORDS, XN_BITS,
     BITS | SCALE | RESIDUAL | ODD},
};

static const float LOW = -2.5f, HIGH = 3.25f; /* of clip */

/* What the variants of a case share. */
struct packed_problem {
    bk_problem problem;
    xn_weights *weights; /* with scale, bias and shift */
    xn_prepared *prepared;
    std::vector<int32_t> dots;
    std::vector<float> residual; /* of the shape of the output */
    std::vector<uint32_t> words;
    std::vector<uint8_t> bytes;
};

static int64_t runs[MOST_PATHS];
static xn_stream *streams[MOST_PATHS]; /* held to a path each; NULL: the device has not that path */

static void open_streams(const bk_target *target) {
    for (int i = 0; xn_cuda_path_at(i); i++) {
        xn_stream_options options = {};
        xn_error error;
        options.path = xn_cuda_path_at(i)->name;
        ck_assert_int_lt(i, MOST_PATHS);
        streams[i] = NULL;
        if (xn_cuda_path_exists(xn_cuda_path_at(i), &target->device->chip))
            ck_assert_int_eq(xn_cuda_stream_create(target->device, &options, &streams[i], &error),
                             XN_OK);
    }
}

static void close_streams() {
    for (xn_stream *stream : streams)
        xn_cuda_stream_free(stream);
}

/* ---- a case ---- */

/* layout.h's activations from the real input. */
static std::vector<uint32_t> words_of(const bk_problem &p) {
    const xn_conv &c = p.conv;
    const int64_t words = xn_packed_words(c.group_channels), plane = (int64_t)c.height * c.width;
    std::vector<uint32_t> bits((size_t)(p.images * c.groups * plane * words));
    for (int64_t n = 0; n < p.images; n++)
        for (int64_t channel = 0; channel < c.channels; channel++)
            for (int64_t i = 0; i < plane; i++) {
                const int64_t group = channel / c.group_channels, at = channel % c.group_channels;
                bits[((n * c.groups + group) * plane + i) * words + at / 32] |=
                    xn_sign_bit(p.real[(n * c.channels + channel) * plane + i]) << at % 32;
            }
    return bits;
}

static std::vector<uint8_t> bytes_of(const bk_problem &p) {
    const xn_conv &c = p.conv;
    const int64_t pixel = (c.channels + 7) / 8, plane = (int64_t)c.height * c.width;
    std::vector<uint8_t> bytes((size_t)(p.images * plane * pixel));
    for (int64_t n = 0; n < p.images; n++)
        for (int64_t channel = 0; channel < c.channels; channel++)
            for (int64_t i = 0; i < plane; i++)
                bytes[(n * plane + i) * pixel + channel / 8] |=
                    (uint8_t)(xn_sign_bit(p.real[(n * c.channels + channel) * plane + i])
                              << channel % 8);
    return bytes;
}

static xn_tensor tensor_of(const std::vector<float> &values, const xn_shape &shape) {
    xn_tensor t = {};
    t.datatype = XN_FP32;
    t.shape = shape;
    t.elements = (int64_t)values.size();
    t.bytes = values.size() * sizeof(float);
    t.data = values.data();
    return t;
}

/* About half of the outputs get either bit, and some filters the same one everywhere. */
static xn_weights *make_weights(const packed_problem &p, xn_rng *rng) {
    static const float factors[] = {1, -1, 0.5f, -0.5f, 2, -2, 0, -0.0f};
    const xn_weights *from = p.problem.weights;
    const int64_t filter = (int64_t)from->group_channels * from->kernel_h * from->kernel_w;
    const uint32_t spread = (uint32_t)sqrt((double)filter) + 1;
    const std::vector<float> real(from->real, from->real + filter * from->out_channels);
    std::vector<float> scale, bias, slope, shift;
    for (int32_t o = 0; o < from->out_channels; o++) {
        scale.push_back(factors[xn_rng_below(rng, 8)]);
        bias.push_back(0.25f *
                       (float)((int32_t)xn_rng_below(rng, 8 * spread + 1) - 4 * (int32_t)spread));
        slope.push_back(0.25f * (float)xn_rng_below(rng, 4));
        const uint64_t kind = xn_rng_below(rng, 16);
        shift.push_back(kind == 0   ? 1e6f
                        : kind == 1 ? -1e6f
                        : kind == 2 ? NAN
                                    : 0.25f * (float)((int32_t)xn_rng_below(rng, 8 * spread + 1) -
                                                      4 * (int32_t)spread));
    }
    const xn_shape kernel = {
        4, {from->out_channels, from->group_channels, from->kernel_h, from->kernel_w}};
    const xn_shape each = {1, {from->out_channels}};
    const xn_tensor tensors[] = {tensor_of(real, kernel), tensor_of(scale, each),
                                 tensor_of(bias, each), tensor_of(slope, each),
                                 tensor_of(shift, each)};
    xn_weights_parts parts = {};
    parts.weights = &tensors[0];
    parts.scale = &tensors[1];
    parts.bias = &tensors[2];
    parts.slope = &tensors[3];
    parts.shift = &tensors[4];
    xn_weights *weights = NULL;
    xn_error error;
    ck_assert_int_eq(xn_weights_create_parts(&parts, &weights, &error), XN_OK);
    return weights;
}

static void make(const bk_target *target, const bk_case *c, packed_problem *out) {
    xn_rng rng = {c->seed};
    xn_error error;
    bk_problem_make(c, &out->problem);
    const xn_conv &conv = out->problem.conv;
    out->dots.resize((size_t)(out->problem.images * xn_conv_output_elements(&conv)));
    bk_run(bk_target_ref(), &out->problem, &conv, out->dots.data());
    for (size_t i = 0; i < out->dots.size(); i++)
        out->residual.push_back(0.25f * (float)((int32_t)xn_rng_below(&rng, 41) - 20));
    out->weights = make_weights(*out, &rng);
    ck_assert_int_eq(xn_cuda_weights_prepare(target->device, out->weights, &out->prepared, &error),
                     XN_OK);
    out->words = words_of(out->problem);
    out->bytes = bytes_of(out->problem);
}

static void free_problem(packed_problem *p) {
    xn_cuda_weights_free(p->prepared);
    xn_weights_free(p->weights);
    bk_problem_free(&p->problem);
}

/* ---- what is right ---- */

static float right_value(const packed_problem &p, const variant &v, size_t i) {
    const xn_conv &c = p.problem.conv;
    const size_t o = i / ((size_t)c.out_height * c.out_width) % (size_t)c.out_channels;
    float y = (float)p.dots[i];
    if (v.has & SCALE)
        y = y * p.weights->scale[o] + p.weights->bias[o];
    if (v.has & RESIDUAL)
        y += p.residual[i];
    if (v.has & PRELU)
        return y >= 0 ? y : y * p.weights->slope[o];
    return !(v.has & CLIP) ? y : y < LOW ? LOW : y > HIGH ? HIGH : y;
}

static bool right_bit(const packed_problem &p, const variant &v, size_t i) {
    const xn_conv &c = p.problem.conv;
    const size_t o = i / ((size_t)c.out_height * c.out_width) % (size_t)c.out_channels;
    const float y = right_value(p, v, i);
    return xn_sign_bit(v.has & SHIFT ? y + p.weights->shift[o] : y);
}

/* Words of a pixel; of bytes as many as they fill, with zeros behind. */
static std::vector<uint32_t> right_words(const packed_problem &p, const variant &v) {
    const xn_conv &c = p.problem.conv;
    const size_t words = (size_t)xn_packed_words(c.out_channels);
    const size_t plane = (size_t)c.out_height * c.out_width;
    std::vector<uint32_t> right((size_t)p.problem.images * plane * words);
    for (size_t i = 0; i < p.dots.size(); i++) {
        const size_t o = i / plane % (size_t)c.out_channels, n = i / plane / (size_t)c.out_channels;
        right[(n * plane + i % plane) * words + o / 32] |= (uint32_t)right_bit(p, v, i) << o % 32;
    }
    return right;
}

/* Device memory with what guards it. */
struct guarded {
    unsigned char *memory;
    size_t bytes;
    void *inside() const {
        return memory ? memory + GUARD : NULL;
    }
};

static guarded guard(size_t bytes) {
    guarded g = {NULL, bytes};
    if (bytes)
        CUDA(cudaMalloc(&g.memory, GUARD + bytes + GUARD));
    return g;
}

static std::vector<unsigned char> fetch(const guarded &g, size_t *wrong) {
    std::vector<unsigned char> all(g.bytes ? GUARD + g.bytes + GUARD : 0);
    if (!g.bytes)
        return all;
    CUDA(cudaMemcpy(all.data(), g.memory, all.size(), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < GUARD; i++)
        *wrong += all[i] != POISON || all[GUARD + g.bytes + i] != POISON;
    return std::vector<unsigned char>(all.begin() + GUARD, all.end() - GUARD);
}

/* Where so many elements of an image lie. */
static xn_view view_of(const variant &v, int64_t elements) {
    if (v.has & PART)
        return {16, (int32_t)elements + 16 + 24};
    if (v.has & ODD)
        return {3, (int32_t)elements + 3 + 2};
    return {0, 0};
}

static size_t pitch_of(const variant &v, int64_t elements) {
    const xn_view view = view_of(v, elements);
    return (size_t)(view.pitch ? view.pitch : elements);
}

/* Images of so many bytes an element, spread over tensors of which they are parts. */
static std::vector<unsigned char> spread(const void *whole, size_t images, int64_t elements,
                                         size_t size, const variant &v) {
    const size_t pitch = pitch_of(v, elements) * size, each = (size_t)elements * size;
    std::vector<unsigned char> all(images * pitch, POISON);
    for (size_t n = 0; n < images; n++)
        memcpy(&all[n * pitch + (size_t)view_of(v, elements).offset * size],
               (const unsigned char *)whole + n * each, each);
    return all;
}

static size_t wrong_reals(const packed_problem &p, const variant &v, const guarded &output) {
    const int64_t elements = xn_conv_output_elements(&p.problem.conv);
    const size_t size = xn_datatype_bytes(v.output == XN_BITS ? XN_FP32 : v.output);
    const size_t pitch = pitch_of(v, elements);
    size_t wrong = 0;
    std::vector<unsigned char> got = fetch(output, &wrong);
    for (size_t i = 0; output.bytes && i < p.dots.size(); i++) {
        const double right = v.output == XN_INT32 ? p.dots[i] : right_value(p, v, i);
        const size_t at = i / (size_t)elements * pitch + (size_t)view_of(v, elements).offset +
                          i % (size_t)elements;
        wrong +=
            !bk_is_right(v.output, bk_value(v.output, got.data(), (int64_t)at), right, 0, false);
        memset(&got[at * size], POISON, size);
    }
    for (unsigned char byte : got) /* around the parts */
        wrong += byte != POISON;
    return wrong;
}

static size_t wrong_bits(const packed_problem &p, const variant &v, const guarded &bits) {
    const xn_conv &c = p.problem.conv;
    const size_t pixels = (size_t)c.out_height * c.out_width, images = (size_t)p.problem.images;
    size_t wrong = 0;
    std::vector<unsigned char> got = fetch(bits, &wrong);
    if (!bits.bytes)
        return wrong;
    const std::vector<uint32_t> right = right_words(p, v);
    const size_t pitch = right.size() * 4 / pixels / images; /* bytes of a pixel in words */
    const size_t each = got.size() / pixels / images;
    for (size_t i = 0; i < got.size(); i++)
        wrong += got[i] != ((const unsigned char *)right.data())[i / each * pitch + i % each];
    return wrong;
}

/* ---- a run ---- */

static void *to_device(const void *data, size_t bytes) {
    void *memory = NULL;
    CUDA(cudaMalloc(&memory, bytes));
    CUDA(cudaMemcpy(memory, data, bytes, cudaMemcpyHostToDevice));
    return memory;
}

/* Beside bits alone too. */
static bool has_fp16_residual(const variant &v) {
    return v.output == XN_FP16 || v.output == XN_BITS;
}

static xn_step step_of(const packed_problem &p, const variant &v) {
    xn_step step;
    xn_step_of_conv(&p.problem.conv, &step);
    xn_epilogue *e = &step.conv.epilogue;
    *e = {};
    e->factor = v.has & SCALE ? XN_FACTOR_SCALE : XN_FACTOR_NONE;
    e->bias = (v.has & SCALE) != 0;
    e->residual = (v.has & RESIDUAL) != 0;
    e->activation = v.has & CLIP    ? XN_ACTIVATION_CLIP
                    : v.has & PRELU ? XN_ACTIVATION_PRELU
                                    : XN_ACTIVATION_NONE;
    e->low = v.has & CLIP ? LOW : 0;
    e->high = v.has & CLIP ? HIGH : 0;
    e->datatype = v.output;
    e->bits = (v.has & BITS) != 0;
    e->shift = (v.has & SHIFT) != 0;
    if (v.input == XN_BITS)
        step.conv.input_datatype = XN_BITS;
    step.input_layout = v.input == XN_BITS ? v.layout : 0;
    step.bits_layout = v.has & BITS ? v.layout : 0;
    step.residual_datatype = has_fp16_residual(v) ? XN_FP16 : XN_FP32;
    step.residual = v.has & RESIDUAL ? 2 : XN_NO_TENSOR;
    step.output = v.output == XN_BITS ? XN_NO_TENSOR : 1;
    step.bits = v.has & BITS ? 3 : XN_NO_TENSOR;
    const int64_t outputs = xn_conv_output_elements(&step.conv);
    if (v.input != XN_BITS)
        step.input_view = view_of(v, xn_conv_input_elements(&step.conv));
    if (v.output != XN_BITS)
        step.output_view = view_of(v, outputs);
    if (v.has & RESIDUAL)
        step.residual_view = view_of(v, outputs);
    return step;
}

static size_t bits_bytes(const packed_problem &p, const variant &v) {
    const xn_conv &c = p.problem.conv;
    const size_t pixels = (size_t)p.problem.images * c.out_height * c.out_width;
    if (!(v.has & BITS))
        return 0;
    return pixels * (v.layout == XN_LAYOUT_WORDS ? 4 * (size_t)xn_packed_words(c.out_channels)
                                                 : ((size_t)c.out_channels + 7) / 8);
}

static void run_on(int path, const packed_problem &p, const variant &v, const xn_step_io &io,
                   const guarded &output, const guarded &bits) {
    const xn_step step = step_of(p, v);
    xn_stream *stream = streams[path];
    xn_plan *plan = NULL;
    xn_error error = {};
    char text[BK_TEXT];
    const xn_status status =
        xn_cuda_plan_create(stream, &step, p.problem.images + p.problem.c->spare, &plan, &error);
    if (status == XN_ERR_UNSUPPORTED)
        return;
    ck_assert_msg(status == XN_OK, "%s: %s", v.name, error.message);
    ck_assert_int_eq(xn_cuda_weights_ready(p.prepared, plan, &error), XN_OK);
    if (stream->workspace)
        CUDA(cudaMemset(stream->workspace, 0xff, stream->workspace_bytes));
    for (const guarded &g : {output, bits})
        if (g.bytes)
            CUDA(cudaMemset(g.memory, POISON, GUARD + g.bytes + GUARD));
    CUDA(cudaDeviceSynchronize());
    CUDA(xn_cuda_enqueue(plan, p.prepared, p.problem.images, &io, stream->stream));
    CUDA(cudaStreamSynchronize(stream->stream));
    const size_t wrong = wrong_reals(p, v, output) + wrong_bits(p, v, bits);
    bk_case_describe(p.problem.c, text);
    ck_assert_msg(!wrong, "%s on %s: %zu wrong of %s; run seed %llu", v.name,
                  xn_cuda_plan_path(plan), wrong, text, (unsigned long long)xn_test_seed());
    runs[path]++;
    xn_cuda_plan_free(plan);
}

static std::vector<unsigned char> input_of(const packed_problem &p, const variant &v) {
    const xn_conv &c = p.problem.conv;
    if (v.input != XN_BITS)
        return spread(p.problem.input, (size_t)p.problem.images, xn_conv_input_elements(&c),
                      xn_datatype_bytes((xn_datatype)c.input_datatype), v);
    const std::vector<uint32_t> &words = p.words;
    const unsigned char *from = (const unsigned char *)words.data();
    return v.layout == XN_LAYOUT_BYTES ? std::vector<unsigned char>(p.bytes.begin(), p.bytes.end())
                                       : std::vector<unsigned char>(from, from + words.size() * 4);
}

static std::vector<unsigned char> residual_of(const packed_problem &p, const variant &v) {
    const int64_t elements = xn_conv_output_elements(&p.problem.conv);
    const size_t images = (size_t)p.problem.images;
    std::vector<uint16_t> half;
    for (float r : p.residual)
        half.push_back(xn_fp32_to_fp16(r));
    return has_fp16_residual(v) ? spread(half.data(), images, elements, 2, v)
                                : spread(p.residual.data(), images, elements, 4, v);
}

static void check_variant(const packed_problem &p, const variant &v) {
    const size_t elements =
        (size_t)p.problem.images * pitch_of(v, xn_conv_output_elements(&p.problem.conv));
    const guarded output =
        guard(v.output == XN_BITS ? 0 : elements * (v.output == XN_FP16 ? 2 : 4));
    const guarded bits = guard(bits_bytes(p, v));
    const std::vector<unsigned char> from = input_of(p, v), beside = residual_of(p, v);
    void *input = to_device(from.data(), from.size());
    void *residual = to_device(beside.data(), beside.size());
    xn_step_io io = {};
    io.input = input;
    io.residual = v.has & RESIDUAL ? residual : NULL;
    io.output = output.inside();
    io.bits = bits.inside();
    for (int path = 0; xn_cuda_path_at(path); path++)
        if (streams[path])
            run_on(path, p, v, io, output, bits);
    for (void *memory : {input, residual, (void *)output.memory, (void *)bits.memory})
        CUDA(cudaFree(memory));
}

static void check_case(const bk_target *target, const bk_case *c) {
    packed_problem p = {};
    make(target, c, &p);
    for (const variant &v : variants)
        check_variant(p, v);
    free_problem(&p);
}

/* ---- tests ---- */

struct table_walk {
    const bk_target *target;
    int64_t number;
};

static void visit(const bk_case *c, void *context) {
    table_walk *walk = (table_walk *)context;
    if (c->params.mode == XN_MODE_XNOR && c->params.output_datatype == XN_INT32 &&
        walk->number++ % bk_every() == 0)
        check_case(walk->target, c);
}

/* complete: every path of mode xnor must have run. */
static void report(bool complete) {
    printf("steps:");
    for (int path = 0; xn_cuda_path_at(path); path++) {
        const char *name = xn_cuda_path_at(path)->name;
        if (runs[path])
            printf(" %s %lld", name, (long long)runs[path]);
        ck_assert_msg(!complete || !streams[path] || !strncmp(name, "real", 4) || runs[path] > 0,
                      "%s never ran", name);
        runs[path] = 0;
    }
    printf("\n");
}

START_TEST(table) {
    const bk_target *target = bk_target_named("cuda");
    if (!target)
        return;
    table_walk walk = {target, 0};
    open_streams(target);
    for (int i = 0; i < bk_section_count; i++)
        bk_sections[i].each(visit, &walk);
    report(bk_every() == 1);
    close_streams();
}
END_TEST

START_TEST(random_problems) {
    const bk_target *target = bk_target_named("cuda");
    const char *text = getenv("XNORD_TEST_RANDOM");
    const int count = text ? atoi(text) : USUAL_RANDOM;
    if (!target)
        return;
    open_streams(target);
    for (int i = 0; i < count; i++) {
        bk_case c;
        bk_case_random(xn_test_seed() + (uint64_t)i, &c);
        c.params.mode = XN_MODE_XNOR;
        c.params.scaling = XN_SCALING_NONE;
        c.params.output_datatype = XN_INT32;
        c.scale = c.bias = false;
        bk_case_signed(&c);
        check_case(target, &c);
    }
    report(false);
    close_streams();
}
END_TEST

XN_SUITE(cuda_packed) {
    Suite *s = suite_create("cuda_packed");
    TCase *t = xn_test_case(s, "packed", 600);
    tcase_add_test(t, table);
    tcase_add_test(t, random_problems);
    return s;
}
