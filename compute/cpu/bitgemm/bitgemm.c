/* bitgemm.c: mode xnor for any number of channels as im2col and a product of bits: signs as bits,
 * 32 channels to a word, xor and popcount.
 *
 * Phase 1 packs the images: planes[group][word][y][x], the channels' order of xn_weights.h, bits
 * past C/groups 0; beside it, for K, A[group][y][x] = the sum or the mean of |I| (kmap.h). Channel
 * rows are read in chunks that stay in L1, and each input element is read once. Packed input is
 * only put in that order. It also makes, for every filter, the table of what dot starts from in
 * each border class.
 *
 * Phase 2, with K: its sums from A, a plane of each image and group.
 *
 * Phase 3, for some lanes (bitgemm.h) and filters: the patches of the lanes, a copy in L1 that
 * knows of geometry so that nothing after it does; then differ = popc(patch xor filter). Outside
 * the image patches are 0, where they differ from filter o in popc(o outside) places. So
 *
 *     dot = start[o][class] - 2 * differ
 *
 *     pad  0   start = C/groups * taps inside + 2 popc(o outside)
 *     pad  1   start = C/groups * (taps inside - taps outside) + 4 popc(o outside)
 *     pad -1   start = C/groups * taps
 *
 * Planes have no padding, so memory does not depend on it: this path takes every geometry. */
#include "bitgemm_job.h"
#include "bits.h"
#include "kmap.h"
#include "parallel.h"
#include "rows.h"
#include "xn_arith.h"
#include "xn_mem.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum {
    CHUNK = 512,      /* most pixels packed at a time, */
    LEAST_CHUNK = 64, /* and least (chunk_of) */
    WORD_CHANNELS = 32,
    WAVE_BYTES = 32 << 20, /* packed images held at a time, if more than one */
    ROWS = 8,              /* filters between two epilogues of outputs that are not gathered, */
                           /* where dots() can be direct: stores then go out evenly, while others */
                           /* are counted */
    LEAD = 16,             /* words before the planes: kernels read that far */
    SLACK_LANES = 16,      /* after a row of patches: kernels write past the end of a piece */
    PATCH_BYTES = 20 << 10, /* of the patches at a time, unless that were below */
    LEAST_LANES = 64,       /* which is enough to amortise reading the filters */
    MOST_LANES = 256,
    MOST_WHOLE = 256,       /* outputs of the whole images of a unit */
    START_FILTERS = 64,     /* of a unit of phase 1 */
    K_ROWS = 16,            /* of a unit of phase 2 */
    STREAM_BYTES = 4 << 20, /* output of a run from which on it does not pass through the cache */
};

static size_t plane_of(const xn_conv *conv) {
    return (size_t)conv->height * (size_t)conv->width;
}

static size_t out_plane_of(const xn_conv *conv) {
    return (size_t)conv->out_height * (size_t)conv->out_width;
}

static xn_cpu_patch patch_of(const xn_conv *conv) {
    return xn_cpu_patch_of(conv->group_channels, conv->kernel_h, conv->kernel_w);
}

/* ---- the plan ---- */

static bool has_short_k(const xn_conv *conv) {
    return conv->epilogue.k && xn_cpu_k_is_short(conv);
}

/* Images of a unit whose outputs are gathered; 0: none. */
static int32_t whole_of(const xn_conv *conv) {
    size_t bytes = out_plane_of(conv) * xn_datatype_bytes((xn_datatype)conv->epilogue.datatype);
    if (conv->epilogue.bits)
        return 0;
    return bytes % XN_CPU_LINE ? (int32_t)(MOST_WHOLE / out_plane_of(conv)) : 0;
}

