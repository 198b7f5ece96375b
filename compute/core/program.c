/* program.c: runs steps in their order, on any backend. The arena has the tensors between steps
 * and, where the backend does not work in place, the input and the output: each at an offset of its
 * own for now, for all images. */
#include "xn_program.h"

#include "xn_mem.h"

#include <string.h>

enum { ALIGNMENT = 256 }; /* bytes, of a tensor in the arena */

/* A tensor of the program. */
typedef struct tensor {
    size_t image_bytes;
    size_t offset; /* in the arena */
    bool in_place; /* at an end of the program, in the items' memory */
} tensor;

struct xn_program {
    const xn_backend *backend;
    xn_stream *stream;
    int64_t max_images;
    size_t arena_bytes;
    int step_count, tensor_count, output;
    xn_step *steps;
    xn_plan **plans;
    tensor *tensors;
};

/* ---- tensors ---- */

static int32_t last_tensor(const xn_step *step) {
    int32_t last = step->input;
    const int32_t others[] = {step->residual, step->output, step->bits};
    for (int i = 0; i < 3; i++)
        last = others[i] > last ? others[i] : last;
    return last;
}

static int count_tensors(const xn_step *steps, int count) {
    int32_t last = 0;
    for (int i = 0; i < count; i++)
        last = last_tensor(&steps[i]) > last ? last_tensor(&steps[i]) : last;
    return last + 1;
}

static void size_tensors(xn_program *p) {
    p->tensors[0].image_bytes = xn_conv_input_bytes(&p->steps[0].conv);
    for (int i = 0; i < p->step_count; i++) {
        const xn_step *s = &p->steps[i];
        const int32_t out = s->output != XN_NO_TENSOR ? s->output : s->bits;
        p->tensors[out].image_bytes = xn_conv_output_bytes(&s->conv);
        p->output = out;
    }
    p->tensors[0].in_place = p->tensors[p->output].in_place = p->backend->in_place;
}

/* False when it passes the address space. */
static bool lay_out(xn_program *p) {
    for (int i = 0; i < p->tensor_count; i++) {
        size_t bytes;
        tensor *t = &p->tensors[i];
        if (t->in_place)
            continue;
        t->offset = p->arena_bytes;
        if (!xn_mul_size(t->image_bytes, (size_t)p->max_images, &bytes) ||
            !xn_add_size(bytes, ALIGNMENT - 1, &bytes) ||
            !xn_add_size(p->arena_bytes, bytes / ALIGNMENT * ALIGNMENT, &p->arena_bytes))
            return false;
    }
    return true;
}

/* ---- creation ---- */

static xn_status allocate(const xn_backend *backend, const xn_step *steps, int count,
                          xn_program **out, xn_error *error) {
    xn_program *p = xn_mem_zalloc(1, sizeof *p);
    if (p) {
        p->backend = backend;
        p->step_count = count;
        p->tensor_count = count_tensors(steps, count);
        p->steps = xn_mem_zalloc((size_t)count, sizeof *p->steps);
        p->plans = xn_mem_zalloc((size_t)count, sizeof(xn_plan *));
        p->tensors = xn_mem_zalloc((size_t)p->tensor_count, sizeof *p->tensors);
    }
    if (!p || !p->steps || !p->plans || !p->tensors) {
        xn_program_free(p);
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for a program of %d steps", count);
    }
    memcpy(p->steps, steps, (size_t)count * sizeof *steps);
    *out = p;
    return XN_OK;
}

static xn_status make_plans(xn_program *p, xn_error *error) {
    const xn_backend *b = p->backend;
    xn_status status = XN_OK;
    for (int i = 0; i < p->step_count && status == XN_OK; i++)
        status = b->plan_create(p->stream, &p->steps[i], p->max_images, &p->plans[i], error);
    if (status != XN_OK)
        return status;
    size_tensors(p);
    if (!lay_out(p))
        return xn_fail(error, XN_ERR_DEVICE_MEMORY, NULL,
                       "the tensors of %lld images pass the address space",
                       (long long)p->max_images);
    return p->arena_bytes ? b->arena_reserve(p->stream, p->arena_bytes, error) : XN_OK;
}

