/* program.c: runs steps in their order, on any backend. The arena has the tensors between steps
 * and, where the backend does not work in place, the input and the output: all images of each, one
 * tensor over another that is no longer needed. Where the backend wants so, a batch runs in several
 * passes through all steps, of a few images each. */
#include "xn_program.h"

#include "arena.h"
#include "xn_mem.h"

#include <string.h>

enum { ALIGNMENT = 256 }; /* bytes, of a tensor in the arena */

/* A tensor of the program. */
typedef struct tensor {
    size_t image_bytes;
    size_t offset;   /* in the arena */
    int first, last; /* step that writes it first, that reads it last; of steps that a backend may
                      * run as one, the first and the last of them */
    bool in_place;   /* at an end of the program, in the items' memory */
} tensor;

struct xn_program {
    const xn_backend *backend;
    xn_stream *stream;
    int64_t max_images, pass_images;
    int64_t pass_limit;   /* of pass_images: less than max_images where there was no memory */
    size_t most_bytes;    /* of the arena, if a pass has more than one image */
    xn_batch_item *items; /* [pass_images], of a pass, where it may be less than all */
    size_t arena_bytes;
    int step_count, tensor_count, output;
    xn_precision precision; /* of the network's values and weights */
    xn_step *steps;
    xn_plan **plans;
    tensor *tensors;
    xn_enqueued *run; /* of each step, for backends that take all at once */
    int32_t *reads;   /* of each tensor, by how many steps */
    xn_batch batch;   /* of the run under way */
    xn_recordings *recordings;
};

/* ---- tensors ---- */

enum { READS = 3, WRITES = 2 };

static void tensors_of(const xn_step *step, int32_t reads[READS], int32_t writes[WRITES]) {
    reads[0] = step->input;
    reads[1] = step->residual;
    reads[2] = step->second;
    writes[0] = step->output;
    writes[1] = step->bits;
}

static int count_tensors(const xn_step *steps, int count) {
    int32_t last = 0, reads[READS], writes[WRITES];
    for (int i = 0; i < count; i++) {
        tensors_of(&steps[i], reads, writes);
        for (int k = 0; k < READS; k++)
            last = reads[k] > last ? reads[k] : last;
        for (int k = 0; k < WRITES; k++)
            last = writes[k] > last ? writes[k] : last;
    }
    return last + 1;
}

static xn_status broken(int step, int32_t number, const char *what, xn_error *error) {
    return xn_fail(error, XN_ERR_INTERNAL, NULL, "step %d %s tensor %d", step, what, (int)number);
}

static xn_status trace_reads(xn_program *p, int step, const int32_t reads[READS],
                             const size_t bytes[READS], xn_error *error) {
    for (int k = 0; k < READS; k++) {
        if (reads[k] == XN_NO_TENSOR && k > 0)
            continue;
        if (reads[k] < 0 || !p->tensors[reads[k]].image_bytes)
            return broken(step, reads[k], "reads, before it is written,", error);
        if (reads[k] == p->output)
            return broken(step, reads[k], "reads the program's output,", error);
        if (p->tensors[reads[k]].image_bytes != bytes[k])
            return broken(step, reads[k], "reads, with another size,", error);
        p->tensors[reads[k]].last = step;
        p->reads[reads[k]]++;
    }
    return XN_OK;
}

static xn_status trace_writes(xn_program *p, int step, const int32_t writes[WRITES],
                              const size_t bytes[WRITES], xn_error *error) {
    if (writes[0] == writes[1])
        return broken(step, writes[0], "writes twice, or nothing but,", error);
    for (int k = 0; k < WRITES; k++) {
        if (writes[k] == XN_NO_TENSOR)
            continue;
        tensor *t = &p->tensors[writes[k]];
        if (writes[k] <= 0 || (t->image_bytes && t->image_bytes != bytes[k]))
            return broken(step, writes[k], "writes, with another size,", error);
        t->first = t->image_bytes ? t->first : step;
        t->last = step;
        t->image_bytes = bytes[k];
    }
    return XN_OK;
}

