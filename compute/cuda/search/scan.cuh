/* scan.cuh: a dense layer of bits and the k best of its values (top_k.h), by mma.sync of 16 queries
 * by 8 rows. A warp has 8 N rows in registers, lane 4 g + t rows g, g + 8, ..., of each 512 bits
 * words 4 t .. 4 t + 3, which are operands as they are read; queries lie in the same order, 16 to a
 * column. */
#ifndef XN_CUDA_SCAN_CUH
#define XN_CUDA_SCAN_CUH

#include "launch.cuh"
#include "lists.cuh"

enum {
    SCAN_WARPS = 16,
    SCAN_THREADS = SCAN_WARPS * 32,
    SCAN_WORDS = 16,   /* of two matrix instructions */
    SCAN_COLUMNS = 16, /* queries of a matrix instruction */
    SCAN_LEVELS = 16   /* values of x that are counted, the last one with all greater ones */
};

struct scan_args {
    xn_epilogue_args e;
    const uint32_t *rows;    /* [row_count][words] */
    const uint4 *queries;    /* [tiles of queries][columns][steps][2][32 lanes] */
    const int32_t *set_bits; /* [queries] */
    const int32_t *least;    /* [queries]: x that may be among the best; NULL: any */
    int32_t *reached;        /* [queries][SCAN_LEVELS]: how many candidates have x = least + n */
    int32_t *greatest;       /* x, [queries][tiles], instead of lists; or NULL */
    uint64_t *lists;         /* [query_count][blocks in x][room] */
    int64_t row_count;
    int32_t words, bits, steps; /* of a row; steps: of SCAN_WORDS */
    int32_t query_count, tile_queries, columns;
    int32_t tiles, stride; /* of rows: how many, and which */
    int32_t room, k;
    bool vectors; /* rows are whole vectors of 4 words */
    bool by_dot;  /* the greater the dot the better, */
    bool turned;  /* with the bits of queries turned */
    bool largest;
};

/* ---- a matrix instruction ---- */

/* xn_mma_and_popc, on chips that lack it as well. */
__device__ __forceinline__ void scan_multiply(int32_t (&acc)[4], const uint32_t (&a)[4],
                                              const uint32_t (&b)[2]) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    xn_mma_and_popc(acc, a, b);
#else
    const int32_t lane = (int32_t)threadIdx.x % 32;
#pragma unroll 1
    for (int32_t n = 0; n < 8; n++) {
        const int32_t row = lane / 4 * 4 + n % 4, column = lane % 4 * 8 + n % 4;
        const uint32_t a0 = __shfl_sync(XN_ALL_LANES, n < 4 ? a[0] : a[2], row);
        const uint32_t a1 = __shfl_sync(XN_ALL_LANES, n < 4 ? a[1] : a[3], row);
        const uint32_t b0 = __shfl_sync(XN_ALL_LANES, n < 4 ? b[0] : b[1], column);
        const uint32_t b1 = __shfl_sync(XN_ALL_LANES, n < 4 ? b[0] : b[1], column + 4);
        acc[0] += __popc(a0 & b0);
        acc[1] += __popc(a0 & b1);
        acc[2] += __popc(a1 & b0);
        acc[3] += __popc(a1 & b1);
    }
#endif
}

/* ---- a warp ---- */

/* STEPS of SCAN_WORDS words are in registers at a time; WIDE: rows have more of them, and are read
 * for every column of queries again. */
template <int N, int STEPS, bool WIDE>
struct scan_warp {
    static constexpr int ROWS = 8 * N;

    const scan_args &a;
    const xn_lists &lists;
    const uint4 *queries; /* of the block; in shared memory, unless WIDE */
    int32_t *bounds;      /* [columns * 16], in shared memory (bound_of) */
    int32_t g, t;
    int64_t first; /* row of the tile */
    uint4 row[N][STEPS];
    int32_t sum[N][4]; /* half of x, rounded down, of query g with rows 8 n + 2 t and 8 n + 2 t + 1,
                        * then of query g + 8 */
    int32_t minus[N][4]; /* what the sums start from: half of the rows' set bits, negative */
    uint32_t odd;        /* a bit a row: its set bits are odd */

    __device__ __forceinline__ scan_warp(const scan_args &args, const xn_lists &l,
                                         const uint4 *block_queries, int32_t *block_bounds)
        : a(args), lists(l), queries(block_queries), bounds(block_bounds),
          g((int32_t)threadIdx.x % 32 / 4), t((int32_t)threadIdx.x % 4) {
        queries += threadIdx.x % 32;
    }

    /* Words that a row has not are 0. */
    __device__ __forceinline__ uint4 words_of(const uint32_t *from, int32_t word,
                                              bool vectors) const {
        if (vectors)
            return word < a.words ? __ldg((const uint4 *)(from + word)) : make_uint4(0, 0, 0, 0);
        uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            words[i] = word + i < a.words ? __ldg(from + word + i) : 0u;
        return make_uint4(words[0], words[1], words[2], words[3]);
    }

