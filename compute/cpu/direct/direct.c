/* direct.c: modes bwn and float by sums of shifted rows, for few filters a group (depth-wise): what
 * a panel of real.c costs there is more than its filters gain.
 *
 * fp32 with strides across of 1 and 2, which is nearly all there is, is read where it is, and
 * written as it is summed: shift_rows of direct_kernels.h. Units are bands of rows of a plane, or
 * several small planes.
 *
 * For the rest, the rows under a band of output rows are copied, padded, in the order of rows.c,
 * into the thread's slice, where they stay in L1 or L2; rows outside the image hold the pad value.
 * A tap of the whole band is then one shift of a channel's plane: with stride 1 the sums run
 * through all rows as one vector loop, whatever the width, and what they find between the rows is
 * dropped. With other strides they go row by row. */
#include "direct_kernels.h"
#include "parallel.h"
#include "path.h"
#include "rows.h"
#include "terms.h"
#include "xn_mem.h"

/* The arrays of a thread's slice. */
enum {
    PLANES,   /* float [C/groups][rows under a band][pitch] */
    TAPS,     /* const float *[filter] */
    WEIGHTS,  /* float [filter] */
    ACC,      /* float [band][pitch] */
    VALUES,   /* float [value_rows][OW], where the output is not the values */
    GATHERED, /* float [UNIT_OUTPUTS], from somewhere in a line on */
    TEMP,     /* float [W] */
    ARRAYS
};

enum {
    BAND_FLOATS = 16 << 10,
    BAND_ROWS = 8, /* fewer take longer each: then a band a thread, not three */
    UNIT_OUTPUTS = 16 << 10,
    VALUE_FLOATS = 4 << 10,
    SPARSE = 8,
};

/* A plan's. */
typedef struct direct_state {
    xn_cpu_rows rows; /* where they are copied */
    bool in_place;    /* rows are read where they are */
    int32_t band;     /* most output rows of a unit */
    size_t offset[ARRAYS];
} direct_state;

/* Input rows under a band. */
static int64_t rows_under(const xn_conv *conv, int64_t band) {
    return (band - 1) * conv->stride_h + (int64_t)(conv->kernel_h - 1) * conv->dilation_h + 1;
}

/* The copy has all rows under a band, so it is only for those that are mostly read. */
static bool fits(const xn_step *step) {
    const xn_conv *conv = &step->conv;
    return conv->mode != XN_MODE_XNOR && rows_under(conv, 1) <= (int64_t)SPARSE * conv->kernel_h &&
           conv->stride_h <= SPARSE;
}

/* Whether rows are read where they are. */
static bool shifts(const xn_conv *conv) {
    return conv->input_datatype == XN_FP32 &&
           (conv->stride_w == 1 || (conv->stride_w == 2 && conv->dilation_w == 1)) &&
           (int64_t)conv->group_channels * conv->kernel_h * conv->kernel_w <= XN_CPU_SHIFT_TAPS;
}

/* Outputs of a group. */
static int64_t group_outputs(const xn_conv *conv) {
    return (int64_t)conv->out_height * conv->out_width * conv->group_out_channels;
}

/* Whether the outputs of whole planes are gathered where they go past the caches. */
static bool gathers(const xn_conv *conv) {
    return shifts(conv) && xn_cpu_is_plain(&conv->epilogue) &&
           conv->out_width * (int64_t)sizeof(float) % XN_CPU_LINE &&
           group_outputs(conv) <= UNIT_OUTPUTS;
}

/* Rows of values that are computed at a time. */
static int64_t value_rows(const xn_conv *conv) {
    return xn_cpu_min(xn_cpu_max(1, VALUE_FLOATS / conv->out_width), conv->out_height);
}

static double cost_ns(const xn_step *step, const void *kernels) {
    const xn_conv *conv = &step->conv;
    const xn_cpu_direct_kernels *direct = kernels;
    const xn_cpu_direct_costs *costs = &direct->costs;
    const double inputs = (double)xn_conv_input_elements(conv), planes = conv->out_channels;
    const double rows = planes * conv->out_height;
    const double vectors = rows * (double)xn_cpu_div_up(conv->out_width, direct->lanes);
    const double terms = (double)conv->group_channels * conv->kernel_h * conv->kernel_w;
    const bool usual = conv->group_channels == 1 && conv->kernel_h == 3 && conv->kernel_w == 3;
    if (shifts(conv))
        return vectors * (costs->vector + (usual ? 0 : costs->term * terms)) + costs->row * rows +
               planes * (costs->plane + costs->weight * terms) + costs->input * inputs;
    return costs->copied_term * vectors * terms + costs->copied_input * inputs +
           costs->copied_row * (double)conv->channels * conv->height + costs->written_row * rows +
           planes * costs->weight * terms;
}

