/* weights.cu: weights onto a device, in every layout a kernel may want (layout.h): one host buffer
 * filled, one allocation, one copy; what the matrix units take of modes bwn and float is made of it
 * on the device when a plan first wants it. Independent of stride, padding, dilation and groups. */
#include "xn_cuda.h"

#include <algorithm>
#include <math.h>

/* Where the parts lie in the allocation, in bytes. */
struct parts {
    size_t rows, wide, lines, rails, wide_prefix, patches, fields, prefix, real, alpha, scale, bias,
        exponent;
    size_t total;
    int64_t row_words, taps, chunks, wide_rows; /* chunks: 0 without the wide layout */
    int64_t rails_chunks;                       /* likewise */
    int32_t patch_words, field_words;
};

static bool add_part(struct parts *p, size_t count, size_t each, size_t *offset) {
    size_t bytes;
    *offset = p->total;
    return xn_mul_size(count, each, &bytes) && xn_add_size(bytes, XN_CUDA_ALIGNMENT - 1, &bytes) &&
           xn_add_size(p->total, bytes / XN_CUDA_ALIGNMENT * XN_CUDA_ALIGNMENT, &p->total);
}

static bool lay_out(const xn_weights *w, const xn_device *device, struct parts *p) {
    const size_t filters = (size_t)w->out_channels;
    size_t row_bytes, wide_bytes, rails_bytes, patch_bytes, prefix_bytes, real_bytes;
    *p = {};
    p->taps = (int64_t)w->kernel_h * w->kernel_w;
    p->row_words = xn_cuda_row_words(w->group_channels, w->kernel_h, w->kernel_w);
    p->patch_words = xn_cuda_patch_words(w->group_channels, w->kernel_h, w->kernel_w);
    p->field_words = xn_cuda_field_words(w->group_channels, w->kernel_h, w->kernel_w);
    p->chunks = device->wide ? w->kernel_h * xn_cuda_row_chunks(w->group_channels, w->kernel_w) : 0;
    p->rails_chunks =
        device->wide ? xn_cuda_dual_rail_chunks(w->group_channels, w->kernel_h, w->kernel_w) : 0;
    p->wide_rows = xn_cuda_wgmma_rows(w->out_channels);
    patch_bytes = (size_t)p->patch_words * sizeof(uint32_t);
    bool fits =
        xn_mul_size((size_t)p->row_words, sizeof(uint32_t), &row_bytes) &&
        xn_mul_size((size_t)(p->chunks + 3) / 4, 64, &wide_bytes) &&
        xn_mul_size((size_t)(p->rails_chunks + 3) / 4, 64, &rails_bytes) &&
        xn_mul_size(((size_t)w->kernel_h + 1) * ((size_t)w->kernel_w + 1), sizeof(int32_t),
                    &prefix_bytes) &&
        xn_mul_size((size_t)p->taps, (size_t)w->group_channels * sizeof(float), &real_bytes) &&
        add_part(p, filters, row_bytes, &p->rows) &&
        add_part(p, (size_t)p->wide_rows, wide_bytes, &p->wide) &&
        add_part(p, (size_t)p->wide_rows, wide_bytes, &p->lines) &&
        add_part(p, (size_t)p->wide_rows, rails_bytes, &p->rails) &&
        add_part(p, device->wide ? filters : 0, prefix_bytes, &p->wide_prefix) &&
        add_part(p, filters, patch_bytes, &p->patches) &&
        add_part(p, filters, (size_t)p->field_words * sizeof(uint32_t), &p->fields) &&
        add_part(p, filters, prefix_bytes, &p->prefix) &&
        add_part(p, filters, real_bytes, &p->real) &&
        add_part(p, filters, sizeof(float), &p->alpha) &&
        add_part(p, w->scale ? filters : 0, sizeof(float), &p->scale) &&
        add_part(p, w->bias ? filters : 0, sizeof(float), &p->bias) &&
        add_part(p, filters, sizeof(int32_t), &p->exponent);
    return fits;
}

/* ---- filling, one filter at a time; out is zero-filled ---- */

static void fill_row(const xn_weights *w, int64_t taps, const uint32_t *bits, uint32_t *out) {
    const int32_t tap_words = xn_packed_words(w->group_channels);
    for (int64_t tap = 0; tap < taps; tap++)
        for (int32_t word = 0; word < w->words; word++)
            out[tap * tap_words + word] = bits[tap * w->words + word];
}

