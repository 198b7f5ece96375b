/* lists.cuh: keys of candidates, and lists of them in shared memory that all warps of a block put
 * into (top_k.h). */
#ifndef XN_CUDA_LISTS_CUH
#define XN_CUDA_LISTS_CUH

#include "epilogue.cuh"

#include <limits.h>

#define XN_ALL_LANES 0xffffffffu
#define XN_NO_KEY 0xffffffffffffffffull /* greater than any key */
#define XN_RANK_OF_NAN 0xfffffffeu      /* greater than that of any number */

/* The less the better. 0 and -0 have one rank. */
__device__ __forceinline__ uint32_t xn_rank_of(float value, bool largest) {
    const uint32_t bits = __float_as_uint(value + 0.0f);
    const uint32_t rising = bits >> 31 ? ~bits : bits | 0x80000000u;
    return isnan(value) ? XN_RANK_OF_NAN : largest ? ~rising : rising;
}

__device__ __forceinline__ float xn_rank_value(uint32_t rank, bool largest) {
    const uint32_t rising = largest ? ~rank : rank;
    return rank == XN_RANK_OF_NAN ? NAN
                                  : __uint_as_float(rising >> 31 ? rising & 0x7fffffffu : ~rising);
}

/* y of an accumulator, which position's factor, bias and slope make of it. */
__device__ __forceinline__ float xn_ranked_value(const xn_epilogue_args &e, int64_t position,
                                                 float acc) {
    const xn_filter f = xn_filter_of(e, position);
    const float v = xn_value_or_again(e, f, position, acc, 1.0f, [] { return 1.0; });
    return xn_activate(e, position, v);
}

__device__ __forceinline__ uint64_t xn_key_of(const xn_epilogue_args &e, int64_t position,
                                              float acc, bool largest) {
    return (uint64_t)xn_rank_of(xn_ranked_value(e, position, acc), largest) << 32 |
           (uint32_t)position;
}

/* Of a power of 2 of keys, by a warp. */
__device__ __forceinline__ void xn_sort_keys(volatile uint64_t *keys, int32_t count) {
    const int32_t lane = (int32_t)threadIdx.x % 32;
#pragma unroll 1
    for (int32_t size = 2; size <= count; size *= 2)
#pragma unroll 1
        for (int32_t apart = size / 2; apart; apart /= 2) {
#pragma unroll 1
            for (int32_t i = lane; i < count / 2; i += 32) {
                const int32_t at = 2 * i - (i & (apart - 1));
                const uint64_t one = keys[at], other = keys[at + apart];
                if ((one > other) == !(at & size)) {
                    keys[at] = other;
                    keys[at + apart] = one;
                }
            }
            __syncwarp();
        }
}

/* A list of `room` keys for each query; what is not taken is XN_NO_KEY. Warps do not wait for each
 * other: who gets a place writes there at once; who gets the first place past the room waits until
 * all are written, sorts, and gives back those behind the k best. */
struct xn_lists {
    uint64_t *keys; /* [queries][room] */
    uint64_t *last; /* [queries]: the k-th best, once there were k */
    int32_t *taken; /* [queries] */
    int32_t room, k;

    /* All threads of the block come here; a barrier follows. */
    __device__ __forceinline__ void clear(int32_t queries) const {
        for (int32_t i = (int32_t)threadIdx.x; i < queries * room; i += (int32_t)blockDim.x)
            keys[i] = XN_NO_KEY;
        for (int32_t i = (int32_t)threadIdx.x; i < queries; i += (int32_t)blockDim.x) {
            last[i] = XN_NO_KEY;
            taken[i] = 0;
        }
    }

    __device__ __forceinline__ bool takes(int32_t query, uint64_t key) const {
        return key < *(volatile uint64_t *)&last[query];
    }

    /* Of a list all of whose places are taken. */
    __device__ __forceinline__ uint64_t compact(int32_t query) const {
        volatile uint64_t *list = keys + (int64_t)query * room;
        const int32_t lane = (int32_t)threadIdx.x % 32;
        for (int32_t i = lane; i < room; i += 32)
            while (list[i] == XN_NO_KEY)
                ;
        __syncwarp();
        xn_sort_keys(list, room);
        for (int32_t i = k + lane; i < room; i += 32)
            list[i] = XN_NO_KEY;
        return list[k - 1];
    }

    /* Lanes that are live put a key each; all lanes of the warp come here. */
    __device__ __forceinline__ void put(int32_t query, uint64_t key, bool live) const {
        while (__any_sync(XN_ALL_LANES, live)) {
            int32_t place = INT_MAX;
            live = live && takes(query, key);
            if (live && *(volatile int32_t *)&taken[query] <= room)
                place = atomicAdd(&taken[query], 1);
            if (place < room) {
                *(volatile uint64_t *)&keys[(int64_t)query * room + place] = key;
                live = false;
            }
            uint32_t full = __ballot_sync(XN_ALL_LANES, place == room);
            for (; full; full &= full - 1) {
                const int32_t of = __shfl_sync(XN_ALL_LANES, query, __ffs((int32_t)full) - 1);
                const uint64_t kth = compact(of);
                if (threadIdx.x % 32 == 0)
                    *(volatile uint64_t *)&last[of] = kth;
                __threadfence_block();
                __syncwarp();
                if (threadIdx.x % 32 == 0)
                    atomicExch(&taken[of], k);
            }
        }
    }
};

#endif
