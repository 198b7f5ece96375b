/* lookup_unit.c: a unit of lookup.c: a thread walks down a strip. */
#include "lookup.h"

#include "kmap.h"
#include "xn_arith.h"

#include <string.h>

bool xn_cpu_lookup_has_tiles(const xn_conv *conv, const xn_cpu_lookup_kernels *lookup) {
    return lookup->tile && conv->group_channels == 1 && conv->kernel_h == 3 &&
           conv->kernel_w == 3 && conv->stride_h == 1 && conv->stride_w == 1 &&
           conv->dilation_h == 1 && conv->dilation_w == 1 && conv->input_datatype == XN_FP32 &&
           xn_cpu_is_plain(&conv->epilogue) && conv->epilogue.k && conv->group_out_channels == 1;
}

static void *array(const xn_cpu_lookup_unit *w, int which) {
    return w->slice + w->state->offset[which];
}

static uint8_t *planes_of(const xn_cpu_lookup_unit *w, int64_t slot) {
    return (uint8_t *)array(w, XN_CPU_LOOKUP_PLANES) + slot * w->plane_count * w->strip_pitch;
}

static float *sums_of(const xn_cpu_lookup_unit *w, int64_t slot) {
    return (float *)array(w, XN_CPU_LOOKUP_SUMS) + slot * w->strip_pitch;
}

/* ---- an input row ---- */

/* Row y of channel c of the group as fp32, valid where the strip reads it. */
static const float *input_row(const xn_cpu_lookup_unit *w, int32_t c, int32_t y) {
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
    float *temp = array(w, XN_CPU_LOOKUP_TEMP);
    if (first < last)
        xn_cpu_to_fp32(w->common, conv, row + (size_t)first * bytes, (int32_t)(last - first),
                       temp + first);
    return temp;
}

/* The part of one channel's row that belongs to one segment, padding included. */
static void split_segment(const xn_cpu_lookup_unit *w, const xn_cpu_segment *segment,
                          const float *row, bool add, uint8_t *signs, float *magnitudes) {
    const xn_conv *conv = w->conv;
    const int outside = conv->pad_value == 1;
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
        float *gather = array(w, XN_CPU_LOOKUP_GATHER);
        for (int32_t x = 0; x < last - first; x++)
            gather[x] = row[(int64_t)x * conv->stride_w];
        row = gather;
    }
    w->kernels->split(row, last - first, conv->width, add, signs + first,
                      magnitudes ? magnitudes + first : NULL);
}

/* Planes of patterns from the signs of a row. */
static void join_signs(const xn_cpu_lookup_unit *w, uint8_t *planes) {
    const xn_conv *conv = w->conv;
    const xn_cpu_rows *rows = &w->state->rows;
    const uint8_t **signs = array(w, XN_CPU_LOOKUP_POINTERS);
    int32_t across = conv->group_channels * conv->kernel_w;
    for (int32_t t = 0; t < across; t++)
        signs[t] = (uint8_t *)array(w, XN_CPU_LOOKUP_SIGNS) + t / conv->kernel_w * rows->pitch +
                   rows->column[t % conv->kernel_w];
    for (int32_t t = 0; t < across; t += XN_CPU_PATTERN_TAPS) {
        w->kernels->join(signs + t, (int32_t)xn_cpu_min(across - t, XN_CPU_PATTERN_TAPS), w->n,
                         planes);
        planes += w->strip_pitch;
    }
}

static bool takes_at_once(const xn_cpu_lookup_unit *w) {
    const xn_conv *conv = w->conv;
    return w->kernels->take && conv->group_channels == 1 && conv->stride_w == 1 &&
           conv->dilation_w == 1 && conv->kernel_w <= 2 * XN_CPU_PATTERN_TAPS;
}

static void take_at_once(const xn_cpu_lookup_unit *w, int32_t in_y, uint8_t *planes, float *sums) {
    const xn_conv *conv = w->conv;
    const xn_cpu_lookup_row row = {
        .row = input_row(w, 0, in_y),
        .width = conv->width,
        .start = w->x0 - conv->pad_left,
        .kernel_w = conv->kernel_w,
        .n = w->n,
        .outside = conv->pad_value == 1,
    };
    w->kernels->take(&row, (size_t)w->strip_pitch, planes, sums);
}

