/* direct.c: modes bwn and float by sums of shifted rows, for few filters a group (depth-wise): what
 * a panel of real.c costs there is more than its filters gain.
 *
 * fp32 with strides across of 1 and 2, which is nearly all there is, is read where it is, and
 * written as it is summed: shifts_body.h. Units are bands of rows of a plane, or several small
 * planes.
 *
 * For the rest, the rows under a band of output rows are copied, padded, in the order of rows.c,
 * into the thread's slice, where they stay in L1 or L2; rows outside the image hold the pad value.
 * A tap of the whole band is then one shift of a channel's plane: with stride 1 the sums run
 * through all rows as one vector loop, whatever the width, and what they find between the rows is
 * dropped. With other strides they go row by row.
 *
 * 0 outside the image adds nothing but where the weight is Inf or NaN. That, and sums that overflow
 * in fp32 though the result does not, show as rows that are not finite: those are computed again in
 * double (real_source.c). */
#include "real.h"

enum {
    PLANES,   /* float [C/groups][rows under a band][pitch] */
    TAPS,     /* const float *[filter] */
    WEIGHTS,  /* float [filter] */
    ACC,      /* float [band][pitch] */
    EXACT,    /* double [OW] */
    GATHERED, /* float [UNIT_OUTPUTS], from somewhere in a line on */
    TEMP,     /* float [W] */
};

enum {
    BAND_FLOATS = 16 << 10,
    UNIT_OUTPUTS = 16 << 10,
    MOST_FILTERS = 3,         /* of a group, for which this path is the faster one; */
    MOST_FILTERS_OF_ONE = 16, /* where a group is one channel, whose rows are read in place */
    SPARSE = 8,
};

/* Input rows under a band. */
static int64_t rows_under(const xn_conv *conv, int64_t band) {
    return (band - 1) * conv->stride_h + (int64_t)(conv->kernel_h - 1) * conv->dilation_h + 1;
}

/* The copy has all rows under a band, so it is only for those that are mostly read. */
static bool fits(const xn_conv *conv) {
    return conv->mode != XN_MODE_XNOR && rows_under(conv, 1) <= (int64_t)SPARSE * conv->kernel_h &&
           conv->stride_h <= SPARSE;
}

/* Whether rows are read where they are. */
static bool shifts(const xn_conv *conv) {
    return conv->input_datatype == XN_FP32 && conv->epilogue.datatype == XN_FP32 &&
           (conv->stride_w == 1 || (conv->stride_w == 2 && conv->dilation_w == 1)) &&
           (int64_t)conv->group_channels * conv->kernel_h * conv->kernel_w <= XN_CPU_SHIFT_TAPS;
}

/* Outputs of a group. */
static int64_t group_outputs(const xn_conv *conv) {
    return (int64_t)conv->out_height * conv->out_width * conv->group_out_channels;
}

/* Whether the outputs of whole planes are gathered where they go past the caches. */
static bool gathers(const xn_conv *conv) {
    return shifts(conv) && conv->out_width * (int64_t)sizeof(float) % XN_CPU_LINE &&
           group_outputs(conv) <= UNIT_OUTPUTS;
}

bool xn_cpu_direct_suits(const xn_conv *conv) {
    bool one = conv->group_channels == 1 && shifts(conv);
    return fits(conv) && conv->group_out_channels <= (one ? MOST_FILTERS_OF_ONE : MOST_FILTERS);
}

/* Measured (README.md). */
static double image_ns(const xn_conv *conv, const xn_cpu_set *set, bool packed_input) {
    const double vectors = (double)xn_conv_operations(conv) / (set->kernels->byte_lanes / 4);
    const double inputs = (double)xn_conv_input_elements(conv);
    const double outputs = (double)xn_conv_output_elements(conv);
    const double rows = (double)conv->out_channels * conv->out_height;
    (void)packed_input;
    if (shifts(conv))
        return 0.12 * vectors + 0.06 * inputs + 0.08 * outputs + 3 * rows + 40 * conv->out_channels;
    return 0.6 * vectors + 0.3 * inputs + 0.15 * outputs +
           10 * (rows + (double)conv->channels * conv->height);
}

