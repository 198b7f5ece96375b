/* few.c: mode xnor for few channels, the paper's workload (one channel, 3x3).
 *
 * One fused pass: a thread walks down a band of output rows; each input row is read once, when the
 * first output row needs it, and split into signs and magnitudes, which stay in the thread's ring
 * of rows (L1 or L2); each output element is written once.
 *
 * Signs are bytes, +1 or -1, and the pad value outside the image: 0 there contributes nothing by
 * itself, so borders need no cases. With S+ the taps of weight +1 and S- those of weight -1,
 *
 *     dot[x] = sum over t in S+ of sign_t[x] - sum over t in S- of sign_t[x]
 *
 * one byte addition for each tap and 64 (AVX-512) outputs. Why not bits: packed along the row, 9
 * taps add up bit-sliced in 14 instructions for 512 outputs where bytes take 72; but the float work
 * of an output (read and split the input, 2 + 2 additions of K, the epilogue, the store) is about
 * 15 instructions for 16, so 480 for 512, and bits must be spread to lanes again before it. The
 * signs are not what bounds this path.
 *
 * K = (mean |I|) * box is separable: the rows under the kernel are added, then KW columns of that
 * sum. In fp32 a K is at most C + KH + KW additions deep, each within 2^-24, so up to 64 of them
 * keep it within 4e-6. A row of K that is deeper, or that comes out not finite (a sum that
 * overflowed though its mean does not, or honest Inf and NaN), is computed again in double. */
#include "cpu.h"
#include "xn_arith.h"

#include <string.h>

enum {
    SIGNS,      /* int8 [ring][C/G][pitch] */
    PAD,        /* int8 [pitch]: a row outside the image */
    TAPS,       /* const int8 *[filter]: where each tap's first output reads */
    MAGNITUDES, /* float [ring][pitch]: sum over the channels of |I| */
    ROWS,       /* const float *[max(KH, KW)] */
    SLOTS,      /* int32 [KH]: the ring's slot of each tap row that is inside the image */
    VERTICAL,   /* float [pitch] */
    K,          /* float [OW] */
    ACC,        /* int32 [OW] */
    TEMP,       /* float [W]: an input row as fp32 */
    GATHER,     /* float [OW + KW*distance]: one segment of it */
    DOUBLES,    /* double [W] and [OW] for the exact K */
    SUMS,
};

enum { FP32_DEPTH = 64, RING_BYTES = 2 << 20, BAND_ROWS = 8 };

static int64_t ring_rows(const xn_conv *conv) {
    int64_t extent = (int64_t)conv->dilation_h * (conv->kernel_h - 1) + 1;
    return xn_cpu_min(extent, conv->height);
}

static bool fits(const xn_conv *conv) {
    int64_t filter = (int64_t)conv->group_channels * conv->kernel_h * conv->kernel_w;
    if (conv->mode != XN_MODE_XNOR || conv->group_channels > XN_CPU_FEW_CHANNELS ||
        filter > XN_CPU_FEW_FILTER)
        return false;
    int64_t padded = (int64_t)conv->width + conv->pad_left + conv->pad_right;
    double pitch = (double)xn_cpu_min(padded, (int64_t)conv->kernel_w * conv->out_width);
    return pitch * (double)ring_rows(conv) * (conv->group_channels + 4) <= RING_BYTES;
}

/* Instructions for the signs of one output row, tap and group: bytes waste lanes of narrow rows,
 * words of bits waste bits of few channels and lanes of few output channels. */
bool xn_cpu_few_suits(const xn_conv *conv, const xn_cpu_kernels *kernels) {
    double bytes = (double)conv->group_channels * conv->group_out_channels *
                   (double)xn_cpu_div_up(conv->out_width, kernels->byte_lanes);
    double bits = (double)xn_cpu_div_up(conv->group_channels, 32) * kernels->word_cost *
                  (double)xn_cpu_div_up(conv->group_out_channels, XN_CPU_LANES) * conv->out_width;
    return fits(conv) && bytes <= bits;
}

