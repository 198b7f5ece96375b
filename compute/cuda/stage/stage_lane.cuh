/* stage_lane.cuh: what a lane of fused_stage.cuh has, its values and their signs, and how it sends
 * bits to the blocks of a cluster. */
#ifndef XN_CUDA_STAGE_LANE_CUH
#define XN_CUDA_STAGE_LANE_CUH

#include "epilogue.cuh"
#include "stage_common.cuh"
#include "stage_products.cuh"

/* ---- the lane's 4 filters by 4 pixels ---- */

template <typename Real>
struct stage_values {
    enum { VECTORS = 16 * (int)sizeof(Real) / 16 };
    uint4 v[VECTORS];

    __device__ __forceinline__ void load(const uint4 *from) {
#pragma unroll
        for (int n = 0; n < VECTORS; n++)
            v[n] = from[n * 32];
    }
    __device__ __forceinline__ float at(int filter, int pixel) const {
        const int n = filter * 4 + pixel;
        const uint32_t *words = (const uint32_t *)v;
        if constexpr (sizeof(Real) == 4)
            return __uint_as_float(words[n]);
        const __half2 pair = *(const __half2 *)&words[n / 2];
        return n % 2 ? __high2float(pair) : __low2float(pair);
    }
    /* Of each filter pixels 2 and 3 become pixels 0 and 1. */
    __device__ __forceinline__ void turn(bool really) {
        uint32_t *words = (uint32_t *)v;
#pragma unroll
        for (int n = 0; n < 4 * VECTORS; n++)
            if (n % (int)sizeof(Real) < (int)sizeof(Real) / 2)
                words[n] = really ? words[n + sizeof(Real) / 2] : words[n];
    }
    __device__ __forceinline__ void set(int filter, const float (&y)[4]) {
        uint32_t *words = (uint32_t *)v + filter * (int)sizeof(Real);
        if constexpr (sizeof(Real) == 4) {
#pragma unroll
            for (int p = 0; p < 4; p++)
                words[p] = __float_as_uint(y[p]);
        } else {
            words[0] = xn_fp16_pair(y[0], y[1]);
            words[1] = xn_fp16_pair(y[2], y[3]);
        }
    }
};

/* a + b and what it lacks, both exact. */
struct stage_sum {
    float sum, rest;

    __device__ __forceinline__ stage_sum(float a, float b) : sum(a + b) {
        const float of_b = sum - a;
        rest = (a - (sum - of_b)) + (b - of_b);
    }
};

/* The mean as fp32 has it, rounded once. Of fp16 what sums lack is exact too. */
template <typename Real>
__device__ __forceinline__ float stage_mean(float a, float b, float c, float d) {
    if (sizeof(Real) == 4)
        return (float)(((double)a + (double)b + (double)c + (double)d) * 0.25);
    const stage_sum up(a, b), low(c, d), all(up.sum, low.sum);
    const float rest = up.rest + low.rest + all.rest;
    return (fabsf(rest) > 0.0f ? all.sum + rest : all.sum) * 0.25f; /* not NaN; -0 stays */
}

/* Means of pixels 0 and 1 of 4 filters above and below. In fp16 nearly all are the same whether
 * sums are rounded down or up. */
template <typename Real>
__device__ __forceinline__ void stage_means(Real (&to)[4], const stage_values<Real> &up,
                                            const stage_values<Real> &low) {
    uint32_t differ = sizeof(Real) == 4;
    if constexpr (sizeof(Real) == 2)
#pragma unroll
        for (int f = 0; f < 4; f++) {
            const float down = __fadd_rd(__fadd_rd(up.at(f, 0), up.at(f, 1)),
                                         __fadd_rd(low.at(f, 0), low.at(f, 1)));
            const float above = __fadd_ru(__fadd_ru(up.at(f, 0), up.at(f, 1)),
                                          __fadd_ru(low.at(f, 0), low.at(f, 1)));
            const uint32_t both = xn_fp16_pair(down * 0.25f, above * 0.25f);
            differ |= both ^ __byte_perm(both, 0, 0x1032);
            to[f] = __ushort_as_half((unsigned short)both);
        }
    if (differ)
#pragma unroll
        for (int f = 0; f < 4; f++) {
            const float mean[1] = {
                stage_mean<Real>(up.at(f, 0), up.at(f, 1), low.at(f, 0), low.at(f, 1))};
            xn_store(&to[f], mean);
        }
}

/* Bit f of byte p of the result is the sign of filter f of pixel p. y: [filter][pixel]. */
__device__ __forceinline__ uint32_t stage_signs(const float (&y)[4][4], const float (&shift)[4]) {
    uint32_t of[4];
#pragma unroll
    for (int p = 0; p < 4; p++) {
        of[p] = 0;
#pragma unroll
        for (int f = 3; f >= 0; f--)
            of[p] = stage_add_sign(of[p], y[f][p], shift[f]);
    }
    const uint32_t low = __byte_perm(of[0], of[1], 0x1140);
    return __byte_perm(low, __byte_perm(of[2], of[3], 0x1140), 0x5410);
}

/* Of the signs of the 8 lanes with the same q: lane g gets those of pixel 2 (g % 2) + g / 2 % 2, by
 * way of lanes 4 (g / 4) and the three behind it, which have 16 of the filters. */
struct stage_exchange {
    uint32_t shift, select, halves;

    __device__ __forceinline__ stage_exchange() {
        const uint32_t odd = threadIdx.x / 4 % 2, upper = threadIdx.x / 8 % 2;
        const uint32_t own = 2 * odd + upper, other = own + 4;
        shift = stage_keep(odd * 4);
        select = stage_keep(upper ? other | own << 4 : own | other << 4);
        halves = stage_keep(threadIdx.x % 32 < 16 ? 0x5410 : 0x1054);
    }
    /* Of all 32 filters; lanes l and l + 16 have the same pixel. */
    __device__ __forceinline__ uint32_t operator()(uint32_t signs) const {
        signs <<= shift;
        signs |= __shfl_xor_sync(0xffffffffu, signs, 4);
        signs = __byte_perm(signs, __shfl_xor_sync(0xffffffffu, signs, 8), select);
        return __byte_perm(signs, __shfl_xor_sync(0xffffffffu, signs, 16), halves);
    }
};

/* Of three words: a bit's sum is `ones` and twice `twos`. */
struct stage_adder {
    uint32_t ones, twos;

    __device__ __forceinline__ stage_adder(uint32_t a, uint32_t b, uint32_t c)
        : ones(a ^ b ^ c), twos((a & b) | (c & (a | b))) {
    }
};

/* ---- clusters ---- */

/* All blocks of a cluster, once they have begun, and what they have written before. */
__device__ __forceinline__ void stage_arrive(int32_t cluster) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if (cluster > 1)
        asm volatile("barrier.cluster.arrive;" ::: "memory");
#endif
}
__device__ __forceinline__ void stage_wait(int32_t cluster) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if (cluster > 1)
        asm volatile("barrier.cluster.wait;" ::: "memory");
#endif
}

/* To the same shared address of a block of the cluster, whose barrier, `to_barrier` behind the
 * address, counts the bytes. */
__device__ __forceinline__ void stage_store_to(uint32_t address, int32_t rank, uint32_t to_barrier,
                                               uint32_t value) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("{ .reg .b32 there, barrier; mapa.shared::cluster.u32 there, %0, %1;\n"
                 "add.u32 barrier, there, %2;\n"
                 "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [there], %3, "
                 "[barrier]; }" ::"r"(address),
                 "r"(rank), "r"(to_barrier), "r"(value)
                 : "memory");
#endif
}

#endif
