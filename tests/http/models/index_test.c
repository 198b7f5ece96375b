/* Codes as an index that a daemon serves from the mapped file: what it finds, and what becomes of
 * it when the file is replaced, cut short, or written into. */
#include "http/client/client.h"
#include "http/client/oip.h"
#include "xn_test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* 17 MB of codes: enough to be mapped. */
enum { ROWS = 135000, BYTES = 128, K = 5 };
static const char header[] =
    "{\"dot.weight\":{\"dtype\":\"U8\",\"shape\":[135000,128],\"data_offsets\":[0,17280000]},"
    "\"distance.scale\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[17280000,17280004]},"
    "\"distance.bias\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[17280004,17280008]}}";
static const char config[] =
    "{\"format\": \"xnord-network/1\", \"input\": {\"name\": \"query\", \"datatype\": \"UINT8\", "
    "\"shape\": [128], \"packed_channels\": 1024}, \"layers\": ["
    "{\"op\": \"conv\", \"name\": \"dot\", \"mode\": \"xnor\", \"packed_channels\": 1024}, "
    "{\"op\": \"affine\", \"name\": \"distance\"}, "
    "{\"op\": \"top_k\", \"name\": \"nearest\", \"k\": 5, \"largest\": false}]}";

static uint8_t codes[ROWS][BYTES];
static char repository[256], tensors[300];

static void make_codes(uint64_t seed) {
    xn_rng rng = {xn_test_seed() + seed};
    for (size_t i = 0; i < sizeof codes; i += 8) {
        const uint64_t bits = xn_rng_next(&rng);
        memcpy((uint8_t *)codes + i, &bits, 8);
    }
}

/* Of `rows` codes, whatever the header says; under its name once it is whole. */
static void write_index(int rows) {
    static const float affine[2] = {-0.5f, 8 * BYTES / 2};
    char unfinished[310];
    const uint64_t spaces = 7 - (sizeof header + 6) % 8, length = sizeof header - 1 + spaces;
    snprintf(unfinished, sizeof unfinished, "%s.part", tensors);
    FILE *file = fopen(unfinished, "wb");
    ck_assert_ptr_nonnull(file);
    fwrite(&length, 8, 1, file);
    fprintf(file, "%s%*s", header, (int)spaces, "");
    fwrite(codes, BYTES, (size_t)rows, file);
    if (rows == ROWS)
        fwrite(affine, sizeof affine, 1, file);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(rename(unfinished, tensors), 0);
}

static void start(void) {
    char path[300];
    xt_folder_make(repository, sizeof repository);
    snprintf(path, sizeof path, "%s/codes", repository);
    ck_assert_int_eq(mkdir(path, 0777), 0);
    snprintf(tensors, sizeof tensors, "%s/codes/model.safetensors", repository);
    snprintf(path, sizeof path, "%s/codes/config.json", repository);
    FILE *file = fopen(path, "w");
    ck_assert(file && fputs(config, file) >= 0 && !fclose(file));
    make_codes(0);
    write_index(ROWS);
}

static void stop(void) {
    xt_folder_remove(repository);
}

static xt_daemon *serve(const char *elements) {
    return xt_daemon_start(
        XT_FLAGS("--model-repository", repository, "--warmup", "off", "--max-elements", elements));
}

static int distance_of(int row, const uint8_t *query) {
    int distance = 0;
    for (int i = 0; i < BYTES; i++)
        distance += __builtin_popcount(codes[row][i] ^ query[i]);
    return distance;
}

/* The code's own distances from all: the K least, ties by the lower row. */
static void find_nearest(const uint8_t *query, int distances[K], int rows[K]) {
    int found = 0;
    for (int row = 0; row < ROWS; row++) {
        const int distance = distance_of(row, query);
        int at = found < K ? found++ : K;
        for (; at > 0 && distances[at - 1] > distance; at--)
            if (at < K) {
                distances[at] = distances[at - 1];
                rows[at] = rows[at - 1];
            }
        if (at < K) {
            distances[at] = distance;
            rows[at] = row;
        }
    }
}