static void destroy(void *state) {
    direct_state *s = state;
    if (!s)
        return;
    xn_cpu_rows_free(&s->rows);
    xn_mem_free(s);
}

/* What the copied rows of a band take. */
static xn_status lay_out_copies(const xn_conv *conv, direct_state *state, xn_cpu_sizer *slice,
                                xn_error *error) {
    xn_status status = xn_cpu_rows_create(conv, &state->rows, error);
    if (status)
        return status;
    size_t pitch = (size_t)state->rows.pitch, channels = (size_t)conv->group_channels, plane;
    int64_t rows = (int64_t)(BAND_FLOATS / pitch / channels) - rows_under(conv, 1);
    state->band = (int32_t)xn_cpu_min(1 + xn_cpu_max(rows, 0) / conv->stride_h, conv->out_height);
    slice->failed |= !xn_mul_size((size_t)rows_under(conv, state->band), pitch, &plane);
    state->offset[PLANES] = xn_cpu_take(slice, slice->failed ? 0 : plane, channels * sizeof(float));
    state->offset[TAPS] = xn_cpu_take(
        slice, channels * (size_t)conv->kernel_h * (size_t)conv->kernel_w, sizeof(float *));
    state->offset[ACC] = xn_cpu_take(slice, (size_t)state->band, pitch * sizeof(float));
    return XN_OK;
}

static xn_status create(xn_plan *plan, xn_error *error) {
    const xn_conv *conv = &plan->step.conv;
    xn_cpu_sizer shared = {0}, slice = {0};
    direct_state *state = xn_cpu_state_create(plan, sizeof *state, error);
    if (!state)
        return XN_ERR_NO_MEMORY;
    state->in_place = shifts(conv);
    state->band = conv->out_height;
    if (!state->in_place) {
        xn_status status = lay_out_copies(conv, state, &slice, error);
        if (status)
            return status;
    }
    size_t filter = (size_t)conv->group_channels * (size_t)conv->kernel_h * (size_t)conv->kernel_w;
    size_t values =
        xn_cpu_is_plain(&conv->epilogue) ? 0 : (size_t)value_rows(conv) * (size_t)conv->out_width;
    state->offset[WEIGHTS] = xn_cpu_take(&slice, filter, sizeof(float));
    state->offset[VALUES] = xn_cpu_take(&slice, values, sizeof(float));
    state->offset[GATHERED] =
        xn_cpu_take(&slice, gathers(conv) ? XN_CPU_LINE + UNIT_OUTPUTS : 0, sizeof(float));
    state->offset[TEMP] = xn_cpu_take(&slice, (size_t)conv->width, sizeof(float));
    return xn_cpu_set_scratch(plan, &shared, &slice, error);
}

static xn_status prepare(const xn_plan *plan, const xn_prepared *prepared, xn_error *error) {
    return xn_cpu_real_ready(prepared, (xn_mode)plan->step.conv.mode, error);
}

typedef struct job {
    const xn_cpu_run *run;
    const direct_state *state;
    const xn_cpu_direct_kernels *kernels;
    const float *weights;
    const xn_conv *conv;
    const xn_cpu_image *images;
    int64_t bands;  /* of a plane; they differ by one row at most */
    int64_t planes; /* of all images: outputs of a group */
    int64_t stack;  /* planes of a unit, one after another */
    bool stream;    /* outputs go past the caches: */
    bool gather;    /* a unit's together, since rows are no whole lines */
} job;

typedef struct unit {
    const job *j;
    unsigned char *slice;
    const xn_cpu_image *image;
    int32_t group, y, rows; /* output rows [y, y + rows) */
    int64_t plane;          /* floats of a channel */
    float *gathered;        /* outputs from plane first_filter of the image on; NULL: in place */
    int32_t first_filter;
} unit;

static void *array(const unit *u, int which) {
    return u->slice + u->j->state->offset[which];
}

static void copy_rows(const unit *u) {
    const xn_conv *conv = u->j->conv;
    const direct_state *state = u->j->state;
    const xn_cpu_kernels *common = u->j->run->plan->kernels;
    int64_t under = rows_under(conv, u->rows);
    int64_t top = (int64_t)u->y * conv->stride_h - conv->pad_top;
    float *to = array(u, PLANES);
    for (int32_t c = 0; c < conv->group_channels; c++)
        for (int64_t y = top; y < top + under; y++, to += state->rows.pitch)
            if (y >= 0 && y < conv->height)
                xn_cpu_rows_copy(common, conv, &state->rows,
                                 xn_cpu_row_fp32(common, conv, u->image->input,
                                                 u->group * conv->group_channels + c, (int32_t)y,
                                                 array(u, TEMP)),
                                 to);
            else
                for (int64_t x = 0; x < state->rows.pitch; x++)
                    to[x] = (float)conv->pad_value;
}