/* What the copied rows of a band take. */
static xn_status lay_out_copies(xn_plan *plan, xn_cpu_sizer *slice, xn_error *error) {
    const xn_conv *conv = &plan->conv;
    xn_status status = xn_cpu_rows_create(conv, &plan->rows, error);
    if (status)
        return status;
    size_t pitch = (size_t)plan->rows.pitch, channels = (size_t)conv->group_channels, plane;
    int64_t rows = (int64_t)(BAND_FLOATS / pitch / channels) - rows_under(conv, 1);
    plan->band = (int32_t)xn_cpu_min(1 + xn_cpu_max(rows, 0) / conv->stride_h, conv->out_height);
    slice->failed |= !xn_mul_size((size_t)rows_under(conv, plan->band), pitch, &plane);
    plan->offset[PLANES] = xn_cpu_take(slice, slice->failed ? 0 : plane, channels * sizeof(float));
    plan->offset[TAPS] = xn_cpu_take(
        slice, channels * (size_t)conv->kernel_h * (size_t)conv->kernel_w, sizeof(float *));
    plan->offset[ACC] = xn_cpu_take(slice, (size_t)plan->band, pitch * sizeof(float));
    return XN_OK;
}

static xn_status layout(xn_plan *plan, xn_error *error) {
    const xn_conv *conv = &plan->conv;
    xn_cpu_sizer slice = {0};
    plan->in_place = shifts(conv);
    plan->band = conv->out_height;
    if (!plan->in_place) {
        xn_status status = lay_out_copies(plan, &slice, error);
        if (status)
            return status;
    }
    size_t filter = (size_t)conv->group_channels * (size_t)conv->kernel_h * (size_t)conv->kernel_w;
    plan->offset[WEIGHTS] = xn_cpu_take(&slice, filter, sizeof(float));
    plan->offset[GATHERED] =
        xn_cpu_take(&slice, gathers(conv) ? XN_CPU_LINE + UNIT_OUTPUTS : 0, sizeof(float));
    plan->offset[EXACT] = xn_cpu_take(&slice, (size_t)conv->out_width, sizeof(double));
    plan->offset[TEMP] = xn_cpu_take(&slice, (size_t)conv->width, sizeof(float));
    if (slice.failed)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "the scratch memory's size overflows");
    plan->thread_bytes = slice.bytes;
    return XN_OK;
}

typedef struct job {
    const xn_cpu_run *run;
    const xn_plan *plan;
    const xn_conv *conv;
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
    return u->slice + u->j->plan->offset[which];
}

static void copy_rows(const unit *u) {
    const xn_conv *conv = u->j->conv;
    const xn_plan *plan = u->j->plan;
    int64_t under = rows_under(conv, u->rows);
    int64_t top = (int64_t)u->y * conv->stride_h - conv->pad_top;
    float *to = array(u, PLANES);
    for (int32_t c = 0; c < conv->group_channels; c++)
        for (int64_t y = top; y < top + under; y++, to += plan->rows.pitch)
            if (y >= 0 && y < conv->height)
                xn_cpu_real_copy_row(plan,
                                     xn_cpu_row_fp32(plan->kernels, conv, u->image->input,
                                                     u->group * conv->group_channels + c,
                                                     (int32_t)y, array(u, TEMP)),
                                     to);
            else
                for (int64_t x = 0; x < plan->rows.pitch; x++)
                    to[x] = (float)conv->pad_value;
}

/* Taps channel by channel, as the weights are below. */
static void find_taps(const unit *u) {
    const xn_conv *conv = u->j->conv;
    const xn_cpu_rows *rows = &u->j->plan->rows;
    const float **tap = array(u, TAPS), *plane = array(u, PLANES);
    for (int32_t c = 0; c < conv->group_channels; c++, plane += u->plane)
        for (int32_t i = 0; i < conv->kernel_h; i++)
            for (int32_t k = 0; k < conv->kernel_w; k++)
                *tap++ = plane + (int64_t)i * conv->dilation_h * rows->pitch + rows->column[k];
}

