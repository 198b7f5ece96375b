/* many.c: mode xnor for many channels: signs as bits, 32 channels to a word, popcount.
 *
 * Phase 1 packs the images: pixels[group][y][x][word], the channels' order of xn_weights.h, bits
 * past C/groups 0; beside it, for K, A[group][y][x] = mean |I|. Channel rows are read in chunks
 * that stay in L1, and each input element is read once.
 *
 * Phase 2, for each block of 16 output channels and each output row: differ = popc(a xor w) added
 * over the valid taps, one vector lane for each output channel (kernels_body.h), then
 *
 *     dot = taps * C/groups - 2 * differ
 *
 * with taps the number that count: the valid ones for pad value 0, all for +-1, where what differs
 * outside is known from the weights alone. Tail bits are 0 in both operands and never differ.
 * The block's weights stay in L1 while the rows of a band go by; the dots of 64 pixels are turned
 * from [pixel][channel] to [channel][pixel] in L1 and leave through the epilogue.
 *
 * No padded copy is made, so memory does not depend on padding: this path takes every geometry. */
#include "cpu.h"
#include "xn_arith.h"

#include <string.h>

enum {
    PIXELS,     /* shared: uint32 [wave][G][H*W][words] */
    MEANS,      /* shared: float [wave][G][H*W], with scaling xnor */
    BITS,       /* uint32 [CHUNK]: a word of each pixel */
    MAGNITUDES, /* float [CHUNK]: sum of |I| over up to 32 channels */
    SUMS,       /* double [CHUNK]: over all */
    REALS,      /* float [32][CHUNK]: input that is not fp32 */
    K,          /* float [band][OW] */
    VERTICAL,   /* double [W] */
    ACROSS,     /* double [OW] */
};

enum {
    CHUNK = 512, /* pixels packed at a time */
    WORD_CHANNELS = 32,
    WAVE_BYTES = 32 << 20, /* packed images held at a time, if more than one */
    K_FLOATS = 16384,      /* of a band */
    BAND_ROWS = 4,         /* fewer rows only when there is nothing else to split */
};

static size_t words_of(const xn_conv *conv) {
    return (size_t)xn_cpu_div_up(conv->group_channels, WORD_CHANNELS);
}

static size_t plane_of(const xn_conv *conv) {
    return (size_t)conv->height * (size_t)conv->width;
}

static xn_status layout(xn_plan *plan, xn_error *error) {
    const xn_conv *conv = &plan->conv;
    bool with_k = conv->scaling == XN_SCALING_XNOR;
    size_t pixels = plane_of(conv) * (size_t)conv->groups, words = words_of(conv);
    size_t image_bytes = pixels * (words + with_k) * 4; /* fits: not above 8 bytes an element */
    plan->wave =
        (int32_t)xn_cpu_min(plan->max_images, xn_cpu_max(1, (int64_t)(WAVE_BYTES / image_bytes)));
    plan->band = (int32_t)xn_cpu_max(1, K_FLOATS / conv->out_width);

    xn_cpu_sizer shared = {0}, slice = {0};
    plan->offset[PIXELS] =
        xn_cpu_take(&shared, (size_t)plan->wave * pixels * words, sizeof(uint32_t));
    plan->offset[MEANS] =
        xn_cpu_take(&shared, with_k ? (size_t)plan->wave * pixels : 0, sizeof(float));
    plan->offset[BITS] = xn_cpu_take(&slice, CHUNK, sizeof(uint32_t));
    plan->offset[MAGNITUDES] = xn_cpu_take(&slice, CHUNK, sizeof(float));
    plan->offset[SUMS] = xn_cpu_take(&slice, CHUNK, sizeof(double));
    plan->offset[REALS] = xn_cpu_take(&slice, WORD_CHANNELS * CHUNK, sizeof(float));
    plan->offset[K] =
        xn_cpu_take(&slice, (size_t)plan->band * (size_t)conv->out_width, sizeof(float));
    plan->offset[VERTICAL] = xn_cpu_take(&slice, (size_t)conv->width, sizeof(double));
    plan->offset[ACROSS] = xn_cpu_take(&slice, (size_t)conv->out_width, sizeof(double));
    if (shared.failed || slice.failed)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "the scratch memory's size overflows");
    plan->shared_bytes = shared.bytes;
    plan->thread_bytes = slice.bytes;

    double blocks = (double)xn_cpu_div_up(conv->group_out_channels, XN_CPU_LANES) * conv->groups;
    plan->image_ns = 0.1 * plan->kernels->word_cost * (double)words * conv->kernel_h *
                         conv->kernel_w * blocks * conv->out_height * conv->out_width +
                     0.15 * (double)xn_conv_input_elements(conv) +
                     0.3 * (double)xn_conv_output_elements(conv);
    return XN_OK;
}

