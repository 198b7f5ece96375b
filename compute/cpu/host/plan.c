/* plan.c: one problem on one stream: the way it goes, its scratch. All memory of a run is had here.
 */
#include "cpu.h"

#include <string.h>

size_t xn_cpu_take(xn_cpu_sizer *sizer, size_t count, size_t bytes) {
    size_t offset = sizer->bytes, size, end;
    bool fits = xn_add_size(count, 64, &count) && xn_mul_size(count, bytes, &size) &&
                xn_add_size(size, XN_CPU_ALIGNMENT - 1, &size) &&
                xn_add_size(offset, size / XN_CPU_ALIGNMENT * XN_CPU_ALIGNMENT, &end);
    if (!fits) {
        sizer->failed = true;
        return 0;
    }
    sizer->bytes = end;
    return offset;
}

/* Grows the stream's scratch to what the plan needs with all threads that the machine has: other
 * plans find it through the stream, so it may move. */
static bool reserve(xn_stream *stream, const xn_plan *plan) {
    size_t bytes;
    if (!xn_mul_size(plan->thread_bytes, (size_t)stream->device->threads, &bytes) ||
        !xn_add_size(bytes, plan->shared_bytes, &bytes))
        return false;
    if (bytes <= stream->scratch_bytes)
        return true;
    unsigned char *scratch = xn_mem_zalloc(bytes, 1);
    if (!scratch)
        return false;
    xn_mem_free(stream->scratch);
    stream->scratch = scratch;
    stream->scratch_bytes = bytes;
    return true;
}

#define WAYS(set, name)                                                                            \
    {"few/" name, &xn_cpu_few, &set}, {"many/" name, &xn_cpu_many, &set},                          \
        {"real/" name, &xn_cpu_real, &set}, {                                                      \
        "direct/" name, &xn_cpu_direct, &set                                                       \
    }
static const xn_cpu_way ways[] = {
#if defined(__x86_64__)
    WAYS(xn_cpu_set_vpopcnt, "avx512-vpopcnt"),
    WAYS(xn_cpu_set_avx512, "avx512"),
    WAYS(xn_cpu_set_avx2, "avx2"),
#elif defined(__aarch64__)
    WAYS(xn_cpu_set_neon, "neon"),
#endif
    WAYS(xn_cpu_set_portable, "portable"),
};
enum { WAY_COUNT = sizeof ways / sizeof *ways };

const xn_cpu_way *xn_cpu_way_at(int index) {
    for (int i = 0; i < WAY_COUNT; i++)
        if (ways[i].set->has() && index-- == 0)
            return &ways[i];
    return NULL;
}

const xn_cpu_way *xn_cpu_way_find(const char *name) {
    for (int i = 0; i < WAY_COUNT; i++)
        if (ways[i].set->has() && !strcmp(ways[i].name, name))
            return &ways[i];
    return NULL;
}

static bool few_suits(const xn_conv *conv, const xn_cpu_set *set) {
    return xn_cpu_few.fits(conv) &&
           xn_cpu_few.image_ns(conv, set, false) <= xn_cpu_many.image_ns(conv, set, false);
}

static const xn_cpu_path *choose_path(const xn_conv *conv, const xn_device *device, bool packed) {
    if (conv->mode != XN_MODE_XNOR)
        return xn_cpu_direct_suits(conv) ? &xn_cpu_direct : &xn_cpu_real;
    return !packed && few_suits(conv, device->set) ? &xn_cpu_few : &xn_cpu_many;
}

static const xn_cpu_way *choose(const xn_conv *conv, const xn_device *device, bool packed) {
    const xn_cpu_path *path = choose_path(conv, device, packed);
    const xn_cpu_way *way = ways;
    while (way->path != path || way->set != device->set)
        way++;
    return way;
}

/* Differences of packed output are compared with limits that must fit 32 bits (many.c). */
static bool can_pack(const xn_conv *conv, const xn_cpu_plan_options *options) {
    if (options->packed_input && (conv->mode != XN_MODE_XNOR || conv->epilogue.k))
        return false;
    return !options->packed_output ||
           (conv->epilogue.datatype == XN_INT32 &&
            (int64_t)conv->group_channels * conv->kernel_h * conv->kernel_w < INT64_C(1) << 28);
}

xn_status xn_cpu_plan_create(xn_stream *stream, const xn_step *step, int64_t max_images,
                             xn_plan **out, xn_error *error) {
    const xn_cpu_plan_options none = {0};
    return xn_cpu_plan_create_with(stream, &step->conv, max_images, &none, out, error);
}

xn_status xn_cpu_plan_create_with(xn_stream *stream, const xn_conv *conv, int64_t max_images,
                                  const xn_cpu_plan_options *options, xn_plan **out,
                                  xn_error *error) {
    xn_status status = XN_ERR_NO_MEMORY;
    bool packed = options->packed_input || options->packed_output;
    const xn_cpu_way *way = stream->way ? stream->way : choose(conv, stream->device, packed);
    if (!way->path->fits(conv) || (packed && way->path != &xn_cpu_many) || !can_pack(conv, options))
        return xn_fail(error, XN_ERR_UNSUPPORTED, NULL, "%s cannot run this convolution",
                       way->name);
    xn_plan *plan = xn_mem_zalloc(1, sizeof *plan);
    xn_cpu_image *images = xn_mem_zalloc((size_t)max_images, sizeof *images);
    if (!plan || !images) {
        xn_mem_free(images);
        xn_mem_free(plan);
        return xn_fail(error, status, NULL, "no memory for the plan of a batch");
    }
    plan->stream = stream;
    plan->conv = *conv;
    plan->way = way;
    plan->kernels = way->set->kernels;
    plan->path = way->path;
    plan->few = way->set->few;
    plan->many = way->set->many;
    plan->real = way->set->real;
    plan->packed_input = options->packed_input;
    plan->packed_output = options->packed_output;
    plan->max_images = max_images;
    plan->images = images;
    plan->image_ns = plan->path->image_ns(conv, way->set, options->packed_input);
    status = plan->path->layout(plan, error);
    if (!status && !reserve(stream, plan))
        status = xn_fail(error, XN_ERR_NO_MEMORY, NULL,
                         "no memory for the scratch of this convolution: %zu bytes shared and "
                         "%zu bytes for each of %d threads",
                         plan->shared_bytes, plan->thread_bytes, stream->device->threads);
    if (status) {
        xn_cpu_plan_free(plan);
        return status;
    }
    *out = plan;
    return XN_OK;
}

void xn_cpu_plan_free(xn_plan *plan) {
    if (!plan)
        return;
    xn_cpu_rows_free(&plan->rows);
    xn_cpu_map_free(plan->map);
    xn_mem_free(plan->images);
    xn_mem_free(plan);
}