static void take_shared(const xn_conv *conv, xn_cpu_bitgemm_state *state, xn_cpu_sizer *sizer) {
    size_t wave = (size_t)state->wave, groups = wave * (size_t)conv->groups, starts;
    size_t words = (size_t)patch_of(conv).tap_words;
    bool with_k = conv->epilogue.k;
    if (!xn_mul_size((size_t)conv->out_channels, (size_t)state->map->pitch, &starts))
        sizer->failed = true;
    state->offset[XN_CPU_BITGEMM_PLANES] =
        LEAD * sizeof(uint32_t) +
        xn_cpu_take(sizer, LEAD + groups * words * plane_of(conv), sizeof(uint32_t));
    state->offset[XN_CPU_BITGEMM_MEANS] =
        xn_cpu_take(sizer, with_k ? groups * plane_of(conv) : 0, sizeof(float));
    state->offset[XN_CPU_BITGEMM_KS] =
        xn_cpu_take(sizer, with_k ? groups * out_plane_of(conv) : 0, sizeof(float));
    state->offset[XN_CPU_BITGEMM_STARTS] = xn_cpu_take(sizer, starts, sizeof(int32_t));
}

static void take_slice(const xn_conv *conv, const xn_cpu_bitgemm_kernels *gemm,
                       xn_cpu_bitgemm_state *state, xn_cpu_sizer *sizer) {
    size_t pitch = (size_t)state->lanes + SLACK_LANES, words = (size_t)patch_of(conv).words;
    size_t column = 0;
    if (!xn_mul_size(words, pitch, &column))
        sizer->failed = true;
    state->offset[XN_CPU_BITGEMM_MAGNITUDES] = xn_cpu_take(sizer, CHUNK, sizeof(float));
    state->offset[XN_CPU_BITGEMM_SUMS] = xn_cpu_take(sizer, CHUNK, sizeof(double));
    state->offset[XN_CPU_BITGEMM_REALS] = xn_cpu_take(sizer, WORD_CHANNELS * CHUNK, sizeof(float));
    state->offset[XN_CPU_BITGEMM_VERTICAL] =
        xn_cpu_take(sizer, (size_t)conv->width, sizeof(double));
    state->offset[XN_CPU_BITGEMM_ACROSS] =
        xn_cpu_take(sizer, (size_t)conv->out_width, sizeof(double));
    const size_t width = (size_t)conv->out_width, rows = (size_t)conv->kernel_h;
    const bool with_k = has_short_k(conv), bits = conv->epilogue.bits;
    state->offset[XN_CPU_BITGEMM_TEMP] =
        xn_cpu_take(sizer, with_k ? (size_t)conv->width : 0, sizeof(float));
    state->offset[XN_CPU_BITGEMM_ROWS] =
        xn_cpu_take(sizer, with_k ? rows * width : 0, sizeof(float));
    state->offset[XN_CPU_BITGEMM_HELD] = xn_cpu_take(sizer, with_k ? rows : 0, sizeof(int32_t));
    state->offset[XN_CPU_BITGEMM_EXACT] = xn_cpu_take(sizer, with_k ? pitch : 0, sizeof(double));
    state->offset[XN_CPU_BITGEMM_VALUES] = xn_cpu_take(sizer, pitch, sizeof(float));
    state->offset[XN_CPU_BITGEMM_WORDS] = xn_cpu_take(sizer, bits ? pitch : 0, sizeof(uint32_t));
    state->offset[XN_CPU_BITGEMM_PIECES] = xn_cpu_take(sizer, pitch, sizeof(xn_cpu_piece));
    state->offset[XN_CPU_BITGEMM_PATCHES] = xn_cpu_take(sizer, column, sizeof(uint32_t));
    state->offset[XN_CPU_BITGEMM_ARRANGED] =
        xn_cpu_take(sizer, gemm->word_bytes > 4 ? column : 0, (size_t)gemm->word_bytes);
    state->offset[XN_CPU_BITGEMM_KINDS] = xn_cpu_take(sizer, pitch, sizeof(int32_t));
    state->offset[XN_CPU_BITGEMM_DOTS] =
        xn_cpu_take(sizer, XN_CPU_BITGEMM_BLOCK * pitch, sizeof(int32_t));
    state->offset[XN_CPU_BITGEMM_GATHERED] = xn_cpu_take(
        sizer, whole_of(conv) ? XN_CPU_LINE + XN_CPU_BITGEMM_BLOCK * out_plane_of(conv) : 0,
        sizeof(float));
}

/* Lanes of a unit: so many that reading the filters is paid for, so few that the patches stay in
 * L1, and not many more than there are. */
