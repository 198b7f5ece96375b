/* kernels_portable.c: the kernels for any machine, with what the compiler makes of 16-byte vectors.
 * Bits are counted by the usual sums of ever wider fields, stopped at bytes: 31 words of at most 8
 * a byte fit before they must be folded. */
#include "kernels.h"

#define KERNELS xn_cpu_kernels_portable
#define KERNELS_NAME "portable"
#define VECTOR_BYTES 16
#define FOLD_WORDS 31
#define WORD_COST 52
#define PAIRS(x) ((x) - ((x) >> 1 & 0x55555555u))
#define NIBBLES(x) (((x)&0x33333333u) + ((x) >> 2 & 0x33333333u))
#define BYTES(x) (((x) + ((x) >> 4)) & 0x0f0f0f0fu)
#define COUNT(x) count_bytes(x)

typedef uint32_t count_vector __attribute__((vector_size(VECTOR_BYTES)));
static inline __attribute__((always_inline)) count_vector count_bytes(count_vector x) {
    x = PAIRS(x);
    x = NIBBLES(x);
    return BYTES(x);
}

#include "kernels_body.h"
