/* stem.c: the convolution of a picture by whole numbers, and the max-pool behind it (xn_planes.h).
 *
 * A unit of work is a band of an image's output rows. For each row of the convolution the thread
 * lays out what its outputs see, multiplies, makes values of the sums, and takes the larger of
 * those of a pool's rows: all of it in its caches. The row that two outputs of a pool share is made
 * once in a band. */
#include "parallel.h"
#include "path.h"
#include "stem_kernels.h"
#include "xn_mem.h"
#include "xn_planes.h"

#include <math.h>
#include <string.h>

enum { BAND = 8 /* output rows of a unit */ };

/* Arrays of a thread's slice; rows are of the convolution. */
enum {
    PATCHES, /* int16 [OW][terms] */
    SUMS,    /* int32 [parts][filters][OW] */
    ROW,     /* float [filters][OW] */
    LAST,    /* the same, the row that the next output of a pool begins with */
    MOST,    /* the same, the largest so far */
    VALUES,  /* float [OW] of the step */
    ARRAYS
};

typedef struct stem_state {
    int32_t terms, filters, parts; /* in whole groups of the kernels'; parts of m: int16 */
    size_t offset[ARRAYS];
} stem_state;

typedef struct stem_job {
    const xn_cpu_run *run;
    const xn_cpu_image *images;
    const xn_cpu_stem_kernels *kernels;
    const int16_t *weights;
    int64_t bands; /* of an image */
} stem_job;

/* ---- weights ---- */

static int32_t terms_of(int32_t kernel_h, int32_t kernel_w, int32_t channels) {
    return (int32_t)(xn_cpu_div_up((int64_t)kernel_h * kernel_w * channels, XN_CPU_STEM_TERMS) *
                     XN_CPU_STEM_TERMS);
}

static int32_t filters_of(int32_t out_channels) {
    return (int32_t)(xn_cpu_div_up(out_channels, XN_CPU_STEM_FILTERS) * XN_CPU_STEM_FILTERS);
}

/* Part 0 of m, and where it is of two, 1. */
static int16_t part_of(int32_t m, int32_t part, int32_t parts) {
    if (parts == 1)
        return (int16_t)m;
    const int32_t low = ((m + XN_CPU_STEM_LOW / 2) & (XN_CPU_STEM_LOW - 1)) - XN_CPU_STEM_LOW / 2;
    return (int16_t)(part ? (m - low) / XN_CPU_STEM_LOW : low);
}

static void *make(const xn_prepared *prepared, int variant) {
    const xn_planes *planes = prepared->weights->planes;
    const int32_t each = planes->terms, terms = terms_of(1, 1, each), parts = planes->count - 1;
    const int32_t filters = filters_of(prepared->out_channels);
    (void)variant;
    int16_t *to = xn_mem_zalloc((size_t)parts * (size_t)filters, (size_t)terms * sizeof *to);
    for (int32_t p = 0; to && p < parts; p++)
        for (int32_t o = 0; o < prepared->out_channels; o++)
            for (int32_t k = 0; k < each; k++)
                to[((size_t)p * (size_t)filters + (size_t)o) * (size_t)terms + (size_t)k] =
                    part_of(planes->weight[(int64_t)o * each + k], p, parts);
    return to;
}

static const xn_cpu_form form = {XN_CPU_FORM_STEM, "the planes", make, xn_mem_free};

static xn_status prepare(const xn_plan *plan, const xn_prepared *prepared, xn_error *error) {
    (void)plan;
    return xn_cpu_form_ready(prepared, &form, 0, error);
}

/* ---- the plan ---- */

static bool fits(const xn_step *step) {
    return step->kind == XN_STEP_STEM && step->conv.input_datatype == XN_UINT8;
}

static double cost_ns(const xn_step *step, const void *kernels) {
    const xn_conv *c = &step->conv;
    const double values = (double)step->stem_height * step->stem_width * c->out_channels;
    const double terms = terms_of(c->kernel_h, c->kernel_w, c->channels);
    const int32_t parts = c->precision == XN_PRECISION_FP16 ? 1 : 2;
    return values * (terms * parts * ((const xn_cpu_stem_kernels *)kernels)->term_ns + 1);
}

