/* programs.h: the programs one worker keeps: least recently used out. Owned and used by one thread
 * at a time (its runner's, or one in the device's exclusive section; see device.h). What they hold
 * of the host's memory, the stream's for tensors and scratch too, is counted by the admission.
 *
 * A program is made for a capacity class, not for the batch at hand: images rounded up to a power
 * of two, at most max_batch_images; a batch beyond that (one job alone) has a program of its own
 * size. So a few programs a geometry serve every batch, and the steady state makes none. */
#ifndef XN_PROGRAMS_H
#define XN_PROGRAMS_H

#include "admission.h"
#include "buffers.h"
#include "xn_program.h"

typedef struct xn_programs xn_programs;

/* max_programs: the most kept. buffers: what it keeps makes room. All but out are borrowed. */
xn_status xn_programs_create(const xn_backend *backend, xn_stream *stream, int max_programs,
                             int64_t max_batch_images, xn_admission *admission, xn_buffers *buffers,
                             xn_programs **out, xn_error *error);
void xn_programs_free(xn_programs *programs); /* NULL-safe; frees the programs, not the stream */

/* A program for that problem and at least `images` images; valid until the next get or trim. Where
 * the admission has no room, the other programs go, and it is tried once more; XN_ERR_BUSY and
 * XN_ERR_DEVICE_MEMORY are the admission's then. */
xn_status xn_programs_get(xn_programs *programs, const xn_problem *problem, int64_t images,
                          xn_program **out, xn_error *error);
void xn_programs_trim(xn_programs *programs); /* frees every program, and what the stream grew by */
int64_t xn_programs_bytes(const xn_programs *programs); /* counted for them */

int64_t xn_programs_capacity(int64_t images, int64_t max_batch_images);

#endif
