/* bk_run.c: devices and their paths, guarded memory, one run. Judging is in bk_judge.c. */
#include "bk_run.h"

#include "xn_mem.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { GUARD = 64, POISON = 0xa5 };

/* By backend: the free choice, then the device's paths. */
static bk_target opened[BK_BACKENDS][1 + BK_PATHS];

int bk_target_count(void) {
    int count = 0;
    while (xn_backend_all()[count])
        count++;
    return count < BK_BACKENDS ? count : BK_BACKENDS;
}

static bool required(const char *name) {
    const char *names = getenv("XNORD_TEST_REQUIRE");
    return names && strstr(names, name);
}

static void open_stream(bk_target *t) {
    xn_stream_options options = {.path = t->path};
    xn_error error = {0};
    xn_status status = t->backend->stream_create(t->device, &options, &t->stream, &error);
    ck_assert_msg(status == XN_OK, "%s stream: %s", t->name, error.message);
}

static void open_paths(const bk_target *free_choice) {
    const xn_backend *backend = free_choice->backend;
    const char *path = NULL;
    for (int i = 0; backend->device_path && (path = backend->device_path(free_choice->device, i));
         i++) {
        ck_assert_int_lt(i, BK_PATHS);
        bk_target *t = &opened[free_choice->number][1 + i];
        *t = *free_choice;
        t->path = path;
        t->path_number = i;
        snprintf(t->name, sizeof t->name, "%s:%s", backend->name, path);
        open_stream(t);
    }
}

const bk_target *bk_target_open(int index) {
    bk_target *t = &opened[index][0];
    int count = 0;
    xn_error error = {0};
    if (t->stream)
        return t;
    *t = (bk_target){.backend = xn_backend_all()[index], .number = index, .path_number = -1};
    snprintf(t->name, sizeof t->name, "%s", t->backend->name);
    xn_status status = t->backend->device_count(&count, &error);
    if ((status == XN_OK && count == 0) || status == XN_ERR_NO_DEVICE) {
        ck_assert_msg(!required(t->name), "%s is required, but there is no device: %s", t->name,
                      error.message);
        return NULL;
    }
    ck_assert_msg(status == XN_OK, "%s devices: %s", t->name, error.message);
    status = t->backend->device_open(0, &t->device, &error);
    ck_assert_msg(status == XN_OK, "%s device 0: %s", t->name, error.message);
    open_stream(t);
    open_paths(t);
    return t;
}

const bk_target *bk_target_named(const char *backend) {
    for (int i = 0; i < bk_target_count(); i++)
        if (!strcmp(xn_backend_all()[i]->name, backend))
            return bk_target_open(i);
    return NULL;
}

const bk_target *bk_target_ref(void) {
    const bk_target *ref = bk_target_named("ref");
    ck_assert_msg(ref != NULL, "this build has no backend ref");
    return ref;
}

const bk_target *bk_target_forced(const bk_target *target, int path) {
    const bk_target *t = path < BK_PATHS ? &opened[target->number][1 + path] : NULL;
    return t && t->stream ? t : NULL;
}

/* ---- the tally ---- */

static atomic_int (*tally)[1 + BK_PATHS];

