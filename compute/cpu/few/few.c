/* few.c: mode xnor for few channels, the paper's workload (one channel, 3x3).
 *
 * One fused pass. A unit of work is a strip of output columns and a band of output rows; a thread
 * walks down it. Each input row is read once, when the first output row needs it, and leaves two
 * things in the thread's ring of rows, which stays in L1 or L2: planes of signs (few_kernels.h) and
 * the sums of |I| over the channels and the KW columns under each output. An output row is then
 * the sum of what KH rows of planes give, times the sum of KH rows of sums, and is written once.
 *
 * Strips bound the ring, whatever the width: a row of 1024 outputs takes 4 KiB of sums and 1 KiB of
 * signs, so that three of them, the input row and the output row fit a level 1 cache.
 *
 * K = (mean |I|) * box is separable: KW columns are added when a row comes in, KH rows when one
 * goes out. In fp32 a K is at most C + KH + KW additions deep, each within 2^-24, so up to 64 of
 * them keep it within 4e-6. 1 / (C*KH*KW) goes into the factor, not into the sum, so that sums
 * of denormals keep all their bits. A row that is deeper, or whose sums come out not finite (one
 * overflowed though its mean does not, or honest Inf and NaN), or whose factor is too small for
 * that, is computed again with K in double. */
#include "cpu.h"
#include "xn_arith.h"

#include <math.h>
#include <string.h>

enum {
    PLANES,     /* uint8 [ring][planes][plane_pitch] */
    PAD,        /* uint8 [plane_pitch]: a row outside the image */
    SIGNS,      /* uint8 [C/G][pitch]: of one input row, before they are joined to patterns */
    MAGNITUDES, /* float [pitch]: sum over the channels of |I|, of one input row */
    SUMS,       /* float [ring][strip]: the same under the kernel's columns, of each output */
    ZERO,       /* float [strip]: the sums of a row outside the image */
    TAPS,       /* const uint8 *[filter]: where output 0 reads each plane */
    POINTERS,   /* const void *[max(KH, KW, C/G * KW)] */
    SLOTS,      /* int32 [KH]: the ring's slot of each tap row that is inside the image */
    FIRST,      /* int8 or int16 [strip]: what an output starts from */
    K,          /* float [OW]: sums, or K */
    ACC,        /* int32 [strip] */
    TEMP,       /* float [W]: an input row as fp32 */
    GATHER,     /* float [strip + KW*distance]: one segment of it */
    DOUBLES,    /* double [W] and [OW] for the exact K */
    DOUBLE_SUMS,
};

enum {
    FP32_DEPTH = 64,
    RING_BYTES = 2 << 20,
    BAND_ROWS = 8,
    TILE_ROWS = 32,
    STRIP = 1024,           /* most outputs of a strip, but for a strip of its own at the end */
    STREAM_BYTES = 8 << 20, /* outputs of a run that no cache will still hold */
};

/* Factors below this would lose bits to denormals when 1 / filter goes into them. */
static const double least_factor = 1e-30;

static int64_t ring_rows(const xn_conv *conv) {
    int64_t extent = (int64_t)conv->dilation_h * (conv->kernel_h - 1) + 1;
    return xn_cpu_min(extent, conv->height);
}

static int64_t depth_of(const xn_conv *conv) {
    return (int64_t)conv->group_channels + conv->kernel_h + conv->kernel_w;
}

/* Strips of equal width, vectors of bytes. An exact K is made for whole rows. */
static int32_t strip_width(const xn_conv *conv) {
    if (conv->out_width <= STRIP + STRIP / 2 || depth_of(conv) > FP32_DEPTH)
        return conv->out_width;
    int64_t strips = xn_cpu_div_up(conv->out_width, STRIP);
    return (int32_t)(xn_cpu_div_up(xn_cpu_div_up(conv->out_width, strips), 64) * 64);
}

