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
 * K's sums (kmap.h) are separable: KW columns are added when a row comes in, KH rows when one goes
 * out. The boxes are short ones, so they are in fp32. A row with a value that is not finite is
 * written again, by way of its dots. */
#include "few.h"

#include "epilogue.h"
#include "kmap.h"
#include "parallel.h"
#include "path.h"
#include "rows.h"
#include "xn_arith.h"
#include "xn_mem.h"

#include <string.h>

/* The arrays of a thread's slice. */
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
    K,          /* float [strip]: K's sums */
    ACC,        /* int32 [strip] */
    VALUES,     /* float [strip], where the output is not the values */
    TEMP,       /* float [W]: an input row as fp32 */
    GATHER,     /* float [strip + KW*distance]: one segment of it */
    VERTICAL,   /* double [W], for */
    EXACT,      /* double [OW]: K in double */
    ARRAYS
};

/* A plan's. */
typedef struct few_state {
    xn_cpu_rows rows; /* of a strip */
    int32_t ring;     /* input rows a thread keeps, a slot each */
    int32_t strip;    /* most output columns of a unit */
    size_t offset[ARRAYS];
} few_state;

enum {
    RING_BYTES = 2 << 20,
    BAND_ROWS = 8,
    TILE_ROWS = 32,
    STRIP = 1024,           /* most outputs of a strip, but for a strip of its own at the end */
    STREAM_BYTES = 8 << 20, /* outputs of a run that no cache will still hold */
};

static int64_t ring_rows(const xn_conv *conv) {
    int64_t extent = (int64_t)conv->dilation_h * (conv->kernel_h - 1) + 1;
    return xn_cpu_min(extent, conv->height);
}

/* Strips of equal width, vectors of bytes. */
static int32_t strip_width(const xn_conv *conv) {
    if (conv->out_width <= STRIP + STRIP / 2)
        return conv->out_width;
    int64_t strips = xn_cpu_div_up(conv->out_width, STRIP);
    return (int32_t)(xn_cpu_div_up(xn_cpu_div_up(conv->out_width, strips), 64) * 64);
}