static xn_status create(xn_plan *plan, xn_error *error) {
    const xn_step *step = &plan->step;
    const xn_conv *c = &step->conv;
    const size_t columns = (size_t)step->stem_width;
    xn_cpu_sizer shared = {0}, slice = {0};
    stem_state *state = plan->state = xn_mem_zalloc(1, sizeof *state);
    if (!state)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the plan of a step");
    state->terms = terms_of(c->kernel_h, c->kernel_w, c->channels);
    state->filters = filters_of(c->out_channels);
    state->parts = c->precision == XN_PRECISION_FP16 ? 1 : 2;
    const size_t row = (size_t)state->filters * sizeof(float);
    const size_t pooled = step->pool ? columns : 0;
    state->offset[PATCHES] = xn_cpu_take(&slice, columns, (size_t)state->terms * sizeof(int16_t));
    state->offset[SUMS] = xn_cpu_take(&slice, columns, row * (size_t)state->parts);
    state->offset[ROW] = xn_cpu_take(&slice, columns, row);
    state->offset[LAST] = xn_cpu_take(&slice, pooled, row);
    state->offset[MOST] = xn_cpu_take(&slice, pooled, row);
    state->offset[VALUES] = xn_cpu_take(&slice, (size_t)c->out_width, sizeof(float));
    return xn_cpu_set_scratch(plan, &shared, &slice, error);
}

/* ---- a row of the convolution ---- */

typedef struct stem_unit {
    const stem_job *j;
    const xn_step *step;
    const stem_state *state;
    const xn_cpu_image *image;
    unsigned char *slice;
} stem_unit;

static void *own(const stem_unit *u, int array) {
    return u->slice + u->state->offset[array];
}

static void lay_out_tap(const stem_unit *u, int32_t y, int32_t x, int16_t *to) {
    const xn_conv *c = &u->step->conv;
    const bool nhwc = u->step->input_layout == XN_LAYOUT_NHWC;
    const int64_t pixels = (int64_t)c->height * c->width, at = (int64_t)y * c->width + x;
    const bool inside = y >= 0 && y < c->height && x >= 0 && x < c->width;
    for (int32_t k = 0; k < c->channels; k++)
        to[k] = inside ? u->image->input[nhwc ? at * c->channels + k : k * pixels + at] : 0;
}

static void lay_out_row(const stem_unit *u, int32_t y) {
    const xn_conv *c = &u->step->conv;
    int16_t *to = own(u, PATCHES);
    for (int32_t x = 0; x < u->step->stem_width; x++, to += u->state->terms) {
        int16_t *tap = to;
        for (int32_t i = 0; i < c->kernel_h; i++)
            for (int32_t j = 0; j < c->kernel_w; j++, tap += c->channels)
                lay_out_tap(u, y * c->stride_h - c->pad_top + i * c->dilation_h,
                            x * c->stride_w - c->pad_left + j * c->dilation_w, tap);
        memset(tap, 0, (size_t)(to + u->state->terms - tap) * sizeof *tap);
    }
}

/* Values of row y: [filters][OW]. */
static void make_row(const stem_unit *u, int32_t y, float *to) {
    const xn_step *s = u->step;
    const stem_state *state = u->state;
    const xn_weights *w = u->j->run->prepared->weights;
    const xn_planes *p = w->planes;
    const int32_t columns = p->left + 1 + p->right, width = s->stem_width;
    const int64_t part = (int64_t)state->filters * width;
    int32_t *sums = own(u, SUMS);
    lay_out_row(u, y);
    for (int32_t n = 0; n < state->parts; n++)
        u->j->kernels->multiply(own(u, PATCHES), width, state->terms,
                                u->j->weights + (int64_t)n * state->filters * state->terms,
                                state->filters, sums + n * part, width);
    const float *border =
        p->border + (int64_t)xn_planes_class(y, s->stem_height, p->top, p->bottom) * columns *
                        s->conv.out_channels;
    for (int32_t o = 0; o < s->conv.out_channels; o++, sums += width, to += width)
        for (int32_t x = 0, n; x < width; x += n) {
            const int32_t cls = xn_planes_class(x, width, p->left, p->right);
            n = cls == p->left ? (int32_t)xn_cpu_max(1, width - p->right - x) : 1;
            u->j->kernels->values(sums + x, state->parts > 1 ? sums + part + x : NULL, w->scale[o],
                                  border[(int64_t)cls * s->conv.out_channels + o], n, to + x);
        }
}

