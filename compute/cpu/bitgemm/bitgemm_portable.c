/* bitgemm_portable.c: the path bitgemm on any machine, with what the compiler makes of 16-byte
 * vectors. Bits are counted by the usual sums of ever wider fields, stopped at bytes: 30 words of
 * at most 8 a byte fit before they must be folded. Three words are first added bit by bit into a
 * sum and a carry, two to count instead of three: 28 instructions for three words instead of 36. */
#include <stdint.h>

#define KERNELS xn_cpu_bitgemm_portable
#define VECTOR_BYTES 16
#define STEP_NS 3.7
#define FEW_QUERIES 4
#define FOLD_WORDS 30
#define TILE_VECTORS 2
#define TILE_FILTERS 2
#define PAIRS(x) ((x) - ((x) >> 1 & 0x55555555u))
#define QUADS(x) (((x)&0x33333333u) + ((x) >> 2 & 0x33333333u))
#define OCTETS(x) (((x) + ((x) >> 4)) & 0x0f0f0f0fu)
#define ANY(mask) (((mask)[0] | (mask)[1] | (mask)[2] | (mask)[3]) != 0)
#define COUNT(x) count_bytes(x)

typedef uint32_t count_vector __attribute__((vector_size(VECTOR_BYTES)));
static inline __attribute__((always_inline)) count_vector count_bytes(count_vector x) {
    x = PAIRS(x);
    x = QUADS(x);
    return OCTETS(x);
}

#define COUNT3(a, b, c) count_three(a, b, c)
static inline __attribute__((always_inline)) count_vector
count_three(count_vector a, count_vector b, count_vector c) {
    count_vector differ = a ^ b, sum = differ ^ c, carry = (a & b) | (differ & c);
    sum = PAIRS(sum);
    carry = PAIRS(carry);
    carry = QUADS(carry);
    sum = QUADS(sum) + carry + carry; /* at most 12 in 4 bits */
    return (sum & 0x0f0f0f0fu) + (sum >> 4 & 0x0f0f0f0fu);
}

#include "bitgemm_body.h"