typedef int64_t (*chunk_function)(int32_t i, int32_t j, int32_t word, int32_t tap_words,
                                  int32_t kernel_h, int32_t kernel_w);

static void fill_wide(const xn_weights *w, const struct parts *p, chunk_function chunk_of,
                      int64_t row, const uint32_t *bits, uint32_t *out) {
    const int32_t tap_words = xn_packed_words(w->group_channels);
    for (int32_t i = 0; i < w->kernel_h; i++)
        for (int32_t j = 0; j < w->kernel_w; j++)
            for (int32_t word = 0; word < w->words; word++) {
                const int64_t at = (int64_t)j * tap_words + word;
                const int64_t chunk = chunk_of(i, j, word, tap_words, w->kernel_h, w->kernel_w);
                out[xn_cuda_wgmma_word(chunk, row, p->wide_rows) + at % 4] =
                    bits[((int64_t)i * w->kernel_w + j) * w->words + word];
            }
}

static void fill_rails(const xn_weights *w, const struct parts *p, int64_t row,
                       const uint32_t *bits, uint32_t *out) {
    const xn_cuda_dual_rail r = xn_cuda_dual_rail_of(w->group_channels);
    for (int32_t i = 0; i < w->kernel_h; i++)
        for (int32_t j = 0; j < w->kernel_w; j++)
            for (int32_t word = 0; word < w->words; word++, bits++) {
                const uint32_t live = xn_cuda_low_bits(std::min(w->group_channels - word * 32, 32));
                for (int32_t rail = 0; rail < 2; rail++) {
                    const int32_t at = rail * r.words + word;
                    const int64_t chunk = xn_cuda_unit_chunk(i, j, at, w->kernel_h, w->kernel_w);
                    out[xn_cuda_wgmma_word(chunk, row, p->wide_rows) + at % 4] =
                        rail ? ~*bits & live : *bits;
                }
            }
}

/* At most 8 channels, so a tap is one word. */
static void fill_patch(const xn_weights *w, int64_t taps, const uint32_t *bits, uint32_t *out) {
    for (int32_t c = 0; c < w->group_channels; c++)
        for (int64_t tap = 0; tap < taps; tap++) {
            int64_t at = c * taps + tap;
            out[at / 32] |= (bits[tap] >> c & 1u) << at % 32;
        }
}

/* Up to 32 channels. A field does not cross words: its bits are a power of 2. */
static void fill_fields(const xn_weights *w, const uint32_t *bits, uint32_t *out) {
    const int32_t log2 = xn_cuda_field_log2(w->group_channels);
    const int64_t row_words = xn_cuda_field_row_words(w->group_channels, w->kernel_w);
    for (int32_t i = 0; i < w->kernel_h; i++, out += row_words)
        for (int32_t j = 0; j < w->kernel_w; j++)
            out[(j << log2) / 32] |= *bits++ << (j << log2) % 32;
}

static void fill_prefix(const xn_weights *w, const uint32_t *bits, int32_t *out) {
    const int64_t pitch = (int64_t)w->kernel_w + 1;
    for (int32_t i = 0; i < w->kernel_h; i++) {
        int32_t row = 0;
        for (int32_t j = 0; j < w->kernel_w; j++) {
            const uint32_t *tap = bits + ((int64_t)i * w->kernel_w + j) * w->words;
            for (int32_t word = 0; word < w->words; word++)
                row += __builtin_popcount(tap[word]);
            out[(i + 1) * pitch + j + 1] = out[i * pitch + j + 1] + row;
        }
    }
}

static void fill_floats(char *out, const float *values, int64_t count) {
    for (int64_t i = 0; values && i < count; i++)
        ((float *)out)[i] = values[i];
}

/* The power of 2 that a filter is divided by so that its largest weight is from 2^14 to 2^15: in
 * fp16 none overflows then, and only those 2^28 times smaller lose bits. */
static int32_t exponent_of(const float *weights, int64_t count) {
    float largest = 0.0f;
    for (int64_t i = 0; i < count; i++)
        largest = fmaxf(largest, fabsf(weights[i]));
    return largest > 0.0f && isfinite(largest) ? ilogbf(largest) - 14 : 0;
}

