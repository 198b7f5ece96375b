/* plans.h: the plans one worker keeps: least recently used out. Owned and used by one thread at a
 * time (its worker, or one that is alone on the device; see worker.c).
 *
 * A plan is made for a capacity class, not for the batch at hand: images rounded up to a power of
 * two, at most max_batch_images; a batch beyond that (one job alone) has a plan of its own size.
 * So a few plans a geometry serve every batch, and the steady state makes none. */
#ifndef XN_PLANS_H
#define XN_PLANS_H

#include "xn_program.h"

typedef struct xn_plans xn_plans;

/* max_plans: the most kept. backend and stream: borrowed. */
xn_status xn_plans_create(const xn_backend *backend, xn_stream *stream, int max_plans,
                          int64_t max_batch_images, xn_plans **out, xn_error *error);
void xn_plans_free(xn_plans *plans); /* NULL-safe; frees the plans, not the stream */

/* A plan for that problem and at least `images` images; valid until the next get or trim. */
xn_status xn_plans_get(xn_plans *plans, const xn_problem *problem, int64_t images, xn_program **out,
                       xn_error *error);
void xn_plans_trim(xn_plans *plans); /* frees every plan */

int64_t xn_plans_capacity(int64_t images, int64_t max_batch_images);

#endif