static void take_row(const xn_cpu_lookup_unit *w, int32_t in_y) {
    const xn_cpu_rows *rows = &w->state->rows;
    int32_t slot = in_y % w->state->ring;
    uint8_t *planes = planes_of(w, slot);
    float *magnitudes = w->with_k ? array(w, XN_CPU_LOOKUP_MAGNITUDES) : NULL;
    if (takes_at_once(w)) {
        take_at_once(w, in_y, planes, w->with_k ? sums_of(w, slot) : NULL);
        return;
    }
    uint8_t *signs = array(w, XN_CPU_LOOKUP_SIGNS);
    for (int32_t c = 0; c < w->conv->group_channels; c++) {
        const float *row = input_row(w, c, in_y);
        for (int32_t s = 0; s < rows->segment_count; s++) {
            int64_t offset = rows->segments[s].offset;
            split_segment(w, &rows->segments[s], row, c > 0, signs + c * rows->pitch + offset,
                          magnitudes ? magnitudes + offset : NULL);
        }
    }
    join_signs(w, planes);
    if (!w->with_k)
        return;
    const float **columns = array(w, XN_CPU_LOOKUP_POINTERS);
    for (int32_t j = 0; j < w->conv->kernel_w; j++)
        columns[j] = magnitudes + rows->column[j];
    w->kernels->add_rows(columns, w->conv->kernel_w, w->n, sums_of(w, slot));
}

/* ---- an output row ---- */

/* The output row y, and the kernel rows i0 .. i1 that are inside the image there. */
typedef struct band_row {
    int32_t y, start, i0, i1;
} band_row;

static void find_slots(const xn_cpu_lookup_unit *w, const band_row *row) {
    int32_t *slots = array(w, XN_CPU_LOOKUP_SLOTS);
    int32_t ring = w->state->ring, step = w->conv->dilation_h % ring;
    int32_t slot = row->i0 < row->i1 ? (row->start + row->i0 * w->conv->dilation_h) % ring : 0;
    for (int32_t i = row->i0; i < row->i1; i++) { /* one division a row, not one a tap */
        slots[i] = slot;
        slot += step;
        if (slot >= ring)
            slot -= ring;
    }
}