/* One wave: images [first, first + count) of the plan, in slots 0.. of the shared arrays. */
typedef struct job {
    const xn_cpu_run *run;
    const xn_plan *plan;
    const xn_conv *conv;
    const xn_cpu_image *images;
    int32_t words;
    int64_t chunks;        /* phase 1: of a plane */
    int64_t bands, splits; /* phase 2: of rows, and of a group's blocks */
    int32_t band;          /* output rows */
    int32_t inner_first, inner_last;
} job;

static uint32_t *pixels_of(const job *j, int64_t slot, int32_t group) {
    uint32_t *pixels = (uint32_t *)(void *)(xn_cpu_shared(j->plan) + j->plan->offset[PIXELS]);
    return pixels + (size_t)(slot * j->conv->groups + group) * plane_of(j->conv) * (size_t)j->words;
}

static float *means_of(const job *j, int64_t slot, int32_t group) {
    float *means = (float *)(void *)(xn_cpu_shared(j->plan) + j->plan->offset[MEANS]);
    return means + (size_t)(slot * j->conv->groups + group) * plane_of(j->conv);
}

/* ---- phase 1 ---- */

/* n pixels from `pixel` on of `channels` channels from c on, as fp32 with *stride between them. */
static const float *source(const job *j, const xn_cpu_image *image, int32_t c, int32_t channels,
                           size_t pixel, int32_t n, float *reals, int64_t *stride) {
    xn_datatype datatype = (xn_datatype)j->conv->input_datatype;
    size_t plane = plane_of(j->conv), bytes = xn_datatype_bytes(datatype);
    const unsigned char *from = image->input + ((size_t)c * plane + pixel) * bytes;
    if (datatype == XN_FP32) {
        *stride = (int64_t)plane;
        return (const float *)(const void *)from;
    }
    for (int32_t k = 0; k < channels; k++)
        xn_tensor_to_fp32(datatype, from + (size_t)k * plane * bytes, reals + k * CHUNK, n);
    *stride = CHUNK;
    return reals;
}

/* 32 magnitudes in fp32 are within 31 * 2^-24 < 2e-6, words of them are added in double. Where
 * fp32 overflows, or meets Inf or NaN, the word's channels are added in double one by one. */
static void add_word(const job *j, const float *src, int64_t stride, int32_t channels, int32_t n,
                     const float *magnitudes, double *sums) {
    const xn_cpu_kernels *kernels = j->plan->kernels;
    if (kernels->all_finite(magnitudes, n)) {
        kernels->add_magnitude(magnitudes, n, sums);
        return;
    }
    for (int32_t c = 0; c < channels; c++)
        kernels->add_magnitude(src + c * stride, n, sums);
}

