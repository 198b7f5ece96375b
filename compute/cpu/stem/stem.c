/* stem.c: the convolution of a picture by whole numbers, and the max-pool behind it (xn_planes.h).
 *
 * A unit of work is a band of an image's output rows. The thread first lays out the band's input:
 * for each row, 4 bytes under each column of the outputs as a word, all words of a tap row below
 * each other. Rows of outputs share the rows of input that they overlap in. What a row of outputs
 * sees is copied together: first the whole words of its rows of taps, then the bytes that are left
 * of each, 4 to a word. Then it multiplies row by row, makes values of the sums, and takes the
 * largest of a pool's rows, all in its caches. */
#include "bits.h"
#include "parallel.h"
#include "path.h"
#include "stem_kernels.h"
#include "xn_mem.h"
#include "xn_planes.h"

#include <string.h>

enum {
    MOST_BAND = 8,          /* upper bound on output rows of a unit */
    BAND_BYTES = 512 << 10, /* of the words of a unit, if it has more than one row */
    POOL_ROWS = 3,
    WORD = 4,           /* terms, bytes */
    WORD_CHANNELS = 32, /* of bits */
};

/* Arrays of a thread's slice; rows are of the convolution. */
enum {
    ROW,    /* bytes of a row of input, [W + what is left and right of it][C] */
    WORDS,  /* uint32 [rows of input][tap_words][columns] */
    SEEN,   /* uint32 [words of a filter][columns] */
    SCALE,  /* float [filters] */
    BORDER, /* float [filters][columns], of one class of rows */
    VALUES, /* float [POOL_ROWS][filters][columns] */
    POOLED, /* float [WORD_CHANNELS][out_pitch] */
    BITS,   /* uint32 [OW] of the step */
    ARRAYS
};

typedef struct stem_state {
    int32_t tap_bytes, tap_words; /* of a row of taps */
    int32_t words;                /* of a filter */
    int32_t columns, filters;     /* in whole units of the kernels' */
    int32_t out_pitch;            /* the same, outputs of a row behind a pool */
    int32_t row_step;             /* rows of WORDS from an output row's to the next one's */
    int32_t column_step;          /* pixels from an output's to the next one's */
    int64_t row_bytes;
    int32_t band; /* output rows of a unit, at most */
    size_t offset[ARRAYS];
} stem_state;

typedef struct stem_job {
    const xn_cpu_run *run;
    const xn_cpu_image *images;
    const xn_cpu_stem_kernels *kernels;
    const void *weights;
    int64_t bands; /* of an image */
} stem_job;

static int32_t in_units(int64_t count) {
    return (int32_t)(xn_cpu_div_up(count, XN_CPU_STEM_UNIT) * XN_CPU_STEM_UNIT);
}

/* ---- weights ---- */

/* Part `part` of m in halves. */
static int16_t half_of(int32_t m, int32_t part, int32_t parts) {
    const int32_t half = XN_CPU_STEM_HALF;
    const int32_t first = parts == 1 ? m : ((m + half / 2) & (half - 1)) - half / 2;
    return (int16_t)(part ? (m - first) / half : first);
}

/* Writes part `part` of m, the term `at` of filter o. pitch, filters: in whole units. */
static void put(xn_cpu_stem_packing packing, const xn_planes *planes, int32_t m, int32_t part,
                size_t pitch, size_t filters, size_t o, size_t at, void *to) {
    static const uint8_t order[WORD] = {0, 2, 1, 3};
    const size_t parts = (size_t)planes->count - 1, some = XN_CPU_STEM_TOGETHER;
    if (packing == XN_CPU_STEM_BYTES) {
        ((int8_t *)to)[((size_t)part * filters + o) * pitch + at] =
            (int8_t)xn_plane_digit(m, part, planes->count);
        return;
    }
    const size_t word = (o / some * pitch / WORD + at / WORD) * some + o % some;
    ((int16_t *)to)[(word * parts + (size_t)part) * WORD + order[at % WORD]] =
        half_of(m, part, planes->count - 1);
}

/* Of a filter's words: whole ones of its rows of taps, and what is left of them. */
static int32_t words_of(int32_t kernel_h, int32_t tap_bytes) {
    return kernel_h * (tap_bytes / WORD) +
           (int32_t)xn_cpu_div_up(kernel_h * (tap_bytes % WORD), WORD);
}

/* Where byte `byte` of row `row` of taps lies in them. */
static size_t byte_at(int32_t kernel_h, int32_t tap_bytes, int32_t row, int32_t byte) {
    const int32_t whole = tap_bytes / WORD * WORD, left = tap_bytes - whole;
    return (size_t)(byte < whole ? row * whole + byte
                                 : kernel_h * whole + row * left + byte - whole);
}