/* Fills XN_CPU_LOOKUP_TAPS. Returns the number of planes. */
static int32_t find_planes(const xn_cpu_lookup_unit *w, const band_row *row) {
    const xn_conv *conv = w->conv;
    const int64_t pitch = w->strip_pitch;
    const int32_t planes = (int32_t)w->plane_count, *slots = array(w, XN_CPU_LOOKUP_SLOTS);
    const uint8_t **taps = array(w, XN_CPU_LOOKUP_TAPS);
    for (int32_t i = 0; i < conv->kernel_h; i++) {
        const bool inside = i >= row->i0 && i < row->i1;
        const uint8_t *from = inside ? planes_of(w, slots[i]) : array(w, XN_CPU_LOOKUP_PAD);
        for (int32_t p = 0; p < planes; p++)
            taps[i * planes + p] = from + (inside ? p * pitch : 0);
    }
    return planes * conv->kernel_h;
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
static void start_outputs(xn_cpu_lookup_unit *w, const band_row *row, int32_t o, const int bytes) {
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
    int8_t *first = array(w, XN_CPU_LOOKUP_FIRST);
    int16_t *wide = array(w, XN_CPU_LOOKUP_FIRST);
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
static const float *const *sum_rows(const xn_cpu_lookup_unit *w, const band_row *row) {
    const int32_t *slots = array(w, XN_CPU_LOOKUP_SLOTS);
    const float **rows = array(w, XN_CPU_LOOKUP_POINTERS);
    for (int32_t i = 0; i < w->conv->kernel_h; i++)
        rows[i] = i >= row->i0 && i < row->i1 ? sums_of(w, slots[i]) : array(w, XN_CPU_LOOKUP_ZERO);
    return rows;
}

/* ---- outputs ---- */

/* What the filters of an output row share; had when one first wants it. */
typedef struct row_sums {
    const float *sums;   /* K's, or NULL */
    const double *exact; /* K in double, or NULL */
} row_sums;

static const float *sums_under(const xn_cpu_lookup_unit *w, const band_row *row, row_sums *shared) {
    float *k = array(w, XN_CPU_LOOKUP_K);
    if (w->with_k && !shared->sums) {
        w->kernels->add_rows(sum_rows(w, row), w->conv->kernel_h, w->n, k);
        shared->sums = k;
    }
    return shared->sums;
}

static const double *exact_under(const xn_cpu_lookup_unit *w, const band_row *row,
                                 row_sums *shared) {
    double *k = array(w, XN_CPU_LOOKUP_EXACT);
    if (w->with_k && !shared->exact) {
        xn_cpu_k_row_exact(w->common, w->conv, w->image->input, w->group, row->y,
                           array(w, XN_CPU_LOOKUP_TEMP), array(w, XN_CPU_LOOKUP_VERTICAL), k);
        shared->exact = k + w->x0;
    }
    return shared->exact;
}

/* The accumulators of filter o. */
static const int32_t *dots_of(xn_cpu_lookup_unit *w, const band_row *row,
                              const xn_cpu_lookup_outputs *outputs, int32_t o) {
    int32_t *acc = array(w, XN_CPU_LOOKUP_ACC);
    start_outputs(w, row, o, 2);
    w->kernels->dots(outputs, acc);
    return acc;
}

/* By way of the dots, what emit cannot have, or had not finitely. */
static void make_values(xn_cpu_lookup_unit *w, const band_row *row,
                        const xn_cpu_lookup_outputs *outputs, int32_t o, row_sums *shared,
                        float *v) {
    const int32_t *acc = dots_of(w, row, outputs, o);
    const float *sums = sums_under(w, row, shared);
    if (!xn_cpu_make_values(w->epilogue, o, XN_CPU_DOTS, acc, sums, w->n, v))
        xn_cpu_values_again(w->epilogue, o, acc, sums, exact_under(w, row, shared), w->n, v);
}

/* The row of one filter. */
static void output_filter(xn_cpu_lookup_unit *w, const band_row *row,
                          xn_cpu_lookup_outputs *outputs, int32_t o, row_sums *shared) {
    const xn_conv *conv = w->conv;
    const size_t pixel = (size_t)row->y * (size_t)conv->out_width + (size_t)w->x0;
    const xn_cpu_place place = xn_cpu_place_of(conv, w->image, o, pixel);
    const bool plain = xn_cpu_is_plain(&conv->epilogue);
    float *v = plain ? place.real : array(w, XN_CPU_LOOKUP_VALUES);
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
        xn_cpu_finish(w->epilogue, o, 1, v, 0, w->n, &place);
}

static void output_row(xn_cpu_lookup_unit *w, const band_row *row) {
    const xn_conv *conv = w->conv;
    const xn_cpu_lookup_weights *weights = w->weights;
    row_sums shared = {0};
    const float *sums;
    find_slots(w, row);
    xn_cpu_lookup_outputs outputs = {
        .planes = array(w, XN_CPU_LOOKUP_TAPS),
        .count = find_planes(w, row),
        .first = array(w, XN_CPU_LOOKUP_FIRST),
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
        output_filter(w, row, &outputs, o, &shared);
    }
}

/* The ring holds the input rows under the kernel; going down, a row enters when it is first needed
 * and its slot is that of a row no later output needs. No later output reads above `start`: rows
 * that a stride larger than the kernel steps over are never read. (It may well read above this
 * output's first valid row: with dilation, outputs take turns.) */
static void walk_band(xn_cpu_lookup_unit *w, int32_t y0, int32_t y1) {
    const xn_conv *conv = w->conv;
    const int outside = conv->pad_value == 1 ? XN_CPU_TABLE_BYTES - 1 : 0;
    memset(array(w, XN_CPU_LOOKUP_PAD), outside, (size_t)w->strip_pitch);
    memset(array(w, XN_CPU_LOOKUP_ZERO), 0, (size_t)w->strip_pitch * sizeof(float));
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

/* ---- one channel, 3x3: a tile ---- */

/* The rows of the unit whose kernel rows are all inside are a tile, the others go row by row. False
 * where there are none, or not finitely: then all go row by row. */
static bool walk_tile(xn_cpu_lookup_unit *w, int32_t y0, int32_t y1) {
    const xn_conv *conv = w->conv;
    const int32_t o = w->group, last = conv->height - conv->kernel_h + 1 + conv->pad_top;
    const int32_t from = (int32_t)xn_cpu_max(y0, conv->pad_top);
    const int32_t to = (int32_t)xn_cpu_min(y1, last);
    const band_row inner = {.i1 = conv->kernel_h};
    const int32_t *taps = w->weights->above + (size_t)o * 4 * 3; /* [KH + 1][KW] */
    const int32_t start = w->x0 - conv->pad_left;
    const xn_cpu_lookup_tile tile = {
        .from = (const float *)(const void *)w->image->input +
                ((int64_t)o * conv->height + from - conv->pad_top) * conv->width + start,
        .start = start,
        .width = conv->width,
        .from_pitch = conv->width,
        .to = (float *)(void *)w->image->output +
              ((int64_t)o * conv->out_height + from) * conv->out_width + w->x0,
        .to_pitch = conv->out_width,
        .n = w->n,
        .rows = to - from,
        .tables = w->weights->tables + (size_t)o * 3 * XN_CPU_TABLE_BYTES,
        .first = array(w, XN_CPU_LOOKUP_FIRST),
        .inner = (int8_t)-column_weight(taps, taps + 9, 0, 3),
        .factor = w->epilogue->factor[o],
        .bias = w->epilogue->bias[o],
        .outside = conv->pad_value == 1,
        .stream = w->stream,
        .blocks = array(w, XN_CPU_LOOKUP_BLOCKS),
    };
    if (from >= to)
        return false;
    walk_band(w, y0, from);
    start_outputs(w, &inner, o, 1);
    const bool finite = w->kernels->tile(&tile);
    if (finite)
        walk_band(w, to, y1);
    return finite;
}

void xn_cpu_lookup_do_unit(xn_cpu_lookup_unit *w, int32_t y0, int32_t y1) {
    if (!xn_cpu_lookup_has_tiles(w->conv, w->kernels) || !walk_tile(w, y0, y1))
        walk_band(w, y0, y1);
}
