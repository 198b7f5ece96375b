/* wgmma_test.cu: warp_specialised.cu with epilogues that are not plain. Each must be what the host
 * makes of the plain fp32 outputs, also where fp32 overflows on the way: v + residual, clipped,
 * stored as fp32 or fp16, and the bits of y + shift. Whether the plain outputs are right is for the
 * case table. */
#include "backends/bk_run.h"
#include "cu_memory.h"
#include "packing.h"
#include "warp_specialised.h"

#include <cuda_fp16.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <vector>

enum { MULTIPROCESSORS = 20 }; /* few, so that a block has several tiles */

struct shape {
    int32_t images, channels, side, out_channels, kernel, stride, padding, groups;
};

/* Outputs of a row by 8, by 2 and odd; few words a tap and many; whole and half tiles of filters;
 * with a stride of 2 one phase of lines and two. */
static const shape shapes[] = {
    {3, 64, 16, 64, 3, 1, 1, 1},   {2, 96, 11, 40, 3, 1, 1, 1},  {4, 256, 7, 128, 3, 1, 1, 1},
    {2, 64, 13, 96, 5, 2, 2, 1},   {3, 128, 14, 64, 3, 1, 1, 2}, {2, 70, 10, 33, 1, 1, 0, 1},
    {2, 512, 9, 300, 3, 1, 1, 1},  {3, 40, 12, 64, 5, 1, 2, 1},  {3, 128, 15, 64, 3, 2, 1, 1},
    {2, 256, 32, 128, 1, 2, 0, 1}, {2, 32, 29, 64, 3, 2, 1, 1}};

static const bk_fill fills[] = {BK_RANDOM, BK_HUGE, BK_INFINITY, BK_NAN, BK_MIXED};

struct epilogue {
    bool residual, clip, bits, shift;
    xn_datatype datatype; /* XN_BITS: bits alone */
};

static const epilogue epilogues[] = {
    {true, false, false, false, XN_FP32}, {false, true, false, false, XN_FP32},
    {true, true, true, true, XN_FP32},    {false, false, true, false, XN_BITS},
    {true, false, true, true, XN_BITS},   {false, false, false, false, XN_FP16},
    {true, true, false, false, XN_FP16},  {true, false, true, true, XN_FP16},
};

/* ---- filters ---- */

/* Filters as layout.h has them. */
static std::vector<uint32_t> filters_of(const xn_weights *w, const xn_conv &c) {
    const xn_cuda_padded l = xn_cuda_padded_of(&c);
    const int32_t tap_words = xn_packed_words(w->group_channels);
    const int64_t rows = xn_cuda_wgmma_rows(w->out_channels);
    const int64_t chunks = xn_cuda_row_chunks(w->group_channels, w->kernel_w) * w->kernel_h;
    std::vector<uint32_t> out((size_t)((chunks + 1) / 2 * rows * 8));
    const uint32_t *bits = w->bits;
    for (int32_t o = 0; o < w->out_channels; o++)
        for (int32_t i = 0; i < w->kernel_h; i++)
            for (int32_t j = 0; j < w->kernel_w; j++)
                for (int32_t word = 0; word < w->words; word++) {
                    const int64_t chunk = xn_cuda_padded_chunk(i, j, word, tap_words, w->kernel_h,
                                                               w->kernel_w, l.phases_h, l.phases_w);
                    out[xn_cuda_wgmma_word(chunk, o, rows) + (j * tap_words + word) % 4] = *bits++;
                }
    return out;
}

/* Set bits of the taps [0, i) x [0, j) of each filter, [(KH+1)*(KW+1)][O]. */
static std::vector<int32_t> prefix_of(const xn_weights *w) {
    const int32_t pitch = w->kernel_w + 1;
    std::vector<int32_t> out((size_t)(w->kernel_h + 1) * pitch * w->out_channels);
    const auto at = [&](int32_t i, int32_t j, int32_t o) -> int32_t & {
        return out[(size_t)(i * pitch + j) * w->out_channels + o];
    };
    for (int32_t o = 0; o < w->out_channels; o++)
        for (int32_t i = 1; i <= w->kernel_h; i++)
            for (int32_t j = 1; j <= w->kernel_w; j++) {
                const int64_t tap = ((int64_t)o * w->kernel_h + i - 1) * w->kernel_w + j - 1;
                at(i, j, o) = at(i - 1, j, o) + at(i, j - 1, o) - at(i - 1, j - 1, o);
                for (int32_t word = 0; word < w->words; word++)
                    at(i, j, o) += __builtin_popcount(w->bits[tap * w->words + word]);
            }
    return out;
}

/* ---- a problem on a kernel ---- */

struct outputs {
    bool ran;
    std::vector<float> real; /* fp16 as fp32 */
    std::vector<uint32_t> bits;
};

