/* epilogue_test.cu: residual, activation, bits and their shift on the kernels that have the whole
 * epilogue: direct, implicit_gemm, real, real_mma. What they must give follows from what the same
 * kernel gives with the plain epilogue, by one operation of fp32 after the other (xn_epilogue.h),
 * and is compared bit by bit. Launchers are called as a plan would, on guarded memory. */
#include "backends/bk_run.h"
#include "bits_path.h"
#include "cu_memory.h"
#include "layout.h"
#include "packing.h"
#include "real.h"
#include "real_mma.h"
#include "xn_cuda.h"

#include <math.h>
#include <string.h>
#include <vector>

enum { GUARD = 256, POISON = 0xa5 };

/* ---- memory ---- */

/* An output between guards, in memory that is kept from one to the next. */
struct guarded {
    unsigned char *memory;
    size_t bytes;

    void reserve(cu_memory *device, size_t most) {
        memory = (unsigned char *)device->room(GUARD + most + GUARD);
    }
    void reset(size_t count) {
        bytes = count;
        CUDA(cudaMemset(memory, POISON, GUARD + bytes + GUARD));
    }
    void *data() const {
        return memory + GUARD;
    }
    /* What was written, once the guards are seen to be whole. */
    std::vector<unsigned char> read() const {
        std::vector<unsigned char> all(GUARD + bytes + GUARD);
        CUDA(cudaMemcpy(all.data(), memory, all.size(), cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < GUARD; i++)
            ck_assert_msg(all[i] == POISON && all[GUARD + bytes + i] == POISON,
                          "written outside the output");
        return std::vector<unsigned char>(all.begin() + GUARD, all.end() - GUARD);
    }
};

/* ---- a problem on the device ---- */

enum path { DIRECT, IMPLICIT_GEMM, REAL_GEMM, REAL_MMA, PATHS };
static const char *const path_names[PATHS] = {"direct", "implicit_gemm", "real_gemm", "real_mma"};

struct problem {
    bk_problem p;
    const xn_device *device;
    cu_memory memory;
    /* per output channel, and per output; on both sides */
    std::vector<float> shift, slope;
    std::vector<float> residual;
    float *residual_fp32; /* on the device */
    uint16_t *residual_fp16;
    guarded reals, bit_words; /* what a launch writes */
    xn_epilogue_args args;
    /* what kernels read */
    const void *input;
    const float *weights;
    xn_cuda_bit_args bits;
    xn_cuda_real_io real;
};

static std::vector<float> random_floats(size_t count, uint64_t seed, float scale) {
    std::vector<float> all(count);
    xn_rng rng = {seed};
    for (float &v : all)
        v = xn_rng_float(&rng) * scale;
    return all;
}

static float as_fp16(float v) {
    return xn_fp16_to_fp32(xn_fp32_to_fp16(v));
}

/* layout.h's rows and prefix. */
static void make_rows(problem *x) {
    const xn_weights *w = x->p.weights;
    const int32_t tap_words = xn_packed_words(w->group_channels);
    const int64_t row_words = xn_cuda_row_words(w->group_channels, w->kernel_h, w->kernel_w);
    const int64_t taps = (int64_t)w->kernel_h * w->kernel_w, filters = w->out_channels;
    const int64_t pitch = (w->kernel_w + 1) * filters;
    std::vector<uint32_t> rows((size_t)(filters * row_words));
    std::vector<int32_t> prefix((size_t)((w->kernel_h + 1) * pitch));
    for (int64_t o = 0; o < filters; o++)
        for (int64_t tap = 0; tap < taps; tap++) {
            int32_t set = 0;
            for (int64_t n = 0; n < w->words; n++) {
                const uint32_t word = w->bits[(o * taps + tap) * w->words + n];
                rows[(size_t)(o * row_words + tap * tap_words + n)] = word;
                set += __builtin_popcount(word);
            }
            int32_t *at = &prefix[(size_t)((tap / w->kernel_w + 1) * pitch +
                                           (tap % w->kernel_w + 1) * filters + o)];
            *at = set + at[-filters] + at[-pitch] - at[-pitch - filters];
        }
    x->bits.rows = x->memory.copy(rows);
    x->bits.prefix = x->memory.copy(prefix);
}

/* Bits of the input with all that goes with them, as the kernels of a plan make them. */
static void make_bits(problem *x) {
    const xn_conv *c = &x->p.conv;
    const size_t planes = (size_t)(x->p.images * c->groups);
    const size_t in = planes * c->height * c->width, out = planes * c->out_height * c->out_width;
    uint32_t *bits = (uint32_t *)x->memory.room(in * xn_packed_words(c->group_channels) * 4);
    int32_t *popc = (int32_t *)x->memory.room(in * 4), *part = (int32_t *)x->memory.room(out * 4);
    float *mean = c->epilogue.k ? (float *)x->memory.room(in * 4) : NULL;
    float *box = c->epilogue.k ? (float *)x->memory.room(out * 4) : NULL;
    make_rows(x);
    CUDA(xn_cuda_pack_launch(c, x->p.images, x->device->chip.multiprocessors, x->input, bits, popc,
                             mean, XN_CUDA_PLAIN, false, NULL));
    CUDA(xn_cuda_box_launch(c, x->p.images, NULL, popc, mean, part, box, NULL));
    x->bits.bits = bits;
    x->bits.pixel_part = part;
    x->bits.mean = mean;
    x->bits.box = box;
}

static const void *copy_part(problem *x, xn_cuda_part part) {
    size_t bytes;
    ck_assert(xn_cuda_part_bytes(x->p.weights, part, &bytes));
    std::vector<unsigned char> all(bytes);
    xn_cuda_part_fill(x->p.weights, part, all.data());
    return x->memory.copy(all);
}

static void make_mma(problem *x) {
    const xn_conv *c = &x->p.conv;
    const bool fp16 = c->precision == XN_PRECISION_FP16, signs = c->mode == XN_MODE_BWN;
    const xn_cuda_part part = fp16    ? signs ? XN_CUDA_PART_FP16_SIGNS : XN_CUDA_PART_FP16_REALS
                              : signs ? XN_CUDA_PART_TF32_SIGNS
                                      : XN_CUDA_PART_TF32_REALS;
    x->real.weights = copy_part(x, part);
    if (part == XN_CUDA_PART_FP16_REALS)
        x->real.exponent = (const int32_t *)copy_part(x, XN_CUDA_PART_EXPONENTS);
    x->real.pixels = x->memory.room((size_t)(x->p.images * xn_cuda_mma_pixel_bytes(c)));
}

/* Of the outputs as bits. */
static size_t bit_bytes(const problem &x) {
    const xn_conv &c = x.p.conv;
    return (size_t)x.p.images * c.out_height * c.out_width * xn_packed_words(c.out_channels) * 4;
}

static void make(const bk_target *target, const bk_case *c, problem *x) {
    bk_problem_make(c, &x->p);
    const xn_conv *conv = &x->p.conv;
    const xn_weights *w = x->p.weights;
    const size_t outputs = (size_t)(x->p.images * xn_conv_output_elements(conv));
    const size_t filters = (size_t)conv->out_channels;
    const size_t in_bytes = (size_t)x->p.images * xn_conv_input_bytes(conv);
    const unsigned char *input = (const unsigned char *)x->p.input;
    x->device = target->device;
    x->input = x->memory.copy(std::vector<unsigned char>(input, input + in_bytes));
    x->weights = x->memory.copy(std::vector<float>(
        w->real, w->real + filters * w->group_channels * w->kernel_h * w->kernel_w));
    x->shift = random_floats(filters, c->seed + 1, 4.0f);
    x->slope = random_floats(filters, c->seed + 2, 1.0f);
    x->slope[0] = 0.0f;
    x->residual = random_floats(outputs, c->seed + 3, 8.0f);
    std::vector<uint16_t> halves;
    for (float &v : x->residual) {
        v = as_fp16(v); /* the same numbers for both datatypes */
        halves.push_back(xn_fp32_to_fp16(v));
    }
    x->residual_fp32 = x->memory.copy(x->residual);
    x->residual_fp16 = x->memory.copy(halves);
    x->reals.reserve(&x->memory, outputs * sizeof(float));
    x->bit_words.reserve(&x->memory, bit_bytes(*x));
    x->args.factor = conv->epilogue.factor == XN_FACTOR_NONE
                         ? NULL
                         : x->memory.copy(std::vector<float>(w->alpha, w->alpha + filters));
    x->args.bias = w->bias ? x->memory.copy(std::vector<float>(w->bias, w->bias + filters)) : NULL;
    x->args.shift = x->memory.copy(x->shift);
    x->args.slope = x->memory.copy(x->slope);
    x->real.input = x->input;
    if (conv->mode == XN_MODE_XNOR)
        make_bits(x);
    else if (conv->precision != XN_PRECISION_FP32)
        make_mma(x);
}

/* False where the path is not for this problem, or not of this device. */
static bool launch(const problem &x, path path, const xn_epilogue &what,
                   const xn_epilogue_args &args) {
    xn_conv conv = x.p.conv;
    const int64_t images = x.p.images;
    const int processors = x.device->chip.multiprocessors;
    conv.epilogue = what;
    if ((conv.mode == XN_MODE_XNOR) != (path < REAL_GEMM))
        return false;
    if (path == DIRECT) {
        CUDA(xn_cuda_direct_launch(&conv, images, &x.bits, &args, NULL));
    } else if (path == IMPLICIT_GEMM) {
        if (!x.device->chip.matrix || !xn_cuda_implicit_gemm_fits(&conv, images))
            return false;
        CUDA(xn_cuda_implicit_gemm_launch(&conv, images, processors, &x.bits, &args, NULL));
    } else if (path == REAL_GEMM) {
        xn_cuda_real_io real = x.real;
        real.weights = x.weights;
        CUDA(xn_cuda_real_gemm_launch(&conv, images, processors, &real, &args, NULL));
    } else {
        if (!x.device->chip.matrix || !xn_cuda_real_mma_fits(&conv, images))
            return false;
        CUDA(xn_cuda_real_mma_launch(&conv, images, processors, &x.real, &args, NULL));
    }
    CUDA(cudaDeviceSynchronize());
    return true;
}

/* ---- what is right ---- */

static float activate(const xn_epilogue &what, float slope, float v) {
    if (what.activation == XN_ACTIVATION_PRELU)
        return v >= 0.0f ? v : slope * v;
    if (what.activation == XN_ACTIVATION_CLIP)
        return isnan(v) ? v : fminf(fmaxf(v, what.low), what.high);
    return v;
}

static size_t filter_of(const problem &x, size_t i) {
    const xn_conv &c = x.p.conv;
    return i / ((size_t)c.out_height * c.out_width) % (size_t)c.out_channels;
}

/* y of every output from the plain kernel's. */
static std::vector<float> right_values(const problem &x, const xn_epilogue &what,
                                       const std::vector<float> &plain) {
    std::vector<float> y(plain);
    for (size_t i = 0; i < y.size(); i++) {
        if (what.residual)
            y[i] += x.residual[i];
        y[i] = activate(what, x.slope[filter_of(x, i)], y[i]);
    }
    return y;
}

/* [N][OH*OW][words], spare bits and words 0. */
static std::vector<uint32_t> right_bits(const problem &x, const xn_epilogue &what,
                                        const std::vector<float> &y) {
    const xn_conv &c = x.p.conv;
    const size_t plane = (size_t)c.out_height * c.out_width;
    const size_t words = (size_t)xn_packed_words(c.out_channels);
    std::vector<uint32_t> bits((size_t)x.p.images * plane * words);
    for (size_t i = 0; i < y.size(); i++) {
        const size_t o = filter_of(x, i), image = i / plane / (size_t)c.out_channels;
        const float v = what.shift ? y[i] + x.shift[o] : y[i];
        bits[(image * plane + i % plane) * words + o / 32] |= xn_sign_bit(v) << o % 32;
    }
    return bits;
}

/* ---- the check ---- */

static void expect(const problem &x, path path, const xn_epilogue &what, const char *part,
                   size_t wrong, size_t of, size_t first) {
    char text[BK_TEXT];
    if (!wrong)
        return;
    bk_case_describe(x.p.c, text);
    ck_abort_msg("%s: %zu of %zu %s wrong, first %zu; residual %d, activation %d, shift %d, %s; %s",
                 path_names[path], wrong, of, part, first, what.residual, what.activation,
                 what.shift, xn_datatype_name((xn_datatype)what.datatype), text);
}

static void check_reals(const problem &x, path path, const xn_epilogue &what, const guarded &out,
                        const std::vector<float> &y) {
    const std::vector<unsigned char> got = out.read();
    size_t wrong = 0, first = 0;
    for (size_t i = 0; i < y.size(); i++) {
        const float right = what.datatype == XN_FP16 ? as_fp16(y[i]) : y[i];
        const float value = (float)bk_value((xn_datatype)what.datatype, got.data(), (int64_t)i);
        if (memcmp(&value, &right, sizeof value) && !(isnan(value) && isnan(right)) && !wrong++)
            first = i;
    }
    expect(x, path, what, "values", wrong, y.size(), first);
}

static void check_bits(const problem &x, path path, const xn_epilogue &what, const guarded &out,
                       const std::vector<float> &y) {
    const std::vector<unsigned char> got = out.read();
    const std::vector<uint32_t> right = right_bits(x, what, y);
    size_t wrong = 0, first = 0;
    for (size_t i = 0; i < right.size(); i++)
        if (((const uint32_t *)got.data())[i] != right[i] && !wrong++)
            first = i;
    expect(x, path, what, "words", wrong, right.size(), first);
}

/* One epilogue on one path; plain: what the path gives with nothing after the bias. */
static void check_epilogue(problem *x, path path, const xn_epilogue &what,
                           const std::vector<float> &plain) {
    const bool real = what.datatype != XN_BITS, half = what.datatype == XN_FP16;
    x->reals.reset(real ? plain.size() * (half ? 2 : 4) : 0);
    x->bit_words.reset(what.bits ? bit_bytes(*x) : 0);
    xn_epilogue_args args = x->args;
    args.residual = half ? (const void *)x->residual_fp16 : x->residual_fp32;
    args.residual_fp16 = half;
    args.output = real ? x->reals.data() : NULL;
    args.bits = what.bits ? (uint32_t *)x->bit_words.data() : NULL;
    if (!launch(*x, path, what, args))
        return;
    const std::vector<float> y = right_values(*x, what, plain);
    if (real)
        check_reals(*x, path, what, x->reals, y);
    if (what.bits)
        check_bits(*x, path, what, x->bit_words, y);
}

/* FP32 of the plain epilogue; empty where the path is not for the problem. */
static std::vector<float> plain_values(problem *x, path path) {
    const size_t count = (size_t)(x->p.images * xn_conv_output_elements(&x->p.conv));
    xn_epilogue_args args = x->args;
    x->reals.reset(count * sizeof(float));
    args.output = x->reals.data();
    std::vector<float> values;
    if (launch(*x, path, x->p.conv.epilogue, args)) {
        const std::vector<unsigned char> bytes = x->reals.read();
        values.resize(count);
        memcpy(values.data(), bytes.data(), bytes.size());
    }
    return values;
}

static const int32_t activations[] = {XN_ACTIVATION_NONE, XN_ACTIVATION_CLIP, XN_ACTIVATION_PRELU};

/* Of large problems, which are there for their tiles, few epilogues are enough. */
static bool is_asked(size_t outputs, int number) {
    return outputs < 50000 || (number > 9 && number % 5 == 0);
}

static int check_case(const bk_target *target, const bk_case *c) {
    static const xn_datatype outputs[] = {XN_FP32, XN_FP16, XN_BITS};
    problem x = {};
    int ran = 0;
    make(target, c, &x);
    for (int p = 0; p < PATHS; p++) {
        const std::vector<float> plain = plain_values(&x, (path)p);
        ran += !plain.empty();
        for (int n = 0; !plain.empty() && n < 24; n++) {
            if (!is_asked(plain.size(), n))
                continue;
            xn_epilogue what = x.p.conv.epilogue;
            what.datatype = outputs[n % 3];
            what.residual = n / 3 % 2;
            what.bits = what.datatype == XN_BITS || n / 6 % 2;
            what.shift = what.bits && n / 12 % 2;
            for (int32_t activation : activations) {
                what.activation = activation;
                what.low = activation == XN_ACTIVATION_CLIP ? -1.5f : 0.0f;
                what.high = activation == XN_ACTIVATION_CLIP ? 2.0f : 0.0f;
                check_epilogue(&x, (path)p, what, plain);
            }
        }
    }
    bk_problem_free(&x.p);
    return ran;
}

/* ---- problems ---- */

struct shape {
    int64_t images, channels, height, width, out_channels, groups, kernel, stride;
};

/* Filters that fill words and that do not, groups whose filters begin within a word, planes of
 * outputs that are multiples of 4 and not, problems for every tile of the matrix units. */
static const shape shapes[] = {
    {1, 3, 9, 11, 1, 1, 3, 1},    {2, 40, 8, 8, 33, 1, 3, 1},   {3, 24, 7, 9, 36, 3, 3, 2},
    {1, 64, 16, 16, 64, 1, 1, 1}, {4, 32, 32, 32, 96, 2, 3, 1}, {6, 16, 40, 40, 130, 1, 3, 1},
};

static bk_case case_of(const shape &s, xn_mode mode, xn_scaling scaling, xn_precision precision) {
    bk_case c =
        bk_geometry(s.images, s.channels, s.height, s.width, s.out_channels, s.kernel, s.kernel);
    c.params.groups = s.groups;
    c.params.stride[0] = c.params.stride[1] = s.stride;
    c.params.padding_kind = XN_PADDING_SAME;
    c.params.mode = mode;
    c.params.scaling = scaling;
    c.params.precision = precision;
    c.bias = true;
    c.seed = (uint64_t)(s.images * 100 + s.channels);
    return c;
}

START_TEST(whole_epilogue) {
    const bk_target *target = bk_target_named("cuda");
    if (!target)
        return;
    for (const shape &s : shapes) {
        int ran = 0;
        for (xn_scaling scaling : {XN_SCALING_XNOR, XN_SCALING_ALPHA, XN_SCALING_NONE}) {
            const bk_case c = case_of(s, XN_MODE_XNOR, scaling, XN_PRECISION_FP32);
            ran += check_case(target, &c);
        }
        for (xn_mode mode : {XN_MODE_BWN, XN_MODE_FLOAT})
            for (xn_precision p : {XN_PRECISION_FP32, XN_PRECISION_TF32, XN_PRECISION_FP16}) {
                const bk_case c = case_of(s, mode, XN_SCALING_ALPHA, p);
                ran += check_case(target, &c);
            }
        ck_assert_int_ge(ran, 3 + 6 + (target->device->chip.matrix ? 3 + 4 : 0));
    }
}
END_TEST

XN_SUITE(cuda_epilogue) {
    Suite *s = suite_create("cuda_epilogue");
    TCase *t = xn_test_case(s, "epilogue", 600);
    tcase_add_test(t, whole_epilogue);
    return s;
}
