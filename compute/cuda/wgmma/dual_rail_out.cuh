/* dual_rail_out.cuh: from the counts of a job, 64 filters by N positions in the registers of a
 * warpgroup, to packed outputs. A warp has 16 filters: thread 4g + t has filters g and g + 8 (h =
 * 0, 1), of every 8 positions the pair 2t and 2t + 1: position 8j + 2t + e in counts[4j + 2h + e].
 *
 * An output is whether a count, with what the pixel adds to it, reaches the filter's least. A
 * thread collects the bits of its filters along the positions, 8 lanes turn 8 x 8 of them, and the
 * warps put a pixel's bits together in a stage in shared memory. */
#ifndef XN_CUDA_DUAL_RAIL_OUT_CUH
#define XN_CUDA_DUAL_RAIL_OUT_CUH

#include "dual_rail.cuh"

#if XN_HAS_WGMMA

/* A job: a part of a band by a filter tile. */
struct dual_rail_job {
    int32_t image, y; /* its first */
    int32_t images;   /* that there are from there on, of the run */
    int32_t rows;     /* of outputs that there are */
};

/* Where what is added to the counts of octet j begins that thread t of a quad has: two values of 16
 * bits, and those of the next octet behind them. */
__device__ __forceinline__ int32_t outside_at(int32_t j, int32_t t) {
    return (t * XN_CUDA_DUAL_RAIL_OCTETS + j) * 2;
}

/* The signs of two pairs of 16 bits, a byte each, 0 or 255. */
__device__ __forceinline__ uint32_t sign_bytes(uint32_t low, uint32_t high) {
    uint32_t bytes;
    asm("prmt.b32 %0, %1, %2, 0xfdb9;" : "=r"(bytes) : "r"(low), "r"(high));
    return bytes;
}

/* How a lane turns 8 x 8 bits with 7 others: of three steps what it keeps, and how far it rotates
 * what it gets. */
struct dual_rail_turn {
    uint32_t keep[3], rotate[3];
};

__device__ __forceinline__ dual_rail_turn turn_of(int32_t lane) {
    dual_rail_turn turn;
#pragma unroll
    for (int n = 0; n < 3; n++) {
        const uint32_t low = n == 0 ? 0x55555555u : n == 1 ? 0x33333333u : 0x0f0f0f0fu;
        const bool high = lane & 4 << n;
        turn.keep[n] = high ? ~low : low;
        turn.rotate[n] = high ? 32u - (1u << n) : 1u << n;
    }
    return turn;
}

/* Of each byte, bit n of lane 4g + t becomes bit g of lane 4n + t. */
__device__ __forceinline__ uint32_t turn_bits(uint32_t bits, const dual_rail_turn &turn) {
#pragma unroll
    for (int n = 0; n < 3; n++) {
        const uint32_t other = __shfl_xor_sync(0xffffffffu, bits, 4 << n);
        bits =
            (bits & turn.keep[n]) | (__funnelshift_l(other, other, turn.rotate[n]) & ~turn.keep[n]);
    }
    return bits;
}

/* A warp's 16 filters of all positions, 16 bits a position, into its row of the stage. */
template <int N>
__device__ __forceinline__ void put_bits(const dual_rail_turn &turn, const uint32_t (&start)[2],
                                         const uint16_t *outside, char *stage,
                                         const int32_t (&counts)[N / 2]) {
    const int32_t warp = (int32_t)threadIdx.x / 32 % 4, lane = (int32_t)threadIdx.x % 32;
    uint32_t bits[2] = {0, 0};
#pragma unroll
    for (int n = 0; n < N / 16; n++) {
        const uint2 pair = *(const uint2 *)(outside + outside_at(2 * n, lane % 4));
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t *count = (const uint32_t *)counts + 8 * n + 2 * h;
            const uint32_t first = count[1] * 65536u + count[0] + pair.x + start[h];
            const uint32_t second = count[5] * 65536u + count[4] + pair.y + start[h];
            bits[h] |= sign_bytes(first, second) & (0x01010101u << n);
        }
    }
    const uint32_t low = turn_bits(bits[0], turn), high = turn_bits(bits[1], turn);
    const int32_t g = lane >> 2, t = lane & 3;
    uint32_t *to = (uint32_t *)(stage + warp * (N * 2 + 16)) + g * 8 + t;
    if (g < N / 16) {
        to[0] = xn_permute(low, high, 0x5140);
        to[4] = xn_permute(low, high, 0x7362);
    }
}

/* A thread's pixel of every job: its image, place in a plane of outputs from the part's first on,
 * or none, and in a line. */
struct dual_rail_own {
    int32_t image, place, y, x;
};

/* Where a thread's pixels go, in words: of the first image and row, from image to image and row to
 * row; whether there are second 32 filters; as rails, how far away the complements are. */
struct dual_rail_target {
    uint32_t first, image_words, row_words, complement;
    bool second;
};

__device__ __forceinline__ dual_rail_target target_of(const dual_rail_args &a,
                                                      const xn_wgmma_block &b,
                                                      const dual_rail_own &own) {
    const xn_conv &c = a.conv;
    const uint32_t plane = (uint32_t)(c.out_height * c.out_width), place = (uint32_t)own.place;
    const uint32_t word = (uint32_t)(b.group * c.group_out_channels + b.m0) / 32;
    dual_rail_target t;
    if (a.io.packed_rails) {
        const uint32_t units = (uint32_t)a.shape.packed_units;
        t.image_words = units * plane * 4;
        t.row_words = (uint32_t)c.out_width * 4;
        t.first = (word / 4 * plane + place) * 4 + word % 4;
        t.complement = units == 1 ? 2 : units / 2 * plane * 4;
        t.second = true;
    } else {
        const uint32_t words = (uint32_t)a.shape.packed_words;
        t.image_words = plane * words;
        t.row_words = (uint32_t)c.out_width * words;
        t.first = place * words + word;
        t.complement = 0;
        t.second = c.groups > 1 ? b.m0 + 32 < c.group_out_channels : words - word > 1;
    }
    t.first += (uint32_t)own.image * t.image_words;
    return t;
}

/* A pixel's 64 filters: plain, or as rails with their complements. */
template <int N>
__device__ __forceinline__ void
write_packed(const dual_rail_args &a, const dual_rail_job &job, const dual_rail_own &own,
             const dual_rail_target &target, const uint2 &flips, const char *stage) {
    if (own.image >= job.images || (uint32_t)own.place >= (uint32_t)(job.rows * a.conv.out_width))
        return;
    const char *from = stage + threadIdx.x % GROUP * 2;
    uint32_t half[4];
#pragma unroll
    for (int w = 0; w < 4; w++)
        half[w] = *(const uint16_t *)(from + w * (N * 2 + 16));
    const uint2 v =
        make_uint2((half[0] | half[1] << 16) ^ flips.x, (half[2] | half[3] << 16) ^ flips.y);
    uint32_t *to = a.io.packed + (target.first + (uint32_t)job.image * target.image_words +
                                  (uint32_t)job.y * target.row_words);
    if (target.complement == 2) {
        *(uint4 *)to = make_uint4(v.x, v.y, ~v.x, ~v.y);
    } else if (target.complement) {
        *(uint2 *)to = v;
        *(uint2 *)(to + target.complement) = make_uint2(~v.x, ~v.y);
    } else if (target.second && (uint32_t)(uintptr_t)to % 8 == 0) {
        *(uint2 *)to = v;
    } else {
        to[0] = v.x;
        if (target.second)
            to[1] = v.y;
    }
}

#endif
#endif
