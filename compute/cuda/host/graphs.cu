/* graphs.cu: see graphs.h; the kernels of a run as one CUDA graph. */
#include "graphs.h"

#include "xn_cuda.h"

#include <string.h>

/* ---- the set ---- */

xn_recordings *xn_cuda_recordings_create(int steps) {
    const size_t serials = (size_t)steps * (XN_CUDA_GRAPHS + 1);
    xn_recordings *set =
        (xn_recordings *)xn_mem_zalloc(1, sizeof *set + serials * sizeof(uint64_t));
    if (!set)
        return NULL;
    set->steps = steps;
    set->serials = (uint64_t *)(set + 1);
    set->met = set->serials + (size_t)steps * XN_CUDA_GRAPHS;
    for (int i = 0; i < XN_CUDA_GRAPHS; i++)
        set->graphs[i].key.serials = set->serials + (size_t)steps * i;
    return set;
}

static bool same(const xn_recordings *set, const xn_cuda_graph *g, const xn_cuda_graph_key *key) {
    return g->used && g->key.images == key->images && g->key.workspace == key->workspace &&
           g->key.arena == key->arena && g->key.zero_copy == key->zero_copy &&
           !memcmp(g->key.serials, key->serials, (size_t)set->steps * sizeof *key->serials);
}

static void drop(xn_cuda_graph *g) {
    if (g->exec)
        (void)cudaGraphExecDestroy(g->exec);
    g->exec = NULL;
    g->used = 0;
}

/* The key's serials go where the graph has its own. */
static void take_place(xn_recordings *set, xn_cuda_graph *g, const xn_cuda_graph_key *key) {
    uint64_t *own = set->serials + (size_t)set->steps * (g - set->graphs);
    drop(g);
    memcpy(own, key->serials, (size_t)set->steps * sizeof *own);
    g->key = *key;
    g->key.serials = own;
    g->meetings = -1;
}

xn_cuda_graph *xn_cuda_graph_of(xn_recordings *set, const xn_cuda_graph_key *key) {
    xn_cuda_graph *oldest = &set->graphs[0], *found = NULL;
    for (xn_cuda_graph &g : set->graphs) {
        if (same(set, &g, key))
            found = &g;
        if (g.used < oldest->used)
            oldest = &g;
    }
    if (!found)
        take_place(set, found = oldest, key);
    if (found->meetings < XN_CUDA_GRAPH_MEETINGS)
        found->meetings++;
    found->used = ++set->clock;
    return found;
}

void xn_cuda_recordings_free(xn_recordings *set) {
    if (!set)
        return;
    if (set->device)
        (void)xn_cuda_device_use(set->device, NULL);
    for (xn_cuda_graph &g : set->graphs)
        drop(&g);
    if (set->device)
        (void)cudaGetLastError();
    xn_mem_free(set);
}

/* ---- runs ---- */

static xn_status enqueue_alone(const xn_enqueued *step, xn_error *error) {
    return xn_cuda_enqueue_step(step->plan, step->prepared, &step->io, error);
}

/* Steps that may run as one: layers of a stage, and behind them up to three steps (xn_cuda_fuses).
 * One of these may be a pool that the stage has made, and the third the shortcut of the first. */
static xn_status enqueue_fused(const xn_enqueued *first, xn_error *error) {
    xn_cuda_stage_io stage;
    xn_cuda_strided_cut cut;
    const bool staged = xn_cuda_stage_of(first, &stage);
    const xn_enqueued *rest = first + stage.layers;
    const int left = first->fused - stage.layers;
    const bool strided = left == 3 && xn_cuda_strided_of(rest, &cut);
    const int pool = staged && stage.pools ? xn_cuda_stage_pool_of(first, stage.layers) : 0;
    xn_status status = staged ? xn_cuda_enqueue_stage(first, &stage, error) : XN_OK;
    for (int i = 0; i < stage.layers && !staged && status == XN_OK; i++)
        status = enqueue_alone(first + i, error);
    for (int i = 0; i < left && status == XN_OK; i++)
        if (i == 2 && strided)
            status = xn_cuda_enqueue_strided(rest, &cut, error);
        else if (!(i == 0 && strided) && (!pool || stage.layers + i != pool))
            status = enqueue_alone(rest + i, error);
    return status;
}