/* Part by part: what xn_cpu_real_weight divides for one weight would take longer than a plane. */
static void find_weights(const unit *u, int32_t o) {
    const xn_prepared *prepared = u->j->run->prepared;
    const xn_mode mode = (xn_mode)u->j->conv->mode;
    const int32_t terms = xn_cpu_part_terms(prepared->filter);
    float *to = array(u, WEIGHTS);
    for (int32_t term = 0, tap = 0, c = 0; term < prepared->filter;) {
        const float *from = xn_cpu_real_part(prepared, mode, o / XN_CPU_REAL_FILTERS, term);
        int32_t count = (int32_t)xn_cpu_min(terms, prepared->filter - term);
        for (int32_t t = 0; t < count; t++) {
            to[(size_t)c * (size_t)prepared->taps + (size_t)tap] =
                from[(size_t)t * XN_CPU_REAL_FILTERS + (size_t)(o % XN_CPU_REAL_FILTERS)];
            if (++c == prepared->group_channels) {
                c = 0;
                tap++;
            }
        }
        term += count;
    }
}

/* The sums of the band, rows of pitch floats. */
static void sum_band(const unit *u, float *acc) {
    const xn_conv *conv = u->j->conv;
    const xn_cpu_kernels *kernels = u->j->plan->kernels;
    const int64_t pitch = u->j->plan->rows.pitch;
    const int32_t filter = u->j->run->prepared->filter;
    const float **tap = array(u, TAPS);
    if (conv->stride_h == 1 && pitch < 2 * (int64_t)conv->out_width) {
        kernels->sum_products(tap, array(u, WEIGHTS), filter,
                              (int32_t)((u->rows - 1) * pitch) + conv->out_width, acc);
        return;
    }
    for (int32_t r = 0; r < u->rows; r++) {
        kernels->sum_products(tap, array(u, WEIGHTS), filter, conv->out_width, acc + r * pitch);
        for (int32_t t = 0; t < filter; t++)
            tap[t] += conv->stride_h * pitch;
    }
    for (int32_t t = 0; t < filter; t++)
        tap[t] -= u->rows * conv->stride_h * pitch;
}

/* Where row y of filter o goes, for now. */
static void *row_of(const unit *u, int32_t o, int32_t y) {
    const xn_conv *conv = u->j->conv;
    if (!u->gathered)
        return xn_cpu_output_row(conv, u->image->output, o, y);
    return u->gathered + ((int64_t)(o - u->first_filter) * conv->out_height + y) * conv->out_width;
}

/* Row y of filter o, in double. */
static void write_exact(const unit *u, int32_t o, int32_t y, const xn_cpu_epilogue *epilogue) {
    const xn_conv *conv = u->j->conv;
    double *exact = array(u, EXACT);
    xn_cpu_real_exact(conv, u->j->run->prepared, u->image->input, o, y, 0, conv->out_width,
                      array(u, TEMP), exact);
    xn_cpu_emit_f64(epilogue, exact, conv->out_width, row_of(u, o, y));
}

static void write_band(const unit *u, int32_t o, const float *acc,
                       const xn_cpu_epilogue *epilogue) {
    const xn_conv *conv = u->j->conv;
    const xn_cpu_kernels *kernels = u->j->plan->kernels;
    for (int32_t y = u->y; y < u->y + u->rows; y++, acc += u->j->plan->rows.pitch) {
        unsigned char *to = xn_cpu_output_row(conv, u->image->output, o, y);
        if (!kernels->all_finite(acc, conv->out_width))
            write_exact(u, o, y, epilogue);
        else
            xn_cpu_emit_f32(kernels, epilogue, acc, conv->out_width, to);
    }
}

/* Rows [y, y + rows) from the image to the outputs; false where a sum is not finite. */
static bool shift(const unit *u, int32_t o, int32_t y, int32_t rows,
                  const xn_cpu_epilogue *epilogue) {
    const job *j = u->j;
    const xn_conv *conv = j->conv;
    const float *from = (const float *)(const void *)u->image->input +
                        (int64_t)u->group * conv->group_channels * conv->height * conv->width;
    return j->plan->real->shift_rows(conv, from, array(u, WEIGHTS), y, rows, epilogue->factor,
                                     epilogue->bias, j->stream && !j->gather, row_of(u, o, y));
}

