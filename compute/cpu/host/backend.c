/* backend.c: the CPU backend's table: its one device, its streams, and run.
 */
#include "canary.h"
#include "parallel.h"
#include "path.h"
#include "xn_backends.h"
#include "xn_cpus.h"
#include "xn_mem.h"

#include <assert.h>
#include <stdio.h>

static xn_status device_count(int *count, xn_error *error) {
    (void)error;
    *count = 1;
    return XN_OK;
}

static int usable_threads(void) {
    return (int)xn_cpu_min(xn_cpus_usable(), XN_CPU_MAX_THREADS);
}

static xn_status device_open(int ordinal, xn_device **out, xn_error *error) {
    if (ordinal != 0)
        return xn_fail(error, XN_ERR_NO_DEVICE, NULL,
                       "there is no cpu device %d; the only one is 0", ordinal);
    xn_device *device = xn_mem_zalloc(1, sizeof *device);
    if (!device)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the cpu device");
    device->threads = usable_threads();
    device->set = xn_cpu_set_at(0);
    xn_cpu_threads_open();
    *out = device;
    return XN_OK;
}

/* "avx2, portable" */
static void list_sets(char *text, size_t size) {
    const xn_cpu_set *set = NULL;
    size_t length = 0;
    text[0] = '\0';
    for (int i = 0; length < size && (set = xn_cpu_set_at(i)); i++)
        length += (size_t)snprintf(text + length, size - length, "%s%s", i ? ", " : "", set->name);
}

static xn_status device_configure(xn_device *device, const xn_device_options *options,
                                  xn_error *error) {
    const char *name = options->instruction_set;
    const xn_cpu_set *set = name ? xn_cpu_set_find(name) : xn_cpu_set_at(0);
    if (!set) {
        char there[80];
        list_sets(there, sizeof there);
        return xn_fail(error, XN_ERR_UNSUPPORTED, "instruction_set",
                       "this CPU cannot run the kernels for %.40s; it has %s", name, there);
    }
    device->set = set;
    device->pinned = options->pin_threads;
    device->threads = options->threads > 0 ? (int)xn_cpu_min(options->threads, XN_CPU_MAX_THREADS)
                                           : usable_threads();
    return XN_OK;
}

static void device_close(xn_device *device) {
    if (!device)
        return;
    xn_cpu_threads_close();
    xn_mem_free(device);
}

static void device_info(const xn_device *device, xn_device_info *out) {
    *out = (xn_device_info){.compute_units = device->threads};
    snprintf(out->id, sizeof out->id, "cpu");
    snprintf(out->instruction_set, sizeof out->instruction_set, "%s", device->set->name);
    snprintf(out->description, sizeof out->description, "%d thread%s, %s", device->threads,
             device->threads == 1 ? "" : "s", device->set->name);
}

static void *host_alloc(xn_device *device, size_t bytes) {
    (void)device;
    return xn_mem_alloc(bytes);
}

static void host_free(xn_device *device, void *memory) {
    (void)device;
    xn_mem_free(memory);
}

static void stream_set_threads(xn_stream *stream, int threads) {
    int most = stream->device->threads;
    stream->threads = threads <= 0 || threads > most ? most : threads;
}

static xn_status stream_create(xn_device *device, const xn_stream_options *options, xn_stream **out,
                               xn_error *error) {
    const xn_cpu_way *way = NULL;
    if (options && options->path && !(way = xn_cpu_way_find(options->path)))
        return xn_fail(error, XN_ERR_UNSUPPORTED, NULL, "this cpu has no kernel path \"%s\"",
                       options->path);
    xn_stream *stream = xn_mem_zalloc(1, sizeof *stream);
    if (!stream)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for a cpu stream");
    stream->device = device;
    stream->way = way;
    stream->most_scratch_bytes =
        options && options->most_scratch_bytes ? options->most_scratch_bytes : SIZE_MAX;
    stream_set_threads(stream, options ? options->threads : 0);
    xn_cpu_threads_start(device->threads - 1, device->pinned);
    *out = stream;
    return XN_OK;
}

