/* content.c: see content.h. */
#include "content.h"

#include <string.h>
#include <xxhash.h>

xn_content_hash xn_content_hash_of(const xn_content *content, uint64_t seed) {
    XXH128_hash_t parts[XN_CONTENT_PARTS_MAX] = {{0}};
    for (size_t i = 0; i < content->count; i++)
        parts[i] = XXH3_128bits_withSeed(content->parts[i].data, content->parts[i].bytes, seed);
    const XXH128_hash_t all = XXH3_128bits_withSeed(parts, content->count * sizeof *parts, seed);
    return (xn_content_hash){all.low64, all.high64};
}

static bool part_equal(const xn_content_part *a, const xn_content_part *b) {
    return a->bytes == b->bytes && (a->bytes == 0 || !memcmp(a->data, b->data, a->bytes));
}

bool xn_content_equal(const xn_content *a, const xn_content *b) {
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (!part_equal(&a->parts[i], &b->parts[i]))
            return false;
    return true;
}

/* The parts lie in memory together, so the sum does not overflow. */
size_t xn_content_bytes(const xn_content *content) {
    size_t bytes = 0;
    for (size_t i = 0; i < content->count; i++)
        bytes += content->parts[i].bytes;
    return bytes;
}

xn_content xn_content_copy(const xn_content *content, void *memory) {
    unsigned char *at = memory;
    xn_content copy = *content;
    for (size_t i = 0; i < content->count; i++) {
        xn_content_part *part = &copy.parts[i];
        if (part->bytes)
            memcpy(at, part->data, part->bytes);
        part->data = at;
        at += part->bytes;
    }
    return copy;
}
