/* ref_plan.c: plans of ref, and running one image after the other. */
#include "ref.h"

#include "xn_mem.h"

#include <assert.h>
#include <string.h>

void xn_ref_plan_free(xn_plan *plan) {
    if (!plan)
        return;
    xn_mem_free(plan->image);
    xn_mem_free(plan);
}

xn_status xn_ref_plan_create(xn_stream *stream, const xn_step *step, int64_t max_images,
                             xn_plan **out, xn_error *error) {
    (void)stream;
    size_t elements = (size_t)xn_conv_input_elements(&step->conv);
    xn_plan *plan = xn_mem_zalloc(1, sizeof *plan);
    if (!plan)
        goto no_memory;
    plan->step = *step;
    plan->max_images = max_images;
    plan->image = xn_mem_alloc(elements * sizeof *plan->image);
    if (!plan->image)
        goto no_memory;
    *out = plan;
    return XN_OK;
no_memory:
    xn_ref_plan_free(plan);
    return xn_fail(error, XN_ERR_NO_MEMORY, "input", "no memory for an image of %zu elements",
                   elements);
}

/* ---- a run ---- */

/* Bytes of an image of each tensor, as a whole. */
typedef struct sizes {
    size_t input, second, residual, output, bits;
} sizes;

static sizes sizes_of(const xn_step *s) {
    return (sizes){
        .input = xn_step_input_bytes(s),
        .second = xn_step_second_bytes(s),
        .residual = xn_step_residual_bytes(s),
        .output = xn_step_output_bytes(s),
        .bits = xn_step_bits_bytes(s),
    };
}

/* Image `image` of an item, of which `before` went before it in the batch: in the backend's memory,
 * or the item's own. */
typedef struct position {
    const xn_batch_item *item;
    size_t image, before;
} position;

static const void *read_at(const void *tensor, const position *p, size_t bytes) {
    if (tensor)
        return (const char *)tensor + (p->before + p->image) * bytes;
    return (const char *)p->item->input + p->image * bytes;
}

static void *write_at(void *tensor, const position *p, size_t bytes) {
    if (tensor)
        return (char *)tensor + (p->before + p->image) * bytes;
    return (char *)p->item->output + p->image * bytes;
}

static void run_image(const xn_plan *plan, const xn_prepared *prepared, const xn_step_io *io,
                      const sizes *bytes, const position *p) {
    const xn_step *s = &plan->step;
    xn_ref_image image = {.step = s, .weights = prepared, .input = plan->image};
    if (s->second != XN_NO_TENSOR)
        image.second = read_at(io->second, p, bytes->second);
    if (s->residual != XN_NO_TENSOR)
        image.residual = read_at(io->residual, p, bytes->residual);
    if (s->output != XN_NO_TENSOR)
        image.output = write_at(io->output, p, bytes->output);
    if (s->bits != XN_NO_TENSOR) {
        image.bits = write_at(io->bits, p, bytes->bits);
        memset(image.bits, 0, bytes->bits);
    }
    xn_ref_read_input(s, read_at(io->input, p, bytes->input), plan->image);
    xn_ref_run(&image);
}

static bool has_kernel(const xn_conv *v, const xn_prepared *prepared) {
    return prepared && prepared->kernel_h == v->kernel_h && prepared->kernel_w == v->kernel_w &&
           prepared->group_channels == v->group_channels;
}

xn_status xn_ref_enqueue(xn_plan *plan, const xn_prepared *prepared, const xn_step_io *io,
                         xn_error *error) {
    const xn_step *s = &plan->step;
    const sizes bytes = sizes_of(s);
    (void)error;
    assert(!prepared || prepared->out_channels == s->conv.out_channels);
    assert(!xn_step_has_kernel(s) || has_kernel(&s->conv, prepared));
    position p = {0};
    for (size_t i = 0; i < io->batch->count; i++) {
        p.item = &io->batch->items[i];
        for (p.image = 0; p.image < (size_t)p.item->images; p.image++)
            run_image(plan, prepared, io, &bytes, &p);
        p.before += (size_t)p.item->images;
    }
    return XN_OK;
}
