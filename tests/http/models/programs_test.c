/* What workers keep to run with: memory of the tensors between layers, which a small model can make
 * large. A limit refuses it, the queue's bytes count it, and it is given back. */
#include "http/client/wire.h"
#include "nw_write.h"

#include "http/client/oip.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { SIDE = 1601, LAYERS = 8, MIB = 1 << 20 };

#define TENSOR_BYTES ((double)SIDE * SIDE * 4)

static char repository[256];

/* One pixel, which eight convolutions pad to SIDE x SIDE; all eight results are read after the
 * last: 82 MB for one image, of a few kilobytes of files. */
static void make_repository(void) {
    static const char *const names[LAYERS] = {"c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"};
    const float one = 1;
    nw_net *net = nw_create(1, 1, 1);
    char folder[300];
    for (int i = 0; i < LAYERS; i++) {
        xn_layer *conv = nw_add(net, XN_OP_CONV, names[i], "input");
        conv->window.mode = XN_MODE_FLOAT;
        conv->weight = nw_tensor(net, &one, 1, 1, 1, 1);
        for (int k = 0; k < 4; k++)
            conv->window.padding[k] = SIDE / 2;
    }
    nw_add(net, XN_OP_CONCAT, "all", "c0 c1 c2 c3 c4 c5 c6 c7");
    nw_add(net, XN_OP_AVG_POOL, "mean", NULL)->global = true;
    xt_folder_make(repository, sizeof repository);
    snprintf(folder, sizeof folder, "%s/wide", repository);
    ck_assert(!mkdir(folder, 0777));
    nw_write_folder(net, NULL, folder);
    nw_free(net);
}

static void remove_repository(void) {
    xt_reap();
    xt_folder_remove(repository);
}

static int send_one(xt_daemon *daemon, const char *target, const char *body,
                    xt_response *response) {
    xt_fetch(daemon, "POST", target, body[0] ? "Content-Type: application/json\r\n" : "", body,
             strlen(body), response);
    return response->status;
}

static int infer(xt_daemon *daemon) {
    xt_response response;
    int status = send_one(daemon, "/v2/models/wide/infer",
                          "{\"inputs\": [{\"name\": \"input\", \"shape\": [1,1,1,1], \"datatype\": "
                          "\"FP32\", \"data\": [1]}]}",
                          &response);
    xt_response_free(&response);
    return status;
}

/* By the request that loads it, and by what the repository says of it. */
START_TEST(an_image_has_a_limit) {
    xt_response response;
    xt_daemon *d = xt_daemon_start(
        XT_FLAGS("--model-repository", repository, "--queue-bytes", "256M", "--backend", "cpu"));
    ck_assert(xt_daemon_log_wait(d, "model \"wide\" cannot be loaded"));
    ck_assert_int_eq(send_one(d, "/v2/repository/models/wide/load", "", &response), 413);
    const char *parts[] = {"--max-image-bytes allows 67108864", "\\\"all\\\", 8 x 1601 x 1601"};
    for (int i = 0; i < 2; i++)
        ck_assert_msg(strstr(response.body, parts[i]) != NULL, "%s", response.body);
    xt_response_free(&response);
    ck_assert_int_ne(infer(d), 200);
    ck_assert_double_eq(xt_metric(d, "xnord_programs_bytes"), 0);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

static long settled_kb(xt_daemon *daemon, long below_kb) {
    long now = 0;
    for (int64_t end = xt_now_ms() + XT_PATIENCE_MS; xt_now_ms() < end; xt_nap())
        if ((now = xt_daemon_memory_kb(daemon, "VmRSS")) < below_kb)
            break;
    return now;
}

/* _i 0: given back when the model is unloaded, at once; 1: once nothing runs for a while. */
START_TEST(an_image_counts_and_is_given_back) {
    xt_response response;
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--model-repository", repository, "--queue-bytes",
                                            "256M", "--max-image-bytes", "100M", "--backend", "cpu",
                                            "--threads", "2", "--warmup", "off"));
    ck_assert(xt_daemon_log_wait(d, "model \"wide\" version 1 loaded"));
    const long before = xt_daemon_memory_kb(d, "VmRSS");
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(infer(d), 200);
    const double held = xt_metric(d, "xnord_programs_bytes");
    ck_assert_msg(held >= LAYERS * TENSOR_BYTES && held <= 128.0 * MIB, "%.0f bytes", held);
    ck_assert_int_gt(xt_daemon_memory_kb(d, "VmRSS"), before + (long)(TENSOR_BYTES * 6 / 1024));
    if (_i == 0) {
        ck_assert_int_eq(send_one(d, "/v2/repository/models/wide/unload", "", &response), 200);
        xt_response_free(&response);
        const int64_t end = xt_now_ms() + 2000;
        while (xt_metric(d, "xnord_programs_bytes") > 0 && xt_now_ms() < end)
            xt_nap();
    }
    ck_assert(xt_metric_becomes(d, "xnord_programs_bytes", 0));
    if (!XN_TEST_SANITIZED) { /* they keep what was freed */
        const long after = settled_kb(d, before + 20 * 1024);
        ck_assert_msg(after < before + 20 * 1024, "%ld kB before, %ld kB after", before, after);
    }
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* Rows so long that what threads keep of them is many times the body: refused before it is taken.
 */
START_TEST(scratch_has_a_limit) {
    enum { WIDTH = 2000000 };
    static const char target[] =
        "/conv?shape=1,1,2,2000000&datatype=INT8&weights=k&padding=1&mode=float";
    static const char kernel[] = "{\"weights\": {\"shape\": [1,1,3,3], \"datatype\": \"FP32\", "
                                 "\"data\": [1,1,1,1,1,1,1,1,1]}}";
    xt_response response;
    char *body = calloc(2, WIDTH);
    xt_daemon *d = xt_daemon_start(
        XT_FLAGS("--queue-bytes", "64M", "--max-bytes-per-client", "64M", "--backend", "cpu"));
    xt_expect(d, "PUT", "/weights/k", "Content-Type: application/json\r\n", kernel, 201);
    const long before = xt_daemon_memory_kb(d, "VmHWM");
    xt_fetch(d, "POST", target, "Content-Type: application/octet-stream\r\n", body,
             2 * (size_t)WIDTH, &response);
    xt_check_error(&response, 413, NULL, "half of --queue-bytes", "long rows");
    xt_response_free(&response);
    if (!XN_TEST_SANITIZED)
        ck_assert_int_lt(xt_daemon_memory_kb(d, "VmHWM"), before + 64 * 1024);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
    free(body);
}
END_TEST

XN_SUITE(http_programs) {
    Suite *s = suite_create("http_programs");
    TCase *t = tcase_create("programs");
    tcase_set_timeout(t, 180);
    tcase_add_checked_fixture(t, make_repository, remove_repository);
    tcase_add_test(t, an_image_has_a_limit);
    tcase_add_test(t, scratch_has_a_limit);
    tcase_add_loop_test(t, an_image_counts_and_is_given_back, 0, 2);
    suite_add_tcase(s, t);
    return s;
}