/* Which steps the backend may run as one. Tensors of any of these are needed by all of them. */
static void trace_fused(xn_program *p) {
    for (int i = 0, n; i < p->step_count; i += n) {
        const xn_backend *b = p->backend;
        n = b->fuses ? b->fuses(&p->steps[i], p->step_count - i, p->reads) : 1;
        for (int k = i; k < i + n; k++)
            p->run[k].fused = k == i ? n : 1;
        for (int t = 0; n > 1 && t < p->tensor_count; t++) {
            tensor *of = &p->tensors[t];
            if (of->first > i && of->first < i + n)
                of->first = i;
            if (of->last >= i && of->last < i + n - 1)
                of->last = i + n - 1;
        }
    }
}

/* Sizes of the tensors, and from which step to which each is needed. */
static xn_status trace(xn_program *p, xn_error *error) {
    const xn_step *end = &p->steps[p->step_count - 1];
    p->output = end->output != XN_NO_TENSOR ? end->output : end->bits;
    p->tensors[0].image_bytes = xn_step_input_bytes(&p->steps[0]);
    p->tensors[0].first = -1;
    xn_status status = XN_OK;
    for (int i = 0; i < p->step_count && status == XN_OK; i++) {
        const xn_step *s = &p->steps[i];
        const size_t read_bytes[READS] = {xn_step_input_bytes(s), xn_step_residual_bytes(s),
                                          xn_step_second_bytes(s)};
        const size_t bytes[WRITES] = {xn_step_output_bytes(s), xn_step_bits_bytes(s)};
        int32_t reads[READS], writes[WRITES];
        tensors_of(s, reads, writes);
        status = trace_reads(p, i, reads, read_bytes, error);
        if (status == XN_OK)
            status = trace_writes(p, i, writes, bytes, error);
    }
    if (status != XN_OK)
        return status;
    p->tensors[p->output].last = p->step_count;
    trace_fused(p);
    p->tensors[0].in_place = p->tensors[p->output].in_place = p->backend->in_place;
    return XN_OK;
}

/* For that number of images. False where the sizes overflow. */
static bool plan_arena(xn_program *p, int64_t images, xn_arena_tensor *planned) {
    for (int i = 0; i < p->tensor_count; i++) {
        const tensor *t = &p->tensors[i];
        planned[i] = (xn_arena_tensor){.first = t->first, .last = t->last};
        if (!t->in_place && !xn_mul_size(t->image_bytes, (size_t)images, &planned[i].bytes))
            return false;
    }
    if (!xn_arena_plan(planned, p->tensor_count, ALIGNMENT, &p->arena_bytes))
        return false;
    for (int i = 0; i < p->tensor_count; i++)
        p->tensors[i].offset = planned[i].offset;
    return true;
}

/* As many images at a time as the backend wants. */
static bool plan_passes(xn_program *p, xn_arena_tensor *planned) {
    const xn_backend *b = p->backend;
    p->pass_images = p->max_images;
    if (b->pass_images && !plan_arena(p, 1, planned))
        return false;
    if (b->pass_images && p->arena_bytes) {
        const int64_t wanted = b->pass_images(p->stream, p->arena_bytes);
        const size_t fit = p->most_bytes / p->arena_bytes;
        p->pass_images = wanted < p->pass_limit ? wanted : p->pass_limit;
        if ((size_t)p->pass_images > fit)
            p->pass_images = fit ? (int64_t)fit : 1;
    }
    return plan_arena(p, p->pass_images, planned);
}