static void *make(const xn_prepared *prepared, int variant) {
    const xn_planes *planes = prepared->weights->planes;
    const xn_cpu_stem_packing packing = (xn_cpu_stem_packing)variant;
    const int32_t tap_bytes = planes->terms / planes->kernel_h;
    const int32_t parts = planes->count - (packing == XN_CPU_STEM_HALVES);
    const size_t pitch = (size_t)xn_cpu_stem_pitch(words_of(planes->kernel_h, tap_bytes)) * WORD;
    const size_t filters = (size_t)in_units(prepared->out_channels);
    const size_t bytes = packing == XN_CPU_STEM_BYTES ? sizeof(int8_t) : sizeof(int16_t);
    unsigned char *to = xn_mem_zalloc((size_t)parts * filters, pitch * bytes);
    const int32_t *m = planes->weight;
    for (int32_t n = 0; to && n < prepared->out_channels * planes->terms; n++, m++) {
        const int32_t o = n / planes->terms, term = n % planes->terms;
        const size_t at = byte_at(planes->kernel_h, tap_bytes, term / tap_bytes, term % tap_bytes);
        for (int32_t part = 0; part < parts; part++)
            put(packing, planes, *m, part, pitch, filters, (size_t)o, at, to);
    }
    return to;
}

static const xn_cpu_form form = {XN_CPU_FORM_STEM, "the planes", make, xn_mem_free};

static int packing_of(const xn_plan *plan) {
    return (int)((const xn_cpu_stem_kernels *)plan->path_kernels)->packing;
}

static xn_status prepare(const xn_plan *plan, const xn_prepared *prepared, xn_error *error) {
    return xn_cpu_form_ready(prepared, &form, packing_of(plan), error);
}

/* ---- the plan ---- */

static bool fits(const xn_step *step) {
    return step->kind == XN_STEP_STEM && step->conv.input_datatype == XN_UINT8;
}

static int32_t planes_of(const xn_conv *c) {
    return c->precision == XN_PRECISION_FP16 ? 2 : 3;
}

static double cost_ns(const xn_step *step, const void *kernels) {
    const double value_ns = 0.5;
    const xn_conv *c = &step->conv;
    const double values = (double)step->stem_height * step->stem_width * c->out_channels;
    const double terms = (double)c->kernel_h * c->kernel_w * c->channels * planes_of(c);
    return values * (terms * ((const xn_cpu_stem_kernels *)kernels)->term_ns + value_ns);
}

/* Rows of the convolution under so many output rows. */
static int32_t rows_under(const xn_step *step, int32_t outputs) {
    return step->pool ? 2 * outputs + 1 : outputs;
}

/* Rows of WORDS that so many output rows want. */
static int64_t inputs_under(const xn_step *step, const stem_state *state, int32_t outputs) {
    return (int64_t)(rows_under(step, outputs) - 1) * state->row_step + step->conv.kernel_h;
}

static void set_geometry(const xn_step *step, stem_state *state) {
    const xn_conv *c = &step->conv;
    state->tap_bytes = c->kernel_w * c->channels;
    state->tap_words = (int32_t)xn_cpu_div_up(state->tap_bytes, WORD);
    state->words = words_of(c->kernel_h, state->tap_bytes);
    state->columns = in_units(step->stem_width);
    state->out_pitch = in_units(c->out_width);
    state->filters = in_units(c->out_channels);
    state->column_step = step->stem_width > 1 ? c->stride_w : 1;
    state->row_step = c->dilation_h == 1 && c->stride_h < c->kernel_h ? c->stride_h : c->kernel_h;
    state->row_bytes = ((state->columns - 1) * (int64_t)state->column_step +
                        (c->kernel_w - 1) * (int64_t)c->dilation_w + 1) *
                           c->channels +
                       WORD;
    const int64_t bytes = (int64_t)state->tap_words * state->columns * WORD;
    for (state->band = MOST_BAND;
         state->band > 1 && inputs_under(step, state, state->band) * bytes > BAND_BYTES;)
        state->band--;
}

