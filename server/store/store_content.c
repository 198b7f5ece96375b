/* store_content.c: the contents of weights: hashing, comparing, keeping. The hash only finds
 * candidates; equality is always by bytes. */
#include "store_internal.h"

#include <string.h>

static xn_content_part part_of(const xn_tensor *tensor) {
    if (!tensor)
        return (xn_content_part){0};
    return (xn_content_part){true, tensor->datatype, tensor->shape, tensor->bytes, tensor->data};
}

xn_content xn_content_of(uint64_t base, const xn_tensor *weights, const xn_tensor *scale,
                         const xn_tensor *bias) {
    return (xn_content){base, {part_of(weights), part_of(scale), part_of(bias)}};
}

static xn_tensor floats(const float *values, xn_shape shape) {
    int64_t elements = 1;
    for (int i = 0; i < shape.rank; i++)
        elements *= shape.dims[i];
    return (xn_tensor){XN_FP32, shape, elements, (size_t)elements * sizeof *values, values};
}

void xn_content_values(const xn_weights *from, xn_tensor out[XN_CONTENT_PARTS]) {
    const xn_shape channels = {1, {from->out_channels}};
    out[0] = floats(
        from->real,
        (xn_shape){4, {from->out_channels, from->group_channels, from->kernel_h, from->kernel_w}});
    out[1] = floats(from->scale, channels);
    out[2] = floats(from->bias, channels);
}

/* ---- hashing: 64-bit multiply and fold over 8 bytes at a time ---- */

__extension__ typedef unsigned __int128 u128;

static uint64_t mix(uint64_t h, uint64_t word) {
    u128 product = (u128)(h ^ word ^ UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xd6e8feb86659fd93);
    return (uint64_t)product ^ (uint64_t)(product >> 64) ^ (h << 23 | h >> 41);
}

static uint64_t mix_bytes(uint64_t h, const void *data, size_t bytes) {
    const unsigned char *at = data;
    uint64_t word;
    for (; bytes >= sizeof word; bytes -= sizeof word, at += sizeof word) {
        memcpy(&word, at, sizeof word);
        h = mix(h, word);
    }
    word = 0;
    if (bytes)
        memcpy(&word, at, bytes);
    return mix(h, word);
}

static uint64_t mix_part(uint64_t h, const xn_content_part *part) {
    h = mix(h, part->present);
    if (!part->present)
        return h;
    h = mix(h, (uint64_t)part->datatype << 32 | (uint64_t)part->shape.rank);
    for (int i = 0; i < part->shape.rank; i++)
        h = mix(h, (uint64_t)part->shape.dims[i]);
    return mix_bytes(h, part->data, part->bytes);
}

uint64_t xn_content_hash(const xn_content *content, uint64_t seed) {
    uint64_t h = mix(seed, content->base);
    for (int i = 0; i < XN_CONTENT_PARTS; i++)
        h = mix_part(h, &content->parts[i]);
    return mix(h, h >> 32);
}

/* The values decide everything else, bits and alpha too, and the datatype they came in nothing. */
uint64_t xn_content_hash_values(const xn_weights *weights) {
    xn_tensor own[XN_CONTENT_PARTS];
    xn_content_values(weights, own);
    xn_content content =
        xn_content_of(0, &own[0], own[1].data ? &own[1] : NULL, own[2].data ? &own[2] : NULL);
    return xn_content_hash(&content, 0);
}

/* ---- comparing ---- */

static bool part_equal(const xn_content_part *a, const xn_content_part *b) {
    if (!a->present || !b->present)
        return a->present == b->present;
    if (a->datatype != b->datatype || a->shape.rank != b->shape.rank || a->bytes != b->bytes)
        return false;
    for (int i = 0; i < a->shape.rank; i++)
        if (a->shape.dims[i] != b->shape.dims[i])
            return false;
    return !memcmp(a->data, b->data, a->bytes);
}

bool xn_content_equal(const xn_content *a, const xn_content *b) {
    if (a->base != b->base)
        return false;
    for (int i = 0; i < XN_CONTENT_PARTS; i++)
        if (!part_equal(&a->parts[i], &b->parts[i]))
            return false;
    return true;
}

/* ---- keeping ---- */

xn_status xn_content_copy(const xn_content *content, xn_content *out, void **memory, size_t *bytes,
                          xn_error *error) {
    size_t total = 0;
    for (int i = 0; i < XN_CONTENT_PARTS; i++)
        if (content->parts[i].present && !xn_add_size(total, content->parts[i].bytes, &total))
            return xn_fail(error, XN_ERR_NO_MEMORY, "weights", "the weights are too large to keep");
    char *copy = xn_mem_alloc(total);
    if (!copy)
        return xn_fail(error, XN_ERR_NO_MEMORY, "weights", "no memory for %zu bytes of weights",
                       total);
    *out = *content;
    *memory = copy;
    *bytes = total;
    for (int i = 0; i < XN_CONTENT_PARTS; i++) {
        xn_content_part *part = &out->parts[i];
        if (!part->present)
            continue;
        memcpy(copy, part->data, part->bytes);
        part->data = copy;
        copy += part->bytes;
    }
    return XN_OK;
}
