/* dense.c: modes bwn and float where an image has one output pixel: the layers at a network's end.
 *
 * Lanes are filters, since there are no pixels to fill them with. A unit of work is a block of 48
 * filters for up to UNIT_POINTS images, each of which is a point: for each part of the terms
 * (terms.h) some points at a time are multiplied by the block's weights of that part, which stay in
 * L1 or L2 meanwhile. One image alone reads every weight once, and its time is the time of that. A
 * point's terms are read where they are, or gathered first. */
#include "dense_kernels.h"
#include "parallel.h"
#include "path.h"
#include "rows.h"
#include "terms.h"
#include "xn_arith.h"
#include "xn_mem.h"

enum {
    UNIT_POINTS = 32,
    FEW_BLOCKS = 16,
    GATHER_CHANNELS = 64,      /* of a unit */
    GATHER_BYTES = 8 << 20,    /* of a wave, if more than one image */
    MOST_GATHERED = 1 << 22,   /* terms of an image */
    MOST_POINTS_OF_A_CALL = 8, /* of all tables */
};

/* Arrays in scratch. */
enum {
    GATHERED, /* shared: float [wave][terms] */
    TEMP,     /* float [W] */
    SUMS,     /* float [UNIT_POINTS][XN_CPU_DENSE_FILTERS] */
    REST,     /* the same */
    VALUES,   /* float [XN_CPU_DENSE_FILTERS] */
    ARRAYS
};

typedef struct dense_state {
    int64_t wave; /* images at a time */
    size_t offset[ARRAYS];
} dense_state;

static bool is_in_place(const xn_conv *conv) {
    return conv->input_datatype == XN_FP32 && conv->height == 1 && conv->width == 1 &&
           conv->kernel_h == 1 && conv->kernel_w == 1 && !conv->pad_top && !conv->pad_left;
}

static int64_t terms_of(const xn_conv *conv) {
    return (int64_t)conv->kernel_h * conv->kernel_w * conv->group_channels;
}

static bool fits(const xn_step *step) {
    const xn_conv *conv = &step->conv;
    return conv->mode != XN_MODE_XNOR && conv->groups == 1 && conv->out_height == 1 &&
           conv->out_width == 1 && (is_in_place(conv) || terms_of(conv) <= MOST_GATHERED);
}

static double cost_ns(const xn_step *step, const void *kernels) {
    const xn_conv *conv = &step->conv;
    const xn_cpu_dense_costs *costs = &((const xn_cpu_dense_kernels *)kernels)->costs;
    const double terms = (double)terms_of(conv), filters = conv->out_channels;
    return terms * filters * costs->weight + filters * costs->output +
           (is_in_place(conv) ? 0 : terms * costs->gather);
}

/* ---- weights: [block][term][XN_CPU_DENSE_FILTERS], filters past the last 0 ---- */

static int64_t blocks_of(int32_t filters) {
    return xn_cpu_div_up(filters, XN_CPU_DENSE_FILTERS);
}

static void lay_out(const xn_prepared *p, xn_mode mode, float *to) {
    for (int64_t block = 0; block < blocks_of(p->out_channels); block++)
        for (int32_t term = 0; term < p->filter; term++, to += XN_CPU_DENSE_FILTERS) {
            const int32_t base = (int32_t)block * XN_CPU_DENSE_FILTERS;
            for (int32_t f = 0; f < XN_CPU_DENSE_FILTERS && base + f < p->out_channels; f++)
                to[f] = xn_cpu_term_weight(p, mode, base + f, term);
        }
}

/* NULL where memory is short. */
static void *make(const xn_prepared *p, int variant) {
    size_t count;
    if (!xn_mul_size((size_t)blocks_of(p->out_channels) * XN_CPU_DENSE_FILTERS, (size_t)p->filter,
                     &count))
        return NULL;
    float *made = xn_mem_zalloc(count, sizeof *made);
    if (made)
        lay_out(p, variant ? XN_MODE_BWN : XN_MODE_FLOAT, made);
    return made;
}

static const xn_cpu_form form = {
    .slot = XN_CPU_FORM_DENSE, .what = "the blocks", .make = make, .free = xn_mem_free};

static int variant_of(const xn_conv *conv) {
    return conv->mode == XN_MODE_BWN;
}

