/* lookup.c: mode xnor for few channels by look-up tables, the paper's workload (one channel, 3x3).
 *
 * One fused pass. A unit of work is a strip of output columns and a band of output rows; a thread
 * walks down it. Each input row is read once, when the first output row needs it, and leaves two
 * things in the thread's ring of rows, which stays in L1 or L2: planes of signs (lookup_kernels.h)
 * and the sums of |I| over the channels and the KW columns under each output. An output row is then
 * the sum of what KH rows of planes give, times the sum of KH rows of sums, and is written once.
 *
 * Strips bound the ring, whatever the width: a row of 1024 outputs takes 4 KiB of sums and 1 KiB of
 * signs, so that three of them, the input row and the output row fit a level 1 cache. Tiles have
 * wider ones: they keep less in L1 than they gain by reading and writing in order.
 *
 * K's sums (kmap.h) are separable: KW columns are added when a row comes in, KH rows when one goes
 * out. The boxes are short ones, so they are in fp32. A row with a value that is not finite is
 * written again, by way of its dots. */
#include "lookup.h"

#include "kmap.h"
#include "parallel.h"
#include "xn_mem.h"

enum {
    RING_BYTES = 2 << 20,
    BAND_ROWS = 8,
    STRIP = 1024,           /* most outputs of a strip, but for a strip of its own at the end */
    TILE_STRIP = 4096,      /* of tiles, which go along memory */
    STREAM_BYTES = 8 << 20, /* outputs of a run that no cache will still hold */
};

static int64_t ring_rows(const xn_conv *conv) {
    int64_t extent = (int64_t)conv->dilation_h * (conv->kernel_h - 1) + 1;
    return xn_cpu_min(extent, conv->height);
}

/* Strips of equal width, vectors of bytes. */
static int32_t strip_width(const xn_conv *conv, int32_t most) {
    if (conv->out_width <= most + most / 2)
        return conv->out_width;
    int64_t strips = xn_cpu_div_up(conv->out_width, most);
    return (int32_t)(xn_cpu_div_up(xn_cpu_div_up(conv->out_width, strips), 64) * 64);
}

static bool fits(const xn_step *step) {
    const xn_conv *conv = &step->conv;
    int64_t filter = (int64_t)conv->group_channels * conv->kernel_h * conv->kernel_w;
    if (conv->mode != XN_MODE_XNOR || conv->input_datatype == XN_BITS ||
        conv->group_channels > XN_CPU_LOOKUP_CHANNELS || filter > XN_CPU_LOOKUP_FILTER ||
        (conv->epilogue.k && !xn_cpu_k_is_short(conv)))
        return false;
    int64_t padded = (int64_t)conv->width + conv->pad_left + conv->pad_right;
    double pitch = (double)xn_cpu_min(padded, (int64_t)conv->kernel_w * strip_width(conv, STRIP));
    return pitch * (double)ring_rows(conv) * (conv->group_channels + 4) <= RING_BYTES;
}

/* Measured (NOTES.md): what a row takes besides its elements is most of it for small images: 20 ns
 * for each plane that is joined and each channel that is split, 35 ns for each row of outputs.
 * Tiles go faster. */
static double cost_ns(const xn_step *step, const void *kernels) {
    const xn_conv *conv = &step->conv;
    const xn_cpu_lookup_kernels *lookup = kernels;
    const double inputs = (double)xn_conv_input_elements(conv);
    const double outputs = (double)xn_conv_output_elements(conv);
    const double rows = (double)conv->out_channels * conv->out_height;
    const double in_rows =
        (double)conv->groups *
        (double)xn_cpu_min(conv->height, (int64_t)conv->out_height * conv->kernel_h);
    const double planes = (double)xn_cpu_lookup_plane_count(conv);
    const double blocks = (double)xn_cpu_div_up(conv->out_width, lookup->lanes);
    if (xn_cpu_lookup_has_tiles(conv, lookup))
        return 0.14 * outputs + 10 * rows;
    return rows * (35 + lookup->look_up_ns * blocks * planes * conv->kernel_h) +
           in_rows * (20 * (planes + conv->group_channels) +
                      0.05 * (double)conv->kernel_w * conv->out_width) +
           0.03 * (outputs + inputs);
}

