/* prepared.h: weights on the CPU. What a path wants of them beside their values is a form of them,
 * made when a plan first wants it and kept until the weights go: most plans want one form. */
#ifndef XN_CPU_PREPARED_H
#define XN_CPU_PREPARED_H

#include "xn_backend.h"

#include <pthread.h>
#include <stdatomic.h>

/* Where forms are kept: a family's number, plus the variant. */
enum {
    XN_CPU_FORM_FEW,
    XN_CPU_FORM_MANY,                        /* 3 variants: xn_cpu_bitgemm_layout */
    XN_CPU_FORM_REAL = XN_CPU_FORM_MANY + 3, /* 2 variants: as they are, as signs */
    XN_CPU_FORM_STEM = XN_CPU_FORM_REAL + 2, /* 2 variants: xn_cpu_stem_packing */
    XN_CPU_FORM_THRESHOLDS = XN_CPU_FORM_STEM + 2,
    XN_CPU_FORM_TOP_K = XN_CPU_FORM_THRESHOLDS + 12,
    XN_CPU_FORM_SLOTS
};

typedef struct xn_cpu_form {
    int slot;
    const char *what; /* for messages: "the tables" */
    /* NULL where memory is short. */
    void *(*make)(const xn_prepared *prepared, int variant);
    void (*free)(void *made); /* NULL-safe */
} xn_cpu_form;

/* Weights of one shape; all of it but the channels is 0 where they have no kernel. Immutable but
 * for the forms; shared by threads. */
struct xn_prepared {
    int32_t out_channels, group_channels, kernel_h, kernel_w;
    int32_t taps;              /* KH*KW */
    int32_t filter;            /* C/groups*KH*KW */
    const xn_weights *weights; /* borrowed */
    pthread_mutex_t making;    /* held to make a form; no other is taken under it */
    /* Each set once; whoever runs with a form has seen it set. */
    _Atomic(void *) forms[XN_CPU_FORM_SLOTS];
    const xn_cpu_form *kinds[XN_CPU_FORM_SLOTS]; /* under the mutex */
};

xn_status xn_cpu_weights_prepare(xn_device *device, const xn_weights *weights, xn_prepared **out,
                                 xn_error *error);
void xn_cpu_weights_free(xn_prepared *prepared); /* NULL-safe */

/* Makes a form that is not there yet. Thread-safe. Errors: XN_ERR_NO_MEMORY. */
xn_status xn_cpu_form_ready(const xn_prepared *prepared, const xn_cpu_form *form, int variant,
                            xn_error *error);
/* One that was made ready. */
const void *xn_cpu_form_of(const xn_prepared *prepared, const xn_cpu_form *form, int variant);

#endif