static void fill(const xn_weights *w, const struct parts *p, char *out) {
    const int64_t prefix = ((int64_t)w->kernel_h + 1) * ((int64_t)w->kernel_w + 1);
    for (int64_t o = 0; o < w->out_channels; o++) {
        const uint32_t *bits = w->bits + o * p->taps * w->words;
        fill_row(w, p->taps, bits, (uint32_t *)(out + p->rows) + o * p->row_words);
        if (p->chunks) {
            fill_wide(w, p, xn_cuda_stationary_chunk, xn_cuda_wgmma_row((int32_t)o), bits,
                      (uint32_t *)(out + p->wide));
            fill_wide(w, p, xn_cuda_padded_chunk, o, bits, (uint32_t *)(out + p->lines));
            fill_rails(w, p, o, bits, (uint32_t *)(out + p->rails));
        }
        if (p->patch_words)
            fill_patch(w, p->taps, bits, (uint32_t *)(out + p->patches) + o * p->patch_words);
        if (p->field_words)
            fill_fields(w, bits, (uint32_t *)(out + p->fields) + o * p->field_words);
        fill_prefix(w, bits, (int32_t *)(out + p->prefix) + o * prefix);
        ((int32_t *)(out + p->exponent))[o] =
            exponent_of(w->real + o * p->taps * w->group_channels, p->taps * w->group_channels);
        for (int64_t i = 0; p->chunks && i < prefix; i++)
            ((int32_t *)(out + p->wide_prefix))[i * w->out_channels + o] =
                ((const int32_t *)(out + p->prefix))[o * prefix + i];
    }
    fill_floats(out + p->real, w->real, p->taps * w->group_channels * w->out_channels);
    fill_floats(out + p->alpha, w->alpha, w->out_channels);
    fill_floats(out + p->scale, w->scale, w->out_channels);
    fill_floats(out + p->bias, w->bias, w->out_channels);
}

/* ---- device memory ---- */

static cudaError_t allocate(const xn_device *device, size_t bytes, void **memory) {
    return device->pool ? cudaMallocFromPoolAsync(memory, bytes, device->pool, device->setup)
                        : cudaMalloc(memory, bytes);
}

/* NULL-safe. */
static void release(const xn_device *device, void *memory) {
    if (memory)
        (void)xn_cuda_check(device->pool ? cudaFreeAsync(memory, device->setup) : cudaFree(memory),
                            "freeing weights", NULL);
}

static xn_status upload(xn_device *device, const struct parts *p, const char *staging,
                        void **memory, xn_error *error) {
    xn_status status =
        xn_cuda_check(allocate(device, p->total, memory), "allocating weights on the GPU", error);
    if (status)
        return status;
    status = xn_cuda_check(
        cudaMemcpyAsync(*memory, staging, p->total, cudaMemcpyHostToDevice, device->setup),
        "uploading weights", error);
    if (status == XN_OK)
        status = xn_cuda_check(cudaStreamSynchronize(device->setup), "uploading weights", error);
    return status;
}

static bool all_finite(const float *values, int64_t count) {
    int64_t finite = 0;
    for (int64_t i = 0; i < count; i++)
        finite += isfinite(values[i]) != 0;
    return finite == count;
}

static void point_at_parts(const xn_weights *w, const struct parts *p, xn_prepared *prepared) {
    const char *base = (const char *)prepared->memory;
    prepared->out_channels = w->out_channels;
    prepared->group_channels = w->group_channels;
    prepared->taps = p->taps;
    prepared->rows = (const uint32_t *)(base + p->rows);
    prepared->wide = p->chunks ? base + p->wide : NULL;
    prepared->lines = p->chunks ? base + p->lines : NULL;
    prepared->rails = p->chunks ? base + p->rails : NULL;
    prepared->wide_rows = p->wide_rows;
    prepared->wide_prefix = (const int32_t *)(base + p->wide_prefix);
    prepared->patches = p->patch_words ? (const uint32_t *)(base + p->patches) : NULL;
    prepared->fields = p->field_words ? (const uint32_t *)(base + p->fields) : NULL;
    prepared->prefix = (const int32_t *)(base + p->prefix);
    prepared->real = (const float *)(base + p->real);
    prepared->alpha = (const float *)(base + p->alpha);
    prepared->mma_exponent = (const int32_t *)(base + p->exponent);
    prepared->finite = all_finite(w->real, p->taps * w->group_channels * w->out_channels);
    prepared->scale = w->scale ? (const float *)(base + p->scale) : NULL;
    prepared->bias = w->bias ? (const float *)(base + p->bias) : NULL;
}

