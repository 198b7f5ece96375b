/* direct.c: modes bwn and float by sums of shifted planes, for few filters a group (depth-wise):
 * what a panel of real.c costs there is more than its filters gain.
 *
 * A unit is a band of output rows of one group of an image. The rows under it are copied, padded,
 * in the order of rows.c, into the thread's slice, where they stay in L1 or L2; rows outside the
 * image hold the pad value. A tap of the whole band is then one shift of a channel's plane: with
 * stride 1 the sums run through all rows as one vector loop, whatever the width, and what they find
 * between the rows is dropped. With other strides they go row by row.
 *
 * 0 outside the image adds nothing but where the weight is Inf or NaN. That, and sums that overflow
 * in fp32 though the result does not, show as rows that are not finite: those are computed again in
 * double (real_source.c). */
#include "real.h"

enum {
    PLANES,  /* float [C/groups][rows under a band][pitch] */
    TAPS,    /* const float *[filter] */
    WEIGHTS, /* float [filter] */
    ACC,     /* float [band][pitch] */
    EXACT,   /* double [OW] */
    TEMP,    /* float [W] */
};

enum { BAND_FLOATS = 16 << 10, FEW_FILTERS = 4, SPARSE = 8 };

/* Input rows under a band. */
static int64_t rows_under(const xn_conv *conv, int64_t band) {
    return (band - 1) * conv->stride_h + (int64_t)(conv->kernel_h - 1) * conv->dilation_h + 1;
}

/* The copy has all rows under a band, so it is only for those that are mostly read. */
static bool fits(const xn_conv *conv) {
    return conv->mode != XN_MODE_XNOR && rows_under(conv, 1) <= (int64_t)SPARSE * conv->kernel_h &&
           conv->stride_h <= SPARSE;
}

bool xn_cpu_direct_suits(const xn_conv *conv) {
    return fits(conv) && conv->group_out_channels < FEW_FILTERS;
}

static double image_ns(const xn_conv *conv, const xn_cpu_set *set, bool packed_input) {
    const double rows =
        (double)conv->channels * conv->height + (double)conv->out_channels * conv->out_height;
    (void)packed_input;
    return 0.6 * (double)xn_conv_operations(conv) / (set->kernels->byte_lanes / 4) +
           0.3 * (double)xn_conv_input_elements(conv) +
           0.15 * (double)xn_conv_output_elements(conv) + 10 * rows;
}

static xn_status layout(xn_plan *plan, xn_error *error) {
    const xn_conv *conv = &plan->conv;
    xn_cpu_sizer slice = {0};
    xn_status status = xn_cpu_rows_create(conv, &plan->rows, error);
    if (status)
        return status;
    size_t outputs = (size_t)conv->out_width, pitch = (size_t)plan->rows.pitch, plane;
    size_t channels = (size_t)conv->group_channels;
    size_t filter = channels * (size_t)conv->kernel_h * (size_t)conv->kernel_w;
    int64_t rows = (int64_t)(BAND_FLOATS / pitch / channels) - rows_under(conv, 1);
    plan->band = (int32_t)xn_cpu_min(1 + xn_cpu_max(rows, 0) / conv->stride_h, conv->out_height);
    slice.failed = !xn_mul_size((size_t)rows_under(conv, plan->band), pitch, &plane);
    plan->offset[PLANES] = xn_cpu_take(&slice, slice.failed ? 0 : plane, channels * sizeof(float));
    plan->offset[TAPS] = xn_cpu_take(&slice, filter, sizeof(float *));
    plan->offset[WEIGHTS] = xn_cpu_take(&slice, filter, sizeof(float));
    plan->offset[ACC] = xn_cpu_take(&slice, (size_t)plan->band, pitch * sizeof(float));
    plan->offset[EXACT] = xn_cpu_take(&slice, outputs, sizeof(double));
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
    int64_t bands; /* of an image; they differ by one row at most */
    bool stream;   /* outputs go past the caches */
} job;

typedef struct unit {
    const job *j;
    unsigned char *slice;
    const xn_cpu_image *image;
    int32_t group, y, rows; /* output rows [y, y + rows) */
    int64_t plane;          /* floats of a channel */
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

static void write_band(const unit *u, int32_t o, const float *acc) {
    const xn_conv *conv = u->j->conv;
    const xn_cpu_kernels *kernels = u->j->plan->kernels;
    const xn_prepared *prepared = u->j->run->prepared;
    double *exact = array(u, EXACT);
    xn_cpu_epilogue epilogue;
    xn_cpu_epilogue_of(conv, prepared, o, &epilogue);
    for (int32_t y = u->y; y < u->y + u->rows; y++, acc += u->j->plan->rows.pitch) {
        unsigned char *to = xn_cpu_output_row(conv, u->image->output, o, y);
        if (conv->output_datatype == XN_FP32) {
            if (u->j->plan->real->finish(acc, 0, 1, conv->out_width, &epilogue.factor,
                                         &epilogue.bias, (float *)(void *)to, 0, u->j->stream))
                continue;
        } else if (kernels->all_finite(acc, conv->out_width)) {
            xn_cpu_emit_f32(kernels, &epilogue, acc, conv->out_width, to);
            continue;
        }
        xn_cpu_real_exact(conv, prepared, u->image->input, o, y, 0, conv->out_width, array(u, TEMP),
                          exact);
        xn_cpu_emit_f64(&epilogue, exact, conv->out_width, to);
    }
}

static void unit_task(void *context, int64_t number, int thread) {
    const job *j = context;
    const xn_conv *conv = j->conv;
    unit u = {.j = j, .slice = xn_cpu_slice(j->plan, thread)};
    int64_t band = number % j->bands, rest = number / j->bands;
    u.group = (int32_t)(rest % conv->groups);
    u.image = &j->plan->images[rest / conv->groups];
    u.y = (int32_t)(conv->out_height * band / j->bands);
    u.rows = (int32_t)(conv->out_height * (band + 1) / j->bands) - u.y;
    u.plane = rows_under(conv, u.rows) * j->plan->rows.pitch;
    copy_rows(&u);
    find_taps(&u);
    float *acc = array(&u, ACC);
    for (int32_t f = 0; f < conv->group_out_channels; f++) {
        int32_t o = u.group * conv->group_out_channels + f;
        find_weights(&u, o);
        sum_band(&u, acc);
        write_band(&u, o, acc);
    }
    if (j->stream)
        j->plan->few->flush();
}

static void run_images(const xn_cpu_run *run, int64_t count) {
    const xn_conv *conv = &run->plan->conv;
    job j = {.run = run,
             .plan = run->plan,
             .conv = conv,
             .stream = (size_t)count * xn_conv_output_bytes(conv) >= XN_CPU_REAL_STREAM_BYTES};
    int64_t planes = count * conv->groups;
    int64_t wanted = run->threads > 1 ? xn_cpu_div_up(3 * (int64_t)run->threads, planes) : 1;
    j.bands = xn_cpu_max(xn_cpu_div_up(conv->out_height, run->plan->band),
                         xn_cpu_min(wanted, conv->out_height));
    xn_cpu_for(run->threads, planes * j.bands, unit_task, &j);
}

const xn_cpu_path xn_cpu_direct = {
    .fits = fits, .image_ns = image_ns, .layout = layout, .run = run_images};
