/* programs.h: the programs one worker keeps: least recently used out. Owned and used by one thread
 * at a time (its worker, or one that is alone on the device; see worker.c).
 *
 * A program is made for a capacity class, not for the batch at hand: images rounded up to a power
 * of two, at most max_batch_images; a batch beyond that (one job alone) has a program of its own
 * size. So a few programs a geometry serve every batch, and the steady state makes none. */
#ifndef XN_PROGRAMS_H
#define XN_PROGRAMS_H

#include "xn_program.h"

typedef struct xn_programs xn_programs;

/* max_programs: the most kept. backend and stream: borrowed. */
xn_status xn_programs_create(const xn_backend *backend, xn_stream *stream, int max_programs,
                             int64_t max_batch_images, xn_programs **out, xn_error *error);
void xn_programs_free(xn_programs *programs); /* NULL-safe; frees the programs, not the stream */

/* A program for that problem and at least `images` images; valid until the next get or trim. */
xn_status xn_programs_get(xn_programs *programs, const xn_problem *problem, int64_t images,
                          xn_program **out, xn_error *error);
void xn_programs_trim(xn_programs *programs); /* frees every program */

int64_t xn_programs_capacity(int64_t images, int64_t max_batch_images);

#endif