static xn_status enqueue_steps(const xn_run *run, xn_error *error) {
    xn_status status = XN_OK;
    for (int i = 0; i < run->count && status == XN_OK; i += run->steps[i].fused)
        status = enqueue_fused(&run->steps[i], error);
    return status;
}

static xn_status enqueue_all(const xn_stream *s, const xn_run *run, bool zero_copy,
                             xn_error *error) {
    if (!zero_copy)
        return enqueue_steps(run, error);
    const xn_zero_copy *z = s->zero_copy;
    xn_status status = xn_cuda_check(xn_zero_copy_gather(z, run->batch, run->input, s->stream),
                                     "gathering a batch", error);
    if (status == XN_OK)
        status = enqueue_steps(run, error);
    if (status == XN_OK)
        status = xn_cuda_check(
            xn_zero_copy_scatter(z, run->batch, run->output, s->device->chip.overlaps, s->stream),
            "scattering a batch", error);
    return status;
}

/* A capture of this thread alone: what others do meanwhile, on streams of their own, is neither
 * recorded nor refused. Ends in any case. */
static cudaError_t capture(const xn_stream *s, const xn_run *run, bool zero_copy,
                           cudaGraph_t *graph) {
    cudaError_t e = cudaStreamBeginCapture(s->stream, cudaStreamCaptureModeThreadLocal);
    if (e != cudaSuccess)
        return e;
    const xn_status status = enqueue_all(s, run, zero_copy, NULL);
    e = cudaStreamEndCapture(s->stream, graph);
    return e == cudaSuccess && status != XN_OK ? cudaErrorStreamCaptureInvalidated : e;
}

/* NULL where it fails: an error that lasts shows in the run without a graph. */
static cudaGraphExec_t record(const xn_stream *s, const xn_run *run, bool zero_copy) {
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    cudaError_t e = capture(s, run, zero_copy, &graph);
    if (e == cudaSuccess)
        e = cudaGraphInstantiateWithFlags(&exec, graph, 0);
    if (graph)
        (void)cudaGraphDestroy(graph);
    if (e == cudaSuccess)
        return exec;
    (void)cudaGetLastError();
    return NULL;
}

/* What a run's addresses follow from; its serials lie in set->met. */
static xn_cuda_graph_key key_of(xn_recordings *set, const xn_stream *s, const xn_run *run,
                                bool zero_copy) {
    for (int i = 0; i < set->steps; i++)
        set->met[i] = run->steps[i].prepared ? run->steps[i].prepared->serial : 0;
    xn_cuda_graph_key key = {run->batch->images, s->workspace, s->arena, set->met, zero_copy};
    return key;
}

static int meetings_for(const xn_run *run) {
    const int meetings = XN_CUDA_GRAPH_MEETINGS / (run->count + 2);
    return meetings > 1 ? meetings : 1;
}

/* False where the run is to go on the stream step by step. */
static bool play(const xn_stream *s, const xn_run *run, bool zero_copy, xn_recordings *set) {
    const xn_cuda_graph_key key = key_of(set, s, run, zero_copy);
    xn_cuda_graph *g = xn_cuda_graph_of(set, &key);
    if (!g->exec && g->meetings >= meetings_for(run)) {
        set->device = s->device;
        g->exec = record(s, run, zero_copy);
        set->gave_up = !g->exec;
    }
    if (!g->exec)
        return false;
    if (cudaGraphLaunch(g->exec, s->stream) == cudaSuccess)
        return true;
    (void)cudaGetLastError();
    drop(g);
    set->gave_up = true;
    return false;
}

xn_status xn_cuda_enqueue_run(xn_stream *s, const xn_run *run, bool zero_copy,
                              xn_recordings *recordings, xn_error *error) {
    const int kernels = run->count + (zero_copy ? 2 : 0); /* at least */
    if (kernels >= XN_CUDA_GRAPH_KERNELS && recordings && !recordings->gave_up &&
        play(s, run, zero_copy, recordings))
        return XN_OK;
    return enqueue_all(s, run, zero_copy, error);
}