    /* In place of rows that there are not the last one is read; put leaves them out. */
    __device__ __forceinline__ void load_rows(int32_t step, bool vectors) {
#pragma unroll
        for (int n = 0; n < N; n++) {
            const uint32_t *from = a.rows + min(first + n * 8 + g, a.row_count - 1) * a.words;
#pragma unroll
            for (int s = 0; s < STEPS; s++)
                row[n][s] = words_of(from, (step + s) * SCAN_WORDS + t * 4, vectors);
        }
    }

    __device__ __forceinline__ void load(int32_t step) {
        if (a.vectors)
            load_rows(step, true);
        else
            load_rows(step, false);
    }

    __device__ __forceinline__ void multiply(int s, int half, const uint4 &query) {
        const uint32_t q[4] = {query.x, query.y, query.z, query.w};
#pragma unroll
        for (int n = 0; n < N; n++) {
            const uint4 &r = row[n][s];
            const uint32_t words[2] = {half ? r.z : r.x, half ? r.w : r.y};
            scan_multiply(sum[n], q, words);
        }
    }

    /* Sums of a column of queries, or of the rows' set bits. */
    template <bool SET_BITS>
    __device__ __forceinline__ void add_up(const uint4 *from) {
        const uint4 ones = make_uint4(~0u, ~0u, ~0u, ~0u);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                sum[n][i] = SET_BITS ? 0 : minus[n][i];
#pragma unroll 1
        for (int32_t step = 0; step < (WIDE ? a.steps : 1); step += STEPS) {
            if (WIDE)
                load(step);
#pragma unroll
            for (int i = 0; i < 2 * STEPS; i++)
                multiply(i / 2, i % 2, SET_BITS ? ones : from[i * 32]);
            from += STEPS * 64;
        }
    }

    __device__ __forceinline__ int32_t x_of(int n, int i) const {
        return 2 * sum[n][i] + (int32_t)(odd >> (n * 2 + i % 2) & 1);
    }

    /* Half of the greatest x of the lane's rows with query g, or g + 8, rounded down. */
    __device__ __forceinline__ int32_t greatest(int h) const {
        int32_t most = INT_MIN;
#pragma unroll
        for (int n = 0; n < N; n++)
            most = max(most, max(sum[n][2 * h], sum[n][2 * h + 1]));
        return most;
    }

    __device__ __forceinline__ int32_t query_at(int32_t query) const {
        return (int32_t)blockIdx.y * a.tile_queries + query;
    }

    __device__ __forceinline__ float dot_of(int32_t query, int32_t x) const {
        const int32_t dot = a.bits + 2 * (x - __ldg(a.set_bits + query_at(query)));
        return (float)(a.turned ? -dot : dot);
    }

    __device__ __forceinline__ uint32_t rank_of(int32_t query, int32_t x) const {
        return xn_rank_of(xn_ranked_value(a.e, 0, dot_of(query, x)), a.largest);
    }

    /* Half of the least x whose value is as good as that of x, rounded down: several may have one
     * value. */
    __device__ __forceinline__ int32_t bound_of(int32_t query, int32_t x) const {
        const uint32_t rank = rank_of(query, x);
        int32_t high = x, low = __ldg(a.set_bits + query_at(query)) - a.bits - 1;
        if (rank_of(query, x - 1) > rank)
            return x >> 1;
        while (high - low > 1) {
            const int32_t middle = low + (high - low) / 2;
            if (rank_of(query, middle) <= rank)
                high = middle;
            else
                low = middle;
        }
        return high >> 1;
    }

    /* Puts those of the lane's rows into the lists that may be among the best. */
    __device__ __forceinline__ void put(int32_t column) {
        const int32_t *bound = bounds + column * SCAN_COLUMNS + g;
        uint32_t live = 0;
#pragma unroll
        for (int i = 0; i < 4 * N; i++)
            live |= (uint32_t)(sum[i / 4][i % 4] >= bound[i % 4 / 2 * 8]) << i;
        while (__any_sync(XN_ALL_LANES, live)) {
            const int32_t n = __ffs((int32_t)live) - 1;
            int32_t x = 0;
#pragma unroll
            for (int i = 0; i < 4 * N; i++)
                x = i == n ? x_of(i / 4, i % 4) : x;
            const int64_t at = first + n / 4 * 8 + 2 * t + n % 2;
            const int32_t query = column * SCAN_COLUMNS + n % 4 / 2 * 8 + g;
            const bool is = live && at < a.row_count;
            const uint64_t key = is ? xn_key_of(a.e, at, dot_of(query, x), a.largest) : XN_NO_KEY;
            lists.put(query, key, is);
            if (is && a.least)
                atomicAdd(a.reached + query_at(query) * SCAN_LEVELS +
                              min(max(x - a.least[query_at(query)], 0), SCAN_LEVELS - 1),
                          1);
            live &= live - 1;
        }
    }