/* In the order of the terms. */
static void find_taps(const unit *u) {
    const xn_conv *conv = u->j->conv;
    const xn_cpu_rows *rows = &u->j->state->rows;
    const float **tap = array(u, TAPS), *planes = array(u, PLANES);
    for (int32_t i = 0; i < conv->kernel_h; i++)
        for (int32_t k = 0; k < conv->kernel_w; k++)
            for (int32_t c = 0; c < conv->group_channels; c++)
                *tap++ = planes + c * u->plane + (int64_t)i * conv->dilation_h * rows->pitch +
                         rows->column[k];
}

static void find_weights(const unit *u, int32_t o) {
    const xn_prepared *prepared = u->j->run->prepared;
    const int32_t terms = xn_cpu_part_terms(prepared->filter);
    float *to = array(u, WEIGHTS);
    for (int32_t term = 0; term < prepared->filter; term += terms) {
        const int32_t count = (int32_t)xn_cpu_min(terms, prepared->filter - term);
        const float *from =
            xn_cpu_real_part(prepared, u->j->weights, o / XN_CPU_REAL_FILTERS, term, count);
        for (int32_t t = 0; t < count; t++)
            *to++ = from[(size_t)t * XN_CPU_REAL_FILTERS + (size_t)(o % XN_CPU_REAL_FILTERS)];
    }
}

/* The sums of the band, rows of pitch floats. */
static void sum_band(const unit *u, float *acc) {
    const xn_conv *conv = u->j->conv;
    const xn_cpu_direct_kernels *kernels = u->j->kernels;
    const int64_t pitch = u->j->state->rows.pitch;
    const int32_t filter = u->j->run->prepared->filter, part = xn_cpu_part_terms(filter);
    const float **tap = array(u, TAPS);
    if (conv->stride_h == 1 && pitch < 2 * (int64_t)conv->out_width) {
        kernels->sum_products(tap, array(u, WEIGHTS), filter, part,
                              (int32_t)((u->rows - 1) * pitch) + conv->out_width, acc);
        return;
    }
    for (int32_t r = 0; r < u->rows; r++) {
        kernels->sum_products(tap, array(u, WEIGHTS), filter, part, conv->out_width,
                              acc + r * pitch);
        for (int32_t t = 0; t < filter; t++)
            tap[t] += conv->stride_h * pitch;
    }
    for (int32_t t = 0; t < filter; t++)
        tap[t] -= u->rows * conv->stride_h * pitch;
}

/* Where row y of filter o goes, for now; the outputs are the values. */
static float *row_of(const unit *u, int32_t o, int32_t y) {
    const xn_conv *conv = u->j->conv;
    float *planes = u->gathered ? u->gathered : (float *)(void *)u->image->output;
    const int32_t plane = u->gathered ? o - u->first_filter : o;
    return planes + ((int64_t)plane * conv->out_height + y) * conv->out_width;
}

/* `rows` rows of values from y on, those that are not finite again. */
static void make_again(const unit *u, int32_t o, int32_t y, int32_t rows, float *v) {
    const xn_conv *conv = u->j->conv;
    for (int32_t r = 0; r < rows; r++, v += conv->out_width)
        xn_cpu_real_again(conv, u->j->run->prepared, u->image->input, o, y + r, 0, conv->out_width,
                          array(u, TEMP), v);
}

/* Rows [y, y + rows) as values, one after another at v. acc: the band's sums, or NULL where they
 * are read in place. */
static void make_values(const unit *u, int32_t o, int32_t y, int32_t rows, const float *acc,
                        bool stream, float *v) {
    const job *j = u->j;
    const xn_conv *conv = j->conv;
    const xn_cpu_epilogue *epilogue = &j->run->epilogue;
    bool finite = true;
    if (acc) {
        acc += (y - u->y) * j->state->rows.pitch;
        for (int32_t r = 0; r < rows; r++, acc += j->state->rows.pitch)
            finite &= xn_cpu_make_values(epilogue, o, XN_CPU_SUMS, acc, NULL, conv->out_width,
                                         v + (int64_t)r * conv->out_width);
    } else {
        const float *from = (const float *)(const void *)u->image->input +
                            (int64_t)u->group * conv->group_channels * conv->height * conv->width;
        finite = j->kernels->shift_rows(conv, from, array(u, WEIGHTS), y, rows, epilogue->factor[o],
                                        epilogue->bias[o], stream, v);
    }
    if (!finite)
        make_again(u, o, y, rows, v);
}