static bool fits(const xn_step *step) {
    const xn_conv *conv = &step->conv;
    int64_t filter = (int64_t)conv->group_channels * conv->kernel_h * conv->kernel_w;
    if (conv->mode != XN_MODE_XNOR || conv->input_datatype == XN_BITS ||
        conv->group_channels > XN_CPU_FEW_CHANNELS || filter > XN_CPU_FEW_FILTER ||
        (conv->epilogue.k && !xn_cpu_k_is_short(conv)))
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

static int64_t strip_pitch(const few_state *state) {
    return xn_cpu_div_up(state->strip, XN_CPU_ALIGNMENT) * XN_CPU_ALIGNMENT;
}

static int64_t plane_pitch(const few_state *state, const xn_cpu_few_kernels *few) {
    return few->lookup ? strip_pitch(state) : state->rows.pitch;
}

static bool has_tiles(const xn_conv *conv, const xn_cpu_few_kernels *few) {
    return few->tile && conv->group_channels == 1 && conv->kernel_h == 3 && conv->kernel_w == 3 &&
           conv->stride_h == 1 && conv->stride_w == 1 && conv->dilation_h == 1 &&
           conv->dilation_w == 1 && conv->input_datatype == XN_FP32 &&
           xn_cpu_is_plain(&conv->epilogue) && conv->epilogue.k && conv->group_out_channels == 1;
}

/* Measured (NOTES.md): what a row takes besides its elements is most of it for small images: 20 ns
 * for each plane that is joined and each channel that is split, 35 ns for each row of outputs. A
 * look-up or an addition takes 0.65 ns a block of outputs. Tiles go faster. */
static double cost_ns(const xn_step *step, const void *kernels) {
    const xn_conv *conv = &step->conv;
    const xn_cpu_few_kernels *few = kernels;
    const double inputs = (double)xn_conv_input_elements(conv);
    const double outputs = (double)xn_conv_output_elements(conv);
    const double rows = (double)conv->out_channels * conv->out_height;
    const double in_rows =
        (double)conv->groups *
        (double)xn_cpu_min(conv->height, (int64_t)conv->out_height * conv->kernel_h);
    const double planes = (double)plane_count(conv, few);
    const double across = few->lookup ? planes : planes * conv->kernel_w;
    const double blocks = (double)xn_cpu_div_up(conv->out_width, few->lanes);
    if (has_tiles(conv, few))
        return 0.14 * outputs + 10 * rows;
    return rows * (35 + 0.65 * blocks * across * conv->kernel_h) +
           in_rows * (20 * (planes + conv->group_channels) +
                      0.05 * (double)conv->kernel_w * conv->out_width) +
           0.03 * (outputs + inputs);
}

static void lay_out(const xn_conv *conv, const xn_cpu_few_kernels *few, few_state *state,
                    xn_cpu_sizer *sizer) {
    size_t pitch = (size_t)state->rows.pitch, ring = (size_t)state->ring;
    size_t channels = (size_t)conv->group_channels, strip = (size_t)strip_pitch(state);
    size_t across = channels * (size_t)conv->kernel_w;
    size_t plane = (size_t)plane_pitch(state, few), longest = 0; /* segment */
    for (int32_t s = 0; s < state->rows.segment_count; s++)
        longest = (size_t)xn_cpu_max((int64_t)longest, state->rows.segments[s].count);

    const struct {
        int array;
        size_t count, bytes;
    } arrays[] = {
        {PLANES, ring * (size_t)plane_count(conv, few) * plane, 1},
        {PAD, plane, 1},
        {SIGNS, channels * pitch, 1},
        {MAGNITUDES, pitch, sizeof(float)},
        {SUMS, ring * strip, sizeof(float)},
        {ZERO, strip, sizeof(float)},
        {TAPS, across * (size_t)conv->kernel_h, sizeof(uint8_t *)},
        {POINTERS, across + (size_t)conv->kernel_h, sizeof(void *)},
        {SLOTS, (size_t)conv->kernel_h, sizeof(int32_t)},
        {FIRST, strip, sizeof(int16_t)},
        {K, strip, sizeof(float)},
        {ACC, strip, sizeof(int32_t)},
        {VALUES, strip, sizeof(float)},
        {TEMP, (size_t)conv->width, sizeof(float)},
        {GATHER, longest, sizeof(float)},
        {VERTICAL, (size_t)conv->width, sizeof(double)},
        {EXACT, (size_t)conv->out_width, sizeof(double)},
    };
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        state->offset[arrays[i].array] = xn_cpu_take(sizer, arrays[i].count, arrays[i].bytes);
}

static void destroy(void *state) {
    few_state *s = state;
    if (!s)
        return;
    xn_cpu_rows_free(&s->rows);
    xn_mem_free(s);
}

static xn_status create(xn_plan *plan, xn_error *error) {
    xn_conv strip = plan->step.conv;
    xn_cpu_sizer shared = {0}, slice = {0};
    few_state *state = plan->state = xn_mem_zalloc(1, sizeof *state);
    if (!state)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the plan of a convolution");
    state->strip = strip.out_width = strip_width(&plan->step.conv);
    xn_status status = xn_cpu_rows_create(&strip, &state->rows, error);
    if (status)
        return status;
    state->ring = (int32_t)ring_rows(&plan->step.conv);
    state->rows.pitch = xn_cpu_div_up(state->rows.pitch, XN_CPU_ALIGNMENT) * XN_CPU_ALIGNMENT;
    lay_out(&plan->step.conv, plan->path_kernels, state, &slice);
    return xn_cpu_set_scratch(plan, &shared, &slice, error);
}

static xn_status prepare(const xn_plan *plan, const xn_prepared *prepared, xn_error *error) {
    (void)plan;
    return xn_cpu_form_ready(prepared, &xn_cpu_few_form, 0, error);
}

/* ---- a unit ---- */

/* What a unit works with. */
typedef struct walk {
    const xn_cpu_kernels *common;
    const xn_cpu_few_kernels *kernels;
    const xn_conv *conv;
    const few_state *state;
    const xn_cpu_epilogue *epilogue;
    const xn_prepared *prepared;
    const xn_cpu_few_weights *weights;
    const xn_cpu_image *image;
    unsigned char *slice;
    int32_t group, x0, n; /* the strip: outputs x0 .. x0 + n */
    int64_t plane_count, plane_pitch, strip_pitch;
    bool with_k, stream;
    int32_t first_of[4]; /* what FIRST holds: filter, i0, i1, bytes of an element */
} walk;

static void *array(const walk *w, int which) {
    return w->slice + w->state->offset[which];
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
        xn_cpu_to_fp32(w->common, conv, row + (size_t)first * bytes, (int32_t)(last - first),
                       temp + first);
    return temp;
}

/* The part of one channel's row that belongs to one segment, padding included. */
static void split_segment(const walk *w, const xn_cpu_segment *segment, const float *row, bool add,
                          uint8_t *signs, float *magnitudes) {
    const xn_conv *conv = w->conv;
    const int outside = conv->pad_value == 1 ? w->kernels->lookup ? 1 : 2 : 0;
    int64_t start = (int64_t)w->x0 * conv->stride_w + segment->start;
    int32_t count = segment->count - (w->state->strip - w->n), first, last;
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
    const xn_cpu_rows *rows = &w->state->rows;
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
    const xn_cpu_rows *rows = &w->state->rows;
    int32_t slot = in_y % w->state->ring;
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
    int32_t ring = w->state->ring, step = w->conv->dilation_h % ring;
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
                        plane + w->state->rows.column[j];
        }
    }
    return lookup ? planes * conv->kernel_h : w->prepared->filter;
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
        w->weights->above + (size_t)o * (size_t)(conv->kernel_h + 1) * (size_t)conv->kernel_w;
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