struct setting {
    const bk_problem *p;
    cu_memory *memory;
    const void *input;
    const float *residual;             /* on the host */
    const float *alpha, *bias, *shift; /* on the device */
    const void *filters;
    const int32_t *prefix;
};

static xn_epilogue what_of(const epilogue &e, bool k) {
    xn_epilogue what = {};
    what.factor = XN_FACTOR_ALPHA;
    what.k = k;
    what.bias = 1;
    what.residual = e.residual;
    what.activation = e.clip ? XN_ACTIVATION_CLIP : XN_ACTIVATION_NONE;
    what.low = e.clip ? -1.5f : 0;
    what.high = e.clip ? 2.0f : 0;
    what.datatype = e.datatype;
    what.bits = e.bits;
    what.shift = e.shift;
    return what;
}

/* Packs the input and launches the kernel. */
static cudaError_t launch(const setting &s, const xn_conv &c, const xn_epilogue_args &out,
                          const xn_cuda_specialised_shape *shape, cu_memory *memory) {
    const int64_t images = s.p->images;
    const xn_cuda_padded l = xn_cuda_padded_of(&c);
    const size_t positions = (size_t)images * (size_t)c.groups * (size_t)l.plane;
    uint32_t *bits = (uint32_t *)memory->room(positions * 16 * (size_t)l.units);
    int32_t *counts = (int32_t *)memory->room(positions * 4);
    float *means = c.epilogue.k ? (float *)memory->room(positions * 4) : NULL;
    const cudaError_t e = xn_cuda_pack_launch(&c, images, MULTIPROCESSORS, s.input, bits, counts,
                                              means, XN_CUDA_AS_PADDED, false, 0);
    if (e != cudaSuccess)
        return e;
    const xn_cuda_specialised_io io = {
        bits, counts, means, s.filters, xn_cuda_wgmma_rows(c.out_channels), s.prefix, false};
    return xn_cuda_specialised_launch(&c, images, shape, &io, &out, 0);
}