static bool fits(const xn_conv *conv) {
    int64_t filter = (int64_t)conv->group_channels * conv->kernel_h * conv->kernel_w;
    if (conv->mode != XN_MODE_XNOR || conv->group_channels > XN_CPU_FEW_CHANNELS ||
        filter > XN_CPU_FEW_FILTER)
        return false;
    int64_t padded = (int64_t)conv->width + conv->pad_left + conv->pad_right;
    double pitch = (double)xn_cpu_min(padded, (int64_t)conv->kernel_w * strip_width(conv));
    return pitch * (double)ring_rows(conv) * (conv->group_channels + 4) <= RING_BYTES;
}

/* A kernel row's taps are joined 4 to a plane; without look-ups a channel is a plane. */
static int64_t plane_count(const xn_conv *conv, const xn_cpu_few_kernels *few) {
    int64_t across = (int64_t)conv->group_channels * conv->kernel_w;
    return few->lookup ? xn_cpu_div_up(across, XN_CPU_PATTERN_TAPS) : conv->group_channels;
}

static int64_t strip_pitch(const xn_plan *plan) {
    return xn_cpu_div_up(plan->strip, XN_CPU_ALIGNMENT) * XN_CPU_ALIGNMENT;
}

static int64_t plane_pitch(const xn_plan *plan) {
    return plan->few->lookup ? strip_pitch(plan) : plan->rows.pitch;
}

static bool has_tiles(const xn_conv *conv, const xn_cpu_few_kernels *few) {
    return few->tile && conv->group_channels == 1 && conv->kernel_h == 3 && conv->kernel_w == 3 &&
           conv->stride_h == 1 && conv->stride_w == 1 && conv->dilation_h == 1 &&
           conv->dilation_w == 1 && conv->input_datatype == XN_FP32 &&
           conv->epilogue.datatype == XN_FP32 && conv->epilogue.k && conv->group_out_channels == 1;
}

/* Measured (README.md): what a row takes besides its elements is most of it for small images: 20 ns
 * for each plane that is joined and each channel that is split, 35 ns for each row of outputs. A
 * look-up or an addition takes 0.65 ns a block of outputs. Tiles go faster. */
static double image_ns(const xn_conv *conv, const xn_cpu_set *set, bool packed_input) {
    const double inputs = (double)xn_conv_input_elements(conv);
    const double outputs = (double)xn_conv_output_elements(conv);
    const double rows = (double)conv->out_channels * conv->out_height;
    const double in_rows =
        (double)conv->groups *
        (double)xn_cpu_min(conv->height, (int64_t)conv->out_height * conv->kernel_h);
    const double planes = (double)plane_count(conv, set->few);
    const double across = set->few->lookup ? planes : planes * conv->kernel_w;
    const double blocks = (double)xn_cpu_div_up(conv->out_width, set->kernels->byte_lanes);
    (void)packed_input;
    if (has_tiles(conv, set->few))
        return 0.14 * outputs + 10 * rows;
    return rows * (35 + 0.65 * blocks * across * conv->kernel_h) +
           in_rows * (20 * (planes + conv->group_channels) +
                      0.05 * (double)conv->kernel_w * conv->out_width) +
           0.03 * (outputs + inputs);
}