static void pack_task(void *context, int64_t unit, int thread) {
    const job *j = context;
    const xn_conv *conv = j->conv;
    unsigned char *slice = xn_cpu_slice(j->plan, thread);
    const size_t *offset = j->plan->offset;
    uint32_t *bits = (uint32_t *)(void *)(slice + offset[BITS]);
    bool with_k = conv->scaling == XN_SCALING_XNOR;
    float *magnitudes = with_k ? (float *)(void *)(slice + offset[MAGNITUDES]) : NULL;
    double *sums = (double *)(void *)(slice + offset[SUMS]);

    size_t pixel = (size_t)(unit % j->chunks) * CHUNK;
    int32_t n = (int32_t)xn_cpu_min(CHUNK, (int64_t)(plane_of(conv) - pixel));
    int64_t slot = unit / j->chunks / conv->groups;
    int32_t group = (int32_t)(unit / j->chunks % conv->groups);
    uint32_t *to = pixels_of(j, slot, group) + pixel * (size_t)j->words;
    memset(sums, 0, CHUNK * sizeof *sums);
    for (int32_t word = 0; word < j->words; word++) {
        int32_t c = word * WORD_CHANNELS;
        int32_t channels = (int32_t)xn_cpu_min(WORD_CHANNELS, conv->group_channels - c);
        int64_t stride;
        const float *src = source(j, &j->images[slot], group * conv->group_channels + c, channels,
                                  pixel, n, (float *)(void *)(slice + offset[REALS]), &stride);
        j->plan->kernels->pack(src, stride, channels, n, bits, magnitudes);
        for (int32_t x = 0; x < n; x++)
            to[(size_t)x * (size_t)j->words + (size_t)word] = bits[x];
        if (with_k)
            add_word(j, src, stride, channels, n, magnitudes, sums);
    }
    float *means = means_of(j, slot, group) + pixel;
    for (int32_t x = 0; with_k && x < n; x++)
        means[x] = (float)(sums[x] / conv->group_channels);
}

/* ---- phase 2 ---- */

/* One block of output channels, of which the group owns lanes [lane0, lane1), over a band. k is
 * [rows][OW] or NULL. */
static void block_rows(const job *j, const xn_cpu_dots *dots, const xn_cpu_image *image,
                       int32_t block, int32_t lane0, int32_t lane1, int32_t y0, int32_t y1,
                       const float *k) {
    const xn_conv *conv = j->conv;
    const xn_cpu_kernels *kernels = j->plan->kernels;
    size_t bytes = xn_datatype_bytes((xn_datatype)conv->output_datatype);
    int32_t out[XN_CPU_LANES][XN_CPU_SEGMENT] __attribute__((aligned(64)));
    xn_cpu_epilogue epilogues[XN_CPU_LANES];
    for (int32_t lane = lane0; lane < lane1; lane++)
        xn_cpu_epilogue_of(conv, j->run->prepared, block * XN_CPU_LANES + lane, &epilogues[lane]);
    for (int32_t y = y0; y < y1; y++, k = k ? k + conv->out_width : NULL)
        for (int32_t x = 0; x < conv->out_width; x += XN_CPU_SEGMENT) {
            int32_t n = (int32_t)xn_cpu_min(XN_CPU_SEGMENT, conv->out_width - x);
            kernels->dots(dots, y, x, n, out);
            for (int32_t lane = lane0; lane < lane1; lane++) {
                unsigned char *row =
                    xn_cpu_output_row(conv, image->output, block * XN_CPU_LANES + lane, y);
                xn_cpu_emit_i32(kernels, &epilogues[lane], out[lane], k ? k + x : NULL, n,
                                row + (size_t)x * bytes);
            }
        }
}

static const float *band_k(const job *j, int64_t slot, int32_t group, int32_t y0, int32_t y1,
                           unsigned char *slice) {
    const xn_conv *conv = j->conv;
    float *k = (float *)(void *)(slice + j->plan->offset[K]);
    for (int32_t y = y0; y < y1; y++)
        xn_cpu_k_row(j->plan->kernels, conv, means_of(j, slot, group), y,
                     (double *)(void *)(slice + j->plan->offset[VERTICAL]),
                     (double *)(void *)(slice + j->plan->offset[ACROSS]),
                     k + (int64_t)(y - y0) * conv->out_width);
    return k;
}