void bk_tally_start(void) {
    if (tally)
        return;
    tally = mmap(NULL, sizeof *tally * BK_BACKENDS, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (tally == MAP_FAILED) { /* no test is running yet that could fail */
        perror("tally");
        exit(1);
    }
}

void bk_tally_clear(void) {
    for (int i = 0; i < BK_BACKENDS; i++)
        for (int path = 0; path < 1 + BK_PATHS; path++)
            atomic_store(&tally[i][path], 0);
}

void bk_tally_add(const bk_target *target) {
    atomic_fetch_add(&tally[target->number][1 + target->path_number], 1);
}

int bk_tally_of(const bk_target *target) {
    return atomic_load(&tally[target->number][1 + target->path_number]);
}

TCase *bk_tally_case(Suite *s, const char *name) {
    TCase *t = xn_test_case(s, name, 600);
    tcase_add_unchecked_fixture(t, bk_tally_clear, NULL);
    return t;
}

int bk_every(void) {
    const char *text = getenv("XNORD_TEST_EVERY");
    const int every = text ? atoi(text) : 1;
    return every > 1 ? every : 1;
}

void bk_expect_ok(const bk_target *target, const bk_problem *problem, const char *what,
                  xn_status status, const xn_error *error) {
    char text[BK_TEXT];
    if (status == XN_OK)
        return;
    bk_case_describe(problem->c, text);
    ck_abort_msg("%s on %s: %s: %s: %s", what, target->name, text, xn_status_name(status),
                 error->message);
}

/* ---- guarded memory ---- */

static unsigned char *host_memory(const bk_target *target, size_t bytes) {
    unsigned char *memory = target->backend->host_alloc(target->device, bytes);
    ck_assert_msg(memory != NULL, "%s: no host memory of %zu bytes", target->name, bytes);
    return memory;
}

/* Every second item starts one element past the allocation's alignment. */
static size_t offset_of(size_t item, int32_t datatype) {
    return item % 2 ? xn_datatype_bytes((xn_datatype)datatype) : 0;
}

void bk_batch_make(const bk_target *target, const bk_problem *problem, const xn_conv *conv,
                   int64_t images, int items, bk_batch *out) {
    size_t count = (size_t)(items < images ? items : images);
    const char *source = problem->input;
    *out = (bk_batch){.target = target, .problem = problem, .count = count};
    out->items = xn_mem_zalloc(count, sizeof *out->items);
    out->memory = xn_mem_zalloc(2 * count, sizeof *out->memory);
    ck_assert(out->items && out->memory);
    for (size_t i = 0; i < count; i++) {
        xn_batch_item *item = &out->items[i];
        item->images = images / (int64_t)count + ((int64_t)i < images % (int64_t)count);
        size_t in = (size_t)item->images * xn_conv_input_bytes(conv);
        size_t to = (size_t)item->images * xn_conv_output_bytes(conv);
        size_t in_offset = offset_of(i, conv->input_datatype);
        size_t to_offset = offset_of(i, conv->epilogue.datatype);
        /* nothing after the input, so that a sanitizer sees a read past it */
        unsigned char *input = host_memory(target, in_offset + in);
        unsigned char *output = host_memory(target, GUARD + to_offset + to + GUARD);
        memcpy(input + in_offset, source, in);
        source += in;
        item->input = input + in_offset;
        item->output = output + GUARD + to_offset;
        out->memory[2 * i] = input;
        out->memory[2 * i + 1] = output;
    }
}

void bk_batch_poison(bk_batch *batch, const xn_conv *conv) {
    for (size_t i = 0; i < batch->count; i++) {
        size_t bytes = (size_t)batch->items[i].images * xn_conv_output_bytes(conv);
        memset(batch->memory[2 * i + 1], POISON,
               2 * GUARD + offset_of(i, conv->epilogue.datatype) + bytes);
    }
}

static bool is_poison(const unsigned char *bytes, const unsigned char *end) {
    while (bytes < end)
        if (*bytes++ != POISON)
            return false;
    return true;
}

void bk_batch_collect(const bk_batch *batch, const xn_conv *conv, void *output) {
    char *to = output, text[BK_TEXT];
    const char *source = batch->problem->input;
    for (size_t i = 0; i < batch->count; i++) {
        const xn_batch_item *item = &batch->items[i];
        size_t bytes = (size_t)item->images * xn_conv_output_bytes(conv);
        size_t in = (size_t)item->images * xn_conv_input_bytes(conv);
        const unsigned char *start = item->output;
        bool before = is_poison(batch->memory[2 * i + 1], start);
        bool after = is_poison(start + bytes, start + bytes + GUARD);
        bool input = !memcmp(item->input, source, in);
        if (!before || !after || !input) {
            bk_case_describe(batch->problem->c, text);
            ck_abort_msg("%s wrote %s item %zu: %s", batch->target->name,
                         !input   ? "over the input of"
                         : before ? "past the output of"
                                  : "before the output of",
                         i, text);
        }
        memcpy(to, start, bytes);
        to += bytes;
        source += in;
    }
}

void bk_batch_free(bk_batch *batch) {
    for (size_t i = 0; i < 2 * batch->count; i++)
        batch->target->backend->host_free(batch->target->device, batch->memory[i]);
    xn_mem_free(batch->memory);
    xn_mem_free(batch->items);
}

/* ---- a run ---- */

xn_status bk_program_create(const bk_target *target, xn_stream *stream, const xn_conv *conv,
                            int64_t max_images, xn_program **out, xn_error *error) {
    xn_problem problem;
    xn_problem_of_conv(conv, &problem);
    return xn_program_create(target->backend, stream, &problem, max_images, out, error);
}

/* NULL where the target is held to a path that cannot run this; a plan of any other path than the
 * one asked for is a failure. */
static xn_program *program_for(const bk_target *target, const bk_problem *problem,
                               const xn_conv *conv) {
    const xn_backend *b = target->backend;
    xn_program *program = NULL;
    xn_error error = {0};
    xn_status status = bk_program_create(target, target->stream, conv,
                                         problem->images + problem->c->spare, &program, &error);
    if (target->path && status == XN_ERR_UNSUPPORTED) {
        ck_assert_str_ne(error.message, "");
        return NULL;
    }
    bk_expect_ok(target, problem, "plan", status, &error);
    if (target->path)
        ck_assert_str_eq(b->plan_path(xn_program_plan(program, 0)), target->path);
    return program;
}

xn_prepared *bk_prepare(const bk_target *target, const bk_problem *problem) {
    xn_prepared *prepared = NULL;
    xn_error error = {0};
    bk_expect_ok(
        target, problem, "prepare",
        target->backend->weights_prepare(target->device, problem->weights, &prepared, &error),
        &error);
    return prepared;
}

bool bk_run_batch(const bk_target *target, bk_batch *batch, const xn_conv *conv,
                  const xn_prepared *prepared, void *output) {
    const xn_prepared *const weights[] = {prepared};
    xn_program *program = program_for(target, batch->problem, conv);
    xn_error error = {0};
    xn_run_times times = {-1, -1, -1};
    if (!program)
        return false;
    bk_expect_ok(target, batch->problem, "ready", xn_program_ready(program, weights, &error),
                 &error);
    batch->target = target;
    bk_batch_poison(batch, conv);
    bk_expect_ok(target, batch->problem, "run",
                 xn_program_run(program, weights, batch->items, batch->count, &times, &error),
                 &error);
    ck_assert(times.upload_ns >= 0 && times.compute_ns >= 0 && times.download_ns >= 0);
    bk_batch_collect(batch, conv, output);
    xn_program_free(program);
    return true;
}

bool bk_run(const bk_target *target, const bk_problem *problem, const xn_conv *conv, void *output) {
    bk_batch batch;
    xn_prepared *prepared = bk_prepare(target, problem);
    bk_batch_make(target, problem, conv, problem->images, problem->c->items, &batch);
    bool ran = bk_run_batch(target, &batch, conv, prepared, output);
    bk_batch_free(&batch);
    target->backend->weights_free(prepared);
    return ran;
}