static void lay_out(const xn_conv *conv, const xn_cpu_lookup_kernels *lookup,
                    xn_cpu_lookup_state *state, xn_cpu_sizer *sizer) {
    size_t pitch = (size_t)state->rows.pitch, ring = (size_t)state->ring;
    size_t channels = (size_t)conv->group_channels,
           strip = (size_t)xn_cpu_lookup_strip_pitch(state);
    size_t across = channels * (size_t)conv->kernel_w;
    size_t planes = (size_t)xn_cpu_lookup_plane_count(conv), longest = 0; /* segment */
    size_t blocks = xn_cpu_lookup_has_tiles(conv, lookup) ? strip / (size_t)lookup->lanes : 0;
    for (int32_t s = 0; s < state->rows.segment_count; s++)
        longest = (size_t)xn_cpu_max((int64_t)longest, state->rows.segments[s].count);

    const struct {
        int array;
        size_t count, bytes;
    } arrays[] = {
        {XN_CPU_LOOKUP_PLANES, ring * planes * strip, 1},
        {XN_CPU_LOOKUP_PAD, strip, 1},
        {XN_CPU_LOOKUP_SIGNS, channels * pitch, 1},
        {XN_CPU_LOOKUP_MAGNITUDES, pitch, sizeof(float)},
        {XN_CPU_LOOKUP_SUMS, ring * strip, sizeof(float)},
        {XN_CPU_LOOKUP_ZERO, strip, sizeof(float)},
        {XN_CPU_LOOKUP_TAPS, planes * (size_t)conv->kernel_h, sizeof(uint8_t *)},
        {XN_CPU_LOOKUP_POINTERS, across + (size_t)conv->kernel_h, sizeof(void *)},
        {XN_CPU_LOOKUP_SLOTS, (size_t)conv->kernel_h, sizeof(int32_t)},
        {XN_CPU_LOOKUP_FIRST, strip, sizeof(int16_t)},
        {XN_CPU_LOOKUP_K, strip, sizeof(float)},
        {XN_CPU_LOOKUP_ACC, strip, sizeof(int32_t)},
        {XN_CPU_LOOKUP_VALUES, strip, sizeof(float)},
        {XN_CPU_LOOKUP_TEMP, (size_t)conv->width, sizeof(float)},
        {XN_CPU_LOOKUP_GATHER, longest, sizeof(float)},
        {XN_CPU_LOOKUP_VERTICAL, (size_t)conv->width, sizeof(double)},
        {XN_CPU_LOOKUP_EXACT, (size_t)conv->out_width, sizeof(double)},
        {XN_CPU_LOOKUP_BLOCKS, blocks * XN_CPU_LOOKUP_BLOCK_BYTES, 1},
    };
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        state->offset[arrays[i].array] = xn_cpu_take(sizer, arrays[i].count, arrays[i].bytes);
}

static void destroy(void *state) {
    xn_cpu_lookup_state *s = state;
    if (!s)
        return;
    xn_cpu_rows_free(&s->rows);
    xn_mem_free(s);
}

static xn_status create(xn_plan *plan, xn_error *error) {
    xn_conv strip = plan->step.conv;
    xn_cpu_sizer shared = {0}, slice = {0};
    xn_cpu_lookup_state *state = xn_cpu_state_create(plan, sizeof *state, error);
    if (!state)
        return XN_ERR_NO_MEMORY;
    const bool tiles = xn_cpu_lookup_has_tiles(&plan->step.conv, plan->path_kernels);
    state->strip = strip.out_width = strip_width(&plan->step.conv, tiles ? TILE_STRIP : STRIP);
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
    return xn_cpu_form_ready(prepared, &xn_cpu_lookup_form, 0, error);
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
    const xn_cpu_lookup_state *state = plan->state;
    const xn_cpu_lookup_kernels *lookup = plan->path_kernels;
    const int64_t band = unit % j->bands, strip = unit / j->bands % j->strips;
    const int64_t rest = unit / j->bands / j->strips;
    const int32_t x0 = (int32_t)(strip * state->strip);
    xn_cpu_lookup_unit u = {
        .common = plan->kernels,
        .kernels = lookup,
        .conv = conv,
        .state = state,
        .epilogue = &j->run->epilogue,
        .prepared = j->run->prepared,
        .weights = xn_cpu_form_of(j->run->prepared, &xn_cpu_lookup_form, 0),
        .image = &j->images[rest / conv->groups],
        .slice = xn_cpu_slice(plan, thread),
        .group = (int32_t)(rest % conv->groups),
        .x0 = x0,
        .n = (int32_t)xn_cpu_min(state->strip, conv->out_width - x0),
        .plane_count = xn_cpu_lookup_plane_count(conv),
        .strip_pitch = xn_cpu_lookup_strip_pitch(state),
        .with_k = conv->epilogue.k,
        .stream = j->stream,
        .first_of = {-1, -1, -1, -1},
    };
    int64_t y0 = band * j->band;
    const int64_t y1 = xn_cpu_min(y0 + j->band, conv->out_height);
    xn_cpu_lookup_do_unit(&u, (int32_t)y0, (int32_t)y1);
}

/* Bands repeat the input rows that they share, so they are as few as keep the threads busy. */
static void run_images(const xn_cpu_run *run, const xn_cpu_image *images, int64_t count) {
    const xn_conv *conv = &run->plan->step.conv;
    const xn_cpu_lookup_state *state = run->plan->state;
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

const xn_cpu_path xn_cpu_lookup = {
    .kernels = XN_CPU_PATH_KERNELS(lookup, avx512, vpopcnt, vpopcnt),
    .fits = fits,
    .cost_ns = cost_ns,
    .create = create,
    .destroy = destroy,
    .prepare = prepare,
    .run = run_images,
};