static xn_status layout(xn_plan *plan, xn_error *error) {
    const xn_conv *conv = &plan->conv;
    xn_status status = xn_cpu_rows_create(conv, &plan->rows, error);
    if (status)
        return status;
    plan->ring = (int32_t)ring_rows(conv);
    plan->rows.pitch = xn_cpu_div_up(plan->rows.pitch, XN_CPU_ALIGNMENT) * XN_CPU_ALIGNMENT;
    size_t pitch = (size_t)plan->rows.pitch, ring = (size_t)plan->ring;
    size_t channels = (size_t)conv->group_channels, outputs = (size_t)conv->out_width;
    size_t filter = channels * (size_t)conv->kernel_h * (size_t)conv->kernel_w;
    size_t longest = 0; /* segment */
    for (int32_t s = 0; s < plan->rows.segment_count; s++)
        longest = (size_t)xn_cpu_max((int64_t)longest, plan->rows.segments[s].count);

    xn_cpu_sizer sizer = {0};
    plan->offset[SIGNS] = xn_cpu_take(&sizer, ring * channels * pitch, 1);
    plan->offset[PAD] = xn_cpu_take(&sizer, pitch, 1);
    plan->offset[TAPS] = xn_cpu_take(&sizer, filter, sizeof(int8_t *));
    plan->offset[MAGNITUDES] = xn_cpu_take(&sizer, ring * pitch, sizeof(float));
    plan->offset[ROWS] =
        xn_cpu_take(&sizer, (size_t)xn_cpu_max(conv->kernel_h, conv->kernel_w), sizeof(float *));
    plan->offset[SLOTS] = xn_cpu_take(&sizer, (size_t)conv->kernel_h, sizeof(int32_t));
    plan->offset[VERTICAL] = xn_cpu_take(&sizer, pitch, sizeof(float));
    plan->offset[K] = xn_cpu_take(&sizer, outputs, sizeof(float));
    plan->offset[ACC] = xn_cpu_take(&sizer, outputs, sizeof(int32_t));
    plan->offset[TEMP] = xn_cpu_take(&sizer, (size_t)conv->width, sizeof(float));
    plan->offset[GATHER] = xn_cpu_take(&sizer, longest, sizeof(float));
    plan->offset[DOUBLES] = xn_cpu_take(&sizer, (size_t)conv->width, sizeof(double));
    plan->offset[SUMS] = xn_cpu_take(&sizer, outputs, sizeof(double));
    if (sizer.failed)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "the scratch memory's size overflows");
    plan->thread_bytes = sizer.bytes;

    double sums = (double)conv->out_channels * (double)filter * conv->out_height *
                  (double)xn_cpu_div_up(conv->out_width, plan->kernels->byte_lanes);
    plan->image_ns = 0.3 * sums + 0.17 * (double)xn_conv_input_elements(conv) +
                     0.17 * (double)xn_conv_output_elements(conv);
    return XN_OK;
}

/* What a unit works with. */
typedef struct walk {
    const xn_cpu_run *run;
    const xn_plan *plan;
    const xn_conv *conv;
    const xn_cpu_image *image;
    unsigned char *slice;
    int32_t group;
    bool with_k;
    float mean; /* 1 / filter: from a sum of |I| under the kernel to K */
} walk;

static void *array(const walk *w, int which) {
    return w->slice + w->plan->offset[which];
}

static int8_t *signs_of(const walk *w, int64_t slot, int32_t c) {
    return (int8_t *)array(w, SIGNS) + (slot * w->conv->group_channels + c) * w->plan->rows.pitch;
}

static float *magnitudes_of(const walk *w, int64_t slot) {
    return (float *)array(w, MAGNITUDES) + slot * w->plan->rows.pitch;
}