xn_status xn_cuda_weights_prepare(xn_device *device, const xn_weights *weights, xn_prepared **out,
                                  xn_error *error) {
    struct parts parts;
    xn_prepared *prepared = NULL;
    char *staging = NULL;
    xn_status status = xn_cuda_device_use(device, error);
    if (status)
        return status;
    if (!lay_out(weights, device, &parts))
        return xn_fail(error, XN_ERR_NO_MEMORY, "weights",
                       "the packed weights pass the address space");
    staging = (char *)xn_mem_zalloc(1, parts.total);
    prepared = (xn_prepared *)xn_mem_zalloc(1, sizeof *prepared);
    if (prepared) {
        prepared->device = device;
        (void)pthread_mutex_init(&prepared->making, NULL); /* cannot fail without attributes */
    }
    if (!staging || !prepared) {
        status = xn_fail(error, XN_ERR_NO_MEMORY, "weights",
                         "no host memory for %zu bytes of packed weights", parts.total);
        goto done;
    }
    fill(weights, &parts, staging);
    status = upload(device, &parts, staging, &prepared->memory, error);
    if (status)
        goto done;
    point_at_parts(weights, &parts, prepared);
    *out = prepared;
    prepared = NULL;
done:
    xn_cuda_weights_free(prepared);
    xn_mem_free(staging);
    return status;
}

void xn_cuda_weights_free(xn_prepared *prepared) {
    if (!prepared)
        return;
    (void)xn_cuda_device_use(prepared->device, NULL);
    for (int i = 0; i < XN_CUDA_MMA_PRECISIONS * XN_CUDA_MMA_MODES; i++)
        release(prepared->device, prepared->mma[i / XN_CUDA_MMA_MODES][i % XN_CUDA_MMA_MODES]);
    release(prepared->device, prepared->memory);
    (void)pthread_mutex_destroy(&prepared->making);
    xn_mem_free(prepared);
}

/* ---- filters for real_mma.cu ---- */

static void **mma_slot(const xn_prepared *prepared, const xn_conv *c) {
    return &prepared->mma[c->precision - XN_PRECISION_TF32][c->mode == XN_MODE_FLOAT];
}

const void *xn_cuda_mma_filters_of(const xn_prepared *prepared, const xn_conv *c) {
    return __atomic_load_n(mma_slot(prepared, c), __ATOMIC_ACQUIRE);
}

/* From the real weights and exponents, which are on the device already. */
static xn_status make_mma_filters(const xn_prepared *prepared, const xn_conv *c, xn_error *error) {
    const xn_device *device = prepared->device;
    const int64_t row_bytes =
        xn_cuda_mma_row_bytes(c->precision, prepared->group_channels, prepared->taps);
    size_t bytes;
    void *memory = NULL;
    if (!xn_mul_size((size_t)prepared->out_channels, (size_t)row_bytes, &bytes))
        return xn_fail(error, XN_ERR_DEVICE_MEMORY, "weights",
                       "the converted weights pass the address space");
    xn_status status = xn_cuda_check(allocate(device, bytes, &memory),
                                     "allocating converted weights on the GPU", error);
    if (status)
        return status;
    xn_cuda_mma_filters f = {};
    f.precision = c->precision;
    f.out_channels = prepared->out_channels;
    f.group_channels = prepared->group_channels;
    f.taps = prepared->taps;
    f.real = prepared->real;
    f.exponent = c->precision == XN_PRECISION_FP16 ? prepared->mma_exponent : NULL;
    f.signs = c->mode == XN_MODE_BWN;
    f.out = memory;
    cudaError_t result = xn_cuda_mma_filters_launch(&f, device->setup);
    if (result == cudaSuccess)
        result = cudaStreamSynchronize(device->setup);
    status = xn_cuda_check(result, "converting weights", error);
    if (status)
        release(device, memory);
    else
        __atomic_store_n(mma_slot(prepared, c), memory, __ATOMIC_RELEASE);
    return status;
}

xn_status xn_cuda_weights_ready(const xn_prepared *prepared, const xn_plan *plan, xn_error *error) {
    if (!xn_cuda_wants_matrix_units(plan, prepared) ||
        xn_cuda_mma_filters_of(prepared, &plan->conv))
        return XN_OK;
    xn_status status = xn_cuda_device_use(prepared->device, error);
    if (status)
        return status;
    pthread_mutex_lock(&prepared->making);
    if (!xn_cuda_mma_filters_of(prepared, &plan->conv))
        status = make_mma_filters(prepared, &plan->conv, error);
    pthread_mutex_unlock(&prepared->making);
    return status;
}