static xn_status create(xn_plan *plan, xn_error *error) {
    const xn_step *step = &plan->step;
    const size_t outputs = (size_t)step->conv.out_width;
    xn_cpu_sizer shared = {0}, slice = {0};
    stem_state *state = xn_cpu_state_create(plan, sizeof *state, error);
    if (!state)
        return XN_ERR_NO_MEMORY;
    set_geometry(step, state);
    const size_t columns = (size_t)state->columns;
    const size_t words = (size_t)inputs_under(step, state, state->band) * (size_t)state->tap_words;
    state->offset[ROW] = xn_cpu_take(&slice, (size_t)state->row_bytes, 1);
    state->offset[WORDS] = xn_cpu_take(&slice, words, columns * sizeof(uint32_t));
    state->offset[SEEN] =
        xn_cpu_take(&slice, (size_t)state->words + XN_CPU_STEM_UNIT, columns * sizeof(uint32_t));
    state->offset[SCALE] = xn_cpu_take(&slice, (size_t)state->filters, sizeof(float));
    state->offset[BORDER] = xn_cpu_take(&slice, (size_t)state->filters, columns * sizeof(float));
    state->offset[VALUES] = xn_cpu_take(&slice, (size_t)(step->pool ? POOL_ROWS : 1),
                                        (size_t)state->filters * columns * sizeof(float));
    state->offset[POOLED] = xn_cpu_take(&slice, step->pool ? WORD_CHANNELS : 0,
                                        (size_t)state->out_pitch * sizeof(float));
    state->offset[BITS] = xn_cpu_take(&slice, outputs, sizeof(uint32_t));
    return xn_cpu_set_scratch(plan, &shared, &slice, error);
}

/* ---- the input ---- */

typedef struct stem_unit {
    const stem_job *j;
    const xn_step *step;
    const stem_state *state;
    const xn_cpu_image *image;
    unsigned char *slice;
    int32_t first_row; /* of the convolution, laid out first */
    int32_t row_class; /* of BORDER; -1: it is to be made */
} stem_unit;

static void *own(const stem_unit *u, int array) {
    return u->slice + u->state->offset[array];
}

/* Row y of the image, pixel after pixel, behind the columns of zeros to the left of it. */
static void read_row(const stem_unit *u, int32_t y, unsigned char *row) {
    const xn_conv *c = &u->step->conv;
    const int64_t before = (int64_t)c->pad_left * c->channels;
    const int64_t room = (u->state->row_bytes - before) / c->channels;
    const int64_t width = xn_cpu_min(c->width, room), plane = (int64_t)c->height * c->width;
    if (width <= 0)
        return;
    if (u->step->input_layout == XN_LAYOUT_NHWC) {
        memcpy(row + before, u->image->input + (int64_t)y * c->width * c->channels,
               (size_t)(width * c->channels));
        return;
    }
    for (int32_t k = 0; k < c->channels; k++) {
        const unsigned char *from = u->image->input + k * plane + (int64_t)y * c->width;
        unsigned char *to = row + before + k;
        for (int64_t x = 0; x < width; x++)
            to[x * c->channels] = from[x];
    }
}

/* The words of a row of taps, [tap_words][columns], of a row as read_row leaves it. */
static void lay_out_words(const stem_unit *u, const unsigned char *row, uint32_t *words) {
    const xn_conv *c = &u->step->conv;
    const stem_state *s = u->state;
    const size_t step = (size_t)s->column_step * (size_t)c->channels;
    for (int32_t t = 0; t < s->tap_words; t++, words += s->columns) {
        if (c->dilation_w == 1) {
            const unsigned char *from = row + (size_t)t * WORD;
            for (int32_t x = 0; x < s->columns; x++)
                memcpy(&words[x], from + (size_t)x * step, WORD);
            continue;
        }
        unsigned char *bytes = (unsigned char *)words;
        for (int32_t b = t * WORD; b < t * WORD + WORD; b++) {
            const int32_t tap = b / c->channels,
                          at = tap * c->dilation_w * c->channels + b % c->channels;
            for (int32_t x = 0; x < s->columns; x++)
                bytes[(size_t)x * WORD + (size_t)(b % WORD)] =
                    b < s->tap_bytes ? row[(size_t)x * step + (size_t)at] : 0;
        }
    }
}

/* What rows [u->first_row, end) of the convolution see. */
static void lay_out(const stem_unit *u, int32_t end) {
    const xn_conv *c = &u->step->conv;
    const stem_state *s = u->state;
    const size_t size = (size_t)s->tap_words * (size_t)s->columns;
    const int64_t count = (int64_t)(end - 1 - u->first_row) * s->row_step + c->kernel_h;
    const bool shared = s->row_step < c->kernel_h;
    uint32_t *words = own(u, WORDS);
    unsigned char *row = own(u, ROW);
    memset(row, 0, (size_t)s->row_bytes);
    for (int64_t n = 0; n < count; n++, words += size) {
        /* Output row and row of taps: of shared rows any that sees it. */
        const int64_t out = shared ? 0 : n / s->row_step, tap = shared ? n : n % s->row_step;
        const int64_t y = (u->first_row + out) * c->stride_h - c->pad_top + tap * c->dilation_h;
        if (y < 0 || y >= c->height) {
            memset(words, 0, size * sizeof *words);
            continue;
        }
        read_row(u, (int32_t)y, row);
        lay_out_words(u, row, words);
    }
}

