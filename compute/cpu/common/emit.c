/* emit.c: from accumulators to output elements: factor, K, bias, datatype. In fp32, in the order
 * of xn_epilogue_value, but for three cases that are computed in double because fp32 would lose a
 * finite result: factors so large that acc * factor overflows before a small K brings it back, a
 * bias that brings back a product which overflows, and sums that come in double because fp32
 * overflowed on the way. */
#include "cpu.h"
#include "xn_arith.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { EMIT_CHUNK = 256 };

/* A smaller one moves what overflows by less than a unit of FLT_MAX's last place, 2^104. */
static const float least_counter = 0x1p103f;

void xn_cpu_epilogue_of(const xn_conv *conv, const xn_prepared *prepared, int32_t o,
                        xn_cpu_epilogue *out) {
    float factor = 1.0f;
    if (conv->epilogue.factor == XN_FACTOR_SCALE)
        factor = prepared->scale[o];
    else if (conv->epilogue.factor == XN_FACTOR_ALPHA)
        factor = prepared->alpha[o];
    out->factor = factor;
    out->bias = conv->epilogue.bias ? prepared->bias[o] : 0.0f;
    out->wide = conv->epilogue.k && fabs((double)factor) * prepared->filter > (double)FLT_MAX;
    out->counter = conv->epilogue.factor != XN_FACTOR_NONE && fabsf(out->bias) >= least_counter;
    out->datatype = conv->epilogue.datatype;
}

static void finish_i32(const xn_cpu_kernels *kernels, const xn_cpu_epilogue *epilogue,
                       const int32_t *acc, const float *k, int32_t n, float *dst) {
    if (xn_cpu_fits_fp32(epilogue, k != NULL)) {
        kernels->emit_i32(acc, k, epilogue->factor, epilogue->bias, n, dst);
        return;
    }
    for (int32_t x = 0; x < n; x++)
        dst[x] = (float)((double)acc[x] * epilogue->factor * (k ? k[x] : 1.0f) + epilogue->bias);
}

static void finish_f32(const xn_cpu_kernels *kernels, const xn_cpu_epilogue *epilogue,
                       const float *acc, int32_t n, float *dst) {
    if (!epilogue->counter) {
        kernels->emit_f32(acc, epilogue->factor, epilogue->bias, n, dst);
        return;
    }
    for (int32_t x = 0; x < n; x++)
        dst[x] = (float)((double)acc[x] * epilogue->factor + epilogue->bias);
}

void xn_cpu_emit_i32(const xn_cpu_kernels *kernels, const xn_cpu_epilogue *epilogue,
                     const int32_t *acc, const float *k, int32_t n, void *dst) {
    if (epilogue->datatype == XN_INT32) {
        memcpy(dst, acc, (size_t)n * sizeof *acc);
        return;
    }
    if (epilogue->datatype == XN_FP32) {
        finish_i32(kernels, epilogue, acc, k, n, dst);
        return;
    }
    float values[EMIT_CHUNK];
    for (int32_t x = 0; x < n; x += EMIT_CHUNK) {
        int32_t part = (int32_t)xn_cpu_min(n - x, EMIT_CHUNK);
        finish_i32(kernels, epilogue, acc + x, k ? k + x : NULL, part, values);
        kernels->to_fp16(values, part, (uint16_t *)dst + x);
    }
}

void xn_cpu_emit_f32(const xn_cpu_kernels *kernels, const xn_cpu_epilogue *epilogue,
                     const float *acc, int32_t n, void *dst) {
    if (epilogue->datatype == XN_FP32) {
        finish_f32(kernels, epilogue, acc, n, dst);
        return;
    }
    float values[EMIT_CHUNK];
    for (int32_t x = 0; x < n; x += EMIT_CHUNK) {
        int32_t part = (int32_t)xn_cpu_min(n - x, EMIT_CHUNK);
        finish_f32(kernels, epilogue, acc + x, part, values);
        kernels->to_fp16(values, part, (uint16_t *)dst + x);
    }
}

void xn_cpu_emit_f64(const xn_cpu_epilogue *epilogue, const double *acc, int32_t n, void *dst) {
    float *reals = dst;
    uint16_t *halves = dst;
    for (int32_t x = 0; x < n; x++) {
        float value = (float)(acc[x] * epilogue->factor + epilogue->bias);
        if (epilogue->datatype == XN_FP32)
            reals[x] = value;
        else
            halves[x] = xn_fp32_to_fp16(value);
    }
}