static xn_status prepare(const xn_plan *plan, const xn_prepared *prepared, xn_error *error) {
    return xn_cpu_form_ready(prepared, &form, variant_of(&plan->step.conv), error);
}

/* ---- plans ---- */

static void destroy(void *state) {
    xn_mem_free(state);
}

static xn_status create(xn_plan *plan, xn_error *error) {
    const xn_conv *conv = &plan->step.conv;
    const size_t unit = (size_t)UNIT_POINTS * XN_CPU_DENSE_FILTERS;
    const int64_t terms = terms_of(conv);
    xn_cpu_sizer shared = {0}, slice = {0};
    dense_state *state = xn_cpu_state_create(plan, sizeof *state, error);
    if (!state)
        return XN_ERR_NO_MEMORY;
    state->wave = plan->max_images;
    if (!is_in_place(conv)) {
        const int64_t most = GATHER_BYTES / (int64_t)sizeof(float) / terms;
        state->wave = xn_cpu_min(plan->max_images, xn_cpu_max(most, 1));
        state->offset[GATHERED] =
            xn_cpu_take(&shared, (size_t)(state->wave * terms), sizeof(float));
    }
    state->offset[TEMP] = xn_cpu_take(&slice, (size_t)conv->width, sizeof(float));
    state->offset[SUMS] = xn_cpu_take(&slice, unit, sizeof(float));
    state->offset[REST] = xn_cpu_take(&slice, unit, sizeof(float));
    state->offset[VALUES] = xn_cpu_take(&slice, XN_CPU_DENSE_FILTERS, sizeof(float));
    return xn_cpu_set_scratch(plan, &shared, &slice, error);
}

/* ---- runs ---- */

/* One wave. */
typedef struct job {
    const xn_cpu_run *run;
    const xn_conv *conv;
    const xn_cpu_dense_kernels *kernels;
    const dense_state *state;
    const float *weights;
    const xn_cpu_image *images;
    int64_t count;
    int64_t blocks, unit_points;
} job;

/* A block of filters, and some images. */
typedef struct unit {
    const job *j;
    int thread;
    int32_t first, filters;
    int64_t image;
    int32_t points;
} unit;

static float *array(const job *j, int thread, int which) {
    return (float *)(void *)(xn_cpu_slice(j->run->plan, thread) + j->state->offset[which]);
}

static float *gathered(const job *j, int64_t image) {
    float *all = (float *)(void *)(xn_cpu_shared(j->run->plan) + j->state->offset[GATHERED]);
    return all + image * terms_of(j->conv);
}

static const float *terms_at(const job *j, int64_t image) {
    return is_in_place(j->conv) ? (const float *)(const void *)j->images[image].input
                                : gathered(j, image);
}

/* Row i of the kernel in channel c, where `row` is the image's there, or NULL: outside. */
static void gather_row(const xn_conv *conv, const float *row, int32_t i, int32_t c, float *terms) {
    float *to = terms + (int64_t)i * conv->kernel_w * conv->group_channels + c;
    for (int32_t k = 0; k < conv->kernel_w; k++, to += conv->group_channels) {
        const int64_t x = (int64_t)k * conv->dilation_w - conv->pad_left;
        *to = row && x >= 0 && x < conv->width ? row[x] : (float)conv->pad_value;
    }
}

static void gather_task(void *context, int64_t number, int thread) {
    const job *j = context;
    const xn_conv *conv = j->conv;
    const int64_t chunks = xn_cpu_div_up(conv->channels, GATHER_CHANNELS);
    const int64_t image = number / chunks, first = number % chunks * GATHER_CHANNELS;
    const int32_t last = (int32_t)xn_cpu_min(first + GATHER_CHANNELS, conv->channels);
    for (int32_t c = (int32_t)first; c < last; c++)
        for (int32_t i = 0; i < conv->kernel_h; i++) {
            const int64_t y = (int64_t)i * conv->dilation_h - conv->pad_top;
            const float *row = NULL;
            if (y >= 0 && y < conv->height)
                row = xn_cpu_row_fp32(j->run->plan->kernels, conv, j->images[image].input, c,
                                      (int32_t)y, array(j, thread, TEMP));
            gather_row(conv, row, i, c, gathered(j, image));
        }
}