/* ---- outputs ---- */

/* What the filters of an output row share; had when one first wants it. */
typedef struct row_sums {
    const float *sums;   /* K's, or NULL */
    const double *exact; /* K in double, or NULL */
} row_sums;

static const float *sums_under(const walk *w, const band_row *row, row_sums *shared) {
    float *k = array(w, K);
    if (w->with_k && !shared->sums) {
        w->kernels->add_rows(sum_rows(w, row), w->conv->kernel_h, w->n, k);
        shared->sums = k;
    }
    return shared->sums;
}

static const double *exact_under(const walk *w, const band_row *row, row_sums *shared) {
    double *k = array(w, EXACT);
    if (w->with_k && !shared->exact) {
        xn_cpu_k_row_exact(w->common, w->conv, w->image->input, w->group, row->y, array(w, TEMP),
                           array(w, VERTICAL), k);
        shared->exact = k + w->x0;
    }
    return shared->exact;
}

/* The accumulators of filter o. */
static const int32_t *dots_of(walk *w, const band_row *row, const xn_cpu_few_outputs *outputs,
                              int32_t o) {
    int32_t *acc = array(w, ACC);
    start_outputs(w, row, o, 2);
    w->kernels->dots(outputs, acc);
    return acc;
}

/* By way of the dots, what emit cannot have, or had not finitely. */
static void make_values(walk *w, const band_row *row, const xn_cpu_few_outputs *outputs, int32_t o,
                        row_sums *shared, float *v) {
    const int32_t *acc = dots_of(w, row, outputs, o);
    const float *sums = sums_under(w, row, shared);
    if (!w->common->values_i32(acc, sums, outputs->factor, outputs->bias, w->n, v))
        xn_cpu_values_again(w->epilogue, o, acc, sums, exact_under(w, row, shared), w->n, v);
}

/* The row of one filter. */
static void output_filter(walk *w, const band_row *row, xn_cpu_few_outputs *outputs, int32_t o,
                          row_sums *shared) {
    const xn_conv *conv = w->conv;
    const size_t pixel = (size_t)row->y * (size_t)conv->out_width + (size_t)w->x0;
    const xn_cpu_place place = xn_cpu_place_of(conv, w->image, o, pixel);
    const bool plain = xn_cpu_is_plain(&conv->epilogue);
    float *v = plain ? place.real : array(w, VALUES);
    if (xn_cpu_is_dots(&conv->epilogue)) {
        xn_cpu_finish_dots(w->epilogue, o, dots_of(w, row, outputs, o), w->n, &place);
        return;
    }
    outputs->factor = w->epilogue->factor[o];
    outputs->bias = w->epilogue->bias[o];
    bool made = false;
    if (w->prepared->filter <= XN_CPU_BYTE_TAPS) {
        start_outputs(w, row, o, 1);
        made = w->kernels->emit(outputs, v);
    }
    if (!made)
        make_values(w, row, outputs, o, shared, v);
    if (!plain)
        xn_cpu_finish(w->epilogue, o, v, w->n, &place);
}

