/* thresholds.h: bits of dots by comparison: where an output is only the sign of
 * dot * factor + bias + shift, bit = dot >= least, or the opposite of that. */
#ifndef XN_CPU_THRESHOLDS_H
#define XN_CPU_THRESHOLDS_H

#include "prepared.h"

typedef struct xn_cpu_thresholds {
    int32_t *least; /* [O] */
    uint32_t *flip; /* [O / 32 + 1]: bit o % 32 of word o / 32: turned */
} xn_cpu_thresholds;

/* Whether the bits of such a convolution are known by them. */
bool xn_cpu_has_thresholds(const xn_conv *conv);

/* Those of an epilogue of which that is true. */
xn_status xn_cpu_thresholds_ready(const xn_prepared *prepared, const xn_epilogue *epilogue,
                                  xn_error *error);
/* Once that was done: */
const xn_cpu_thresholds *xn_cpu_thresholds_of(const xn_prepared *prepared,
                                              const xn_epilogue *epilogue);

#endif
