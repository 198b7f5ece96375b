/* step.c: see xn_step.h. */
#include "xn_step.h"

#include <string.h>

void xn_step_of_conv(const xn_conv *conv, xn_step *out) {
    memset(out, 0, sizeof *out);
    out->kind = XN_STEP_CONV;
    out->residual = XN_NO_TENSOR;
    out->output = conv->epilogue.datatype == XN_BITS ? XN_NO_TENSOR : 1;
    out->bits = conv->epilogue.bits ? 1 : XN_NO_TENSOR;
    out->conv = *conv;
}