static void lay_out(xn_plan *plan, xn_cpu_sizer *sizer) {
    const xn_conv *conv = &plan->conv;
    size_t pitch = (size_t)plan->rows.pitch, ring = (size_t)plan->ring;
    size_t channels = (size_t)conv->group_channels, strip = (size_t)strip_pitch(plan);
    size_t across = channels * (size_t)conv->kernel_w;
    size_t plane = (size_t)plane_pitch(plan), longest = 0; /* segment */
    for (int32_t s = 0; s < plan->rows.segment_count; s++)
        longest = (size_t)xn_cpu_max((int64_t)longest, plan->rows.segments[s].count);

    const struct {
        int array;
        size_t count, bytes;
    } arrays[] = {
        {PLANES, ring * (size_t)plane_count(conv, plan->few) * plane, 1},
        {PAD, plane, 1},
        {SIGNS, channels * pitch, 1},
        {MAGNITUDES, pitch, sizeof(float)},
        {SUMS, ring * strip, sizeof(float)},
        {ZERO, strip, sizeof(float)},
        {TAPS, across * (size_t)conv->kernel_h, sizeof(uint8_t *)},
        {POINTERS, across + (size_t)conv->kernel_h, sizeof(void *)},
        {SLOTS, (size_t)conv->kernel_h, sizeof(int32_t)},
        {FIRST, strip, sizeof(int16_t)},
        {K, (size_t)conv->out_width, sizeof(float)},
        {ACC, strip, sizeof(int32_t)},
        {TEMP, (size_t)conv->width, sizeof(float)},
        {GATHER, longest, sizeof(float)},
        {DOUBLES, (size_t)conv->width, sizeof(double)},
        {DOUBLE_SUMS, (size_t)conv->out_width, sizeof(double)},
    };
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        plan->offset[arrays[i].array] = xn_cpu_take(sizer, arrays[i].count, arrays[i].bytes);
}

static xn_status layout(xn_plan *plan, xn_error *error) {
    xn_conv strip = plan->conv;
    xn_cpu_sizer sizer = {0};
    plan->strip = strip.out_width = strip_width(&plan->conv);
    xn_status status = xn_cpu_rows_create(&strip, &plan->rows, error);
    if (status)
        return status;
    plan->ring = (int32_t)ring_rows(&plan->conv);
    plan->rows.pitch = xn_cpu_div_up(plan->rows.pitch, XN_CPU_ALIGNMENT) * XN_CPU_ALIGNMENT;
    lay_out(plan, &sizer);
    if (sizer.failed)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "the scratch memory's size overflows");
    plan->thread_bytes = sizer.bytes;
    return XN_OK;
}

/* ---- a unit ---- */

/* What a unit works with. */
typedef struct walk {
    const xn_cpu_run *run;
    const xn_plan *plan;
    const xn_conv *conv;
    const xn_cpu_few_kernels *kernels;
    const xn_cpu_image *image;
    unsigned char *slice;
    int32_t group, x0, n; /* the strip: outputs x0 .. x0 + n */
    int64_t plane_count, plane_pitch, strip_pitch;
    bool with_k, stream;
    double mean;         /* 1 / filter: from a sum of |I| under the kernel to K */
    int32_t first_of[4]; /* what FIRST holds: filter, i0, i1, bytes of an element */
} walk;

static void *array(const walk *w, int which) {
    return w->slice + w->plan->offset[which];
}

static uint8_t *planes_of(const walk *w, int64_t slot) {
    return (uint8_t *)array(w, PLANES) + slot * w->plane_count * w->plane_pitch;
}

static float *sums_of(const walk *w, int64_t slot) {
    return (float *)array(w, SUMS) + slot * w->strip_pitch;
}

/* ---- an input row ---- */

/* Row y of channel c of the group as fp32, valid where the strip reads it. */
static const float *input_row(const walk *w, int32_t c, int32_t y) {
    const xn_conv *conv = w->conv;
    size_t bytes = xn_datatype_bytes((xn_datatype)conv->input_datatype);
    size_t channel = (size_t)w->group * (size_t)conv->group_channels + (size_t)c;
    const unsigned char *row = w->image->input + (channel * (size_t)conv->height + (size_t)y) *
                                                     (size_t)conv->width * bytes;
    if (conv->input_datatype == XN_FP32)
        return (const float *)(const void *)row;
    int64_t first = xn_cpu_max((int64_t)w->x0 * conv->stride_w - conv->pad_left, 0);
    int64_t last = (int64_t)(w->x0 + w->n - 1) * conv->stride_w - conv->pad_left +
                   (int64_t)(conv->kernel_w - 1) * conv->dilation_w + 1;
    last = xn_cpu_min(last, conv->width);
    float *temp = array(w, TEMP);
    if (first < last)
        xn_cpu_to_fp32(w->plan->kernels, conv, row + (size_t)first * bytes, (int32_t)(last - first),
                       temp + first);
    return temp;
}