static void dots_task(void *context, int64_t unit, int thread) {
    const job *j = context;
    const xn_conv *conv = j->conv;
    const xn_prepared *prepared = j->run->prepared;
    int64_t split = unit % j->splits, rest = unit / j->splits;
    int32_t y0 = (int32_t)(rest % j->bands) * j->band;
    int32_t y1 = (int32_t)xn_cpu_min((int64_t)y0 + j->band, conv->out_height);
    rest /= j->bands;
    int32_t group = (int32_t)(rest % conv->groups);
    int64_t slot = rest / conv->groups;

    int32_t o0 = group * conv->group_out_channels, o1 = o0 + conv->group_out_channels;
    int64_t b0 = o0 / XN_CPU_LANES, blocks = xn_cpu_div_up(o1, XN_CPU_LANES) - b0;
    int32_t first = (int32_t)(b0 + blocks * split / j->splits);
    int32_t last = (int32_t)(b0 + blocks * (split + 1) / j->splits);
    if (first == last)
        return;
    const float *k = conv->scaling == XN_SCALING_XNOR
                         ? band_k(j, slot, group, y0, y1, xn_cpu_slice(j->plan, thread))
                         : NULL;
    xn_cpu_dots dots = {.conv = conv,
                        .pixels = pixels_of(j, slot, group),
                        .words = j->words,
                        .inner_first = j->inner_first,
                        .inner_last = j->inner_last};
    size_t ones = (size_t)prepared->taps * XN_CPU_LANES;
    for (int32_t b = first; b < last; b++) {
        int32_t base = b * XN_CPU_LANES;
        dots.weights = prepared->bits + (size_t)b * ones * (size_t)prepared->words;
        dots.tap_ones = prepared->tap_ones + (size_t)b * ones;
        block_rows(j, &dots, &j->images[slot], b, (int32_t)xn_cpu_max(o0 - base, 0),
                   (int32_t)xn_cpu_min(o1 - base, XN_CPU_LANES), y0, y1, k);
    }
}

/* Rows are split first, then blocks, each of which repeats the band's K, then single rows. */
static void split_units(job *j, int64_t count) {
    const xn_conv *conv = j->conv;
    int64_t whole = count * conv->groups, height = conv->out_height;
    int64_t wanted = j->run->threads > 1 ? xn_cpu_div_up(3 * (int64_t)j->run->threads, whole) : 1;
    int64_t blocks = xn_cpu_div_up(conv->group_out_channels, XN_CPU_LANES);
    int64_t least = xn_cpu_div_up(height, j->plan->band); /* bands that a slice's K can hold */
    int64_t bands = xn_cpu_max(least, xn_cpu_min(wanted, xn_cpu_max(1, height / BAND_ROWS)));
    j->splits = xn_cpu_min(blocks, xn_cpu_div_up(wanted, bands));
    if (bands * j->splits < wanted)
        bands = xn_cpu_max(bands, xn_cpu_min(height, xn_cpu_div_up(wanted, j->splits)));
    j->band = (int32_t)xn_cpu_div_up(height, bands);
    j->bands = xn_cpu_div_up(height, j->band);
}

static void run_images(const xn_cpu_run *run, int64_t count) {
    const xn_plan *plan = run->plan;
    const xn_conv *conv = &plan->conv;
    job j = {.run = run, .plan = plan, .conv = conv, .words = run->prepared->words};
    j.chunks = xn_cpu_div_up((int64_t)plane_of(conv), CHUNK);
    /* Inner outputs: the first tap column and the last are inside, so all between are. */
    int32_t end, begin;
    xn_cpu_valid_outputs(-(int64_t)conv->pad_left, conv->stride_w, conv->width, conv->out_width,
                         &j.inner_first, &end);
    xn_cpu_valid_outputs((int64_t)(conv->kernel_w - 1) * conv->dilation_w - conv->pad_left,
                         conv->stride_w, conv->width, conv->out_width, &begin, &j.inner_last);
    j.inner_last = (int32_t)xn_cpu_min(j.inner_last, end);
    j.inner_first = (int32_t)xn_cpu_max(j.inner_first, begin);
    for (int64_t first = 0; first < count; first += plan->wave) {
        int64_t images = xn_cpu_min(plan->wave, count - first);
        j.images = plan->images + first;
        split_units(&j, images);
        xn_cpu_for(run->threads, images * conv->groups * j.chunks, pack_task, &j);
        xn_cpu_for(run->threads, images * conv->groups * j.bands * j.splits, dots_task, &j);
    }
}

static bool fits(const xn_conv *conv) {
    return conv->mode == XN_MODE_XNOR;
}

const xn_cpu_path xn_cpu_many = {.fits = fits, .layout = layout, .run = run_images};