/* ---- a row of the convolution ---- */

static float *row_of(const stem_unit *u, int32_t y) {
    const size_t size = (size_t)u->state->filters * (size_t)u->state->columns;
    return (float *)own(u, VALUES) + (u->step->pool ? (size_t)(y % POOL_ROWS) * size : 0);
}

/* Byte `from` of words, as byte `to` of others. */
static void add_byte(const uint32_t *restrict words, int32_t from, int32_t n, int32_t to,
                     uint32_t *restrict out) {
    for (int32_t x = 0; x < n; x++)
        out[x] |= (words[x] >> 8 * from & 255) << 8 * to;
}

/* What row y of the convolution sees, of the rows laid out: SEEN. */
static const uint32_t *see(const stem_unit *u, int32_t y) {
    const stem_state *s = u->state;
    const int32_t rows = u->step->conv.kernel_h, whole = s->tap_bytes / WORD;
    const int32_t left = s->tap_bytes % WORD, columns = s->columns;
    const uint32_t *words = own(u, WORDS);
    uint32_t *seen = own(u, SEEN), *rest = seen + (int64_t)rows * whole * columns;
    words += (int64_t)(y - u->first_row) * s->row_step * s->tap_words * columns;
    memset(rest, 0, (size_t)(s->words - rows * whole) * (size_t)columns * sizeof *rest);
    for (int32_t i = 0; i < rows; i++, words += (int64_t)s->tap_words * columns) {
        memcpy(seen + (int64_t)i * whole * columns, words,
               (size_t)whole * (size_t)columns * sizeof *seen);
        for (int32_t b = 0; b < left; b++)
            add_byte(words + (int64_t)whole * columns, b, columns, (i * left + b) % WORD,
                     rest + (int64_t)((i * left + b) / WORD) * columns);
    }
    return seen;
}

/* BORDER of the rows that are as row y. */
static void make_border(stem_unit *u, int32_t y) {
    const xn_step *s = u->step;
    const xn_weights *w = u->j->run->prepared->weights;
    const xn_planes *p = w->planes;
    const int32_t filters = s->conv.out_channels, classes = p->left + 1 + p->right;
    const int32_t row_class = xn_planes_class(y, s->stem_height, p->top, p->bottom);
    float *to = own(u, BORDER);
    if (row_class == u->row_class)
        return;
    u->row_class = row_class;
    memcpy(own(u, SCALE), w->scale, (size_t)filters * sizeof *w->scale);
    for (int32_t o = 0; o < filters; o++, to += u->state->columns) {
        const float *border = p->border + (int64_t)row_class * classes * filters + o;
        for (int32_t x = 0; x < u->state->columns; x++)
            to[x] = border[(int64_t)p->left * filters];
        for (int32_t cls = 0; cls < classes; cls++) {
            const int32_t x = cls < p->left ? cls : s->stem_width - (cls - p->left);
            if (cls != p->left && xn_planes_class(x, s->stem_width, p->left, p->right) == cls)
                to[x] = border[(int64_t)cls * filters];
        }
    }
}

/* Values of row y: [filters][columns]. Of an odd width one more column, for the pool. */
static void make_row(stem_unit *u, int32_t y) {
    const xn_step *s = u->step;
    const stem_state *state = u->state;
    make_border(u, y);
    const xn_cpu_stem_product product = {.words = see(u, y),
                                         .weights = u->j->weights,
                                         .count = state->words,
                                         .columns = state->columns,
                                         .filters = state->filters,
                                         .planes = u->j->run->prepared->weights->planes->count,
                                         .scale = own(u, SCALE),
                                         .border = own(u, BORDER)};
    float *v = row_of(u, y);
    u->j->kernels->multiply(&product, v);
    for (int32_t o = 0; s->pool && s->stem_width % 2 && o < s->conv.out_channels; o++)
        v[(int64_t)o * state->columns + s->stem_width] =
            v[(int64_t)o * state->columns + s->stem_width - 1];
}

/* ---- outputs ---- */