/* The part of one channel's row that belongs to one segment, padding included. */
static void split_segment(const walk *w, const xn_cpu_segment *segment, const float *row, bool add,
                          uint8_t *signs, float *magnitudes) {
    const xn_conv *conv = w->conv;
    const int outside = conv->pad_value == 1 ? w->kernels->lookup ? 1 : 2 : 0;
    int64_t start = (int64_t)w->x0 * conv->stride_w + segment->start;
    int32_t count = segment->count - (w->plan->strip - w->n), first, last;
    xn_cpu_valid_outputs(start, conv->stride_w, conv->width, count, &first, &last);
    memset(signs, outside, (size_t)first);
    memset(signs + last, outside, (size_t)(count - last));
    if (magnitudes && !add) {
        memset(magnitudes, 0, (size_t)first * sizeof *magnitudes);
        memset(magnitudes + last, 0, (size_t)(count - last) * sizeof *magnitudes);
    }
    if (first == last)
        return;
    row += first * (int64_t)conv->stride_w + start;
    if (conv->stride_w > 1) {
        float *gather = array(w, GATHER);
        for (int32_t x = 0; x < last - first; x++)
            gather[x] = row[(int64_t)x * conv->stride_w];
        row = gather;
    }
    w->kernels->split(row, last - first, conv->width, add, signs + first,
                      magnitudes ? magnitudes + first : NULL);
}

/* Planes of patterns from the signs of a row. */
static void join_signs(const walk *w, uint8_t *planes) {
    const xn_conv *conv = w->conv;
    const xn_cpu_rows *rows = &w->plan->rows;
    const uint8_t **signs = array(w, POINTERS);
    int32_t across = conv->group_channels * conv->kernel_w;
    for (int32_t t = 0; t < across; t++)
        signs[t] = (uint8_t *)array(w, SIGNS) + t / conv->kernel_w * rows->pitch +
                   rows->column[t % conv->kernel_w];
    for (int32_t t = 0; t < across; t += XN_CPU_PATTERN_TAPS) {
        w->kernels->join(signs + t, (int32_t)xn_cpu_min(across - t, XN_CPU_PATTERN_TAPS), w->n,
                         planes);
        planes += w->plane_pitch;
    }
}

static bool takes_at_once(const walk *w) {
    const xn_conv *conv = w->conv;
    return w->kernels->take && conv->group_channels == 1 && conv->stride_w == 1 &&
           conv->dilation_w == 1 && conv->kernel_w <= 2 * XN_CPU_PATTERN_TAPS;
}

static void take_at_once(const walk *w, int32_t in_y, uint8_t *planes, float *sums) {
    const xn_conv *conv = w->conv;
    const xn_cpu_few_row row = {
        .row = input_row(w, 0, in_y),
        .width = conv->width,
        .start = w->x0 - conv->pad_left,
        .kernel_w = conv->kernel_w,
        .n = w->n,
        .outside = conv->pad_value == 1,
    };
    w->kernels->take(&row, (size_t)w->plane_pitch, planes, sums);
}

static void take_row(const walk *w, int32_t in_y) {
    const xn_cpu_rows *rows = &w->plan->rows;
    int32_t slot = in_y % w->plan->ring;
    uint8_t *planes = planes_of(w, slot);
    float *magnitudes = w->with_k ? array(w, MAGNITUDES) : NULL;
    if (takes_at_once(w)) {
        take_at_once(w, in_y, planes, w->with_k ? sums_of(w, slot) : NULL);
        return;
    }
    uint8_t *signs = w->kernels->lookup ? array(w, SIGNS) : planes;
    for (int32_t c = 0; c < w->conv->group_channels; c++) {
        const float *row = input_row(w, c, in_y);
        for (int32_t s = 0; s < rows->segment_count; s++) {
            int64_t offset = rows->segments[s].offset;
            split_segment(w, &rows->segments[s], row, c > 0, signs + c * rows->pitch + offset,
                          magnitudes ? magnitudes + offset : NULL);
        }
    }
    if (w->kernels->lookup)
        join_signs(w, planes);
    if (!w->with_k)
        return;
    const float **columns = array(w, POINTERS);
    for (int32_t j = 0; j < w->conv->kernel_w; j++)
        columns[j] = magnitudes + rows->column[j];
    w->kernels->add_rows(columns, w->conv->kernel_w, w->n, sums_of(w, slot));
}