static void write_band(const unit *u, int32_t o, const float *acc) {
    const job *j = u->j;
    const xn_conv *conv = j->conv;
    const int32_t most = (int32_t)value_rows(conv);
    if (xn_cpu_is_plain(&conv->epilogue)) {
        make_values(u, o, u->y, u->rows, acc, j->stream && !j->gather, row_of(u, o, u->y));
        return;
    }
    float *v = array(u, VALUES);
    for (int32_t y = u->y, rows; y < u->y + u->rows; y += rows) {
        const xn_cpu_place place =
            xn_cpu_place_of(conv, u->image, o, (size_t)y * (size_t)conv->out_width);
        rows = (int32_t)xn_cpu_min(most, u->y + u->rows - y);
        make_values(u, o, y, rows, acc, false, v);
        xn_cpu_finish(&j->run->epilogue, o, 1, v, 0, rows * conv->out_width, &place);
    }
}

static void do_band(unit *u) {
    const xn_conv *conv = u->j->conv;
    const direct_state *state = u->j->state;
    float *acc = state->in_place ? NULL : array(u, ACC);
    if (acc) {
        u->plane = rows_under(conv, u->rows) * state->rows.pitch;
        copy_rows(u);
        find_taps(u);
    }
    for (int32_t f = 0; f < conv->group_out_channels; f++) {
        int32_t o = u->group * conv->group_out_channels + f;
        find_weights(u, o);
        if (acc)
            sum_band(u, acc);
        write_band(u, o, acc);
    }
}

/* So many groups from the unit's on, of one image, whose outputs follow one another. */
static void do_planes(unit *u, int64_t groups) {
    const job *j = u->j;
    u->first_filter = u->group * j->conv->group_out_channels;
    u->gathered = NULL;
    float *to = j->gather ? row_of(u, u->first_filter, u->y) : NULL;
    if (j->gather) /* at the same place in its line */
        u->gathered =
            (float *)(void *)((unsigned char *)array(u, GATHERED) + (uintptr_t)to % XN_CPU_LINE);
    for (int64_t g = 0; g < groups; g++, u->group++)
        do_band(u);
    if (j->gather)
        j->run->plan->kernels->copy(u->gathered,
                                    (size_t)(groups * group_outputs(j->conv)) * sizeof(float), to);
}

static void unit_task(void *context, int64_t number, int thread) {
    const job *j = context;
    const xn_conv *conv = j->conv;
    unit u = {.j = j, .slice = xn_cpu_slice(j->run->plan, thread)};
    int64_t band = number % j->bands, plane = number / j->bands * j->stack;
    int64_t end = xn_cpu_min(plane + j->stack, j->planes);
    u.y = (int32_t)(conv->out_height * band / j->bands);
    u.rows = (int32_t)(conv->out_height * (band + 1) / j->bands) - u.y;
    for (int64_t last; plane < end; plane = last) {
        u.image = &j->images[plane / conv->groups];
        u.group = (int32_t)(plane % conv->groups);
        last = xn_cpu_min(end, plane + conv->groups - u.group);
        do_planes(&u, last - plane);
    }
    if (j->stream)
        j->run->plan->kernels->flush();
}

/* Bands where there are fewer planes than keep the threads busy, several planes a unit where they
 * are small. */
static void run_images(const xn_cpu_run *run, const xn_cpu_image *images, int64_t count) {
    const xn_conv *conv = &run->plan->step.conv;
    const direct_state *state = run->plan->state;
    job j = {.run = run,
             .state = state,
             .kernels = run->plan->path_kernels,
             .weights = xn_cpu_real_weights(run->prepared, (xn_mode)conv->mode),
             .conv = conv,
             .images = images,
             .planes = count * conv->groups,
             .stream = (size_t)count * xn_conv_output_bytes(conv) >= XN_CPU_REAL_STREAM_BYTES};
    int64_t units = run->threads > 1 ? 3 * (int64_t)run->threads : 1;
    int64_t wanted = xn_cpu_div_up(units, j.planes);
    if (wanted * BAND_ROWS > conv->out_height)
        wanted = xn_cpu_div_up(run->threads, j.planes);
    j.bands = xn_cpu_max(xn_cpu_div_up(conv->out_height, state->band),
                         xn_cpu_min(wanted, conv->out_height));
    j.stack = xn_cpu_max(1, xn_cpu_min(UNIT_OUTPUTS / group_outputs(conv), j.planes / units));
    j.gather = j.stream && j.bands == 1 && gathers(conv);
    xn_cpu_for(run->threads, xn_cpu_div_up(j.planes, j.stack) * j.bands, unit_task, &j);
}

const xn_cpu_path xn_cpu_direct = {
    .kernels = XN_CPU_PATH_KERNELS(direct, avx512, avx512, avx512),
    .fits = fits,
    .cost_ns = cost_ns,
    .create = create,
    .destroy = destroy,
    .prepare = prepare,
    .run = run_images,
};