static void stream_trim(xn_stream *stream) {
    xn_mem_free(stream->arena);
    xn_mem_free(stream->scratch);
    stream->arena = stream->scratch = NULL;
    stream->arena_bytes = stream->scratch_bytes = 0;
}

static void stream_free(xn_stream *stream) {
    if (!stream)
        return;
    stream_trim(stream);
    xn_mem_free(stream);
}

static xn_status arena_reserve(xn_stream *stream, size_t bytes, xn_error *error) {
    if (bytes <= stream->arena_bytes)
        return XN_OK;
    unsigned char *arena = xn_mem_alloc(bytes);
    if (!arena)
        return xn_fail(error, XN_ERR_DEVICE_MEMORY, NULL, "no memory for tensors of %zu bytes",
                       bytes);
    xn_mem_free(stream->arena);
    stream->arena = arena;
    stream->arena_bytes = bytes;
    return XN_OK;
}

static void *arena_of(const xn_stream *stream, size_t bytes) {
    return bytes <= stream->arena_bytes ? stream->arena : NULL;
}

/* The weights must have the shape that the plan was made for: the batcher's duty. */
static bool weights_fit(const xn_step *step, const xn_prepared *p) {
    const xn_conv *conv = &step->conv;
    const xn_epilogue *e = &conv->epilogue;
    const bool kernel = step->kind == XN_STEP_STEM
                            ? p && p->weights->planes
                            : !xn_step_has_kernel(step) ||
                                  (p && p->group_channels == conv->group_channels &&
                                   p->kernel_h == conv->kernel_h && p->kernel_w == conv->kernel_w);
    if (!p)
        return kernel && !e->factor && !e->bias && !e->shift && !step->least &&
               e->activation != XN_ACTIVATION_PRELU;
    return kernel && p->out_channels == conv->out_channels &&
           ((e->factor != XN_FACTOR_SCALE && !step->least) || p->weights->scale) &&
           (!e->bias || p->weights->bias) && (!e->shift || p->weights->shift) &&
           (e->activation != XN_ACTIVATION_PRELU || p->weights->slope);
}

/* A tensor of the step: where its images are, and from one to the next. */
typedef struct tensor {
    unsigned char *memory; /* NULL: in the items */
    size_t pitch, offset;  /* bytes; of the part that the step sees */
} tensor;

static tensor tensor_of(const void *memory, size_t pitch, const xn_view *view, int32_t datatype) {
    const size_t offset = (size_t)view->offset * xn_datatype_bytes((xn_datatype)datatype);
    return (tensor){(unsigned char *)memory, pitch, offset};
}

/* Image n of the batch, or `own` of an item. */
static unsigned char *at(const tensor *t, int64_t n, const void *item, int64_t own) {
    if (t->memory)
        return t->memory + (size_t)n * t->pitch + t->offset;
    return (unsigned char *)item + (size_t)own * t->pitch + t->offset;
}

static int64_t list_images(xn_plan *plan, const xn_step_io *io) {
    const xn_step *s = &plan->step;
    const xn_conv *conv = &s->conv;
    const tensor input =
        tensor_of(io->input, xn_step_input_bytes(s), &s->input_view, conv->input_datatype);
    const tensor residual =
        tensor_of(io->residual, xn_step_residual_bytes(s), &s->residual_view, s->residual_datatype);
    const tensor second =
        tensor_of(io->second, xn_step_second_bytes(s), &s->second_view, s->second_datatype);
    const tensor output =
        tensor_of(io->output, xn_step_output_bytes(s), &s->output_view, conv->epilogue.datatype);
    const tensor bits = {io->bits, xn_step_bits_bytes(s), 0};
    int64_t images = 0;
    for (size_t k = 0; k < io->batch->count; k++) {
        const xn_batch_item *item = &io->batch->items[k];
        for (int64_t n = 0; n < item->images; n++, images++) {
            xn_cpu_image *image = &plan->images[images];
            assert(images < plan->max_images);
            *image = (xn_cpu_image){.input = at(&input, images, item->input, n),
                                    .residual_datatype = s->residual_datatype};
            if (s->residual != XN_NO_TENSOR)
                image->residual = at(&residual, images, item->input, n);
            if (s->second != XN_NO_TENSOR)
                image->second = at(&second, images, item->input, n);
            if (s->output != XN_NO_TENSOR)
                image->output = at(&output, images, item->output, n);
            if (s->bits != XN_NO_TENSOR)
                image->bits = at(&bits, images, item->output, n);
        }
    }
    return images;
}