/* ---- an output row ---- */

/* The output row y, and the kernel rows i0 .. i1 that are inside the image there. */
typedef struct band_row {
    int32_t y, start, i0, i1;
} band_row;

static void find_slots(const walk *w, const band_row *row) {
    int32_t *slots = array(w, SLOTS);
    int32_t ring = w->plan->ring, step = w->conv->dilation_h % ring;
    int32_t slot = row->i0 < row->i1 ? (row->start + row->i0 * w->conv->dilation_h) % ring : 0;
    for (int32_t i = row->i0; i < row->i1; i++) { /* one division a row, not one a tap */
        slots[i] = slot;
        slot += step;
        if (slot >= ring)
            slot -= ring;
    }
}

/* With look-ups [KH][planes], else in the order of the filter's taps, [C][KH][KW]. */
static int32_t find_planes(const walk *w, const band_row *row) {
    const xn_conv *conv = w->conv;
    const int64_t pitch = w->plane_pitch;
    const int32_t planes = (int32_t)w->plane_count, *slots = array(w, SLOTS);
    const bool lookup = w->kernels->lookup;
    const uint8_t **taps = array(w, TAPS);
    for (int32_t i = 0; i < conv->kernel_h; i++) {
        const bool inside = i >= row->i0 && i < row->i1;
        const uint8_t *from = inside ? planes_of(w, slots[i]) : array(w, PAD);
        for (int32_t p = 0; p < planes; p++) {
            const uint8_t *plane = from + (inside ? p * pitch : 0);
            if (lookup)
                taps[i * planes + p] = plane;
            else
                for (int32_t j = 0; j < conv->kernel_w; j++)
                    taps[(p * conv->kernel_h + i) * conv->kernel_w + j] =
                        plane + w->plan->rows.column[j];
        }
    }
    return lookup ? planes * conv->kernel_h : w->run->prepared->filter;
}

/* The weights of column j in the kernel rows that count, of all channels. */
static int32_t column_weight(const int32_t *above, const int32_t *below, int32_t j0, int32_t j1) {
    int32_t sum = 0;
    for (int32_t j = j0; j < j1; j++)
        sum += below[j] - above[j];
    return sum;
}

/* FIRST for filter o: less the weights of the taps that count at each output. With pad value 0
 * those are the ones inside the image, fewer at the borders; otherwise all. */