/* The values of filter o and those after it in output row y; from one filter's to the next's. */
static const float *values_at(const stem_unit *u, int32_t o, int32_t end, int32_t y,
                              size_t *pitch) {
    const xn_step *s = u->step;
    const int64_t columns = u->state->columns;
    *pitch = (size_t)(s->pool ? u->state->out_pitch : columns);
    if (!s->pool)
        return row_of(u, y) + o * columns;
    const int32_t first = 2 * y - (y > 0), last = 2 * y + (2 * y + 1 < s->stem_height);
    const float *given[POOL_ROWS] = {row_of(u, first), row_of(u, 2 * y), row_of(u, last)};
    float *pooled = own(u, POOLED);
    for (int32_t filter = o; filter < end; filter++) {
        const float *rows[POOL_ROWS];
        for (int i = 0; i < POOL_ROWS; i++)
            rows[i] = given[i] + filter * columns;
        u->j->kernels->pool(rows, s->conv.out_width, pooled + (size_t)(filter - o) * *pitch);
    }
    return pooled;
}

static void emit(const stem_unit *u, int32_t y) {
    const xn_conv *c = &u->step->conv;
    uint32_t *words = c->epilogue.bits ? own(u, BITS) : NULL;
    const size_t pixel = (size_t)y * (size_t)c->out_width;
    size_t pitch;
    for (int32_t o = 0; o < c->out_channels; o += WORD_CHANNELS) {
        const int32_t end = (int32_t)xn_cpu_min(o + WORD_CHANNELS, c->out_channels);
        if (words)
            memset(words, 0, (size_t)c->out_width * sizeof *words);
        const float *v = values_at(u, o, end, y, &pitch);
        xn_cpu_place place = xn_cpu_place_of(c, u->image, o, pixel);
        place.words = words;
        place.bit = 1;
        xn_cpu_finish(&u->j->run->epilogue, o, end - o, v, pitch, c->out_width, &place);
        if (words)
            xn_cpu_bits_write(
                u->step->bits_layout, c->out_channels, o / WORD_CHANNELS, words, 0, c->out_width,
                u->image->bits + pixel * xn_cpu_bits_pitch(u->step->bits_layout, c->out_channels));
    }
}

static void run_band(void *context, int64_t unit, int thread) {
    const stem_job *j = context;
    const xn_plan *plan = j->run->plan;
    const xn_step *step = &plan->step;
    const int32_t height = step->conv.out_height;
    const int64_t band = unit % j->bands;
    const int32_t first = (int32_t)(band * height / j->bands);
    const int32_t end = (int32_t)((band + 1) * height / j->bands);
    stem_unit u = {.j = j,
                   .step = step,
                   .state = plan->state,
                   .image = &j->images[unit / j->bands],
                   .slice = xn_cpu_slice(plan, thread),
                   .row_class = -1,
                   .first_row = step->pool ? (int32_t)xn_cpu_max(0, 2 * first - 1) : first};
    const int32_t last_row = step->pool ? (int32_t)xn_cpu_min(2 * end, step->stem_height) : end;
    lay_out(&u, last_row);
    int32_t made = u.first_row;
    for (int32_t y = first; y < end; y++) {
        const int32_t need = step->pool ? (int32_t)xn_cpu_min(2 * y + 2, last_row) : y + 1;
        for (; made < need; made++)
            make_row(&u, made);
        emit(&u, y);
    }
}

/* Bands of an image: the least that are small enough, and as many for each thread. */
static int64_t bands_of(const xn_cpu_run *r, int64_t images) {
    const stem_state *state = r->plan->state;
    const int32_t height = r->plan->step.conv.out_height;
    int64_t bands = xn_cpu_div_up(height, state->band);
    if (images % r->threads)
        bands = xn_cpu_div_up(bands, r->threads) * r->threads;
    return xn_cpu_min(bands, height);
}

static void run(const xn_cpu_run *r, const xn_cpu_image *images, int64_t count) {
    const stem_job j = {.run = r,
                        .images = images,
                        .kernels = r->plan->path_kernels,
                        .weights = xn_cpu_form_of(r->prepared, &form, packing_of(r->plan)),
                        .bands = bands_of(r, count)};
    xn_cpu_for(r->threads, count * j.bands, run_band, (void *)&j);
}

const xn_cpu_path xn_cpu_stem = {
    .kernels = XN_CPU_PATH_KERNELS(stem, avx512, vpopcnt, amx),
    .writes_bits = xn_cpu_writes_all_bits,
    .fits = fits,
    .cost_ns = cost_ns,
    .create = create,
    .destroy = xn_mem_free,
    .prepare = prepare,
    .run = run,
};