static xn_status begin(xn_stream *stream, const xn_batch *batch, void *input, xn_error *error) {
    (void)batch, (void)input, (void)error;
    stream->compute_ns = 0;
    return XN_OK;
}

static xn_status enqueue(xn_plan *plan, const xn_prepared *prepared, const xn_step_io *io,
                         xn_error *error) {
    (void)error;
    xn_stream *stream = plan->stream;
    const int64_t images = list_images(plan, io), start_ns = xn_cpu_now_ns();
    assert(weights_fit(&plan->step, prepared));
    const double work_ns = plan->cost_ns * (double)images;
    xn_cpu_run_images(plan, prepared, images,
                      xn_cpu_threads_worth(work_ns, start_ns - stream->ended_ns, stream->threads));
    stream->ended_ns = xn_cpu_now_ns();
    stream->compute_ns += stream->ended_ns - start_ns;
    return XN_OK;
}

static xn_status end(xn_stream *stream, const xn_batch *batch, const void *output,
                     xn_run_times *times, xn_error *error) {
    (void)batch, (void)output, (void)error;
    *times = (xn_run_times){.compute_ns = stream->compute_ns};
    return XN_OK;
}

static void abandon(xn_stream *stream) {
    (void)stream; /* nothing is under way once enqueue has returned */
}

static const char *device_path(const xn_device *device, int index) {
    const xn_cpu_way *way = xn_cpu_way_at(index);
    (void)device;
    return way ? way->name : NULL;
}

static const char *plan_path(const xn_plan *plan) {
    return plan->way->name;
}

static double plan_cost_ns(const xn_plan *plan) {
    return plan->cost_ns * (double)plan->max_images;
}

/* Threads begin with neighbouring units, so each with images of its own: what one writes of them
 * stays in its core's cache, or near it, until the next step reads it. */
static int64_t pass_images(const xn_stream *stream, size_t image_bytes) {
    enum { THREAD_BYTES = 4 << 20 };
    return stream->threads * xn_cpu_max(1, (int64_t)(THREAD_BYTES / image_bytes));
}

static xn_status device_canary(xn_device *device, xn_error *error) {
    return xn_cpu_canary(&xn_backend_cpu, device, error);
}

const xn_backend xn_backend_cpu = {
    .name = "cpu",
    .kinds = (1u << XN_STEP_KIND_COUNT) - 1,
    .device_count = device_count,
    .device_open = device_open,
    .device_configure = device_configure,
    .device_close = device_close,
    .device_info = device_info,
    .device_canary = device_canary,
    .host_alloc = host_alloc,
    .host_free = host_free,
    .weights_prepare = xn_cpu_weights_prepare,
    .weights_free = xn_cpu_weights_free,
    .stream_create = stream_create,
    .stream_free = stream_free,
    .stream_set_threads = stream_set_threads,
    .plan_create = xn_cpu_plan_create,
    .plan_free = xn_cpu_plan_free,
    .device_path = device_path,
    .plan_path = plan_path,
    .weights_ready = xn_cpu_weights_ready,
    .arena_reserve = arena_reserve,
    .arena = arena_of,
    .stream_trim = stream_trim,
    .in_place = true,
    .begin = begin,
    .enqueue = enqueue,
    .end = end,
    .abandon = abandon,
    .plan_cost_ns = plan_cost_ns,
    .parts = true,
    .pass_images = pass_images,
};