static xn_status lay_out(xn_program *p, xn_error *error) {
    xn_arena_tensor *planned = xn_mem_zalloc((size_t)p->tensor_count, sizeof *planned);
    if (!planned)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory to place %d tensors",
                       p->tensor_count);
    bool fits = plan_passes(p, planned);
    xn_mem_free(planned);
    if (!fits)
        return xn_fail(error, XN_ERR_DEVICE_MEMORY, NULL,
                       "the tensors of %lld images pass the address space",
                       (long long)p->pass_images);
    if (p->pass_images == p->max_images)
        return XN_OK;
    p->items = xn_mem_zalloc((size_t)p->pass_images, sizeof *p->items);
    if (!p->items)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for the items of %lld images",
                       (long long)p->pass_images);
    return XN_OK;
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
        p->run = xn_mem_zalloc((size_t)count, sizeof *p->run);
        p->reads = xn_mem_zalloc((size_t)p->tensor_count, sizeof *p->reads);
        p->tensors = xn_mem_zalloc((size_t)p->tensor_count, sizeof *p->tensors);
    }
    if (!p || !p->steps || !p->plans || !p->run || !p->reads || !p->tensors) {
        xn_program_free(p);
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for a program of %d steps", count);
    }
    memcpy(p->steps, steps, (size_t)count * sizeof *steps);
    *out = p;
    return XN_OK;
}

static xn_status check_step(const xn_backend *b, const xn_step *s, int index, xn_error *error) {
    const uint32_t kinds = b->kinds ? b->kinds : 1u << XN_STEP_CONV;
    const char *kind = xn_step_kind_name((xn_step_kind)s->kind);
    if (!(kinds >> s->kind & 1))
        return xn_fail(error, XN_ERR_UNSUPPORTED, NULL,
                       "step %d is of kind %s, which backend %s has not; choose another backend",
                       index, kind, b->name);
    if (!b->parts && !xn_step_is_whole(s))
        return xn_fail(error, XN_ERR_UNSUPPORTED, NULL,
                       "step %d, %s, has a part of a tensor, which backend %s cannot; choose "
                       "another backend",
                       index, kind, b->name);
    return XN_OK;
}

xn_status xn_program_check(const xn_backend *backend, const xn_step *steps, int step_count,
                           xn_error *error) {
    xn_status status = XN_OK;
    for (int i = 0; i < step_count && status == XN_OK; i++)
        status = check_step(backend, &steps[i], i, error);
    return status;
}

static xn_status make_plan(xn_program *p, int index, xn_error *error) {
    const xn_backend *b = p->backend;
    const xn_step *s = &p->steps[index];
    xn_status status = check_step(b, s, index, error);
    return status != XN_OK ? status
                           : b->plan_create(p->stream, s, p->pass_images, &p->plans[index], error);
}

static xn_status make_plans(xn_program *p, xn_error *error) {
    xn_status status = lay_out(p, error);
    for (int i = 0; i < p->step_count && status == XN_OK; i++)
        status = make_plan(p, i, error);
    if (status != XN_OK || !p->arena_bytes)
        return status;
    return p->backend->arena_reserve(p->stream, p->arena_bytes, error);
}

static void drop_plans(xn_program *p) {
    for (int i = 0; p->plans && i < p->step_count && p->plans[i]; i++) {
        p->backend->plan_free(p->plans[i]);
        p->plans[i] = NULL;
    }
    xn_mem_free(p->items);
    p->items = NULL;
}

/* Where there is no memory for as many images at a time as are best, for fewer. */
static xn_status make(xn_program *p, xn_error *error) {
    xn_status status = trace(p, error);
    if (status == XN_OK)
        status = make_plans(p, error);
    while ((status == XN_ERR_DEVICE_MEMORY || status == XN_ERR_NO_MEMORY) &&
           p->backend->pass_images && p->pass_images > 1) {
        drop_plans(p);
        p->pass_limit = p->pass_images / 2;
        status = make_plans(p, error);
    }
    return status;
}

