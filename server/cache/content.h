/* content.h: bytes in parts, such as a request's tensors and what describes them: hashed, compared
 * and copied without being put together first. Parts are told apart: a byte that moves from one to
 * the next makes another content. */
#ifndef XN_CONTENT_H
#define XN_CONTENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { XN_CONTENT_PARTS_MAX = 4 };

typedef struct xn_content_part {
    const void *data; /* borrowed */
    size_t bytes;
} xn_content_part;

typedef struct xn_content {
    xn_content_part parts[XN_CONTENT_PARTS_MAX];
    size_t count;
} xn_content;

typedef struct xn_content_hash {
    uint64_t low, high;
} xn_content_hash;

/* XXH3-128. It finds candidates: a client that knows the seed can make collisions. */
xn_content_hash xn_content_hash_of(const xn_content *content, uint64_t seed);
bool xn_content_equal(const xn_content *a, const xn_content *b);
size_t xn_content_bytes(const xn_content *content);
/* The parts one behind the other into memory of that many bytes. Returns the content of the copy,
 * which points there. */
xn_content xn_content_copy(const xn_content *content, void *memory);

#endif