/* Points are taken in groups of about one size. */
static void multiply(const unit *u) {
    const job *j = u->j;
    const int64_t terms = j->run->prepared->filter, part_terms = xn_cpu_part_terms((int32_t)terms);
    const int32_t groups = (int32_t)xn_cpu_div_up(u->points, j->kernels->most);
    const float *block = j->weights + u->first * terms;
    int32_t part = 0;
    for (int64_t first = 0; first < terms; first += part_terms, part++)
        for (int32_t g = 0; g < groups; g++) {
            const int32_t from = u->points * g / groups, to = u->points * (g + 1) / groups;
            const float *points[MOST_POINTS_OF_A_CALL];
            for (int32_t p = from; p < to; p++)
                points[p - from] = terms_at(j, u->image + p) + first;
            j->kernels->multiply(points, to - from, (int32_t)xn_cpu_min(part_terms, terms - first),
                                 block + first * XN_CPU_DENSE_FILTERS, part,
                                 array(j, u->thread, SUMS) + (int64_t)from * XN_CPU_DENSE_FILTERS,
                                 array(j, u->thread, REST) + (int64_t)from * XN_CPU_DENSE_FILTERS);
        }
}

static void write_point(const unit *u, int32_t point) {
    const job *j = u->j;
    const xn_cpu_epilogue *epilogue = &j->run->epilogue;
    const xn_cpu_image *image = &j->images[u->image + point];
    const bool plain = xn_cpu_is_plain(&j->conv->epilogue);
    const float *sums = array(j, u->thread, SUMS) + (int64_t)point * XN_CPU_DENSE_FILTERS;
    float *v = plain ? (float *)(void *)image->output + u->first : array(j, u->thread, VALUES);
    const bool finite = j->kernels->finish(sums, epilogue->factor + u->first,
                                           epilogue->bias + u->first, u->filters, v);
    for (int32_t f = 0; !finite && f < u->filters; f++)
        xn_cpu_real_again(j->conv, j->run->prepared, image->input, u->first + f, 0, 0, 1,
                          array(j, u->thread, TEMP), v + f);
    for (int32_t f = 0; !plain && f < u->filters; f++) {
        const xn_cpu_place place = xn_cpu_place_of(j->conv, image, u->first + f, 0);
        xn_cpu_finish(epilogue, u->first + f, 1, v + f, 0, 1, &place);
    }
}

static void unit_task(void *context, int64_t number, int thread) {
    const job *j = context;
    const int64_t image = number / j->blocks * j->unit_points;
    const int32_t first = (int32_t)(number % j->blocks) * XN_CPU_DENSE_FILTERS;
    const unit u = {.j = j,
                    .thread = thread,
                    .first = first,
                    .filters =
                        (int32_t)xn_cpu_min(XN_CPU_DENSE_FILTERS, j->conv->out_channels - first),
                    .image = image,
                    .points = (int32_t)xn_cpu_min(j->unit_points, j->count - image)};
    multiply(&u);
    for (int32_t p = 0; p < u.points; p++)
        write_point(&u, p);
}

static void run_images(const xn_cpu_run *run, const xn_cpu_image *images, int64_t count) {
    const xn_plan *plan = run->plan;
    const dense_state *state = plan->state;
    const xn_conv *conv = &plan->step.conv;
    job j = {.run = run,
             .conv = conv,
             .kernels = plan->path_kernels,
             .state = state,
             .weights = xn_cpu_form_of(run->prepared, &form, variant_of(conv))};
    for (int64_t first = 0; first < count; first += state->wave) {
        j.images = images + first;
        j.count = xn_cpu_min(state->wave, count - first);
        if (!is_in_place(conv))
            xn_cpu_for(run->threads, j.count * xn_cpu_div_up(conv->channels, GATHER_CHANNELS),
                       gather_task, &j);
        j.blocks = blocks_of(conv->out_channels);
        /* Threads that have few blocks each share them more evenly by fewer images. */
        j.unit_points = run->threads > 1 && j.blocks < FEW_BLOCKS * run->threads ? j.kernels->most
                                                                                 : UNIT_POINTS;
        xn_cpu_for(run->threads, j.blocks * xn_cpu_div_up(j.count, j.unit_points), unit_task, &j);
    }
}

const xn_cpu_path xn_cpu_dense = {
    .kernels = XN_CPU_PATH_KERNELS(dense, avx512, avx512),
    .fits = fits,
    .cost_ns = cost_ns,
    .create = create,
    .destroy = destroy,
    .prepare = prepare,
    .run = run_images,
};
