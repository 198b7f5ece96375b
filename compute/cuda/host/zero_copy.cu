/* zero_copy.cu: see zero_copy.h. */
#include "zero_copy.h"

#include "launch.cuh"
#include "pinned.h"
#include "ptx.cuh"
#include "xn_mem.h"

#include <algorithm>
#include <stddef.h>
#include <string.h>

/* A warp copies up to CHUNK bytes at a time, 32 of them a thread in flight: GRID blocks keep a PCIe
 * link busy (measured: 48 are no faster alone, and 132 slow other streams by a tenth). A warp waits
 * for one item after the other, so small items are shared out among many: chunks are no larger than
 * gives each warp one, down to LEAST bytes. */
enum { WARPS = XN_CUDA_THREADS / 32, CHUNK = 32 * 32, LEAST = 128, LINE = 256 };
static const unsigned GRID = 16;

/* In device memory, for the blocks of gather and scatter. */
struct relay {
    xn_zero_copy_table table; /* as the host's */
    uint64_t start_ns, uploaded_ns, computed_ns;
    uint32_t ready;               /* the table is there */
    uint32_t gathered, scattered; /* blocks that have */
};

/* In pinned host memory, each at a line of its own. */
struct shared_memory {
    alignas(LINE) xn_zero_copy_table table;
    alignas(LINE) xn_zero_copy_report report;
};

struct xn_zero_copy {
    shared_memory *host;
    relay *device;
    uint32_t sequence;
};

/* ---- kernels ---- */

struct ferry_args {
    const xn_zero_copy_table *table;
    relay *state;
    xn_zero_copy_report *report;
    char *tensor;
    size_t image_bytes;
    bool overlapped;
};

