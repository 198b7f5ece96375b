/* programs.c: see programs.h. A short array, most recently used first: a worker meets few
 * geometries, and a hash in front of each comparison keeps the scan cheap. */
#include "programs.h"

#include "xn_mem.h"

#include <string.h>

typedef struct slot {
    int64_t capacity;
    xn_problem problem;
    xn_program *program;
} slot;

struct xn_programs {
    const xn_backend *backend;
    xn_stream *stream;
    xn_admission *admission;
    xn_buffers *buffers;
    int64_t max_batch_images, bytes; /* bytes: that the admission counts */
    int max_programs, count;
    slot slots[]; /* [0, count), most recently used first */
};

int64_t xn_programs_capacity(int64_t images, int64_t max_batch_images) {
    if (images >= max_batch_images)
        return images;
    int64_t capacity = 1;
    while (capacity < images)
        capacity *= 2;
    return capacity < max_batch_images ? capacity : max_batch_images;
}

xn_status xn_programs_create(const xn_backend *backend, xn_stream *stream, int max_programs,
                             int64_t max_batch_images, xn_admission *admission, xn_buffers *buffers,
                             xn_programs **out, xn_error *error) {
    xn_programs *programs = xn_mem_alloc(sizeof *programs + (size_t)max_programs * sizeof(slot));
    if (!programs)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for a cache of %d programs",
                       max_programs);
    *programs = (xn_programs){.backend = backend,
                              .stream = stream,
                              .admission = admission,
                              .buffers = buffers,
                              .max_batch_images = max_batch_images,
                              .max_programs = max_programs};
    *out = programs;
    return XN_OK;
}

static xn_status charge(xn_programs *programs, int64_t more, xn_error *error) {
    xn_status status = xn_admission_charge_programs(programs->admission, more, error);
    if (status != XN_OK)
        return status;
    programs->bytes += more;
    xn_buffers_charge(programs->buffers, more);
    return XN_OK;
}

void xn_programs_trim(xn_programs *programs) {
    while (programs->count > 0)
        xn_program_free(programs->slots[--programs->count].program);
    if (programs->backend->stream_trim)
        programs->backend->stream_trim(programs->stream);
    (void)charge(programs, -programs->bytes, NULL);
}

int64_t xn_programs_bytes(const xn_programs *programs) {
    return programs->bytes;
}

void xn_programs_free(xn_programs *programs) {
    if (!programs)
        return;
    xn_programs_trim(programs);
    xn_mem_free(programs);
}

static int find(const xn_programs *programs, const xn_problem *problem, int64_t capacity) {
    for (int i = 0; i < programs->count; i++) {
        const slot *s = &programs->slots[i];
        if (s->capacity == capacity && xn_problem_equal(&s->problem, problem))
            return i;
    }
    return -1;
}

/* Moves [0, at) back by one and puts the slot in front. */
static void put_first(xn_programs *programs, int at, slot first) {
    memmove(&programs->slots[1], &programs->slots[0], (size_t)at * sizeof(slot));
    programs->slots[0] = first;
}

static xn_status make(xn_programs *programs, const xn_problem *problem, int64_t capacity,
                      xn_error *error) {
    slot made = {.capacity = capacity, .problem = *problem};
    /* Room first: the memory of the program that leaves may be what the new one needs. */
    if (programs->count == programs->max_programs)
        xn_program_free(programs->slots[--programs->count].program);
    xn_status status = xn_program_create_within(
        programs->backend, programs->stream, problem, capacity,
        xn_admission_programs_room(programs->admission), &made.program, error);
    if (status == XN_OK)
        put_first(programs, programs->count++, made);
    return status;
}

/* What making takes is known once it is made: no more than --max-image-bytes or, of several images
 * at once, the room that there was; and it is hardly touched before it runs. */
static xn_status make_charged(xn_programs *programs, const xn_problem *problem, int64_t capacity,
                              xn_error *error) {
    const int64_t before = xn_mem_held();
    const xn_status status = make(programs, problem, capacity, error);
    int64_t more = xn_mem_held() - before;
    if (more < -programs->bytes) /* what leaves may have grown while it ran */
        more = -programs->bytes;
    const xn_status charged = charge(programs, more, error);
    if (charged != XN_OK)
        xn_programs_trim(programs);
    return charged != XN_OK ? charged : status;
}

/* The programs that are there may be what leaves no room. */
static xn_status make_with_room(xn_programs *programs, const xn_problem *problem, int64_t capacity,
                                xn_error *error) {
    const bool others = programs->count > 0;
    const xn_status status = make_charged(programs, problem, capacity, error);
    return status != XN_OK && others && !programs->count
               ? make_charged(programs, problem, capacity, error)
               : status;
}

xn_status xn_programs_get(xn_programs *programs, const xn_problem *problem, int64_t images,
                          xn_program **out, xn_error *error) {
    int64_t capacity = xn_programs_capacity(images, programs->max_batch_images);
    int at = find(programs, problem, capacity);
    if (at < 0)
        at = find(programs, problem, images);
    if (at > 0) {
        put_first(programs, at, programs->slots[at]);
    } else if (at < 0) {
        xn_error first;
        xn_status status = make_with_room(programs, problem, capacity, &first);
        /* What rounding up asked for in vain, the batch itself may still get. */
        if ((status == XN_ERR_DEVICE_MEMORY || status == XN_ERR_BUSY) && capacity > images)
            status = make_with_room(programs, problem, images, &first);
        if (status == XN_ERR_LIMIT)
            return xn_fail_limit(error, "queue-bytes", NULL, "%.300s, half of --queue-bytes",
                                 first.message);
        if (status != XN_OK) {
            if (error)
                *error = first;
            return status;
        }
    }
    *out = programs->slots[0].program;
    return XN_OK;
}