static int ask(const xt_daemon *d, const uint8_t *query, xt_response *response) {
    xt_buffer body = {0};
    xt_print(&body, "{\"inputs\": [{\"name\": \"query\", \"datatype\": \"UINT8\", "
                    "\"shape\": [1, 128], \"data\": [");
    for (int i = 0; i < BYTES; i++)
        xt_print(&body, "%s%d", i ? ", " : "", query[i]);
    xt_print(&body, "]}]}");
    xt_fetch(d, "POST", "/v2/models/codes/infer", "", body.data, body.length, response);
    xt_buffer_free(&body);
    return response->status;
}

/* The daemon finds what is there. */
static void expect_found(const xt_daemon *d) {
    uint8_t query[BYTES];
    int distances[K], rows[K];
    xt_response response;
    memcpy(query, codes[ROWS - 7], BYTES);
    query[3] ^= 5;
    find_nearest(query, distances, rows);
    ck_assert_int_eq(rows[0], ROWS - 7);
    ck_assert_msg(ask(d, query, &response) == 200, "%s", response.body);
    for (int i = 0; i < K; i++) {
        char value[40], index[40];
        snprintf(value, sizeof value, "outputs.0.data.%d", i);
        snprintf(index, sizeof index, "outputs.1.data.%d", i);
        ck_assert_double_eq(xt_json_number(response.body, value), distances[i]);
        ck_assert_double_eq(xt_json_number(response.body, index), rows[i]);
    }
    xt_response_free(&response);
}

static void load(const xt_daemon *d, int status, const char *says) {
    xt_response response;
    xt_fetch(d, "POST", "/v2/repository/models/codes/load", "", "{}", 2, &response);
    ck_assert_msg(response.status == status && strstr(response.body, says), "%d %s",
                  response.status, response.body);
    xt_response_free(&response);
}

/* ---- tests ---- */

START_TEST(served_from_the_file) {
    char maps[40];
    char line[512];
    bool mapped = false;
    xt_daemon *d = serve("1000000000");
    expect_found(d);
    snprintf(maps, sizeof maps, "/proc/%d/maps", (int)d->pid);
    FILE *file = fopen(maps, "r");
    while (fgets(line, sizeof line, file))
        mapped = mapped || strstr(line, tensors);
    fclose(file);
    ck_assert(mapped);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

START_TEST(too_many_elements) {
    xt_daemon *d = serve("1000000");
    load(d, 413, "max-elements");
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* A file that is shorter than its shape is refused, and the old one serves on; so does another. */
START_TEST(replaced_while_it_serves) {
    xt_daemon *d = serve("1000000000");
    write_index(ROWS - 1);
    load(d, 400, "data_offsets");
    expect_found(d);
    make_codes(1);
    write_index(ROWS);
    load(d, 200, "");
    expect_found(d);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* 0: all of the file goes; 1: the last part of it; 2: nothing but a code changes. */
START_TEST(written_into_while_it_serves) {
    xt_response response;
    xt_daemon *d = serve("1000000000");
    expect_found(d);
    const int file = open(tensors, O_WRONLY);
    ck_assert(file >= 0);
    if (_i == 2)
        ck_assert_int_eq(pwrite(file, codes, BYTES, 4096), BYTES);
    else
        ck_assert_int_eq(ftruncate(file, _i ? 1000000 : 0), 0);
    close(file);
    ck_assert_int_eq(ask(d, codes[0], &response), 503);
    ck_assert_ptr_nonnull(strstr(response.body, "written into"));
    xt_response_free(&response);
    write_index(ROWS);
    load(d, 200, "");
    expect_found(d);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

XN_SUITE(http_index) {
    Suite *suite = suite_create("http_index");
    TCase *tcase = tcase_create("index");
    tcase_add_checked_fixture(tcase, start, NULL);
    tcase_add_checked_fixture(tcase, NULL, xt_reap);
    tcase_add_checked_fixture(tcase, NULL, stop);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, served_from_the_file);
    tcase_add_test(tcase, too_many_elements);
    tcase_add_test(tcase, replaced_while_it_serves);
    tcase_add_loop_test(tcase, written_into_while_it_serves, 0, 3);
    suite_add_tcase(suite, tcase);
    return suite;
}