static void start_outputs(walk *w, const band_row *row, int32_t o, const int bytes) {
    const xn_conv *conv = w->conv;
    const bool all = conv->pad_value != 0;
    const int32_t i0 = all ? 0 : row->i0, i1 = all ? conv->kernel_h : row->i1;
    if (w->first_of[0] == o && w->first_of[1] == i0 && w->first_of[2] == i1 &&
        w->first_of[3] == bytes)
        return;
    const int32_t *above =
        w->run->prepared->above + (size_t)o * (size_t)(conv->kernel_h + 1) * (size_t)conv->kernel_w;
    const int32_t *from = above + (size_t)i0 * (size_t)conv->kernel_w;
    const int32_t *to = above + (size_t)i1 * (size_t)conv->kernel_w;
    const int32_t inner = -column_weight(from, to, 0, conv->kernel_w);
    int8_t *first = array(w, FIRST);
    int16_t *wide = array(w, FIRST);
    if (bytes == 1)
        memset(first, inner, (size_t)w->n);
    else
        for (int32_t x = 0; x < w->n; x++)
            wide[x] = (int16_t)inner;
    const int32_t left = -conv->pad_left;
    const int64_t right = (int64_t)(conv->kernel_w - 1) * conv->dilation_w - conv->pad_left;
    int32_t x1, x2, none;
    xn_cpu_valid_outputs(left, conv->stride_w, conv->width, conv->out_width, &x1, &none);
    xn_cpu_valid_outputs(right, conv->stride_w, conv->width, conv->out_width, &none, &x2);
    for (int32_t x = w->x0; x < w->x0 + w->n && !all; x++) {
        if (x == x1 && x < x2)
            x = x2;
        if (x >= w->x0 + w->n)
            break;
        int32_t j0, j1;
        xn_valid_taps(x * conv->stride_w - conv->pad_left, conv->dilation_w, conv->kernel_w,
                      conv->width, &j0, &j1);
        const int32_t value = -column_weight(from, to, j0, j1);
        if (bytes == 1)
            first[x - w->x0] = (int8_t)value;
        else
            wide[x - w->x0] = (int16_t)value;
    }
    w->first_of[0] = o;
    w->first_of[1] = i0;
    w->first_of[2] = i1;
    w->first_of[3] = bytes;
}

/* The rows of sums under the outputs: as many as the kernel has, so that their number is constant.
 */
static const float *const *sum_rows(const walk *w, const band_row *row) {
    const int32_t *slots = array(w, SLOTS);
    const float **rows = array(w, POINTERS);
    for (int32_t i = 0; i < w->conv->kernel_h; i++)
        rows[i] = i >= row->i0 && i < row->i1 ? sums_of(w, slots[i]) : array(w, ZERO);
    return rows;
}

/* K itself, for the row's slow way. */
static const float *k_row(const walk *w, const band_row *row) {
    const xn_conv *conv = w->conv;
    float *k = array(w, K);
    if (depth_of(conv) <= FP32_DEPTH) {
        const float mean = (float)w->mean;
        w->kernels->add_rows(sum_rows(w, row), conv->kernel_h, w->n, k);
        if (w->kernels->all_finite(k, w->n)) {
            for (int32_t x = 0; x < w->n; x++)
                k[x] *= mean;
            return k;
        }
    }
    xn_cpu_k_row_exact(w->plan->kernels, conv, w->image->input, w->group, row->y, array(w, TEMP),
                       array(w, DOUBLES), array(w, DOUBLE_SUMS), k);
    return k + w->x0;
}

/* The way of every row that emit cannot write: dots first, then the epilogue. */
static void output_slowly(walk *w, const band_row *row, xn_cpu_few_outputs *outputs, int32_t o,
                          const xn_cpu_epilogue *epilogue, const float *k, void *dst) {
    int32_t *acc = array(w, ACC);
    start_outputs(w, row, o, 2);
    w->kernels->dots(outputs, acc);
    xn_cpu_emit_i32(w->plan->kernels, epilogue, acc, k, w->n, dst);
}

/* Whether emit may write a filter's outputs; then its factor, with the mean's divisor in it. */
static bool emits(const walk *w, const xn_cpu_epilogue *epilogue, float *factor) {
    const double whole = epilogue->factor;
    *factor = w->with_k ? (float)(whole * w->mean) : epilogue->factor;
    return epilogue->datatype == XN_FP32 && !epilogue->counter &&
           w->run->prepared->filter <= XN_CPU_BYTE_TAPS &&
           !(whole != 0 && fabs((double)*factor) < least_factor);
}