static __device__ __forceinline__ uint64_t clock_ns() {
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

template <typename T>
static __device__ __forceinline__ size_t copy_as(char *to, const char *from, size_t bytes) {
    const size_t count = bytes / sizeof(T);
    T *out = (T *)to;
    const T *in = (const T *)from;
#pragma unroll 1 /* 16 bytes a thread, twice, are a chunk */
    for (size_t i = threadIdx.x % 32; i < count; i += 2 * 32) {
        const size_t next = i + 32;
        const T a = in[i];
        T b;
        if (next < count)
            b = in[next];
        out[i] = a;
        if (next < count)
            out[next] = b;
    }
    return count * sizeof(T);
}

/* By a warp. */
static __device__ void copy_bytes(char *to, const char *from, size_t bytes) {
    const uintptr_t both = (uintptr_t)to | (uintptr_t)from;
    size_t done = 0;
    if (both % sizeof(uint4) == 0)
        done = copy_as<uint4>(to, from, bytes);
    else if (both % sizeof(uint32_t) == 0)
        done = copy_as<uint32_t>(to, from, bytes);
    copy_as<char>(to + done, from + done, bytes - done);
}

/* Bytes [from, end) of a table, by the block's threads. */
static __device__ __forceinline__ void
load_vectors(xn_zero_copy_table *to, const xn_zero_copy_table *table, size_t from, size_t end) {
    const size_t at = from + threadIdx.x * sizeof(uint4);
    for (size_t i = at; i < end; i += XN_CUDA_THREADS * sizeof(uint4))
        *(uint4 *)((char *)to + i) = *(const uint4 *)((const char *)table + i);
    __syncthreads();
}

/* One request for up to three items, which is what most runs of one request take; the rest then. */
static __device__ void load_table(xn_zero_copy_table *to, const xn_zero_copy_table *table) {
    const size_t first = 128;
    load_vectors(to, table, 0, first);
    load_vectors(to, table, first,
                 offsetof(xn_zero_copy_table, items) +
                     ((size_t)to->count + 1) * sizeof(xn_zero_copy_item));
}

/* Host memory answers readers of the same line one after the other, so one block alone reads the
 * table there, and tells it to the others. */
static __device__ void share_table(xn_zero_copy_table *to, const ferry_args &a) {
    relay *state = a.state;
    if (blockIdx.x) {
        if (!threadIdx.x)
            while (!*(volatile uint32_t *)&state->ready) {
            }
        __syncthreads();
        __threadfence();
        load_table(to, &state->table);
        return;
    }
    load_table(to, a.table);
    load_vectors(&state->table, to, 0,
                 offsetof(xn_zero_copy_table, items) +
                     ((size_t)to->count + 1) * sizeof(xn_zero_copy_item));
    if (!threadIdx.x) {
        __threadfence();
        *(volatile uint32_t *)&state->ready = 1;
    }
}

template <bool IN>
static __device__ __forceinline__ void ferry(const ferry_args &a, const xn_zero_copy_table &table) {
    const xn_zero_copy_item *items = table.items;
    const int32_t count = table.count;
    const size_t all = (size_t)items[count].first * a.image_bytes;
    const size_t warps = (size_t)gridDim.x * WARPS;
    const size_t each = ((all - 1) / warps / LEAST + 1) * LEAST,
                 bytes = each < CHUNK ? each : CHUNK;
    const size_t first = ((size_t)blockIdx.x * WARPS + threadIdx.x / 32) * bytes;
    for (size_t chunk = first; chunk < all; chunk += warps * bytes)
        for (size_t at = chunk, end = chunk + bytes < all ? chunk + bytes : all; at < end;) {
            const xn_zero_copy_piece p =
                xn_zero_copy_piece_of(items, count, a.image_bytes, at, end);
            const xn_zero_copy_item &item = items[p.item];
            if (IN)
                copy_bytes(a.tensor + at, item.input + p.offset, p.bytes);
            else
                copy_bytes(item.output + p.offset, a.tensor + at, p.bytes);
            at += p.bytes;
        }
}

/* True on one thread of the last block to come here, which sees what the others wrote; so does the
 * host, of what they wrote there (to_host), once it sees what this one writes behind another fence.
 */
static __device__ __forceinline__ bool is_last(uint32_t *arrived, bool to_host) {
    __syncthreads();
    if (threadIdx.x)
        return false;
    if (to_host)
        __threadfence_system();
    else
        __threadfence();
    if (atomicAdd(arrived, 1u) != gridDim.x - 1)
        return false;
    __threadfence();
    *arrived = 0;
    return true;
}

static __global__ void __launch_bounds__(XN_CUDA_THREADS) gather(const ferry_args a) {
    __shared__ alignas(16) xn_zero_copy_table table;
    relay *state = a.state;
    if (!blockIdx.x && !threadIdx.x)
        state->start_ns = clock_ns();
    share_table(&table, a);
    ferry<true>(a, table);
    if (is_last(&state->gathered, false)) {
        state->uploaded_ns = clock_ns();
        state->ready = 0;
    }
}

static __global__ void __launch_bounds__(XN_CUDA_THREADS) scatter(const ferry_args a) {
    __shared__ alignas(16) xn_zero_copy_table table;
    if (a.overlapped)
        xn_wait_for_previous_kernel();
    volatile relay *state = a.state;
    if (!blockIdx.x && !threadIdx.x)
        state->computed_ns = clock_ns();
    load_table(&table, &a.state->table);
    ferry<false>(a, table);
    if (!is_last(&a.state->scattered, true))
        return;
    volatile xn_zero_copy_report *report = a.report;
    report->start_ns = state->start_ns;
    report->uploaded_ns = state->uploaded_ns;
    report->computed_ns = state->computed_ns;
    report->done_ns = clock_ns();
    __threadfence_system();
    report->sequence = table.sequence;
}

cudaError_t xn_zero_copy_load(void) {
    return xn_cuda_load(gather, scatter);
}

static ferry_args args_of(const xn_zero_copy *z, const void *tensor, size_t image_bytes) {
    return {&z->host->table, z->device, &z->host->report, (char *)const_cast<void *>(tensor),
            image_bytes,     false};
}

/* An item has an image at least. */
static dim3 grid_for(const xn_batch *batch, size_t image_bytes) {
    const int64_t chunks = ((int64_t)image_bytes * batch->images - 1) / CHUNK + 1;
    const int64_t blocks = (std::max(chunks, batch->images) - 1) / WARPS + 1;
    return dim3((unsigned)std::min<int64_t>(blocks, GRID));
}

cudaError_t xn_zero_copy_gather(const xn_zero_copy *z, const xn_batch *batch, void *input,
                                cudaStream_t stream) {
    const ferry_args args = args_of(z, input, batch->input_bytes);
    return xn_cuda_launch(gather, grid_for(batch, batch->input_bytes), XN_CUDA_THREADS, 0, stream,
                          args);
}

/* Blocks that come early and wait take room that others may want: only a few may. */
cudaError_t xn_zero_copy_scatter(const xn_zero_copy *z, const xn_batch *batch, const void *output,
                                 bool overlaps, cudaStream_t stream) {
    const dim3 grid = grid_for(batch, batch->output_bytes);
    ferry_args args = args_of(z, output, batch->output_bytes);
    args.overlapped = overlaps && grid.x <= GRID / 4;
    return xn_cuda_launch_with(scatter, grid, XN_CUDA_THREADS, 0, args.overlapped, stream, args);
}

/* ---- memory ---- */

xn_zero_copy *xn_zero_copy_create(cudaStream_t stream) {
    xn_zero_copy *z = (xn_zero_copy *)xn_mem_zalloc(1, sizeof *z);
    void *host = NULL, *device = NULL;
    if (!z)
        return NULL;
    cudaError_t e = cudaHostAlloc(&host, sizeof(shared_memory), cudaHostAllocPortable);
    if (e == cudaSuccess)
        e = cudaMalloc(&device, sizeof(relay));
    if (e == cudaSuccess)
        e = cudaMemsetAsync(device, 0, sizeof(relay), stream);
    z->host = (shared_memory *)host;
    z->device = (relay *)device;
    if (e != cudaSuccess) {
        (void)cudaGetLastError();
        xn_zero_copy_free(z);
        return NULL;
    }
    memset(z->host, 0, sizeof *z->host);
    return z;
}

void xn_zero_copy_free(xn_zero_copy *z) {
    if (!z)
        return;
    (void)cudaFreeHost(z->host);
    (void)cudaFree(z->device);
    xn_mem_free(z);
}

/* ---- a run ---- */

static bool is_small(const xn_batch *batch) {
    const size_t bytes = (size_t)batch->images * (batch->input_bytes + batch->output_bytes);
    return batch->count <= XN_ZERO_COPY_ITEMS &&
           (bytes <= XN_ZERO_COPY_BATCH_BYTES ||
            bytes <= batch->count * (size_t)XN_ZERO_COPY_ITEM_BYTES);
}

bool xn_zero_copy_take(xn_zero_copy *z, const xn_batch *batch) {
    if (!z || !is_small(batch))
        return false;
    xn_zero_copy_table *table = &z->host->table;
    int64_t first = 0;
    for (size_t i = 0; i < batch->count; i++) {
        const xn_batch_item *item = &batch->items[i];
        const size_t images = (size_t)item->images;
        table->items[i] = {(const char *)item->input, (char *)item->output, first};
        if (!xn_cuda_pinned_has(item->input, images * batch->input_bytes) ||
            !xn_cuda_pinned_has(item->output, images * batch->output_bytes))
            return false;
        first += item->images;
    }
    table->items[batch->count].first = first;
    table->count = (int32_t)batch->count;
    table->sequence = ++z->sequence;
    return true;
}

bool xn_zero_copy_is_done(const xn_zero_copy *z) {
    return __atomic_load_n(&z->host->report.sequence, __ATOMIC_ACQUIRE) == z->sequence;
}

/* The clock may be set while a run is under way. */
static int64_t between(uint64_t from, uint64_t to) {
    return to > from ? (int64_t)(to - from) : 0;
}

void xn_zero_copy_end(const xn_zero_copy *z, xn_run_times *times) {
    const xn_zero_copy_report *r = &z->host->report;
    times->upload_ns = between(r->start_ns, r->uploaded_ns);
    times->compute_ns = between(r->uploaded_ns, r->computed_ns);
    times->download_ns = between(r->computed_ns, r->done_ns);
}

uint32_t xn_zero_copy_runs(const xn_zero_copy *z) {
    return z ? z->sequence : 0;
}