static xn_status create_steps(const xn_backend *backend, xn_stream *stream, const xn_step *steps,
                              int step_count, int64_t max_images, size_t most_bytes,
                              xn_program **out, xn_error *error) {
    xn_program *p = NULL;
    if (max_images < 1)
        return xn_fail(error, XN_ERR_INTERNAL, NULL, "a program for %lld images; at least 1",
                       (long long)max_images);
    xn_status status = allocate(backend, steps, step_count, &p, error);
    if (status != XN_OK)
        return status;
    p->stream = stream;
    p->max_images = p->pass_limit = max_images;
    p->most_bytes = most_bytes;
    if (backend->recordings_create)
        p->recordings = backend->recordings_create(step_count);
    status = make(p, error);
    if (status != XN_OK) {
        xn_program_free(p);
        return status;
    }
    *out = p;
    return XN_OK;
}

xn_status xn_program_create_steps(const xn_backend *backend, xn_stream *stream,
                                  const xn_step *steps, int step_count, int64_t max_images,
                                  xn_program **out, xn_error *error) {
    return create_steps(backend, stream, steps, step_count, max_images, SIZE_MAX, out, error);
}

xn_status xn_program_create_within(const xn_backend *backend, xn_stream *stream,
                                   const xn_problem *problem, int64_t max_images, size_t most_bytes,
                                   xn_program **out, xn_error *error) {
    const xn_network *network = problem->network;
    xn_step step;
    if (network) {
        xn_status status = create_steps(backend, stream, network->steps, network->step_count,
                                        max_images, most_bytes, out, error);
        if (status == XN_OK)
            (*out)->precision = network->precision;
        return status;
    }
    xn_step_of_conv(&problem->conv, &step);
    return create_steps(backend, stream, &step, 1, max_images, most_bytes, out, error);
}

xn_status xn_program_create(const xn_backend *backend, xn_stream *stream, const xn_problem *problem,
                            int64_t max_images, xn_program **out, xn_error *error) {
    return xn_program_create_within(backend, stream, problem, max_images, SIZE_MAX, out, error);
}

void xn_program_free(xn_program *program) {
    if (!program)
        return;
    if (program->backend->recordings_free)
        program->backend->recordings_free(program->recordings);
    drop_plans(program);
    xn_mem_free(program->tensors);
    xn_mem_free(program->reads);
    xn_mem_free(program->run);
    xn_mem_free(program->plans);
    xn_mem_free(program->steps);
    xn_mem_free(program);
}

/* ---- what one image takes ---- */

static void free_no_plan(xn_plan *plan) {
    (void)plan;
}

static xn_status image_bytes_with(const xn_backend *backend, const xn_step *steps, int step_count,
                                  size_t *bytes, xn_error *error) {
    const xn_backend host = {
        .name = "host", .in_place = true, .plan_free = free_no_plan, .fuses = backend->fuses};
    xn_program *p = NULL;
    xn_status status = allocate(&host, steps, step_count, &p, error);
    if (status != XN_OK)
        return status;
    p->max_images = p->pass_limit = 1;
    status = trace(p, error);
    if (status == XN_OK)
        status = lay_out(p, error);
    if (status == XN_OK && p->arena_bytes > *bytes)
        *bytes = p->arena_bytes;
    xn_program_free(p);
    return status;
}

/* Steps that a backend may run as one take more, as their tensors lie side by side. */
xn_status xn_program_image_bytes(const xn_backend *const *backends, const xn_step *steps,
                                 int step_count, size_t *bytes, xn_error *error) {
    static const xn_backend alone = {0};
    *bytes = 0;
    xn_status status = image_bytes_with(&alone, steps, step_count, bytes, error);
    for (const xn_backend *const *b = backends; *b && status == XN_OK; b++)
        if ((*b)->fuses)
            status = image_bytes_with(*b, steps, step_count, bytes, error);
    return status;
}

/* ---- running ---- */

xn_status xn_program_ready(const xn_program *program, const xn_prepared *const *prepared,
                           xn_error *error) {
    const xn_backend *b = program->backend;
    xn_status status = XN_OK;
    for (int i = 0; b->weights_ready && i < program->step_count && status == XN_OK; i++)
        if (program->steps[i].weights != XN_NO_WEIGHTS)
            status =
                b->weights_ready(prepared[program->steps[i].weights], program->plans[i], error);
    return status;
}