static int32_t lanes_of(const xn_conv *conv, const xn_cpu_bitgemm_kernels *gemm,
                        const xn_cpu_bitgemm_state *state) {
    const int64_t plane = (int64_t)out_plane_of(conv);
    int64_t tile = xn_cpu_max(gemm->tile_lanes, SLACK_LANES);
    int64_t there = plane * state->wave;
    int64_t lanes = PATCH_BYTES / ((int64_t)patch_of(conv).words * 4);
    lanes = xn_cpu_max(LEAST_LANES, xn_cpu_min(MOST_LANES, lanes / LEAST_LANES * LEAST_LANES));
    return (int32_t)xn_cpu_min(lanes, xn_cpu_div_up(there, tile) * tile);
}

/* Measured (NOTES.md): beside the counting, a word of a patch takes 0.2 ns a pixel and 6 ns a row,
 * the rest of a pixel of input 0.6 ns, K 0.8 ns. Filters are counted 4 at a time. */
static double cost_ns(const xn_step *step, const void *kernels) {
    const xn_conv *conv = &step->conv;
    const xn_cpu_bitgemm_kernels *gemm = kernels;
    const bool packed_input = conv->input_datatype == XN_BITS;
    const xn_cpu_patch shape = patch_of(conv);
    const double groups = conv->groups, rows = groups * conv->out_height;
    const double pixels = groups * (double)out_plane_of(conv);
    const double taps = (double)conv->kernel_h * conv->kernel_w;
    const double counted = gemm->step_ns * shape.words * (conv->group_out_channels + 3) / 16;
    const double packed = 0.04 * (double)xn_conv_input_elements(conv) +
                          0.6 * groups * (double)plane_of(conv) +
                          (conv->epilogue.k ? 0.8 * pixels : 0);
    return counted * pixels + taps * (0.2 * shape.tap_words * pixels + 6 * rows) +
           0.1 * (double)xn_conv_output_elements(conv) + (packed_input ? 0 : packed);
}

static void destroy(void *state) {
    xn_cpu_bitgemm_state *s = state;
    if (!s)
        return;
    xn_cpu_map_free(s->map);
    xn_mem_free(s);
}

/* fits: not above 8 bytes an element of input, 4 of output */
static size_t image_bytes(const xn_conv *conv) {
    const bool with_k = conv->epilogue.k;
    return (size_t)conv->groups * 4 *
           (plane_of(conv) * ((size_t)patch_of(conv).tap_words + with_k) +
            with_k * out_plane_of(conv));
}

static xn_status create(xn_plan *plan, xn_error *error) {
    const xn_conv *conv = &plan->step.conv;
    const xn_cpu_bitgemm_kernels *gemm = plan->path_kernels;
    xn_cpu_sizer shared = {0}, slice = {0};
    xn_cpu_bitgemm_state *state = plan->state = xn_mem_zalloc(1, sizeof *state);
    if (!state || !(state->map = xn_cpu_map_create(conv)))
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the plan of a convolution");
    state->wave = (int32_t)xn_cpu_min(plan->max_images,
                                      xn_cpu_max(1, (int64_t)(WAVE_BYTES / image_bytes(conv))));
    int64_t whole = xn_cpu_div_up((int64_t)out_plane_of(conv) * whole_of(conv) + 1, LEAST_LANES);
    state->lanes = (int32_t)xn_cpu_max(lanes_of(conv, gemm, state), whole * LEAST_LANES);
    take_shared(conv, state, &shared);
    take_slice(conv, gemm, state, &slice);
    return xn_cpu_set_scratch(plan, &shared, &slice, error);
}

static xn_status prepare(const xn_plan *plan, const xn_prepared *prepared, xn_error *error) {
    const xn_cpu_bitgemm_kernels *gemm = plan->path_kernels;
    xn_status status = xn_cpu_form_ready(prepared, &xn_cpu_bitgemm_form, (int)gemm->layout, error);
    if (!status && xn_cpu_has_thresholds(&plan->step.conv))
        status = xn_cpu_thresholds_ready(prepared, &plan->step.conv.epilogue, error);
    return status;
}

