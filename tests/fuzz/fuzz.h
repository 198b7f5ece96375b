/* fuzz.h: the parsers and writers as fuzz targets: functions of arbitrary bytes that abort when
 * something is wrong. They run under libFuzzer (driver/libfuzzer.c), under a plain program that
 * mutates (driver/replay.c) and, with the corpus, as a test (corpus_test.c).
 *
 * A target gets its input in memory of exactly that size, so that sanitizers see overreads. */
#ifndef XF_FUZZ_H
#define XF_FUZZ_H

#include "xn_proto.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct xf_target {
    const char *name; /* of its folder in corpus/ too */
    void (*run)(const uint8_t *data, size_t size);
} xf_target;

extern const xf_target xf_targets[]; /* ends with a NULL name */
const xf_target *xf_target_find(const char *name);

/* What runs, for the message of a failure; NULL: nothing is known. */
extern const char *xf_running;

void xf_require(bool condition, const char *what);
void *xf_alloc(size_t bytes);                  /* never NULL */
char *xf_text(const void *bytes, size_t size); /* terminated; a NUL inside ends it */
void xf_check_error(xn_status status, const xn_error *error);
/* An accepted tensor: consistent, within the body, and its values can be read or are refused. */
void xf_check_tensor(const xn_tensor_ref *ref, const char *field, const xn_proto_body *body);

#define XF_MAX_ELEMENTS 100000

/* ---- the targets ---- */
void xf_conv_json(const uint8_t *data, size_t size);
void xf_conv_oip(const uint8_t *data, size_t size);         /* "73\n": the header's length, body */
void xf_conv_safetensors(const uint8_t *data, size_t size); /* "key=value&...\n", body */
void xf_conv_raw(const uint8_t *data, size_t size);         /* the same */
void xf_query(const uint8_t *data, size_t size);            /* key=value pairs, one a line */
void xf_weights(const uint8_t *data,
                size_t size); /* "json\n", "oip 73\n" or "safetensors\n", body */
void xf_headers(const uint8_t *data, size_t size); /* Content-Type, Accept, ids, names */
void xf_number(const uint8_t *data, size_t size);
void xf_answer(const uint8_t *data, size_t size);
void xf_config(const uint8_t *data, size_t size);
void xf_keys(const uint8_t *data, size_t size);
void xf_model_config(const uint8_t *data, size_t size);  /* a config.json */
void xf_model_tensors(const uint8_t *data, size_t size); /* a model.safetensors of one */
void xf_labels(const uint8_t *data, size_t size);
void xf_oip(const uint8_t *data, size_t size);        /* "139\n": the header's length, body */
void xf_oip_bodies(const uint8_t *data, size_t size); /* "load\n", "shm\n", ..., body */
void xf_oip_answer(const uint8_t *data, size_t size);
void xf_jpeg(const uint8_t *data, size_t size);
void xf_png(const uint8_t *data, size_t size);

/* ---- mutation, where there is no libFuzzer ---- */

/* Changes data in place, at random from *state; returns the new size, at most capacity. */
size_t xf_mutate(uint64_t *state, uint8_t *data, size_t size, size_t capacity);

#endif
