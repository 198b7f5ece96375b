/* weights_given.h: the tensors of weights as a request or a file gives them, ready to be packed. */
#ifndef XN_WEIGHTS_GIVEN_H
#define XN_WEIGHTS_GIVEN_H

#include "xn_proto.h"

typedef struct xn_weights_given {
    const xn_tensor *weights, *scale, *bias; /* NULL: not given; point into this: do not copy it */
    xn_tensor tensors[3];
    void *copies[3]; /* owned: of what did not lie aligned */
} xn_weights_given;

/* Tensors that are present: where they lie, for which they must outlive *out, or copied. On failure
 * too, *out is for xn_weights_given_free. */
xn_status xn_weights_given_take(const xn_tensor_ref *weights, const xn_tensor_ref *scale,
                                const xn_tensor_ref *bias, xn_weights_given *out, xn_error *error);
void xn_weights_given_free(xn_weights_given *given); /* idempotent */

#endif