    __device__ __forceinline__ void store_greatest(int32_t tile, int32_t column) const {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int32_t query = column * SCAN_COLUMNS + h * 8 + g;
            int32_t most = 2 * greatest(h);
            most = max(most, __shfl_xor_sync(XN_ALL_LANES, most, 1));
            most = max(most, __shfl_xor_sync(XN_ALL_LANES, most, 2));
            if (t == 0 && query < a.tile_queries && query_at(query) < a.query_count)
                a.greatest[(int64_t)query_at(query) * a.tiles + tile] = most;
        }
    }

    /* Each thread raises the bound of one query to the greatest x that k candidates of all blocks
     * reach. The last threads have the first queries, as their warps may have a tile less. */
    __device__ __forceinline__ void raise_bounds() {
        const int32_t query = SCAN_THREADS - 1 - (int32_t)threadIdx.x;
        if (query >= a.tile_queries || query_at(query) >= a.query_count)
            return;
        const int4 *from = (const int4 *)(a.reached + query_at(query) * SCAN_LEVELS);
        int32_t reach = 0, level = SCAN_LEVELS - 1;
#pragma unroll
        for (int n = SCAN_LEVELS / 4 - 1; n >= 0; n--) {
            const int4 four = __ldcg(from + n);
            level -= (reach += four.w) < a.k;
            level -= (reach += four.z) < a.k;
            level -= (reach += four.y) < a.k;
            level -= n && (reach += four.x) < a.k;
        }
        if (level)
            atomicMax(bounds + query, bound_of(query, a.least[query_at(query)] + level));
    }

    /* Whether a query of the column may have one of the lane's rows among its best. */
    __device__ __forceinline__ bool test(const uint4 *query, const int32_t *bound) {
        add_up<false>(query);
        return (greatest(0) >= bound[0]) | (greatest(1) >= bound[8]);
    }

    /* The columns for which that is so, two at a time: products of one are under way while the
     * other is tested. */
    __device__ __forceinline__ uint32_t find() {
        const int32_t each = (WIDE ? a.steps : STEPS) * 64;
        const uint4 *query = queries;
        const int32_t *bound = bounds + g;
        uint32_t found = 0, bit = 1;
        int32_t left = a.columns;
#pragma unroll 1
        for (; left > 1; left -= 2) {
            const uint32_t one = test(query, bound) ? bit : 0;
            found |= one | (test(query + each, bound + SCAN_COLUMNS) ? 2 * bit : 0);
            query += 2 * each;
            bound += 2 * SCAN_COLUMNS;
            bit *= 4;
        }
        return left && test(query, bound) ? found | bit : found;
    }

    __device__ __forceinline__ void run(int32_t tile) {
        const int32_t before = tile / ((int32_t)gridDim.x * SCAN_WARPS); /* tiles of the warp */
        first = (int64_t)tile * a.stride * ROWS;
        if (!WIDE)
            load(0);
        if (a.least && before && !(before & (before - 1)))
            raise_bounds();
        add_up<true>(queries);
        odd = 0;
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                odd |= (uint32_t)(sum[n][i] & 1) << (n * 2 + i % 2);
                minus[n][i] = -sum[n][i] >> 1;
            }
        uint32_t found = a.least ? find() : (1u << a.columns) - 1;
        while (__any_sync(XN_ALL_LANES, found)) {
            const uint32_t lanes = __ballot_sync(XN_ALL_LANES, found);
            const int32_t column =
                __shfl_sync(XN_ALL_LANES, __ffs((int32_t)found), __ffs((int32_t)lanes) - 1) - 1;
            add_up<false>(queries + column * (WIDE ? a.steps : STEPS) * 64);
            if (a.greatest)
                store_greatest(tile, column);
            else
                put(column);
            found &= ~(1u << column);
        }
    }
};

/* ---- kernels ---- */

/* Bytes of shared memory: of a query, with its list; of a column of queries beside. */
static inline size_t scan_query_bytes(int32_t room) {
    return (size_t)(room + 1) * sizeof(uint64_t) + sizeof(int32_t);
}
static inline size_t scan_column_bytes(int32_t steps, bool wide) {
    return SCAN_COLUMNS *
           (sizeof(int32_t) + (wide ? 0 : (size_t)steps * SCAN_WORDS * sizeof(uint32_t)));
}

