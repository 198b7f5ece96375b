/* programs.c: see programs.h. A worker meets few geometries, and a hash in front of each comparison
 * keeps the walk through the list cheap. */
#include "programs.h"

#include "list.h"
#include "xn_mem.h"

typedef struct entry {
    xn_list node;
    int64_t capacity;
    xn_problem problem;
    xn_program *program;
} entry;

struct xn_programs {
    const xn_backend *backend;
    xn_stream *stream;
    xn_admission *admission;
    xn_buffers *buffers;
    int64_t max_batch_images, bytes; /* bytes: that the admission counts */
    int max_programs, count;
    xn_list used; /* the most recently used first */
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
    xn_programs *programs = xn_mem_alloc(sizeof *programs);
    if (!programs)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for a cache of %d programs",
                       max_programs);
    *programs = (xn_programs){.backend = backend,
                              .stream = stream,
                              .admission = admission,
                              .buffers = buffers,
                              .max_batch_images = max_batch_images,
                              .max_programs = max_programs};
    xn_list_init(&programs->used);
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

static void drop(xn_programs *programs, xn_list *node) {
    entry *e = XN_ITEM(node, entry, node);
    xn_list_remove(node);
    programs->count--;
    xn_program_free(e->program);
    xn_mem_free(e);
}

void xn_programs_trim(xn_programs *programs) {
    while (programs->count > 0)
        drop(programs, programs->used.previous);
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

static entry *find(const xn_programs *programs, const xn_problem *problem, int64_t capacity) {
    for (xn_list *at = programs->used.next; at != &programs->used; at = at->next) {
        entry *e = XN_ITEM(at, entry, node);
        if (e->capacity == capacity && xn_problem_equal(&e->problem, problem))
            return e;
    }
    return NULL;
}

static xn_status make(xn_programs *programs, const xn_problem *problem, int64_t capacity,
                      xn_error *error) {
    /* Room first: the memory of the program that leaves may be what the new one needs. */
    if (programs->count == programs->max_programs)
        drop(programs, programs->used.previous);
    entry *made = xn_mem_alloc(sizeof *made);
    if (!made)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory for another program");
    *made = (entry){.capacity = capacity, .problem = *problem};
    const xn_status status = xn_program_create_within(
        programs->backend, programs->stream, problem, capacity,
        xn_admission_programs_room(programs->admission), &made->program, error);
    if (status != XN_OK) {
        xn_mem_free(made);
        return status;
    }
    xn_list_add_first(&programs->used, &made->node);
    programs->count++;
    return XN_OK;
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
    entry *found = find(programs, problem, capacity);
    if (!found)
        found = find(programs, problem, images);
    if (found) {
        xn_list_remove(&found->node);
        xn_list_add_first(&programs->used, &found->node);
    } else {
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
    *out = XN_ITEM(programs->used.next, entry, node)->program;
    return XN_OK;
}