static outputs run(const setting &s, const epilogue &e, bool k) {
    xn_conv c = s.p->conv;
    c.epilogue = what_of(e, k);
    const bool fp16 = e.datatype == XN_FP16, real = e.datatype != XN_BITS;
    const size_t count = (size_t)s.p->images * (size_t)xn_conv_output_elements(&c);
    const size_t words = count / c.out_channels * (size_t)xn_packed_words(c.out_channels);
    outputs out = {};
    std::vector<xn_cuda_specialised_shape> shape(1);
    if (!xn_cuda_specialised_plan(&c, s.p->images, MULTIPROCESSORS, &shape[0]))
        return out;
    cu_memory memory;
    std::vector<__half> halves(fp16 ? count : 0);
    xn_epilogue_args args = {};
    args.factor = s.alpha;
    args.bias = s.bias;
    args.shift = s.shift;
    if (real)
        args.output = memory.room(count * (fp16 ? 2 : 4));
    if (e.bits)
        args.bits = (uint32_t *)memory.room(words * 4);
    if (e.residual && fp16) {
        for (size_t i = 0; i < count; i++)
            halves[i] = __float2half_rn(s.residual[i]);
        args.residual = memory.copy(halves);
        args.residual_fp16 = true;
    } else if (e.residual) {
        args.residual = memory.copy(std::vector<float>(s.residual, s.residual + count));
    }
    CUDA(launch(s, c, args, &shape[0], &memory));
    CUDA(cudaDeviceSynchronize());
    out.ran = true;
    out.real.resize(real ? count : 0);
    out.bits.resize(e.bits ? words : 0);
    if (fp16) {
        CUDA(cudaMemcpy(halves.data(), args.output, count * 2, cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < count; i++)
            out.real[i] = __half2float(halves[i]);
    } else if (real) {
        CUDA(cudaMemcpy(out.real.data(), args.output, count * 4, cudaMemcpyDeviceToHost));
    }
    if (e.bits)
        CUDA(cudaMemcpy(out.bits.data(), args.bits, words * 4, cudaMemcpyDeviceToHost));
    return out;
}

/* ---- what is right ---- */

static bool same(float a, float b) {
    return (isnan(a) && isnan(b)) || !memcmp(&a, &b, 4);
}

/* What the host makes of plain outputs. */
static outputs right_of(const setting &s, const epilogue &e, const std::vector<float> &plain,
                        const std::vector<float> &shift) {
    const xn_conv &c = s.p->conv;
    const size_t plane = (size_t)c.out_height * c.out_width, filters = (size_t)c.out_channels;
    const size_t words = (size_t)xn_packed_words(c.out_channels);
    outputs out = {};
    out.bits.resize(e.bits ? plain.size() / filters * words : 0);
    for (size_t i = 0; i < plain.size(); i++) {
        const size_t o = i / plane % filters, pixel = i / plane / filters * plane + i % plane;
        float y = plain[i];
        if (e.residual)
            y += e.datatype == XN_FP16 ? __half2float(__float2half_rn(s.residual[i]))
                                       : s.residual[i];
        if (e.clip)
            y = y < -1.5f ? -1.5f : y > 2.0f ? 2.0f : y;
        if (e.bits && (e.shift ? y + shift[o] : y) >= 0)
            out.bits[pixel * words + o / 32] |= 1u << o % 32;
        if (e.datatype != XN_BITS)
            out.real.push_back(e.datatype == XN_FP16 ? __half2float(__float2half_rn(y)) : y);
    }
    return out;
}

static void compare(const setting &s, int number, const outputs &got, const outputs &right) {
    size_t wrong = 0, first = 0;
    char text[BK_TEXT];
    ck_assert(got.real.size() == right.real.size() && got.bits.size() == right.bits.size());
    for (size_t i = 0; i < got.real.size(); i++)
        if (!same(got.real[i], right.real[i]) && !wrong++)
            first = i;
    bk_case_describe(s.p->c, text);
    ck_assert_msg(!wrong, "epilogue %d: %zu of %zu wrong, first %zu: %.9g for %.9g, of %s", number,
                  wrong, got.real.size(), first, got.real[first], right.real[first], text);
    for (size_t i = 0; i < got.bits.size(); i++)
        if (got.bits[i] != right.bits[i] && !wrong++)
            first = i;
    ck_assert_msg(!wrong, "epilogue %d: %zu of %zu words wrong, first %zu: %08x for %08x, of %s",
                  number, wrong, got.bits.size(), first, got.bits[first], right.bits[first], text);
}

/* ---- tests ---- */

static bk_case case_of(const shape &s, bk_fill fill) {
    bk_case c = bk_geometry(s.images, s.channels, s.side, s.side + (s.stride > 1), s.out_channels,
                            s.kernel, s.kernel);
    c.params.stride[0] = c.params.stride[1] = s.stride;
    c.params.padding_kind = XN_PADDING_EXPLICIT;
    bk_pad(&c, s.padding, s.padding, s.padding, s.padding);
    c.params.groups = s.groups;
    c.input_fill = fill;
    c.bias = true;
    return c;
}

static int check(const shape &sh, bk_fill fill) {
    const bk_case c = case_of(sh, fill);
    bk_problem p;
    cu_memory memory;
    bk_problem_make(&c, &p);
    const size_t count = (size_t)p.images * (size_t)xn_conv_output_elements(&p.conv);
    const size_t filters = (size_t)p.conv.out_channels;
    std::vector<float> residual(count), shift(filters);
    xn_rng rng = {c.seed + 1};
    bk_fill_values(&rng, BK_RANDOM, XN_FP32, residual.data(), (int64_t)count);
    bk_fill_values(&rng, BK_RANDOM, XN_FP32, shift.data(), (int64_t)filters);
    setting s = {};
    s.p = &p;
    s.residual = residual.data();
    s.input = memory.copy(
        std::vector<float>(p.real, p.real + p.images * xn_conv_input_elements(&p.conv)));
    s.alpha = memory.copy(std::vector<float>(p.weights->alpha, p.weights->alpha + filters));
    s.bias = memory.copy(std::vector<float>(p.weights->bias, p.weights->bias + filters));
    s.shift = memory.copy(shift);
    s.filters = memory.copy(filters_of(p.weights, p.conv));
    s.prefix = memory.copy(prefix_of(p.weights));
    int runs = 0;
    for (int k = 0; k < 2; k++) {
        const epilogue plain = {false, false, false, false, XN_FP32};
        const outputs first = run(s, plain, k);
        ck_assert(first.ran);
        for (size_t n = 0; n < sizeof epilogues / sizeof *epilogues; n++, runs++)
            compare(s, (int)n, run(s, epilogues[n], k),
                    right_of(s, epilogues[n], first.real, shift));
    }
    bk_problem_free(&p);
    return runs;
}

START_TEST(every_epilogue) {
    bool usable = false;
    int runs = 0;
    const bk_target *target = bk_target_named("cuda");
    if (!target)
        return;
    CUDA(xn_cuda_specialised_load(&usable));
    if (!usable)
        return;
    for (const shape &s : shapes)
        for (bk_fill fill : fills)
            runs += check(s, fill);
    printf("wgmma: %d runs\n", runs);
    ck_assert_int_eq(runs, 11 * 5 * 2 * 8);
}
END_TEST

XN_SUITE(cuda_wgmma) {
    Suite *s = suite_create("cuda_wgmma");
    TCase *t = xn_test_case(s, "epilogues", 600);
    tcase_add_test(t, every_epilogue);
    return s;
}