/* ---- outputs ---- */

static void emit(const stem_unit *u, int32_t y, const float *rows) {
    const xn_step *s = u->step;
    const xn_conv *c = &s->conv;
    float *v = own(u, VALUES);
    for (int32_t o = 0; o < c->out_channels; o++, rows += s->stem_width) {
        for (int32_t x = 0; s->pool && x < c->out_width; x++) {
            const int32_t first = 2 * x - 1 < 0 ? 0 : 2 * x - 1;
            v[x] = rows[first];
            for (int32_t at = first + 1; at <= 2 * x + 1 && at < s->stem_width; at++)
                v[x] = rows[at] > v[x] ? rows[at] : v[x];
        }
        const xn_cpu_place place =
            xn_cpu_place_of(c, u->image, o, (size_t)y * (size_t)c->out_width);
        xn_cpu_finish(&u->j->run->epilogue, o, s->pool ? v : rows, c->out_width, &place);
    }
}

/* Rows 2 y - 1 (in LAST, from before), 2 y and 2 y + 1, which is the next LAST. */
static void make_pooled(const stem_unit *u, int32_t y) {
    const int32_t height = u->step->stem_height;
    const int64_t values = (int64_t)u->step->conv.out_channels * u->step->stem_width;
    float *row = own(u, ROW), *last = own(u, LAST), *most = own(u, MOST);
    const bool has_first = y > 0, has_second = 2 * y < height;
    if (has_first)
        memcpy(most, last, (size_t)values * sizeof *most);
    if (has_second)
        make_row(u, 2 * y, has_first ? row : most);
    if (has_first && has_second)
        u->j->kernels->larger(row, (int32_t)values, most);
    if (2 * y + 1 < height) {
        make_row(u, 2 * y + 1, last);
        u->j->kernels->larger(last, (int32_t)values, most);
    }
    emit(u, y, most);
}

static void run_band(void *context, int64_t unit, int thread) {
    const stem_job *j = context;
    const xn_plan *plan = j->run->plan;
    const stem_unit u = {j, &plan->step, plan->state, &j->images[unit / j->bands],
                         xn_cpu_slice(plan, thread)};
    const int32_t first = (int32_t)(unit % j->bands) * BAND;
    const int32_t end = (int32_t)xn_cpu_min(first + BAND, plan->step.conv.out_height);
    if (plan->step.pool && first > 0)
        make_row(&u, 2 * first - 1, own(&u, LAST));
    for (int32_t y = first; y < end; y++) {
        if (plan->step.pool) {
            make_pooled(&u, y);
        } else {
            make_row(&u, y, own(&u, ROW));
            emit(&u, y, own(&u, ROW));
        }
    }
}

static void run(const xn_cpu_run *r, const xn_cpu_image *images, int64_t count) {
    const stem_job j = {.run = r,
                        .images = images,
                        .kernels = r->plan->path_kernels,
                        .weights = xn_cpu_form_of(r->prepared, &form, 0),
                        .bands = xn_cpu_div_up(r->plan->step.conv.out_height, BAND)};
    xn_cpu_for(r->threads, count * j.bands, run_band, (void *)&j);
}

const xn_cpu_path xn_cpu_stem = {
    .kernels = XN_CPU_PATH_KERNELS(stem, avx512),
    .fits = fits,
    .cost_ns = cost_ns,
    .create = create,
    .destroy = xn_mem_free,
    .prepare = prepare,
    .run = run,
};