xn_status xn_program_create_steps(const xn_backend *backend, xn_stream *stream,
                                  const xn_step *steps, int step_count, int64_t max_images,
                                  xn_program **out, xn_error *error) {
    xn_program *p = NULL;
    if (max_images < 1)
        return xn_fail(error, XN_ERR_INTERNAL, NULL, "a program for %lld images; at least 1",
                       (long long)max_images);
    xn_status status = allocate(backend, steps, step_count, &p, error);
    if (status != XN_OK)
        return status;
    p->stream = stream;
    p->max_images = max_images;
    status = make_plans(p, error);
    if (status != XN_OK) {
        xn_program_free(p);
        return status;
    }
    *out = p;
    return XN_OK;
}

xn_status xn_program_create(const xn_backend *backend, xn_stream *stream, const xn_problem *problem,
                            int64_t max_images, xn_program **out, xn_error *error) {
    xn_step step;
    xn_step_of_conv(&problem->conv, &step);
    return xn_program_create_steps(backend, stream, &step, 1, max_images, out, error);
}

void xn_program_free(xn_program *program) {
    if (!program)
        return;
    for (int i = 0; program->plans && i < program->step_count; i++)
        program->backend->plan_free(program->plans[i]);
    xn_mem_free(program->tensors);
    xn_mem_free(program->plans);
    xn_mem_free(program->steps);
    xn_mem_free(program);
}

/* ---- running ---- */

xn_status xn_program_ready(const xn_program *program, const xn_prepared *const *prepared,
                           xn_error *error) {
    const xn_backend *b = program->backend;
    xn_status status = XN_OK;
    for (int i = 0; b->weights_ready && i < program->step_count && status == XN_OK; i++)
        status = b->weights_ready(prepared[program->steps[i].weights], program->plans[i], error);
    return status;
}

static void *address_of(const xn_program *p, char *arena, int32_t number) {
    if (number == XN_NO_TENSOR || p->tensors[number].in_place)
        return NULL;
    return arena + p->tensors[number].offset;
}

static xn_status run_steps(xn_program *p, const xn_prepared *const *prepared, const xn_batch *batch,
                           char *arena, xn_run_times *times, xn_error *error) {
    const xn_backend *b = p->backend;
    xn_status status = b->begin(p->stream, batch, address_of(p, arena, 0), error);
    for (int i = 0; i < p->step_count && status == XN_OK; i++) {
        const xn_step *s = &p->steps[i];
        const xn_step_io io = {.input = address_of(p, arena, s->input),
                               .residual = address_of(p, arena, s->residual),
                               .output = address_of(p, arena, s->output),
                               .bits = address_of(p, arena, s->bits),
                               .batch = batch};
        status = b->enqueue(p->plans[i], prepared[s->weights], &io, error);
    }
    if (status == XN_OK)
        status = b->end(p->stream, batch, address_of(p, arena, p->output), times, error);
    if (status != XN_OK)
        b->abandon(p->stream);
    return status;
}

xn_status xn_program_run(xn_program *program, const xn_prepared *const *prepared,
                         const xn_batch_item *items, size_t count, xn_run_times *times,
                         xn_error *error) {
    xn_batch batch = {.items = items,
                      .count = count,
                      .input_bytes = program->tensors[0].image_bytes,
                      .output_bytes = program->tensors[program->output].image_bytes};
    xn_run_times measured = {0};
    char *arena = NULL;
    for (size_t i = 0; i < count; i++)
        batch.images += items[i].images;
    if (batch.images < 1 || batch.images > program->max_images)
        return xn_fail(error, XN_ERR_INTERNAL, NULL, "a batch of %lld images on a plan for %lld",
                       (long long)batch.images, (long long)program->max_images);
    if (program->arena_bytes) {
        arena = program->backend->arena(program->stream, program->arena_bytes);
        if (!arena)
            return xn_fail(error, XN_ERR_DEVICE_MEMORY, NULL,
                           "the device has no room left for the %zu bytes of this program's "
                           "tensors",
                           program->arena_bytes);
    }
    xn_status status = run_steps(program, prepared, &batch, arena, &measured, error);
    if (status == XN_OK && times)
        *times = measured;
    return status;
}

xn_precision xn_program_precision(const xn_program *program, const xn_prepared *const *prepared) {
    const xn_backend *b = program->backend;
    xn_precision worst = XN_PRECISION_FP32;
    for (int i = 0; b->precision && i < program->step_count; i++) {
        xn_precision p = b->precision(program->plans[i], prepared[program->steps[i].weights]);
        worst = p > worst ? p : worst;
    }
    return worst;
}

int xn_program_step_count(const xn_program *program) {
    return program->step_count;
}

const xn_plan *xn_program_plan(const xn_program *program, int index) {
    return program->plans[index];
}