static void output_row(walk *w, const band_row *row) {
    const xn_conv *conv = w->conv;
    const xn_cpu_few_weights *weights = w->weights;
    row_sums shared = {0};
    const float *sums;
    find_slots(w, row);
    xn_cpu_few_outputs outputs = {
        .planes = array(w, TAPS),
        .count = find_planes(w, row),
        .first = array(w, FIRST),
        .taps = w->prepared->filter,
        .n = w->n,
        .stream = w->stream,
    };
    if (w->with_k) {
        outputs.rows = sum_rows(w, row);
        outputs.row_count = conv->kernel_h;
        if (conv->group_out_channels > 1) { /* added once for all filters */
            sums = sums_under(w, row, &shared);
            outputs.rows = &sums;
            outputs.row_count = 1;
        }
    }
    for (int32_t n = 0; n < conv->group_out_channels; n++) {
        const int32_t o = w->group * conv->group_out_channels + n;
        const size_t planes = (size_t)conv->kernel_h * (size_t)weights->planes;
        outputs.tables = weights->tables + (size_t)o * planes * XN_CPU_TABLE_BYTES;
        outputs.order = weights->order + (size_t)o * (size_t)w->prepared->filter;
        outputs.plus = weights->plus[o];
        output_filter(w, row, &outputs, o, &shared);
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
        w->common->flush();
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
    xn_cpu_few_tile tile = {
        .start = w->x0 - conv->pad_left,
        .width = conv->width,
        .from_pitch = conv->width,
        .to_pitch = conv->out_width,
        .n = w->n,
        .tables = w->weights->tables + (size_t)o * 3 * XN_CPU_TABLE_BYTES,
        .first = array(w, FIRST),
        .factor = w->epilogue->factor[o],
        .bias = w->epilogue->bias[o],
        .outside = conv->pad_value == 1,
        .stream = w->stream,
    };
    if (from >= to)
        return false;
    walk_band(w, y0, from);
    start_outputs(w, &inner, o, 1);
    bool finite = true;
    for (int32_t y = from; y < to && finite; y += TILE_ROWS) {
        tile.rows = (int32_t)xn_cpu_min(TILE_ROWS, to - y);
        tile.from = (const float *)(const void *)w->image->input +
                    ((int64_t)o * conv->height + y - conv->pad_top) * conv->width + tile.start;
        tile.to = (float *)(void *)w->image->output +
                  ((int64_t)o * conv->out_height + y) * conv->out_width + w->x0;
        finite = w->kernels->tile(&tile);
    }
    if (finite)
        walk_band(w, to, y1);
    return finite;
}

typedef struct job {
    const xn_cpu_run *run;
    const xn_cpu_image *images;
    int64_t bands, strips;
    int32_t band; /* output rows */
    bool stream;
} job;

static void task(void *context, int64_t unit, int thread) {
    const job *j = context;
    const xn_plan *plan = j->run->plan;
    const xn_conv *conv = &plan->step.conv;
    const few_state *state = plan->state;
    const xn_cpu_few_kernels *few = plan->path_kernels;
    const int64_t band = unit % j->bands, strip = unit / j->bands % j->strips;
    const int64_t rest = unit / j->bands / j->strips;
    const int32_t x0 = (int32_t)(strip * state->strip);
    walk w = {
        .common = plan->kernels,
        .kernels = few,
        .conv = conv,
        .state = state,
        .epilogue = &j->run->epilogue,
        .prepared = j->run->prepared,
        .weights = xn_cpu_form_of(j->run->prepared, &xn_cpu_few_form, 0),
        .image = &j->images[rest / conv->groups],
        .slice = xn_cpu_slice(plan, thread),
        .group = (int32_t)(rest % conv->groups),
        .x0 = x0,
        .n = (int32_t)xn_cpu_min(state->strip, conv->out_width - x0),
        .plane_count = plane_count(conv, few),
        .plane_pitch = plane_pitch(state, few),
        .strip_pitch = strip_pitch(state),
        .with_k = conv->epilogue.k,
        .stream = j->stream,
        .first_of = {-1, -1, -1, -1},
    };
    int64_t y0 = band * j->band;
    const int64_t y1 = xn_cpu_min(y0 + j->band, conv->out_height);
    if (!has_tiles(conv, few) || !walk_tiles(&w, (int32_t)y0, (int32_t)y1))
        walk_band(&w, (int32_t)y0, (int32_t)y1);
}

/* Bands repeat the input rows that they share, so they are as few as keep the threads busy. */
static void run_images(const xn_cpu_run *run, const xn_cpu_image *images, int64_t count) {
    const xn_conv *conv = &run->plan->step.conv;
    const few_state *state = run->plan->state;
    const int64_t strips = xn_cpu_div_up(conv->out_width, state->strip);
    int64_t whole = count * conv->groups * strips;
    int64_t wanted = run->threads > 1 ? xn_cpu_div_up(3 * (int64_t)run->threads, whole) : 1;
    int64_t least = xn_cpu_min(conv->out_height, BAND_ROWS);
    int64_t band = xn_cpu_max(xn_cpu_div_up(conv->out_height, wanted), least);
    job j = {
        .run = run,
        .images = images,
        .bands = xn_cpu_div_up(conv->out_height, band),
        .strips = strips,
        .band = (int32_t)band,
        .stream = xn_cpu_is_plain(&conv->epilogue) &&
                  (double)count * (double)xn_conv_output_bytes(conv) >= STREAM_BYTES,
    };
    xn_cpu_for(run->threads, whole * j.bands, task, &j);
}

const xn_cpu_path xn_cpu_few = {
    .kernels =
        {
            [XN_CPU_PORTABLE] = &xn_cpu_few_portable,
#if defined(__x86_64__)
            [XN_CPU_AVX2] = &xn_cpu_few_avx2,
            [XN_CPU_AVX512] = &xn_cpu_few_avx512,
            [XN_CPU_VPOPCNT] = &xn_cpu_few_avx512,
#elif defined(__aarch64__)
            [XN_CPU_NEON] = &xn_cpu_few_neon,
#endif
        },
    .fits = fits,
    .cost_ns = cost_ns,
    .create = create,
    .destroy = destroy,
    .prepare = prepare,
    .run = run_images,
};
