/* Networks as jobs of the engine, on the backend ref: one after the other in the same memory, given
 * up in the middle, and what they are estimated to cost. */
#include "engine_bench.h"
#include "nw_random.h"
#include "work.h"

#include <string.h>

enum { IMAGES = 5 };

typedef struct served {
    xn_asset *asset;
    const xn_network *network; /* the asset's */
    float *input, *expected;   /* IMAGES images */
} served;

typedef struct net_job {
    xn_job job;
    sem_t done, released;
} net_job;

static xn_engine *ref_engine(void) {
    xn_config config = fake_config();
    config.queue_bytes = 1 << 30;
    xn_engine *engine = NULL;
    xn_error error = {0};
    snprintf(config.backend, sizeof config.backend, "ref");
    config.threads = 3;
    config.max_batch_images = 4; /* fewer than the largest job has */
    xn_status status = xn_engine_create(&config, &engine, &error);
    ck_assert_msg(status == XN_OK, "%s", error.message);
    return engine;
}

static void serve(xn_engine *engine, xn_rng *rng, served *out) {
    xn_error error = {0};
    nw_net *net = nw_random_net(rng, true);
    net->params.input_datatype = XN_FP32;
    xn_network *network = nw_lower(net);
    nw_free(net);
    out->network = network;
    xn_status status = xn_store_make_network(xn_engine_store(engine), network, &out->asset, &error);
    ck_assert_msg(status == XN_OK, "%s", error.message);
    int64_t count = IMAGES * network->input_elements;
    out->input = xn_mem_alloc((size_t)count * sizeof *out->input);
    for (int64_t i = 0; i < count; i++)
        out->input[i] = (float)((int)xn_rng_below(rng, 17) - 8) * 0.25f;
    out->expected = nw_run(network, out->input, IMAGES);
}

static void forget(served *net) {
    xn_asset_release(net->asset);
    xn_mem_free(net->input);
    xn_mem_free(net->expected);
}

static void job_done(xn_job *job) {
    sem_post(&((net_job *)job->context)->done);
}

static void job_released(xn_job *job) {
    sem_post(&((net_job *)job->context)->released);
}

static void run_network(xn_engine *engine, const served *net, int64_t images) {
    const size_t bytes = (size_t)images * net->network->output_bytes;
    void *output = xn_mem_alloc(bytes);
    xn_problem problem;
    xn_problem_of_network(net->network, &problem);
    fake_run(engine, net->asset, &problem, net->input, images, output);
    ck_assert(!memcmp(output, net->expected, bytes));
    xn_mem_free(output);
}

/* A network that takes the place of another in memory does not take its programs. */
START_TEST(networks_come_and_go) {
    xn_engine *engine = ref_engine();
    xn_rng rng = {xn_test_seed()};
    for (int i = 0; i < 30; i++) {
        served net;
        serve(engine, &rng, &net);
        run_network(engine, &net, IMAGES);
        run_network(engine, &net, 1);
        forget(&net);
    }
    xn_engine_free(engine);
}
END_TEST

enum { LONG_CHANNELS = 64, LONG_SIDE = 24 };

/* Of many steps, none of which takes long; in all they do. */
static xn_network *long_network(void) {
    enum { LAYERS = 250 };
    nw_net *net = nw_create(LONG_CHANNELS, LONG_SIDE, LONG_SIDE);
    xn_rng rng = {xn_test_seed()};
    for (int i = 0; i < LAYERS; i++) {
        char *name = nw_take(net, 16);
        snprintf(name, 16, "c%d", i);
        xn_layer *layer = nw_add(net, XN_OP_CONV, name, NULL);
        layer->weight = nw_random(net, &rng, true, LONG_CHANNELS, LONG_CHANNELS, 3, 3);
        layer->window.padding_kind = XN_PADDING_SAME;
        layer->window.mode = XN_MODE_FLOAT;
    }
    xn_network *network = nw_lower(net);
    nw_free(net);
    return network;
}

static void wait_for_start(xn_engine *engine, const xn_job *job) {
    for (bool started = false; !started;) {
        xn_lock_take(&engine->lock);
        started = job->state != XN_JOB_QUEUED; /* running, or past its deadline already */
        xn_lock_drop(&engine->lock);
    }
}

