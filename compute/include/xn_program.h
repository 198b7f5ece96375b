/* xn_program.h: a problem made ready to run on one stream, for up to max_images images: its steps,
 * a plan of the backend for each, and where their tensors lie. Making it allocates all it needs;
 * running it allocates nothing that it could not do without (recordings, xn_backend.h) and, on a
 * GPU, blocks the calling thread only until its own batch is done. Used by one thread at a time,
 * the stream's. */
#ifndef XN_PROGRAM_H
#define XN_PROGRAM_H

#include "xn_backend.h"
#include "xn_problem.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct xn_program xn_program;

/* Borrows the backend and the stream. Fits any prepared weights of the problem's shapes. Errors:
 * XN_ERR_DEVICE_MEMORY (ask for fewer images), XN_ERR_NO_MEMORY, XN_ERR_UNSUPPORTED,
 * XN_ERR_DEVICE_LOST. */
xn_status xn_program_create(const xn_backend *backend, xn_stream *stream, const xn_problem *problem,
                            int64_t max_images, xn_program **out, xn_error *error);
/* The same for a caller that has most_bytes for the tensors between steps: where the backend
 * takes large batches in passes, each has as few images as fit in them, but at least one. */
xn_status xn_program_create_within(const xn_backend *backend, xn_stream *stream,
                                   const xn_problem *problem, int64_t max_images, size_t most_bytes,
                                   xn_program **out, xn_error *error);
/* The same from steps (xn_step.h): tensor 0 is the input, what the last step writes is the output,
 * and no step reads a tensor before one has written it. Tensors that are not needed at the same
 * time share memory. XN_ERR_UNSUPPORTED also where the backend has no steps of some kind. */
xn_status xn_program_create_steps(const xn_backend *backend, xn_stream *stream,
                                  const xn_step *steps, int step_count, int64_t max_images,
                                  xn_program **out, xn_error *error);
void xn_program_free(xn_program *program); /* NULL-safe; before the stream */

/* Whether the backend has all the kinds of step, and takes the parts of tensors, that these need;
 * else XN_ERR_UNSUPPORTED, which names the step. A program of them may still be refused. */
xn_status xn_program_check(const xn_backend *backend, const xn_step *steps, int step_count,
                           xn_error *error);

/* The most that the tensors between these steps take for one image, on any of these backends (NULL
 * ends them). Errors:
 * XN_ERR_NO_MEMORY, XN_ERR_DEVICE_MEMORY (more than the address space). */
xn_status xn_program_image_bytes(const xn_backend *const *backends, const xn_step *steps,
                                 int step_count, size_t *bytes, xn_error *error);

/* prepared: of each of the asset's weights, by the numbers that steps have for them. Makes what the
 * plans want of them and what is not there yet; see weights_ready in xn_backend.h. Thread-safe for
 * the weights. */
xn_status xn_program_ready(const xn_program *program, const xn_prepared *const *prepared,
                           xn_error *error);

/* Runs a batch of 1 .. max_images images and returns when every output is written. Cannot fail on
 * input: only XN_ERR_DEVICE_MEMORY, XN_ERR_DEVICE_LOST or XN_ERR_INTERNAL. times may be NULL. */
xn_status xn_program_run(xn_program *program, const xn_prepared *const *prepared,
                         const xn_batch_item *items, size_t count, xn_run_times *times,
                         xn_error *error);

/* The same, with a cancellation token. The program asks `wanted` before each pass and, where the
 * backend has done a step before it takes the next, before each step. Once that is false the run
 * ends with XN_ERR_CANCELLED and undefined outputs. XN_ERR_DEADLINE, from backends with a wait:
 * until_ns has come first. The device then goes on with the run, and uses the program, the weights,
 * the items and their memory, until xn_program_wait says that it is over. A batch in several passes
 * is waited for without a bound. */
typedef struct xn_cancel_token {
    bool (*wanted)(void *context); /* quick, for there are many steps; on the caller's thread */
    void *context;
    int64_t until_ns; /* CLOCK_MONOTONIC; 0: without a bound */
} xn_cancel_token;
xn_status xn_program_run_cancellable(xn_program *program, const xn_prepared *const *prepared,
                                     const xn_batch_item *items, size_t count,
                                     const xn_cancel_token *token, xn_run_times *times,
                                     xn_error *error);

/* Goes on with the wait that XN_ERR_DEADLINE ended, until until_ns; the same results. */
xn_status xn_program_wait(xn_program *program, int64_t until_ns, xn_run_times *times,
                          xn_error *error);

/* What a run with these weights computes its products from, at worst: the problem's precision or a
 * better one. Of a network whose values or weights were rounded to FP16 (xn_network.h) that. */
xn_precision xn_program_precision(const xn_program *program, const xn_prepared *const *prepared);

/* The plan of step `index`, for its path (xn_backend.h: plan_path). Borrowed. */
const xn_plan *xn_program_plan(const xn_program *program, int index);

#ifdef __cplusplus
}
#endif
#endif
