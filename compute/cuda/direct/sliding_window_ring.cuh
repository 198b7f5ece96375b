/* sliding_window_ring.cuh: rows to a strip by way of shared memory. */
#ifndef XN_CUDA_SLIDING_WINDOW_RING_CUH
#define XN_CUDA_SLIDING_WINDOW_RING_CUH

#include "sliding_window_rows.cuh"

/* The rows of xn_strip_source by way of shared memory, where far more can be on their way than in
 * registers: a ring of DEPTH chunks of rows, of which each thread reads only what it copied itself,
 * so that nobody waits for another. In front of the ring are the KH - 1 rows above the first chunk.
 * A row has room for a whole block, so that the next one is at a distance compiled in. Neighbours'
 * copies of a row must lie side by side: with a thread's rows side by side the kernel takes half as
 * long again, though no bank is met twice. */
template <int KW, int KH, int ROWS, int KIND, int DEPTH>
struct xn_strip_ring {
    static constexpr int BYTES = KIND == XN_STRIP_FP32 ? 4 : 2;
    static constexpr int OWN = XN_STRIP_WIDTH * BYTES;
    /* The copies are of 4 bytes at least: one float, or 4 halves. */
    static constexpr int SIDE =
        KIND == XN_STRIP_FP32 && xn_strip_window<KW>::LEFT == 1 ? 4 : XN_STRIP_WIDTH * BYTES;
    static constexpr int SLOTS = DEPTH * ROWS + KH - 1;
    static constexpr int OWN_ROW = XN_STRIP_MAX_THREADS * OWN,
                         SIDE_ROW = XN_STRIP_MAX_THREADS * SIDE;
    static constexpr int TOTAL_BYTES = SLOTS * (OWN_ROW + SIDE_ROW); /* of a block */
    static_assert(DEPTH == 0 || xn_strip_window<KW>::SIDE == 1, "wider ones need the sides turned");
    const char *own, *side;   /* of row y, to be copied next */
    char *to_own, *to_side;   /* this thread's slot 0 */
    int32_t y, copied, taken; /* chunks modulo DEPTH */

    __device__ __forceinline__ void begin(const xn_strip_args &a, const xn_strip_place &p,
                                          char *shared) {
        y = p.out_y - a.conv.pad_top;
        own = (const char *)a.input +
              (p.plane * a.in_plane + (int64_t)y * a.conv.width + p.in_x) * BYTES;
        side = own + (p.first ? -SIDE : OWN);
        to_own = shared + threadIdx.x * OWN;
        to_side = shared + SLOTS * OWN_ROW + threadIdx.x * SIDE;
        copied = taken = 0;
        if ((p.first || p.last) && !p.side) /* nothing is ever copied there */
            for (int32_t w = 0; w < SLOTS * SIDE / 4; w++)
                *(uint32_t *)(to_side + w / (SIDE / 4) * SIDE_ROW + w % (SIDE / 4) * 4) = 0;
    }

    template <int COUNT, class Inside>
    __device__ __forceinline__ void copy_rows(const xn_strip_args &a, const xn_strip_place &p,
                                              int32_t slot, Inside inside) {
        char *const at_own = to_own + slot * OWN_ROW, *const at_side = to_side + slot * SIDE_ROW;
#pragma unroll
        for (int r = 0; r < COUNT; r++) {
            const int64_t down = (int64_t)a.conv.width * (r * BYTES);
            xn_copy_ahead<OWN>(at_own + r * OWN_ROW, own + down, inside(r) && p.own ? OWN : 0);
            if (p.side)
                xn_copy_ahead<SIDE>(at_side + r * SIDE_ROW, side + down, inside(r) ? SIDE : 0);
        }
    }
    template <int COUNT>
    __device__ __forceinline__ void copy(const xn_strip_args &a, const xn_strip_place &p,
                                         int32_t slot) {
        const int32_t height = a.conv.height;
        if (y >= 0 && y + COUNT <= height)
            copy_rows<COUNT>(a, p, slot, [](int) { return true; });
        else
            copy_rows<COUNT>(a, p, slot,
                             [&](int r) { return (uint32_t)(y + r) < (uint32_t)height; });
        own += (int64_t)a.conv.width * (COUNT * BYTES);
        side += (int64_t)a.conv.width * (COUNT * BYTES);
        y += COUNT;
    }

    /* Rows COUNT from slot on into registers. */
    template <int COUNT>
    __device__ __forceinline__ void take(const xn_strip_place &p, int32_t slot,
                                         xn_strip_raw<KW> *raw) const {
        const char *const own_at = to_own + slot * OWN_ROW, *const side_at =
                                                                to_side + slot * SIDE_ROW;
#pragma unroll
        for (int r = 0; r < COUNT; r++) {
            if (KIND == XN_STRIP_FP32) {
                const uint4 v = *(const uint4 *)(own_at + r * OWN_ROW);
                memcpy(raw[r].own, &v, sizeof v);
                raw[r].side[0] = *(const uint32_t *)(side_at + r * SIDE_ROW);
            } else {
                const uint2 v = *(const uint2 *)(own_at + r * OWN_ROW);
                memcpy(raw[r].own, &v, sizeof v);
                /* the nearest half of the 4: the last on the left, the first on the right */
                raw[r].side[0] = *(const uint16_t *)(side_at + r * SIDE_ROW + (p.first ? 6 : 0));
            }
        }
    }

    __device__ __forceinline__ void copy_first(const xn_strip_args &a, const xn_strip_place &p) {
        copy<ROWS + KH - 1>(a, p, 0);
        xn_copy_commit();
        copied = DEPTH > 1 ? 1 : 0;
#pragma unroll
        for (int chunk = 1; chunk < DEPTH; chunk++)
            copy_next(a, p, chunk < a.chunks);
    }
    __device__ __forceinline__ void copy_next(const xn_strip_args &a, const xn_strip_place &p,
                                              bool more) {
        if (more)
            copy<ROWS>(a, p, KH - 1 + copied * ROWS);
        xn_copy_commit();
        copied = copied + 1 == DEPTH ? 0 : copied + 1;
    }
    __device__ __forceinline__ void take_first(const xn_strip_place &p, xn_strip_raw<KW> *raw) {
        xn_copy_wait<DEPTH - 1>();
        take<ROWS + KH - 1>(p, 0, raw);
        taken = DEPTH > 1 ? 1 : 0;
    }
    __device__ __forceinline__ void take_next(const xn_strip_place &p, xn_strip_raw<KW> *raw) {
        xn_copy_wait<DEPTH - 1>();
        take<ROWS>(p, KH - 1 + taken * ROWS, raw);
        taken = taken + 1 == DEPTH ? 0 : taken + 1;
    }
};

#endif
