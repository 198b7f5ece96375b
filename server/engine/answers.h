/* answers.h: the answer cache as the engine has it: what a job's output is a function of, and what
 * a job that needs no run looks like. */
#ifndef XN_ANSWERS_H
#define XN_ANSWERS_H

#include "job.h"
#include "services.h"

/* services->answers, also for the store; limit_bytes 0: no cache. */
xn_status xn_answers_create(xn_services *services, int64_t limit_bytes, xn_error *error);

/* See xn_engine_cache_lookup, xn_engine_cache_is_slow and xn_engine_cache_insert. */
bool xn_answers_lookup(const xn_services *services, xn_job *job);
bool xn_answers_are_slow(const xn_services *services, size_t bytes);
void xn_answers_insert(const xn_services *services, xn_job *job);

#endif