static const xn_prepared *weights_of(const xn_step *step, const xn_prepared *const *prepared) {
    return step->weights == XN_NO_WEIGHTS ? NULL : prepared[step->weights];
}

static void *address_of(const xn_program *p, char *arena, int32_t number) {
    if (number == XN_NO_TENSOR || p->tensors[number].in_place)
        return NULL;
    return arena + p->tensors[number].offset;
}

static xn_enqueued enqueued_of(const xn_program *p, int index, const xn_prepared *const *prepared,
                               const xn_batch *batch, char *arena) {
    const xn_step *s = &p->steps[index];
    return (xn_enqueued){.plan = p->plans[index],
                         .fused = p->run[index].fused,
                         .prepared = weights_of(s, prepared),
                         .io = {.input = address_of(p, arena, s->input),
                                .residual = address_of(p, arena, s->residual),
                                .output = address_of(p, arena, s->output),
                                .bits = address_of(p, arena, s->bits),
                                .batch = batch,
                                .second = address_of(p, arena, s->second)}};
}

static xn_status check_cancelled(const xn_cancel_token *token, xn_error *error) {
    if (!token || token->wanted(token->context))
        return XN_OK;
    return xn_fail(error, XN_ERR_CANCELLED, NULL, "the run is no longer wanted");
}

static xn_status run_each(xn_program *p, const xn_run *run, const xn_cancel_token *token,
                          xn_run_times *times, xn_error *error) {
    const xn_backend *b = p->backend;
    xn_status status = b->begin(p->stream, run->batch, run->input, error);
    for (int i = 0; i < run->count && status == XN_OK; i++) {
        const xn_enqueued *step = &run->steps[i];
        status = check_cancelled(token, error);
        if (status == XN_OK)
            status = b->enqueue(step->plan, step->prepared, &step->io, error);
    }
    return status == XN_OK ? b->end(p->stream, run->batch, run->output, times, error) : status;
}

/* A device that goes on after the wait still has the stream: it is not abandoned. */
static xn_status wait_for(xn_program *p, const xn_batch *batch, int64_t until_ns,
                          xn_run_times *times, xn_error *error) {
    const xn_backend *b = p->backend;
    xn_status status = b->wait(p->stream, batch, until_ns, times, error);
    if (status != XN_OK && status != XN_ERR_DEADLINE)
        b->abandon(p->stream);
    return status;
}

static xn_status run_steps(xn_program *p, const xn_prepared *const *prepared, const xn_batch *batch,
                           char *arena, const xn_cancel_token *token, int64_t until_ns,
                           xn_run_times *times, xn_error *error) {
    const xn_backend *b = p->backend;
    const xn_run run = {.batch = batch,
                        .input = address_of(p, arena, 0),
                        .output = address_of(p, arena, p->output),
                        .steps = p->run,
                        .count = p->step_count};
    for (int i = 0; i < p->step_count; i++)
        p->run[i] = enqueued_of(p, i, prepared, batch, arena);
    xn_status status = b->run ? b->run(p->stream, &run, p->recordings, times, error)
                              : run_each(p, &run, token, times, error);
    if (status != XN_OK)
        b->abandon(p->stream);
    return status == XN_OK && b->wait ? wait_for(p, batch, until_ns, times, error) : status;
}

/* Images of items, to be taken one after another. */
typedef struct rest {
    const xn_batch_item *item;
    int64_t taken; /* of it */
} rest;

/* The next `images` images as a batch of their own. */
static xn_batch take_images(const xn_program *p, const xn_batch *all, rest *r, int64_t images) {
    xn_batch pass = {.items = p->items,
                     .images = images,
                     .input_bytes = all->input_bytes,
                     .output_bytes = all->output_bytes};
    for (int64_t wanted = images; wanted > 0;) {
        const int64_t left = r->item->images - r->taken, count = left < wanted ? left : wanted;
        const size_t before = (size_t)r->taken;
        if (count > 0)
            p->items[pass.count++] =
                (xn_batch_item){(const char *)r->item->input + before * all->input_bytes,
                                (char *)r->item->output + before * all->output_bytes, count};
        wanted -= count;
        r->taken += count;
        if (r->taken == r->item->images)
            *r = (rest){r->item + 1, 0};
    }
    return pass;
}

