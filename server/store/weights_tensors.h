/* weights_tensors.h: the tensors of weights as a request or a file gives them, ready to be packed.
 */
#ifndef XN_WEIGHTS_TENSORS_H
#define XN_WEIGHTS_TENSORS_H

#include "xn_proto.h"

typedef struct xn_weights_tensors {
    const xn_tensor *weights, *scale,
        *bias; /* NULL: not tensors; point into this: do not copy it */
    xn_tensor tensors[3];
    void *copies[3]; /* owned: of what did not lie aligned */
} xn_weights_tensors;

/* Tensors that are present: where they lie, for which they must outlive *out, or copied. On failure
 * too, *out is for xn_weights_tensors_free. */
xn_status xn_weights_tensors_read(const xn_tensor_ref *weights, const xn_tensor_ref *scale,
                                  const xn_tensor_ref *bias, xn_weights_tensors *out,
                                  xn_error *error);
void xn_weights_tensors_free(xn_weights_tensors *tensors); /* idempotent */

#endif
