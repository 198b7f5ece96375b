/* epilogue.c: see epilogue.h. */
#include "epilogue.h"

#include "index.h"
#include "kmap.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 256 };

/* Factors below this would lose bits to denormals when K's unit goes into them. */
static const double least_factor = 1e-30;

void xn_cpu_epilogue_of(const xn_cpu_kernels *kernels, const xn_conv *conv,
                        const xn_weights *weights, int32_t o, xn_cpu_epilogue *out) {
    const xn_epilogue *e = &conv->epilogue;
    float factor = 1.0f;
    if (e->factor == XN_FACTOR_SCALE)
        factor = weights->scale[o];
    else if (e->factor == XN_FACTOR_ALPHA)
        factor = weights->alpha[o];
    *out = (xn_cpu_epilogue){.kernels = kernels,
                             .bias = e->bias ? weights->bias[o] : -0.0f,
                             .whole = (double)factor,
                             .unit = e->k ? xn_cpu_k_unit(conv) : 1.0,
                             .tail = {.activation = xn_cpu_activation_of(e, weights, o),
                                      .shift = e->shift ? weights->shift[o] : 0.0f,
                                      .datatype = e->datatype}};
    out->factor = (float)(out->whole * out->unit);
    if (e->k && factor != 0.0f && fabs((double)out->factor) < least_factor)
        out->factor = NAN;
}

void xn_cpu_values_again(const xn_cpu_epilogue *epilogue, const int32_t *acc, const float *sums,
                         const double *exact, int32_t n, float *v) {
    for (int32_t x = 0; x < n; x++) {
        if (isfinite(v[x]))
            continue;
        double k = 1.0;
        if (sums)
            k = isfinite(sums[x]) || !exact ? (double)sums[x] * epilogue->unit : exact[x];
        v[x] = xn_cpu_value_again(epilogue, (double)acc[x] * k);
    }
}

xn_cpu_place xn_cpu_place_of(const xn_conv *conv, const xn_cpu_image *image, int32_t o,
                             size_t pixel) {
    const xn_epilogue *e = &conv->epilogue;
    const size_t at = (size_t)o * (size_t)conv->out_height * (size_t)conv->out_width + pixel;
    const size_t bytes = xn_datatype_bytes((xn_datatype)xn_cpu_real_datatype(e));
    return (xn_cpu_place){
        .residual = e->residual ? image->residual + at * bytes : NULL,
        .real = e->datatype == XN_BITS ? NULL : image->output + at * bytes,
        .signs = e->bits && image->signs ? image->signs + at : NULL,
    };
}

void xn_cpu_finish(const xn_cpu_epilogue *epilogue, const float *v, int32_t n,
                   const xn_cpu_place *place) {
    xn_cpu_tail tail = epilogue->tail;
    tail.residual = place->residual;
    tail.real = place->real;
    tail.signs = place->signs;
    epilogue->kernels->finish(v, n, &tail);
}

void xn_cpu_finish_dots(const xn_cpu_epilogue *epilogue, const int32_t *acc, int32_t n,
                        const xn_cpu_place *place) {
    float values[CHUNK];
    xn_cpu_tail tail = epilogue->tail;
    if (place->real != acc)
        memcpy(place->real, acc, (size_t)n * sizeof *acc);
    tail.datatype = XN_BITS; /* no more reals */
    for (int32_t x = 0; place->signs && x < n; x += CHUNK) {
        int32_t part = (int32_t)xn_cpu_min(n - x, CHUNK);
        for (int32_t i = 0; i < part; i++)
            values[i] = (float)acc[x + i];
        tail.signs = place->signs + x;
        epilogue->kernels->finish(values, part, &tail);
    }
}