/* The part of one channel's row that belongs to one segment, padding included. */
static void split_segment(const walk *w, const xn_cpu_segment *segment, const float *row, int32_t c,
                          int8_t *signs, float *magnitudes) {
    const xn_conv *conv = w->conv;
    int32_t first, last;
    xn_cpu_segment_inside(conv, segment, &first, &last);
    memset(signs, conv->pad_value, (size_t)first);
    memset(signs + last, conv->pad_value, (size_t)(segment->count - last));
    if (magnitudes && c == 0) {
        memset(magnitudes, 0, (size_t)first * sizeof *magnitudes);
        memset(magnitudes + last, 0, (size_t)(segment->count - last) * sizeof *magnitudes);
    }
    if (first == last)
        return;
    row += (int64_t)first * conv->stride_w + segment->start;
    if (conv->stride_w > 1) {
        float *gather = array(w, GATHER);
        for (int32_t x = 0; x < last - first; x++)
            gather[x] = row[(int64_t)x * conv->stride_w];
        row = gather;
    }
    w->plan->kernels->split(row, last - first, c > 0, signs + first,
                            magnitudes ? magnitudes + first : NULL);
}

static void take_row(const walk *w, int32_t in_y) {
    const xn_cpu_rows *rows = &w->plan->rows;
    int32_t slot = in_y % w->plan->ring;
    for (int32_t c = 0; c < w->conv->group_channels; c++) {
        const float *row = xn_cpu_row_fp32(
            w->conv, w->image->input, w->group * w->conv->group_channels + c, in_y, array(w, TEMP));
        for (int32_t s = 0; s < rows->segment_count; s++) {
            const xn_cpu_segment *segment = &rows->segments[s];
            split_segment(w, segment, row, c, signs_of(w, slot, c) + segment->offset,
                          w->with_k ? magnitudes_of(w, slot) + segment->offset : NULL);
        }
    }
}

static void find_slots(const walk *w, int32_t start, int32_t i0, int32_t i1) {
    int32_t *slots = array(w, SLOTS);
    int32_t ring = w->plan->ring, step = w->conv->dilation_h % ring;
    int32_t slot = i0 < i1 ? (start + i0 * w->conv->dilation_h) % ring : 0;
    for (int32_t i = i0; i < i1; i++) { /* one division a row, not one a tap */
        slots[i] = slot;
        slot += step;
        if (slot >= ring)
            slot -= ring;
    }
}

static void find_taps(const walk *w, int32_t i0, int32_t i1) {
    const xn_conv *conv = w->conv;
    const int64_t *column = w->plan->rows.column;
    const int32_t *slots = array(w, SLOTS);
    const int8_t **tap = array(w, TAPS);
    for (int32_t c = 0; c < conv->group_channels; c++)
        for (int32_t i = 0; i < conv->kernel_h; i++) {
            bool inside = i >= i0 && i < i1;
            const int8_t *row = inside ? signs_of(w, slots[i], c) : array(w, PAD);
            for (int32_t j = 0; j < conv->kernel_w; j++)
                *tap++ = row + column[j];
        }
}

static const float *k_row(const walk *w, int32_t y, int32_t i0, int32_t i1) {
    const xn_conv *conv = w->conv;
    const xn_cpu_kernels *kernels = w->plan->kernels;
    const float **rows = array(w, ROWS);
    const int32_t *slots = array(w, SLOTS);
    float *vertical = array(w, VERTICAL), *k = array(w, K);
    int64_t depth = (int64_t)conv->group_channels + conv->kernel_h + conv->kernel_w;
    if (depth <= FP32_DEPTH) {
        for (int32_t i = i0; i < i1; i++)
            rows[i - i0] = magnitudes_of(w, slots[i]);
        kernels->sum_rows(rows, i1 - i0, (int32_t)w->plan->rows.pitch, 1.0f, vertical);
        for (int32_t j = 0; j < conv->kernel_w; j++)
            rows[j] = vertical + w->plan->rows.column[j];
        kernels->sum_rows(rows, conv->kernel_w, conv->out_width, w->mean, k);
        if (kernels->all_finite(k, conv->out_width))
            return k;
    }
    xn_cpu_k_row_exact(kernels, conv, w->image->input, w->group, y, array(w, TEMP),
                       array(w, DOUBLES), array(w, SUMS), k);
    return k;
}