template <int N, int STEPS, bool WIDE>
__global__ void __launch_bounds__(SCAN_THREADS, 1)
    scan_kernel(const __grid_constant__ scan_args a) {
    extern __shared__ uint4 scan_shared[];
    const int32_t staged = WIDE ? 0 : a.columns * a.steps * 64;
    const uint4 *from = a.queries + (int64_t)blockIdx.y * a.columns * a.steps * 64;
    uint64_t *keys = (uint64_t *)(scan_shared + staged);
    uint64_t *last = keys + a.tile_queries * a.room;
    int32_t *taken = (int32_t *)(last + a.tile_queries);
    int32_t *bounds = taken + a.tile_queries;
    const xn_lists lists = {keys, last, taken, a.room, a.k};
    scan_warp<N, STEPS, WIDE> warp(a, lists, WIDE ? from : scan_shared, bounds);
    xn_let_next_kernel_start();
    if (!a.greatest)
        lists.clear(a.tile_queries);
    xn_wait_for_previous_kernel();
    for (int32_t i = (int32_t)threadIdx.x; i < staged; i += SCAN_THREADS)
        scan_shared[i] = from[i];
    for (int32_t i = (int32_t)threadIdx.x; i < a.columns * SCAN_COLUMNS; i += SCAN_THREADS) {
        const int32_t query = (int32_t)blockIdx.y * a.tile_queries + i;
        const bool is = i < a.tile_queries && query < a.query_count;
        bounds[i] = !is ? INT_MAX : a.least ? warp.bound_of(i, a.least[query]) : INT_MIN;
    }
    __syncthreads();
    for (int32_t tile = (int32_t)(threadIdx.x / 32 * gridDim.x + blockIdx.x); tile < a.tiles;
         tile += (int32_t)gridDim.x * SCAN_WARPS)
        warp.run(tile);
    if (a.greatest)
        return;
    __syncthreads();
    const int32_t before = (int32_t)blockIdx.y * a.tile_queries;
    const int32_t own = min(a.tile_queries, a.query_count - before) * a.room;
    uint64_t *to = a.lists + ((int64_t)before * gridDim.x + blockIdx.x) * a.room;
    for (int32_t i = (int32_t)threadIdx.x; i < own; i += SCAN_THREADS)
        to[(int64_t)(i / a.room) * gridDim.x * a.room + i % a.room] = keys[i];
}

/* Queries from bytes to the order of the matrix instruction's operands, and their set bits. */
struct scan_queries_args {
    const uint8_t *input;
    uint32_t *queries;
    int32_t *set_bits;
    int32_t *reached;
    int64_t pitch; /* bytes of a query */
    int32_t bits, steps;
    int32_t query_count, tile_queries, columns, tiles;
    bool turned;
};

__device__ __forceinline__ uint32_t scan_query_word(const scan_queries_args &a,
                                                    const uint8_t *query, int32_t word) {
    uint32_t bits = 0;
    for (int32_t n = 0; n < 4; n++)
        if (word * 4 + n < a.pitch)
            bits |= (uint32_t)query[word * 4 + n] << n * 8;
    const int32_t left = a.bits - word * 32;
    const uint32_t mask = left >= 32 ? ~0u : left > 0 ? (1u << left) - 1u : 0u;
    return (a.turned ? ~bits : bits) & mask;
}

/* A warp makes a query, or the zeros of a column that has less than 16. */
__global__ void __launch_bounds__(XN_CUDA_THREADS)
    scan_queries_kernel(const __grid_constant__ scan_queries_args a) {
    const int32_t lane = (int32_t)threadIdx.x % 32, each = a.columns * SCAN_COLUMNS;
    const int32_t at = (int32_t)(blockIdx.x * (XN_CUDA_THREADS / 32) + threadIdx.x / 32);
    const int32_t tile = at / each, n = at % each, query = tile * a.tile_queries + n;
    const bool is = n < a.tile_queries && query < a.query_count;
    int32_t set = 0;
    xn_let_next_kernel_start();
    xn_wait_for_previous_kernel();
    if (tile >= a.tiles)
        return;
    uint32_t *to = a.queries + ((int64_t)tile * a.columns + n / SCAN_COLUMNS) * a.steps * 256;
    for (int32_t word = lane; word < a.steps * SCAN_WORDS; word += 32) {
        const uint32_t bits =
            is ? scan_query_word(a, a.input + (int64_t)query * a.pitch, word) : 0u;
        set += __popc(bits);
        to[word / SCAN_WORDS * 256 + word % 4 / 2 * 128 + (n % 8 * 4 + word % SCAN_WORDS / 4) * 4 +
           word % 2 * 2 + n % SCAN_COLUMNS / 8] = bits;
    }
    for (int32_t apart = 16; apart; apart /= 2)
        set += __shfl_xor_sync(XN_ALL_LANES, set, apart);
    if (is && lane == 0)
        a.set_bits[query] = set;
    for (int32_t n = lane; is && n < SCAN_LEVELS; n += 32)
        a.reached[query * SCAN_LEVELS + n] = 0;
}

#endif