/* Passes of nearly equal size. */
static xn_status run_passes(xn_program *p, const xn_prepared *const *prepared,
                            const xn_batch *batch, char *arena, const xn_cancel_token *token,
                            xn_run_times *times, xn_error *error) {
    const int64_t passes = (batch->images - 1) / p->pass_images + 1;
    rest r = {batch->items, 0};
    xn_status status = XN_OK;
    if (passes == 1)
        return run_steps(p, prepared, batch, arena, token,
                         token && token->until_ns ? token->until_ns : INT64_MAX, times, error);
    for (int64_t i = 0, done = 0; i < passes && status == XN_OK; i++) {
        const int64_t images = (batch->images - done - 1) / (passes - i) + 1;
        const xn_batch pass = take_images(p, batch, &r, images);
        xn_run_times took = {0};
        status = check_cancelled(token, error);
        if (status == XN_OK)
            status = run_steps(p, prepared, &pass, arena, token, INT64_MAX, &took, error);
        done += images;
        times->upload_ns += took.upload_ns;
        times->compute_ns += took.compute_ns;
        times->download_ns += took.download_ns;
    }
    return status;
}

xn_status xn_program_run(xn_program *program, const xn_prepared *const *prepared,
                         const xn_batch_item *items, size_t count, xn_run_times *times,
                         xn_error *error) {
    return xn_program_run_cancellable(program, prepared, items, count, NULL, times, error);
}

xn_status xn_program_run_cancellable(xn_program *program, const xn_prepared *const *prepared,
                                     const xn_batch_item *items, size_t count,
                                     const xn_cancel_token *token, xn_run_times *times,
                                     xn_error *error) {
    xn_batch *batch = &program->batch;
    *batch = (xn_batch){.items = items,
                        .count = count,
                        .input_bytes = program->tensors[0].image_bytes,
                        .output_bytes = program->tensors[program->output].image_bytes};
    xn_run_times measured = {0};
    char *arena = NULL;
    for (size_t i = 0; i < count; i++)
        batch->images += items[i].images;
    if (batch->images < 1 || batch->images > program->max_images)
        return xn_fail(error, XN_ERR_INTERNAL, NULL, "a batch of %lld images on a plan for %lld",
                       (long long)batch->images, (long long)program->max_images);
    if (program->arena_bytes) {
        arena = program->backend->arena(program->stream, program->arena_bytes);
        if (!arena)
            return xn_fail(error, XN_ERR_DEVICE_MEMORY, NULL,
                           "the device has no room left for the %zu bytes of this program's "
                           "tensors",
                           program->arena_bytes);
    }
    xn_status status = run_passes(program, prepared, batch, arena, token, &measured, error);
    if (status == XN_OK && times)
        *times = measured;
    return status;
}

xn_status xn_program_wait(xn_program *program, int64_t until_ns, xn_run_times *times,
                          xn_error *error) {
    return wait_for(program, &program->batch, until_ns, times, error);
}

xn_precision xn_program_precision(const xn_program *program, const xn_prepared *const *prepared) {
    const xn_backend *b = program->backend;
    xn_precision worst = program->precision;
    for (int i = 0; b->precision && i < program->step_count; i++) {
        const xn_step *s = &program->steps[i];
        if (s->kind != XN_STEP_CONV)
            continue;
        xn_precision p = b->precision(program->plans[i], prepared[s->weights]);
        worst = p > worst ? p : worst;
    }
    return worst;
}

const xn_plan *xn_program_plan(const xn_program *program, int index) {
    return program->plans[index];
}