/* ---- phase 1 ---- */

static float *means_of(const xn_cpu_bitgemm_job *j, int64_t slot, int32_t group) {
    return (float *)xn_cpu_bitgemm_shared(j, XN_CPU_BITGEMM_MEANS) +
           (size_t)(slot * j->conv->groups + group) * j->plane;
}

/* n pixels from `pixel` on of `channels` channels from c on, as fp32 with *stride between them. */
static const float *source(const xn_cpu_bitgemm_job *j, const xn_cpu_image *image, int32_t c,
                           int32_t channels, size_t pixel, int32_t n, float *reals,
                           int64_t *stride) {
    xn_datatype datatype = (xn_datatype)j->conv->input_datatype;
    size_t plane = j->plane, bytes = xn_datatype_bytes(datatype);
    const unsigned char *from = image->input + ((size_t)c * plane + pixel) * bytes;
    if (datatype == XN_FP32) {
        *stride = (int64_t)plane;
        return (const float *)(const void *)from;
    }
    for (int32_t k = 0; k < channels; k++)
        xn_cpu_to_fp32(j->plan->kernels, j->conv, from + (size_t)k * plane * bytes, n,
                       reals + k * CHUNK);
    *stride = CHUNK;
    return reals;
}

/* 32 magnitudes in fp32 are within 31 * 2^-24 < 2e-6, words of them are added in double. Of a pixel
 * where fp32 overflows, or meets Inf or NaN, the word's channels are added in double one by one. */
static void add_word(const xn_cpu_bitgemm_job *j, const float *src, int64_t stride,
                     int32_t channels, int32_t n, const float *magnitudes, double *sums) {
    const xn_cpu_kernels *kernels = j->plan->kernels;
    if (kernels->all_finite(magnitudes, n)) {
        kernels->add_magnitude(magnitudes, n, sums);
        return;
    }
    for (int32_t x = 0; x < n; x++)
        if (isfinite(magnitudes[x]))
            sums[x] += (double)magnitudes[x];
        else
            for (int32_t c = 0; c < channels; c++)
                sums[x] += fabs((double)src[c * stride + x]);
}

/* What K's rows are made of (kmap.h) goes beside the bits. */
static void pack_reals(const xn_cpu_bitgemm_job *j, int64_t slot, int32_t group, size_t pixel,
                       int32_t n, int thread) {
    const xn_conv *conv = j->conv;
    const bool with_k = conv->epilogue.k, with_means = with_k && !xn_cpu_k_is_short(conv);
    float *means = with_k ? means_of(j, slot, group) + pixel : NULL;
    float *magnitudes =
        with_means ? xn_cpu_bitgemm_own(j, thread, XN_CPU_BITGEMM_MAGNITUDES) : means;
    double *sums = xn_cpu_bitgemm_own(j, thread, XN_CPU_BITGEMM_SUMS);
    uint32_t *to = xn_cpu_bitgemm_planes(j, slot, group) + pixel;
    if (with_means)
        memset(sums, 0, CHUNK * sizeof *sums);
    for (int32_t word = 0; word < j->shape.tap_words; word++, to += j->plane) {
        int32_t c = word * WORD_CHANNELS;
        int32_t channels = (int32_t)xn_cpu_min(WORD_CHANNELS, conv->group_channels - c);
        int64_t stride;
        const float *src =
            source(j, &j->images[slot], group * conv->group_channels + c, channels, pixel, n,
                   xn_cpu_bitgemm_own(j, thread, XN_CPU_BITGEMM_REALS), &stride);
        j->kernels->pack(src, stride, channels, n, to, magnitudes);
        if (with_means)
            add_word(j, src, stride, channels, n, magnitudes, sums);
    }
    for (int32_t x = 0; with_means && x < n; x++)
        means[x] = (float)(sums[x] / conv->group_channels);
}