/* Past its deadline, or when no client is there any more to read its answer, a run ends with the
 * step it is at. */
START_TEST(runs_are_given_up) {
    xn_engine *engine = ref_engine();
    xn_network *network = long_network();
    xn_asset *asset = NULL;
    const bool cancelled = _i;
    ck_assert_int_eq(xn_store_make_network(xn_engine_store(engine), network, &asset, NULL), XN_OK);
    net_job mine = {
        .job = {.images = 1,
                .asset = asset,
                .input = xn_mem_zalloc(LONG_CHANNELS * LONG_SIDE * LONG_SIDE, sizeof(float)),
                .output = xn_mem_alloc(network->output_bytes),
                .deadline_ns = INT64_MAX,
                .id = "test",
                .done = job_done,
                .released = job_released,
                .context = &mine}};
    xn_problem_of_network(network, &mine.job.problem);
    sem_init(&mine.done, 0, 0);
    sem_init(&mine.released, 0, 0);
    if (!cancelled)
        mine.job.deadline_ns = xn_now_ns() + 50 * XN_NS_PER_MS;
    ck_assert_int_eq(xn_engine_submit(engine, &mine.job, NULL), XN_OK);
    wait_for_start(engine, &mine.job);
    if (cancelled)
        xn_engine_cancel(engine, &mine.job, XN_ERR_CANCELLED);
    fake_wait(&mine.done);
    if (mine.job.in_use)
        fake_wait(&mine.released);
    ck_assert_int_eq(mine.job.status, cancelled ? XN_ERR_CANCELLED : XN_ERR_DEADLINE);
    ck_assert_int_eq(mine.job.error.status, mine.job.status);
    /* On a busy machine the deadline may pass before a worker is there. */
    const bool in_queue = !cancelled && strstr(mine.job.error.message, "in the queue");
    ck_assert_int_eq(mine.job.device, in_queue ? -1 : 0);
    xn_mem_free((void *)(uintptr_t)mine.job.input);
    xn_mem_free(mine.job.output);
    xn_asset_release(asset);
    xn_engine_free(engine);
}
END_TEST

/* What an image costs is summed over all steps, bits apart from reals. */
START_TEST(work_of_networks) {
    xn_problem problem;
    double ns[2];
    for (int real = 0; real < 2; real++) {
        nw_net *net = nw_create(1, 8, 8);
        xn_rng rng = {xn_test_seed()};
        xn_layer *layer = nw_add(net, XN_OP_CONV, "wide", NULL);
        layer->weight = nw_random(net, &rng, true, 64, 1, 1, 1);
        for (int i = 0; i < 4; i++) {
            char *name = nw_take(net, 16);
            snprintf(name, 16, "c%d", i);
            layer = nw_add(net, XN_OP_CONV, name, NULL);
            layer->weight = nw_random(net, &rng, true, 64, 64, 3, 3);
            layer->window.padding_kind = XN_PADDING_SAME;
            layer->window.mode = real ? XN_MODE_FLOAT : XN_MODE_XNOR;
        }
        xn_network *network = nw_lower(net);
        const int64_t products = INT64_C(4) * 64 * 64 * 64 * 9; /* "wide" has 64 * 64 more */
        ck_assert_int_eq(network->bit_operations, real ? 64 * 64 : products + 64 * 64);
        ck_assert_int_le(network->bit_operations, network->operations);
        ck_assert_int_gt(network->moved_elements,
                         network->input_elements + network->output_elements);
        xn_problem_of_network(network, &problem);
        ns[real] = xn_work_image_ns(&problem);
        ck_assert_int_eq(xn_worker_threads(&problem, 1, 64), real ? 9 : 1);
        ck_assert_int_eq(xn_worker_threads(&problem, 1000, 8), 8);
        xn_network_free(network);
        nw_free(net);
    }
    ck_assert_double_gt(ns[1], 3 * ns[0]);
}
END_TEST

XN_SUITE(engine_network) {
    Suite *s = suite_create("engine_network");
    TCase *t = tcase_create("network");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, networks_come_and_go);
    tcase_add_loop_test(t, runs_are_given_up, 0, 2);
    tcase_add_test(t, work_of_networks);
    suite_add_tcase(s, t);
    return s;
}