static void output_row(walk *w, const band_row *row) {
    const xn_conv *conv = w->conv;
    const xn_prepared *prepared = w->run->prepared;
    const bool deep = depth_of(conv) > FP32_DEPTH;
    const float *k = NULL, *shared = array(w, K);
    find_slots(w, row);
    xn_cpu_few_outputs outputs = {
        .planes = array(w, TAPS),
        .count = find_planes(w, row),
        .first = array(w, FIRST),
        .n = w->n,
        .stream = w->stream,
    };
    if (w->with_k && !deep) {
        outputs.rows = sum_rows(w, row);
        outputs.row_count = conv->kernel_h;
        if (conv->group_out_channels > 1) { /* added once for all filters */
            w->kernels->add_rows(outputs.rows, conv->kernel_h, w->n, array(w, K));
            outputs.rows = &shared;
            outputs.row_count = 1;
        }
    }
    for (int32_t n = 0; n < conv->group_out_channels; n++) {
        const int32_t o = w->group * conv->group_out_channels + n;
        const size_t size = xn_datatype_bytes((xn_datatype)conv->epilogue.datatype);
        unsigned char *dst =
            xn_cpu_output_row(conv, w->image->output, o, row->y) + (size_t)w->x0 * size;
        xn_cpu_epilogue epilogue;
        xn_cpu_epilogue_of(conv, prepared, o, &epilogue);
        outputs.bias = epilogue.bias;
        outputs.tables = prepared->tables + (size_t)o * (size_t)conv->kernel_h *
                                                (size_t)prepared->planes * XN_CPU_TABLE_BYTES;
        outputs.order = prepared->order + (size_t)o * (size_t)prepared->filter;
        outputs.plus = prepared->plus[o];
        if (!k && !(w->with_k && deep) && emits(w, &epilogue, &outputs.factor)) {
            start_outputs(w, row, o, 1);
            if (w->kernels->emit(&outputs, (float *)(void *)dst))
                continue;
        }
        if (w->with_k && !k)
            k = k_row(w, row);
        output_slowly(w, row, &outputs, o, &epilogue, k, dst);
    }
}

/* The ring holds the input rows under the kernel; going down, a row enters when it is first needed
 * and its slot is that of a row no later output needs. No later output reads above `start`: rows
 * that a stride larger than the kernel steps over are never read. (It may well read above this
 * output's first valid row: with dilation, outputs take turns.) */
static void walk_band(walk *w, int32_t y0, int32_t y1) {
    const xn_conv *conv = w->conv;
    const int outside = conv->pad_value != 1 ? 0 : w->kernels->lookup ? XN_CPU_TABLE_BYTES - 1 : 2;
    memset(array(w, PAD), outside, (size_t)w->plane_pitch);
    memset(array(w, ZERO), 0, (size_t)w->strip_pitch * sizeof(float));
    int32_t next = 0;
    for (int32_t y = y0; y < y1; y++) {
        band_row row = {.y = y, .start = y * conv->stride_h - conv->pad_top};
        xn_valid_taps(row.start, conv->dilation_h, conv->kernel_h, conv->height, &row.i0, &row.i1);
        if (row.i0 < row.i1) {
            int32_t last = row.start + (row.i1 - 1) * conv->dilation_h;
            if (next < row.start)
                next = row.start;
            for (; next <= last; next++)
                take_row(w, next);
        }
        output_row(w, &row);
    }
    if (w->stream)
        w->kernels->flush();
}

/* ---- one channel, 3x3: tiles ---- */

/* The rows of the unit whose kernel rows are all inside go by tiles, the others row by row. False
 * where they cannot, or not finitely: then all go row by row. */
