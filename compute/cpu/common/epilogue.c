/* epilogue.c: see epilogue.h. */
#include "epilogue.h"

#include "index.h"
#include "kmap.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 256 };

/* Factors below this would lose bits to denormals when K's unit goes into them. */
static const double least_factor = 1e-30;

static float factor_of(const xn_conv *conv, const xn_weights *weights, int32_t o) {
    if (conv->epilogue.factor == XN_FACTOR_NONE)
        return 1.0f;
    return conv->epilogue.factor == XN_FACTOR_SCALE
               ? weights->scale[xn_weights_value_at(weights, o)]
               : weights->alpha[o];
}

static float bias_of(const xn_conv *conv, const xn_weights *weights, int32_t o) {
    return conv->epilogue.bias ? weights->bias[xn_weights_value_at(weights, o)] : -0.0f;
}

void xn_cpu_epilogue_fill(const xn_conv *conv, const xn_weights *weights, int32_t first,
                          int32_t last, float *factor, float *bias) {
    const bool with_k = conv->epilogue.k;
    const double unit = with_k ? xn_cpu_k_unit(conv) : 1.0;
    for (int32_t o = first; o < last; o++) {
        const float whole = factor_of(conv, weights, o);
        factor[o - first] = (float)((double)whole * unit);
        if (with_k && whole != 0.0f && fabs((double)factor[o - first]) < least_factor)
            factor[o - first] = NAN;
        bias[o - first] = bias_of(conv, weights, o);
    }
}

float xn_cpu_value_again(const xn_conv *conv, const xn_weights *weights, int32_t o, double acc) {
    return (float)(acc * (double)factor_of(conv, weights, o) + (double)bias_of(conv, weights, o));
}

void xn_cpu_values_again(const xn_cpu_epilogue *e, int32_t o, const int32_t *acc, const float *sums,
                         const double *exact, int32_t n, float *v) {
    const double unit = xn_cpu_k_unit(e->conv);
    for (int32_t x = 0; x < n; x++) {
        if (isfinite(v[x]))
            continue;
        double k = 1.0;
        if (sums)
            k = isfinite(sums[x]) || !exact ? (double)sums[x] * unit : exact[x];
        v[x] = xn_cpu_value_again(e->conv, e->weights, o, (double)acc[x] * k);
    }
}

/* Of what an epilogue reads and writes: INT32, FP32 or FP16. */
static size_t real_bytes(int32_t datatype) {
    return datatype == XN_FP16 ? sizeof(uint16_t) : sizeof(float);
}

xn_cpu_place xn_cpu_place_of(const xn_conv *conv, const xn_cpu_image *image, int32_t o,
                             size_t pixel) {
    const xn_epilogue *e = &conv->epilogue;
    const size_t at = (size_t)o * (size_t)conv->out_height * (size_t)conv->out_width + pixel;
    const size_t bytes = real_bytes(e->datatype), other = real_bytes(image->residual_datatype);
    return (xn_cpu_place){
        .residual = e->residual ? image->residual + at * other : NULL,
        .residual_datatype = image->residual_datatype,
        .real = e->datatype == XN_BITS ? NULL : image->output + at * bytes,
        .signs = e->bits && image->signs ? image->signs + at : NULL,
        .pitch = (size_t)conv->out_height * (size_t)conv->out_width,
    };
}

static const float no_shift[XN_CPU_MOST_ROWS];

static xn_cpu_tail tail_of(const xn_cpu_epilogue *e, int32_t o, const xn_cpu_place *place) {
    const xn_epilogue *what = &e->conv->epilogue;
    return (xn_cpu_tail){.activation = what->activation,
                         .low = what->low,
                         .high = what->high,
                         .slope =
                             what->activation == XN_ACTIVATION_PRELU ? e->weights->slope + o : NULL,
                         .shift = what->shift ? e->weights->shift + o : no_shift,
                         .datatype = what->datatype,
                         .residual = place->residual,
                         .residual_datatype = place->residual_datatype,
                         .real = place->real,
                         .signs = place->signs,
                         .pitch = place->pitch,
                         .words = place->words,
                         .bit = place->bit,
                         .past_caches = place->past_caches};
}

static xn_cpu_acc acc_of(const xn_cpu_epilogue *e, int32_t o, xn_cpu_acc_kind kind,
                         const void *from, size_t pitch, const float *k) {
    return (xn_cpu_acc){kind, from, pitch, k, e->factor + o, e->bias + o};
}

void xn_cpu_finish(const xn_cpu_epilogue *e, int32_t o, int32_t rows, const float *v, size_t pitch,
                   int32_t n, const xn_cpu_place *place) {
    const xn_cpu_tail tail = tail_of(e, o, place);
    const xn_cpu_acc acc = {.kind = XN_CPU_VALUES, .from = v, .pitch = pitch};
    e->kernels->finish(&acc, rows, n, &tail);
}

bool xn_cpu_finish_acc(const xn_cpu_epilogue *e, int32_t o, int32_t rows, xn_cpu_acc_kind kind,
                       const void *from, size_t pitch, const float *k, int32_t n,
                       const xn_cpu_place *place) {
    const xn_cpu_tail tail = tail_of(e, o, place);
    const xn_cpu_acc acc = acc_of(e, o, kind, from, pitch, k);
    const uint32_t bits = (uint32_t)(((uint64_t)1 << rows) - 1) * place->bit;
    if (e->kernels->finish(&acc, rows, n, &tail))
        return true;
    for (int32_t x = 0; place->words && x < n; x++)
        place->words[x] &= ~bits;
    return false;
}

bool xn_cpu_make_values(const xn_cpu_epilogue *e, int32_t o, xn_cpu_acc_kind kind, const void *from,
                        const float *k, int32_t n, float *v) {
    const xn_cpu_tail tail = {.shift = no_shift, .datatype = XN_FP32, .real = v};
    const xn_cpu_acc acc = acc_of(e, o, kind, from, 0, k);
    return e->kernels->finish(&acc, 1, n, &tail);
}

void xn_cpu_finish_dots(const xn_cpu_epilogue *e, int32_t o, const int32_t *acc, int32_t n,
                        const xn_cpu_place *place) {
    float values[CHUNK];
    const xn_cpu_acc made = {.kind = XN_CPU_VALUES, .from = values};
    xn_cpu_tail tail = tail_of(e, o, place);
    if (place->real != acc)
        memcpy(place->real, acc, (size_t)n * sizeof *acc);
    tail.datatype = XN_BITS; /* no more reals */
    for (int32_t x = 0; (place->signs || place->words) && x < n; x += CHUNK) {
        int32_t part = (int32_t)xn_cpu_min(n - x, CHUNK);
        for (int32_t i = 0; i < part; i++)
            values[i] = (float)acc[x + i];
        tail.signs = place->signs ? place->signs + x : NULL;
        tail.words = place->words ? place->words + x : NULL;
        e->kernels->finish(&made, 1, part, &tail);
    }
}
