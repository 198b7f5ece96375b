/* many_portable.c: many channels on any machine, with what the compiler makes of 16-byte vectors.
 * Bits are counted by the usual sums of ever wider fields, stopped at bytes: 31 words of at most 8
 * a byte fit before they must be folded. */
#include <stdint.h>

#define KERNELS xn_cpu_many_portable
#define VECTOR_BYTES 16
#define STEP_NS 3.0
#define STREAM(to, v) memcpy(to, &(v), sizeof(v))
#define FOLD_WORDS 31
#define TILE_VECTORS 2
#define TILE_FILTERS 2
#define PAIRS(x) ((x) - ((x) >> 1 & 0x55555555u))
#define QUADS(x) (((x)&0x33333333u) + ((x) >> 2 & 0x33333333u))
#define OCTETS(x) (((x) + ((x) >> 4)) & 0x0f0f0f0fu)
#define COUNT(x) count_bytes(x)

typedef uint32_t count_vector __attribute__((vector_size(VECTOR_BYTES)));
static inline __attribute__((always_inline)) count_vector count_bytes(count_vector x) {
    x = PAIRS(x);
    x = QUADS(x);
    return OCTETS(x);
}

#include "many_body.h"
