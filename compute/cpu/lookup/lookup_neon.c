/* lookup_neon.c: the kernels of lookup for arm64, where NEON is always there: TBL looks up 16
 * bytes at a time. */
typedef int xn_cpu_not_empty; /* ISO C wants a declaration on other machines too */

#if defined(__aarch64__)
#include <arm_neon.h>

#include "lookup_kernels.h"

#define LOOKUP_KERNELS xn_cpu_lookup_neon
#define VECTOR_BYTES 16
#define LOOK_UP_NS 0.65 /* not measured */
#define LOAD_TABLE(from) (vector_u8) vld1q_u8(from)
#define LOOK_UP(table, patterns) (vector_u8) vqtbl1q_u8((uint8x16_t)(table), (uint8x16_t)(patterns))
#define SIGN_BYTES(v) (vector_u8) sign_bytes(v)
#define WIDEN(v, q) (vector_f32) widen((int8x16_t)(v), q)
#define MOST(a, b) (vector_u32) vmaxq_u32((uint32x4_t)(a), (uint32x4_t)(b))
#define STREAM(to, v) vst1q_f32(to, (float32x4_t)(v))
#define TAKE NULL
#define TILE NULL

/* Comparisons give lanes of all ones; every second 16-bit part, then every second byte, of them. */
static inline __attribute__((always_inline)) uint8x16_t sign_bytes(const void *from) {
    const float32x4_t *v = from;
    uint16x8_t m[4];
    for (int q = 0; q < 4; q++)
        m[q] = vreinterpretq_u16_u32(vcgezq_f32(v[q]));
    uint8x16_t low = vreinterpretq_u8_u16(vuzp1q_u16(m[0], m[1]));
    uint8x16_t high = vreinterpretq_u8_u16(vuzp1q_u16(m[2], m[3]));
    return vandq_u8(vuzp1q_u8(low, high), vdupq_n_u8(1));
}

static inline __attribute__((always_inline)) float32x4_t widen(int8x16_t v, const int q) {
    int16x8_t half = q < 2 ? vmovl_s8(vget_low_s8(v)) : vmovl_high_s8(v);
    return vcvtq_f32_s32(q % 2 ? vmovl_high_s16(half) : vmovl_s16(vget_low_s16(half)));
}

#include "lookup_body.h"
#endif