static bool walk_tiles(walk *w, int32_t y0, int32_t y1) {
    const xn_conv *conv = w->conv;
    const int32_t o = w->group, last = conv->height - conv->kernel_h + 1 + conv->pad_top;
    const int32_t from = (int32_t)xn_cpu_max(y0, conv->pad_top);
    const int32_t to = (int32_t)xn_cpu_min(y1, last);
    const band_row inner = {.i1 = conv->kernel_h};
    xn_cpu_epilogue epilogue;
    xn_cpu_epilogue_of(conv, w->run->prepared, o, &epilogue);
    xn_cpu_few_tile tile = {
        .start = w->x0 - conv->pad_left,
        .width = conv->width,
        .from_pitch = conv->width,
        .to_pitch = conv->out_width,
        .n = w->n,
        .tables = w->run->prepared->tables + (size_t)o * 3 * XN_CPU_TABLE_BYTES,
        .first = array(w, FIRST),
        .bias = epilogue.bias,
        .outside = conv->pad_value == 1,
        .stream = w->stream,
    };
    if (from >= to || !emits(w, &epilogue, &tile.factor))
        return false;
    walk_band(w, y0, from);
    start_outputs(w, &inner, o, 1);
    bool finite = true;
    for (int32_t y = from; y < to && finite; y += TILE_ROWS) {
        tile.rows = (int32_t)xn_cpu_min(TILE_ROWS, to - y);
        tile.from = (const float *)(const void *)w->image->input +
                    ((int64_t)o * conv->height + y - conv->pad_top) * conv->width + tile.start;
        tile.to = (float *)(void *)xn_cpu_output_row(conv, w->image->output, o, y) + w->x0;
        finite = w->kernels->tile(&tile);
    }
    if (finite)
        walk_band(w, to, y1);
    return finite;
}

typedef struct job {
    const xn_cpu_run *run;
    int64_t bands, strips;
    int32_t band; /* output rows */
    bool stream;
} job;

static void task(void *context, int64_t unit, int thread) {
    const job *j = context;
    const xn_plan *plan = j->run->plan;
    const int64_t band = unit % j->bands, strip = unit / j->bands % j->strips;
    const int64_t rest = unit / j->bands / j->strips;
    const int32_t x0 = (int32_t)(strip * plan->strip);
    walk w = {
        .run = j->run,
        .plan = plan,
        .conv = &plan->conv,
        .kernels = plan->few,
        .image = &plan->images[rest / plan->conv.groups],
        .slice = xn_cpu_slice(plan, thread),
        .group = (int32_t)(rest % plan->conv.groups),
        .x0 = x0,
        .n = (int32_t)xn_cpu_min(plan->strip, plan->conv.out_width - x0),
        .plane_count = plane_count(&plan->conv, plan->few),
        .plane_pitch = plane_pitch(plan),
        .strip_pitch = strip_pitch(plan),
        .mean = 1.0 / j->run->prepared->filter,
        .with_k = plan->conv.epilogue.k,
        .stream = j->stream,
        .first_of = {-1, -1, -1, -1},
    };
    int64_t y0 = band * j->band;
    const int64_t y1 = xn_cpu_min(y0 + j->band, plan->conv.out_height);
    if (!has_tiles(&plan->conv, plan->few) || !walk_tiles(&w, (int32_t)y0, (int32_t)y1))
        walk_band(&w, (int32_t)y0, (int32_t)y1);
}

/* Bands repeat the input rows that they share, so they are as few as keep the threads busy. */
static void run_images(const xn_cpu_run *run, int64_t count) {
    const xn_conv *conv = &run->plan->conv;
    const int64_t strips = xn_cpu_div_up(conv->out_width, run->plan->strip);
    int64_t whole = count * conv->groups * strips;
    int64_t wanted = run->threads > 1 ? xn_cpu_div_up(3 * (int64_t)run->threads, whole) : 1;
    int64_t least = xn_cpu_min(conv->out_height, BAND_ROWS);
    int64_t band = xn_cpu_max(xn_cpu_div_up(conv->out_height, wanted), least);
    job j = {
        .run = run,
        .bands = xn_cpu_div_up(conv->out_height, band),
        .strips = strips,
        .band = (int32_t)band,
        .stream = (double)count * (double)xn_conv_output_bytes(conv) >= STREAM_BYTES,
    };
    xn_cpu_for(run->threads, whole * j.bands, task, &j);
}

const xn_cpu_path xn_cpu_few = {
    .fits = fits, .image_ns = image_ns, .layout = layout, .run = run_images};