/* From packed pixels to planes. */
static void spread_bits(const xn_cpu_bitgemm_job *j, int64_t slot, int32_t group, size_t pixel,
                        int32_t n) {
    const size_t step = (size_t)j->shape.tap_words;
    uint32_t *to = xn_cpu_bitgemm_planes(j, slot, group) + pixel;
    if (j->plan->step.input_layout == XN_LAYOUT_WORDS &&
        step == (size_t)xn_packed_words(j->conv->group_channels)) {
        const uint32_t *words = (const uint32_t *)(const void *)j->images[slot].input;
        j->kernels->spread(words + ((size_t)group * j->plane + pixel) * step, (int32_t)step, n,
                           j->plane, to);
        return;
    }
    for (int32_t word = 0; word < j->shape.tap_words; word++, to += j->plane)
        xn_cpu_bits_read(j->conv, j->plan->step.input_layout, j->images[slot].input, group, word,
                         pixel, n, to);
}

static void make_starts(const xn_cpu_bitgemm_job *j, int32_t first, int32_t end) {
    const xn_conv *conv = j->conv;
    size_t prefix = (size_t)(conv->kernel_h + 1) * (size_t)(conv->kernel_w + 1);
    j->kernels->starts(j->map, j->weights->prefix + (size_t)first * prefix, end - first,
                       xn_cpu_bitgemm_starts(j, first));
}

static void pack_task(void *context, int64_t unit, int thread) {
    const xn_cpu_bitgemm_job *j = context;
    const xn_conv *conv = j->conv;
    int64_t packs = j->count * conv->groups * j->plane_chunks;
    if (unit >= packs) {
        int32_t o = (int32_t)(unit - packs) * START_FILTERS;
        make_starts(j, o, (int32_t)xn_cpu_min((int64_t)o + START_FILTERS, conv->out_channels));
        return;
    }
    size_t pixel = (size_t)(unit % j->plane_chunks * j->chunk);
    int32_t n = (int32_t)xn_cpu_min(j->chunk, (int64_t)(j->plane - pixel));
    int64_t slot = unit / j->plane_chunks / conv->groups;
    int32_t group = (int32_t)(unit / j->plane_chunks % conv->groups);
    if (conv->input_datatype == XN_BITS)
        spread_bits(j, slot, group, pixel, n);
    else
        pack_reals(j, slot, group, pixel, n, thread);
}

/* ---- phase 2 ---- */

static void k_task(void *context, int64_t unit, int thread) {
    const xn_cpu_bitgemm_job *j = context;
    const xn_conv *conv = j->conv;
    int32_t y = (int32_t)(unit % j->k_bands) * K_ROWS;
    int32_t end = (int32_t)xn_cpu_min((int64_t)y + K_ROWS, conv->out_height);
    int32_t group = (int32_t)(unit / j->k_bands % conv->groups);
    int64_t slot = unit / j->k_bands / conv->groups;
    const float *a = means_of(j, slot, group);
    float *k = xn_cpu_bitgemm_k(j, slot, group);
    const xn_cpu_kernels *kernels = j->plan->kernels;
    const bool in_fp32 = xn_cpu_k_is_short(conv);
    int32_t *held = xn_cpu_bitgemm_own(j, thread, XN_CPU_BITGEMM_HELD);
    for (int32_t i = 0; in_fp32 && i < conv->kernel_h; i++)
        held[i] = -1;
    for (; y < end; y++) {
        float *row = k + (size_t)y * (size_t)conv->out_width;
        if (in_fp32)
            xn_cpu_k_sums(kernels, conv, a, y, xn_cpu_bitgemm_own(j, thread, XN_CPU_BITGEMM_ROWS),
                          held, row);
        else
            xn_cpu_k_row(kernels, conv, a, y,
                         xn_cpu_bitgemm_own(j, thread, XN_CPU_BITGEMM_VERTICAL),
                         xn_cpu_bitgemm_own(j, thread, XN_CPU_BITGEMM_ACROSS), row);
    }
}

/* ---- waves: images [first, first + count) of the plan, in slots 0.. of the shared arrays ---- */

/* Pixels packed at a time: fewer where threads would have less than two chunks each. Packed input
 * has too little to do for that. */