static void output_row(const walk *w, int32_t y, int32_t start, int32_t i0, int32_t i1) {
    const xn_conv *conv = w->conv;
    const xn_prepared *prepared = w->run->prepared;
    const xn_cpu_kernels *kernels = w->plan->kernels;
    int32_t *acc = array(w, ACC);
    find_slots(w, start, i0, i1);
    find_taps(w, i0, i1);
    const float *k = w->with_k ? k_row(w, y, i0, i1) : NULL;
    for (int32_t n = 0; n < conv->group_out_channels; n++) {
        int32_t o = w->group * conv->group_out_channels + n;
        xn_cpu_epilogue epilogue;
        xn_cpu_epilogue_of(conv, prepared, o, &epilogue);
        kernels->sum_signs(array(w, TAPS), prepared->order + (size_t)o * (size_t)prepared->filter,
                           prepared->plus[o], prepared->filter, conv->out_width, acc);
        xn_cpu_emit_i32(kernels, &epilogue, acc, k, conv->out_width,
                        xn_cpu_output_row(conv, w->image->output, o, y));
    }
}

/* The ring holds the input rows under the kernel; going down, a row enters when it is first needed
 * and its slot is that of a row no later output needs. No later output reads above `start`: rows
 * that a stride larger than the kernel steps over are never read. (It may well read above this
 * output's first valid row: with dilation, outputs take turns.) */
static void walk_band(const walk *w, int32_t y0, int32_t y1) {
    const xn_conv *conv = w->conv;
    memset(array(w, PAD), conv->pad_value, (size_t)w->plan->rows.pitch);
    int32_t next = 0;
    for (int32_t y = y0; y < y1; y++) {
        int32_t start = y * conv->stride_h - conv->pad_top, i0, i1;
        xn_valid_taps(start, conv->dilation_h, conv->kernel_h, conv->height, &i0, &i1);
        if (i0 < i1) {
            int32_t last = start + (i1 - 1) * conv->dilation_h;
            if (next < start)
                next = start;
            for (; next <= last; next++)
                take_row(w, next);
        }
        output_row(w, y, start, i0, i1);
    }
}

typedef struct job {
    const xn_cpu_run *run;
    int64_t bands;
    int32_t band; /* output rows */
} job;

static void task(void *context, int64_t unit, int thread) {
    const job *j = context;
    const xn_plan *plan = j->run->plan;
    int64_t band = unit % j->bands, rest = unit / j->bands;
    walk w = {
        .run = j->run,
        .plan = plan,
        .conv = &plan->conv,
        .image = &plan->images[rest / plan->conv.groups],
        .slice = xn_cpu_slice(plan, thread),
        .group = (int32_t)(rest % plan->conv.groups),
        .with_k = plan->conv.scaling == XN_SCALING_XNOR,
        .mean = (float)(1.0 / j->run->prepared->filter),
    };
    int64_t y0 = band * j->band;
    walk_band(&w, (int32_t)y0, (int32_t)xn_cpu_min(y0 + j->band, plan->conv.out_height));
}

/* Bands repeat the input rows that they share, so they are as few as keep the threads busy. */
static void run_images(const xn_cpu_run *run, int64_t count) {
    const xn_conv *conv = &run->plan->conv;
    int64_t whole = count * conv->groups;
    int64_t wanted = run->threads > 1 ? xn_cpu_div_up(3 * (int64_t)run->threads, whole) : 1;
    int64_t least = xn_cpu_min(conv->out_height, BAND_ROWS);
    int64_t band = xn_cpu_max(xn_cpu_div_up(conv->out_height, wanted), least);
    job j = {.run = run, .band = (int32_t)band, .bands = xn_cpu_div_up(conv->out_height, band)};
    xn_cpu_for(run->threads, whole * j.bands, task, &j);
}

const xn_cpu_path xn_cpu_few = {.fits = fits, .layout = layout, .run = run_images};
