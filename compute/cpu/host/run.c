/* run.c: a run of a plan: its threads, its path, and after that bits of the signs that the path
 * left. */
#include "bits.h"
#include "parallel.h"
#include "path.h"

#include <math.h>

enum { CHUNK = 1024 /* pixels of a unit */, WORD_CHANNELS = 32 };

static size_t pixels_of(const xn_conv *conv) {
    return (size_t)conv->out_height * (size_t)conv->out_width;
}

typedef struct join {
    const xn_cpu_run *run;
    const xn_cpu_image *images;
    int64_t chunks; /* of an image */
} join;

static void join_task(void *context, int64_t unit, int thread) {
    const join *j = context;
    const xn_plan *plan = j->run->plan;
    const xn_conv *conv = &plan->step.conv;
    const xn_cpu_image *image = &j->images[unit / j->chunks];
    const size_t plane = pixels_of(conv), pixel = (size_t)(unit % j->chunks) * CHUNK;
    const int32_t layout = plan->step.bits_layout, channels = conv->out_channels;
    const int32_t n = (int32_t)xn_cpu_min(CHUNK, (int64_t)(plane - pixel));
    unsigned char *to = image->bits + pixel * xn_cpu_bits_pitch(layout, channels);
    uint32_t words[CHUNK];
    (void)thread;
    for (int32_t o = 0; o < channels; o += WORD_CHANNELS) {
        const int32_t count = (int32_t)xn_cpu_min(WORD_CHANNELS, channels - o);
        plan->kernels->join_signs(image->signs + (size_t)o * plane + pixel, plane, count, n, words);
        xn_cpu_bits_write(layout, channels, o / WORD_CHANNELS, words, 0, n, to);
    }
}

/* As many images at a time as there is room for their signs. */
static void run_with_signs(const xn_cpu_run *run, int64_t count) {
    const xn_plan *plan = run->plan;
    const size_t elements = (size_t)xn_conv_output_elements(&plan->step.conv);
    const int64_t chunks = xn_cpu_div_up((int64_t)pixels_of(&plan->step.conv), CHUNK);
    for (int64_t first = 0; first < count; first += plan->signs_images) {
        const int64_t images = xn_cpu_min(plan->signs_images, count - first);
        join j = {.run = run, .images = plan->images + first, .chunks = chunks};
        for (int64_t n = 0; n < images; n++)
            plan->images[first + n].signs =
                xn_cpu_shared(plan) + plan->signs_offset + (size_t)n * elements;
        plan->way->path->run(run, j.images, images);
        xn_cpu_for(run->threads, images * chunks, join_task, &j);
    }
}

void xn_cpu_run_images(const xn_plan *plan, const xn_prepared *prepared, int64_t count,
                       int threads) {
    const xn_conv *conv = &plan->step.conv;
    float *factor = (float *)(void *)(xn_cpu_shared(plan) + plan->factor_offset);
    float *bias = (float *)(void *)(xn_cpu_shared(plan) + plan->bias_offset);
    const xn_weights *weights = prepared ? prepared->weights : NULL;
    const xn_cpu_run run = {.plan = plan,
                            .prepared = prepared,
                            .epilogue = {.kernels = plan->kernels,
                                         .conv = conv,
                                         .weights = weights,
                                         .factor = factor,
                                         .bias = bias},
                            .threads = threads};
    if (plan->step.kind != XN_STEP_TOP_K &&
        (conv->mode != XN_MODE_XNOR || !xn_cpu_is_dots(&conv->epilogue)))
        xn_cpu_epilogue_fill(conv, weights, 0, conv->out_channels, factor, bias);
    if (plan->signs_images)
        run_with_signs(&run, count);
    else
        plan->way->path->run(&run, plan->images, count);
}

int xn_cpu_threads_worth(double work_ns, int64_t idle_ns, int most) {
    /* Helpers that still spin join within 1 us. Those asleep take 20 us to come, more from a core
     * that slept too, and cost the caller several (NOTES.md has the figures). */
    bool awake = idle_ns < XN_CPU_SPIN_NS;
    double thread_ns = awake ? 5e3 : 10e3, alone_ns = awake ? 0 : 20e3;
    double least_ns = awake ? 4e3 : 20e3; /* to be saved */
    double saved_ns = (work_ns - alone_ns) * (most - 1) / most;
    double worth = saved_ns < least_ns ? 1 : fmax(1, work_ns / thread_ns);
    return worth < most ? (int)worth : most;
}