static int64_t chunk_of(const xn_cpu_bitgemm_job *j) {
    if (j->run->threads == 1 || j->conv->input_datatype == XN_BITS)
        return CHUNK;
    int64_t planes = xn_cpu_max(1, j->count * j->conv->groups);
    int64_t chunks = xn_cpu_div_up(2 * (int64_t)j->run->threads, planes);
    int64_t pixels = xn_cpu_div_up((int64_t)j->plane, chunks * LEAST_CHUNK) * LEAST_CHUNK;
    return xn_cpu_min(CHUNK, pixels);
}

static void start_wave(xn_cpu_bitgemm_job *j, const xn_cpu_image *images, int64_t count) {
    int64_t lanes = count * (int64_t)j->out_plane;
    int64_t blocks = xn_cpu_div_up(j->conv->out_channels, XN_CPU_BITGEMM_BLOCK);
    j->images = images;
    j->count = count;
    j->chunk = chunk_of(j);
    j->plane_chunks = xn_cpu_div_up((int64_t)j->plane, j->chunk);
    j->chunks = xn_cpu_div_up(lanes, j->lanes);
    /* Filters are split only where there are too few chunks: each split makes the patches anew. So
     * a lone chunk is split no more than threads need; several are of different size. */
    int64_t wanted = (j->chunks == 1 ? 1 : 4) * (int64_t)j->run->threads;
    if (j->run->threads == 1)
        wanted = 1;
    j->splits = xn_cpu_min(blocks, xn_cpu_div_up(wanted, j->chunks));
}

static void run_images(const xn_cpu_run *run, const xn_cpu_image *images, int64_t count) {
    const xn_plan *plan = run->plan;
    const xn_cpu_bitgemm_state *state = plan->state;
    const xn_conv *conv = &plan->step.conv;
    const xn_cpu_bitgemm_kernels *gemm = plan->path_kernels;
    xn_cpu_bitgemm_job j = {
        .run = run,
        .plan = plan,
        .state = state,
        .conv = conv,
        .weights = xn_cpu_form_of(run->prepared, &xn_cpu_bitgemm_form, (int)gemm->layout),
        .map = state->map,
        .kernels = gemm};
    if (xn_cpu_has_thresholds(conv))
        j.thresholds = xn_cpu_thresholds_of(run->prepared, &conv->epilogue);
    j.shape = patch_of(conv);
    j.plane = plane_of(conv);
    j.out_plane = out_plane_of(conv);
    j.pitch = state->lanes + SLACK_LANES;
    j.k_bands = xn_cpu_div_up(conv->out_height, K_ROWS);
    j.output_bytes = xn_datatype_bytes((xn_datatype)conv->epilogue.datatype);
    j.stream = j.output_bytes && xn_conv_output_bytes(conv) * (size_t)count >= STREAM_BYTES;
    j.gather = j.stream && whole_of(conv);
    j.block = j.gather || conv->epilogue.bits || !gemm->direct ? XN_CPU_BITGEMM_BLOCK : ROWS;
    j.lanes = lanes_of(conv, gemm, state);
    if (j.gather)
        j.lanes = whole_of(conv) * (int32_t)j.out_plane;
    assert(j.lanes > 0);
    for (int64_t first = 0; first < count; first += state->wave) {
        start_wave(&j, images + first, xn_cpu_min(state->wave, count - first));
        int64_t groups = j.count * conv->groups;
        int64_t starts = first ? 0 : xn_cpu_div_up(conv->out_channels, START_FILTERS);
        xn_cpu_for(run->threads, groups * j.plane_chunks + starts, pack_task, &j);
        if (conv->epilogue.k)
            xn_cpu_for(run->threads, groups * j.k_bands, k_task, &j);
        xn_cpu_for(run->threads, j.chunks * j.splits, xn_cpu_bitgemm_dots, &j);
    }
}

static bool fits(const xn_step *step) {
    return step->conv.mode == XN_MODE_XNOR;
}

const xn_cpu_path xn_cpu_bitgemm = {
    .kernels = XN_CPU_PATH_KERNELS(bitgemm, avx512, vpopcnt, vpopcnt),
    .writes_bits = xn_cpu_writes_all_bits,
    .fits = fits,
    .cost_ns = cost_ns,
    .create = create,
    .destroy = destroy,
    .prepare = prepare,
    .run = run_images,
};