/* All rows at once; row by row where that shows a sum that is not finite. */
static void shift_band(const unit *u, int32_t o, const xn_cpu_epilogue *epilogue) {
    if (shift(u, o, u->y, u->rows, epilogue))
        return;
    for (int32_t y = u->y; y < u->y + u->rows; y++)
        if (!shift(u, o, y, 1, epilogue))
            write_exact(u, o, y, epilogue);
}

static void do_band(unit *u) {
    const xn_conv *conv = u->j->conv;
    const xn_plan *plan = u->j->plan;
    float *acc = array(u, ACC);
    if (!plan->in_place) {
        u->plane = rows_under(conv, u->rows) * plan->rows.pitch;
        copy_rows(u);
        find_taps(u);
    }
    for (int32_t f = 0; f < conv->group_out_channels; f++) {
        int32_t o = u->group * conv->group_out_channels + f;
        xn_cpu_epilogue epilogue;
        xn_cpu_epilogue_of(conv, u->j->run->prepared, o, &epilogue);
        find_weights(u, o);
        if (plan->in_place) {
            shift_band(u, o, &epilogue);
        } else {
            sum_band(u, acc);
            write_band(u, o, acc, &epilogue);
        }
    }
}

/* So many groups from the unit's on, of one image, whose outputs follow one another. */
static void do_planes(unit *u, int64_t groups) {
    const job *j = u->j;
    u->first_filter = u->group * j->conv->group_out_channels;
    unsigned char *to = xn_cpu_output_row(j->conv, u->image->output, u->first_filter, u->y);
    if (j->gather) /* at the same place in its line */
        u->gathered =
            (float *)(void *)((unsigned char *)array(u, GATHERED) + (uintptr_t)to % XN_CPU_LINE);
    for (int64_t g = 0; g < groups; g++, u->group++)
        do_band(u);
    if (j->gather)
        j->plan->many->copy(u->gathered, (size_t)(groups * group_outputs(j->conv)) * sizeof(float),
                            to);
}

static void unit_task(void *context, int64_t number, int thread) {
    const job *j = context;
    const xn_conv *conv = j->conv;
    unit u = {.j = j, .slice = xn_cpu_slice(j->plan, thread)};
    int64_t band = number % j->bands, plane = number / j->bands * j->stack;
    int64_t end = xn_cpu_min(plane + j->stack, j->planes);
    u.y = (int32_t)(conv->out_height * band / j->bands);
    u.rows = (int32_t)(conv->out_height * (band + 1) / j->bands) - u.y;
    for (int64_t last; plane < end; plane = last) {
        u.image = &j->plan->images[plane / conv->groups];
        u.group = (int32_t)(plane % conv->groups);
        last = xn_cpu_min(end, plane + conv->groups - u.group);
        do_planes(&u, last - plane);
    }
    if (j->stream)
        j->plan->few->flush();
}

/* Bands where there are fewer planes than keep the threads busy, several planes a unit where they
 * are small. */
static void run_images(const xn_cpu_run *run, int64_t count) {
    const xn_conv *conv = &run->plan->conv;
    job j = {.run = run,
             .plan = run->plan,
             .conv = conv,
             .planes = count * conv->groups,
             .stream = (size_t)count * xn_conv_output_bytes(conv) >= XN_CPU_REAL_STREAM_BYTES};
    int64_t units = run->threads > 1 ? 3 * (int64_t)run->threads : 1;
    int64_t wanted = xn_cpu_div_up(units, j.planes);
    j.bands = xn_cpu_max(xn_cpu_div_up(conv->out_height, run->plan->band),
                         xn_cpu_min(wanted, conv->out_height));
    j.stack = xn_cpu_max(1, xn_cpu_min(UNIT_OUTPUTS / group_outputs(conv), j.planes / units));
    j.gather = j.stream && j.bands == 1 && gathers(conv);
    xn_cpu_for(run->threads, xn_cpu_div_up(j.planes, j.stack) * j.bands, unit_task, &j);
}

const xn_cpu_path xn_cpu_direct = {
    .fits = fits, .image_ns = image_ns, .layout = layout, .run = run_images};
