/* Shared memory of clients on a real daemon: registering, inputs and outputs that lie there, and a
 * client that takes it away while it is used. */
#include "client/oip.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define REGION "/v2/systemsharedmemory/region/"

static xt_daemon *daemon_;
static char repository[256], key[64];
static const char *headers = ""; /* of every request */
static xt_net net;

enum { BYTES = 65536 };

static void start(void) {
    xt_folder_make(repository, sizeof repository);
    xt_net_make(&net, XT_NET_BYTES, xn_test_seed());
    xt_net_write(&net, repository, "bytes");
    snprintf(key, sizeof key, "/xnord-test-%d", (int)getpid());
    daemon_ =
        xt_daemon_start_shared(XT_FLAGS("--model-repository", repository, "--allow-client-shm"));
}

static void stop(void) {
    xt_daemon_stop_shared(daemon_);
    xt_net_free(&net);
    xt_folder_remove(repository);
    shm_unlink(key);
}

/* A new object of that size; nothing is registered. */
static unsigned char *fresh_memory(size_t bytes) {
    xt_expect(daemon_, "POST", "/v2/systemsharedmemory/unregister", "", "", 200);
    shm_unlink(key);
    int fd = shm_open(key, O_RDWR | O_CREAT | O_EXCL, 0600);
    ck_assert(fd >= 0 && !ftruncate(fd, (off_t)bytes));
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(memory, MAP_FAILED);
    close(fd);
    return memory;
}

static void resize(size_t bytes) {
    int fd = shm_open(key, O_RDWR, 0);
    ck_assert(fd >= 0 && !ftruncate(fd, (off_t)bytes));
    close(fd);
}

static void post(const char *target, const char *body, xt_response *response) {
    xt_fetch(daemon_, "POST", target, headers, body, strlen(body), response);
}

/* The status alone; a refusal that says so. */
static void expect(const char *target, const char *body, int status) {
    xt_expect(daemon_, "POST", target, headers, body, status);
}

static void refused(const char *target, const char *body, int status, const char *part) {
    xt_response response;
    post(target, body, &response);
    xt_check_oip_error(&response, status, part, target);
    xt_response_free(&response);
}

static int register_region(const char *name, const char *of, const char *offset,
                           const char *byte_size, const char *part) {
    char target[300], body[400];
    xt_response response;
    snprintf(target, sizeof target, REGION "%s/register", name);
    snprintf(body, sizeof body, "{\"key\": \"%s\", \"offset\": %s, \"byte_size\": %s}", of, offset,
             byte_size);
    post(target, body, &response);
    int status = response.status;
    if (status != 200)
        xt_check_oip_error(&response, status, part, body);
    else
        ck_assert_uint_eq(response.length, 0);
    xt_response_free(&response);
    return status;
}

START_TEST(what_is_registered_is_shown) {
    fresh_memory(BYTES);
    ck_assert_int_eq(register_region("one", key, "0", "100", NULL), 200);
    ck_assert_int_eq(register_region("a%20b:0", key + 1, "100", "1000", NULL), 200);
    char *all = xt_get(daemon_, "/v2/systemsharedmemory/status");
    ck_assert_msg(xt_json_valid(all), "%s", all);
    ck_assert(xt_json_is(all, "0.name", "one") && xt_json_is(all, "1.name", "a b:0"));
    ck_assert(xt_json_is(all, "0.key", key) && xt_json_is(all, "1.key", key));
    ck_assert_double_eq(xt_json_number(all, "1.offset"), 100);
    ck_assert_double_eq(xt_json_number(all, "1.byte_size"), 1000);
    free(all);
    char *one = xt_get(daemon_, REGION "one/status");
    ck_assert(xt_json_is(one, "0.name", "one") && !xt_json_at(one, "1"));
    free(one);
    xt_response response;
    expect(REGION "one/unregister", "", 200);
    xt_fetch(daemon_, "GET", REGION "one/status", "", NULL, 0, &response);
    xt_check_oip_error(&response, 404, "one", "status");
    xt_response_free(&response);
    expect(REGION "one/unregister", "{}", 200); /* again: as good as done */
}
END_TEST

START_TEST(wrong_regions) {
    static const struct {
        const char *key, *offset, *byte_size;
    } table[] = {{NULL, "0", "65537"},
                 {NULL, "65536", "1"},
                 {NULL, "65537", "1"},
                 {NULL, "0", "0"},
                 {NULL, "18446744073709551615", "2"},
                 {NULL, "1", "18446744073709551615"},
                 {NULL, "-1", "10"},
                 {NULL, "0", "\"10\""},
                 {"/xnord-test-there-is-none", "0", "10"},
                 {"/a/b", "0", "10"},
                 {"/../etc/passwd", "0", "10"},
                 {"/..", "0", "10"},
                 {"/.", "0", "10"},
                 {"..", "0", "10"},
                 {"/", "0", "10"},
                 {"", "0", "10"}};
    char name[200];
    fresh_memory(BYTES);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        ck_assert_int_eq(register_region("r", table[i].key ? table[i].key : key, table[i].offset,
                                         table[i].byte_size, NULL),
                         400);
    ck_assert_int_eq(register_region("r", key, "0", "10", NULL), 200);
    ck_assert_int_eq(register_region("r", key, "0", "10", "already"), 400);
    memset(name, 'x', sizeof name);
    name[128] = 0;
    ck_assert_int_eq(register_region(name, key, "0", "10", NULL), 200);
    name[128] = 'x';
    name[129] = 0;
    ck_assert_int_eq(register_region(name, key, "0", "10", NULL), 400);
    ck_assert_int_eq(register_region("a%01b", key, "0", "10", NULL), 400);
    refused(REGION "s/register", "{}", 400, "key");
}
END_TEST

START_TEST(no_more_than_128) {
    char name[16];
    fresh_memory(BYTES);
    for (int i = 0; i < 128; i++) {
        snprintf(name, sizeof name, "r%d", i);
        ck_assert_int_eq(register_region(name, key, "0", "10", NULL), 200);
    }
    ck_assert_int_eq(register_region("more", key, "0", "10", "128"), 413);
    fresh_memory(BYTES);
    ck_assert_int_eq(register_region("more", key, "0", "10", NULL), 200);
}
END_TEST

START_TEST(cuda_regions) {
    char *none = xt_get(daemon_, "/v2/cudasharedmemory/status");
    ck_assert_str_eq(none, "[]\n");
    free(none);
    expect("/v2/cudasharedmemory/unregister", "", 200);
    expect("/v2/cudasharedmemory/region/x/unregister", "", 200);
    refused("/v2/cudasharedmemory/region/x/register", "{}", 501, NULL);
}
END_TEST

/* ---- inputs and outputs ---- */

enum { FEATURES = 8 * 6 * 5, CLASSES = 10, IMAGE = 6 * 5 * 3, OUTPUT_AT = 4096 };

static int infer_shared(int64_t images, uint64_t in_at, uint64_t in_bytes, uint64_t out_at,
                        uint64_t out_bytes, xt_response *response) {
    char body[1000];
    snprintf(body, sizeof body,
             "{\"inputs\": [{\"name\": \"input\", \"shape\": [%lld, 6, 5, 3], \"datatype\": "
             "\"UINT8\", \"parameters\": {\"shared_memory_region\": \"in\", "
             "\"shared_memory_byte_size\": %llu, \"shared_memory_offset\": %llu}}], \"outputs\": "
             "[{\"name\": \"out1\", \"parameters\": {\"shared_memory_region\": \"out\", "
             "\"shared_memory_byte_size\": %llu, \"shared_memory_offset\": %llu}}, {\"name\": "
             "\"out0\", \"parameters\": {\"binary_data\": true}}]}",
             (long long)images, (unsigned long long)in_bytes, (unsigned long long)in_at,
             (unsigned long long)out_bytes, (unsigned long long)out_at);
    post("/v2/models/bytes/infer", body, response);
    return response->status;
}

static unsigned char *both_regions(void) {
    unsigned char *memory = fresh_memory(BYTES);
    ck_assert_int_eq(register_region("in", key, "0", "4096", NULL), 200);
    ck_assert_int_eq(register_region("out", key, "4096", "4096", NULL), 200);
    return memory;
}

/* Of `images` images, at the beginning of both regions. */
static void check_infer(int64_t images, int status, const char *part) {
    xt_response response;
    infer_shared(images, 0, (uint64_t)images * IMAGE, 0, (uint64_t)images * CLASSES * 4, &response);
    if (status == 200)
        ck_assert_msg(response.status == 200, "%s", response.body);
    else
        xt_check_oip_error(&response, status, part, "infer");
    xt_response_free(&response);
}

START_TEST(values_in_shared_memory) {
    xn_rng rng = {xn_test_seed()};
    unsigned char *memory = both_regions();
    for (int64_t images = 1; images <= 16; images += 5) {
        uint64_t in_at = xn_rng_below(&rng, 100), out_at = xn_rng_below(&rng, 100);
        unsigned char *input = xt_net_images(&net, &rng, images);
        float *expected = xt_net_expect(&net, input, images);
        xt_response response;
        memset(memory, 0x5a, BYTES);
        memcpy(memory + in_at, input, (size_t)images * IMAGE);
        int status = infer_shared(images, in_at, (uint64_t)images * IMAGE, out_at,
                                  (uint64_t)images * CLASSES * 4, &response);
        ck_assert_msg(status == 200, "%s", response.body);
        for (int64_t i = 0; i < images; i++)
            ck_assert(!memcmp(memory + OUTPUT_AT + out_at + (size_t)i * CLASSES * 4,
                              expected + i * (FEATURES + CLASSES) + FEATURES, CLASSES * 4));
        ck_assert_uint_eq(memory[OUTPUT_AT + out_at + (size_t)images * CLASSES * 4], 0x5a);
        ck_assert_uint_eq(memory[OUTPUT_AT + out_at - 1], 0x5a);
        ck_assert(xt_json_is(response.body, "outputs.0.name", "out1"));
        ck_assert_ptr_null(xt_json_at(response.body, "outputs.0.parameters"));
        ck_assert_ptr_null(xt_json_at(response.body, "outputs.0.data"));
        xt_check_output(&response, 1, "out0", expected, images, FEATURES + CLASSES, 0, FEATURES);
        xt_response_free(&response);
        free(input);
        free(expected);
    }
    munmap(memory, BYTES);
}
END_TEST

START_TEST(ranges_outside_of_a_region) {
    static const struct {
        uint64_t in_at, in_bytes, out_at, out_bytes;
    } table[] = {{4096 - IMAGE + 1, IMAGE, 0, 40}, {0, IMAGE - 1, 0, 40},
                 {UINT64_MAX, IMAGE, 0, 40},       {UINT64_MAX - IMAGE + 1, IMAGE, 0, 40},
                 {0, IMAGE, 4096 - 39, 40},        {0, IMAGE, 0, 39},
                 {0, IMAGE, UINT64_MAX - 10, 40},  {0, UINT64_MAX, 0, 40}};
    xt_response response;
    unsigned char *memory = both_regions();
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        infer_shared(1, table[i].in_at, table[i].in_bytes, table[i].out_at, table[i].out_bytes,
                     &response);
        xt_check_oip_error(&response, 400, NULL, "a range");
        xt_response_free(&response);
    }
    munmap(memory, BYTES);
    fresh_memory(BYTES);
    check_infer(1, 400, "in");
}
END_TEST

/* ---- keys ---- */

#define KEY_ONE "first-key-0123456789abcdef"
#define KEY_TWO "second-key-0123456789abcdef"

static const char *const keys[] = {"Authorization: Bearer " KEY_ONE "\r\n",
                                   "Authorization: Bearer " KEY_TWO "\r\n"};

/* How many regions the key at hand is shown. */
static int regions_shown(void) {
    xt_response response;
    int count = 0;
    xt_fetch(daemon_, "GET", "/v2/systemsharedmemory/status", headers, NULL, 0, &response);
    ck_assert_int_eq(response.status, 200);
    for (const char *at = response.body; (at = strstr(at, "\"name\"")); at++)
        count++;
    xt_response_free(&response);
    return count;
}

/* The other key neither sees, uses nor unregisters a region, and may have one of the same name. */
START_TEST(regions_belong_to_their_key) {
    char path[64];
    xt_response response;
    munmap(both_regions(), BYTES); /* the object, under the shared daemon */
    xt_make_file(path, sizeof path, KEY_ONE "\n" KEY_TWO "\n");
    xt_daemon *const open = daemon_;
    daemon_ = xt_daemon_start(
        XT_FLAGS("--model-repository", repository, "--allow-client-shm", "--api-keys-file", path));
    headers = keys[0];
    ck_assert_int_eq(register_region("in", key, "0", "4096", NULL), 200);
    ck_assert_int_eq(register_region("out", key, "4096", "4096", NULL), 200);
    headers = keys[1];
    ck_assert_int_eq(regions_shown(), 0);
    xt_fetch(daemon_, "GET", REGION "in/status", headers, NULL, 0, &response);
    xt_check_oip_error(&response, 404, "in", "status");
    xt_response_free(&response);
    check_infer(1, 400, "no region \"in\"");
    static const char *const unregister[] = {REGION "in/unregister",
                                             "/v2/systemsharedmemory/unregister"};
    for (int i = 0; i < 2; i++)
        expect(unregister[i], "", 200);
    ck_assert_int_eq(register_region("in", key, "0", "512", NULL), 200);
    check_infer(1, 400, "no region \"out\"");
    ck_assert_int_eq(regions_shown(), 1);
    headers = keys[0];
    ck_assert_int_eq(regions_shown(), 2);
    check_infer(16, 200, NULL); /* of more than 512 bytes */
    ck_assert_int_eq(register_region("in", key, "0", "4096", "already"), 400);
    headers = "";
    ck_assert_int_eq(xt_daemon_stop(daemon_), 0);
    daemon_ = open;
    unlink(path);
}
END_TEST

/* A region that shrinks is an error, and no more than that. */
START_TEST(memory_that_shrinks) {
    unsigned char *memory = both_regions();
    check_infer(1, 200, NULL);
    resize(IMAGE - 1);
    check_infer(1, 400, "shrunk");
    resize(0);
    check_infer(1, 400, "shrunk");
    resize(BYTES);
    check_infer(1, 200, NULL);
    munmap(memory, BYTES);
}
END_TEST

static void *shrink_and_grow(void *context) {
    for (int i = 0; i < *(const int *)context; i++) {
        resize(i % 2 ? BYTES : (size_t)(i % 3) * 2048);
        xt_nap();
    }
    return NULL;
}

START_TEST(memory_that_shrinks_while_it_is_used) {
    int rounds = 100;
    pthread_t thread;
    unsigned char *memory = both_regions();
    ck_assert(!pthread_create(&thread, NULL, shrink_and_grow, &rounds));
    for (int i = 0; i < 200; i++) {
        xt_response response;
        int status = infer_shared(16, 0, 16 * IMAGE, 0, 16 * 40, &response);
        ck_assert_msg(status == 200 || status == 400, "%d: %s", status, response.body);
        xt_response_free(&response);
    }
    pthread_join(thread, NULL);
    ck_assert(xt_daemon_alive(daemon_));
    munmap(memory, BYTES);
}
END_TEST

/* Packed bits of registered weights: spare ones mean nothing there either. */
START_TEST(spare_bits_in_shared_memory) {
    static const char weights[] =
        "{\"weights\": {\"shape\": [1, 3, 1, 1], \"datatype\": \"FP32\", \"data\": [1, 1, 1]}}";
    unsigned char *memory = both_regions();
    xt_response response;
    xt_expect(daemon_, "PUT", "/weights/sum", "Content-Type: application/json\r\n", weights, 201);
    memcpy(memory, "\x07\xff\xf8\xf9", 4); /* of 3 bits each: all, all, none, one */
    post("/v2/models/sum/infer",
         "{\"inputs\": [{\"name\": \"input\", \"shape\": [1, 3, 2, 2], \"datatype\": \"BITS\", "
         "\"parameters\": {\"shared_memory_region\": \"in\", \"shared_memory_byte_size\": 4}}], "
         "\"parameters\": {\"scaling\": \"none\"}}",
         &response);
    ck_assert_msg(response.status == 200, "%s", response.body);
    ck_assert_ptr_nonnull(strstr(response.body, "\"data\":[3,3,-3,-1]"));
    xt_response_free(&response);
    ck_assert_uint_eq(memory[1], 0xff);
    munmap(memory, BYTES);
}
END_TEST

/* ---- in place, where a device reaches it so ---- */

enum { SIDE = 512, IMAGES_BYTES = SIDE * SIDE * 4, ROOM = 2 * IMAGES_BYTES + 4096 };

static void put_filter(void) {
    static const char filter[] = "{\"weights\": {\"shape\": [1, 1, 1, 1], \"datatype\": \"FP32\", "
                                 "\"data\": [3]}}";
    xt_response response;
    xt_fetch(daemon_, "PUT", "/weights/filter", "Content-Type: application/json\r\n", filter,
             strlen(filter), &response);
    ck_assert_msg(response.status == 201 || response.status == 200, "%s", response.body);
    xt_response_free(&response);
}

/* One image of 512x512, times 3, from `in` to `out`. */
static void infer_image(int offset, int status) {
    char body[1000];
    xt_response response;
    snprintf(body, sizeof body,
             "{\"inputs\": [{\"name\": \"input\", \"shape\": [1, 1, 512, 512], \"datatype\": "
             "\"FP32\", \"parameters\": {\"shared_memory_region\": \"in\", "
             "\"shared_memory_byte_size\": %d, \"shared_memory_offset\": %d}}], \"outputs\": "
             "[{\"name\": \"output\", \"parameters\": {\"shared_memory_region\": \"out\", "
             "\"shared_memory_byte_size\": %d}}], \"parameters\": {\"mode\": \"float\"}}",
             IMAGES_BYTES, offset, IMAGES_BYTES);
    post("/v2/models/filter/infer", body, &response);
    ck_assert_msg(response.status == status, "%d %s", response.status, response.body);
    xt_response_free(&response);
}

static void fill_image(unsigned char *memory, int round) {
    for (int i = 0; i < SIDE * SIDE; i++) {
        const float value = (float)((i * 7 + round * 13) % 251);
        memcpy(memory + (size_t)i * sizeof value, &value, sizeof value);
    }
}

static void check_image(const unsigned char *memory, int round) {
    for (int i = 0; i < SIDE * SIDE; i++) {
        float value;
        memcpy(&value, memory + (size_t)i * sizeof value, sizeof value);
        ck_assert_msg(value == 3 * (float)((i * 7 + round * 13) % 251), "round %d, value %d: %g",
                      round, i, (double)value);
    }
}

static void register_images(int rounds, unsigned char *memory, int first) {
    char bytes[20], at[20];
    snprintf(bytes, sizeof bytes, "%d", IMAGES_BYTES + 4096);
    snprintf(at, sizeof at, "%d", IMAGES_BYTES + 4096);
    ck_assert_int_eq(register_region("in", key, "0", bytes, NULL), 200);
    snprintf(bytes, sizeof bytes, "%d", IMAGES_BYTES);
    ck_assert_int_eq(register_region("out", key, at, bytes, NULL), 200);
    for (int i = first; i < first + rounds; i++) {
        const int offset = i % 3 * 1000;
        fill_image(memory + offset, i);
        infer_image(offset, 200);
        check_image(memory + IMAGES_BYTES + 4096, i);
        xt_nap(); /* regions are pinned meanwhile, where they are */
    }
}

/* What a client writes is what the next request reads, whatever it did to the object: a device
 * that has the old pages must not be asked for the new ones. */
START_TEST(images_in_place) {
    unsigned char *memory = fresh_memory(ROOM);
    put_filter();
    register_images(20, memory, 0);
    resize(4096);
    infer_image(0, 400);
    resize(ROOM);
    fill_image(memory, 50);
    infer_image(0, 200);
    check_image(memory + IMAGES_BYTES + 4096, 50);
    fill_image(memory, 51);
    infer_image(0, 200);
    check_image(memory + IMAGES_BYTES + 4096, 51);
    expect("/v2/systemsharedmemory/unregister", "", 200);
    register_images(10, memory, 100);
    munmap(memory, ROOM);
}
END_TEST

/* ---- without the flag ---- */

START_TEST(not_allowed) {
    xt_response response;
    xt_daemon *closed = xt_daemon_start(XT_NO_FLAGS);
    char *text = xt_get(closed, "/v2/systemsharedmemory/status");
    ck_assert_str_eq(text, "[]\n");
    free(text);
    text = xt_get(closed, "/v2");
    ck_assert_ptr_null(strstr(text, "shared_memory"));
    free(text);
    xt_fetch(closed, "POST", REGION "x/register", "", "{}", 2, &response);
    xt_check_oip_error(&response, 501, "--allow-client-shm", "register");
    xt_response_free(&response);
    xt_expect(closed, "POST", "/v2/systemsharedmemory/unregister", "", "", 200);
    ck_assert_int_eq(xt_daemon_stop(closed), 0);
    text = xt_get(daemon_, "/v2");
    ck_assert_ptr_nonnull(strstr(text, "\"system_shared_memory\""));
    free(text);
}
END_TEST

XN_SUITE(http_shm) {
    Suite *suite = suite_create("http_shm");
    TCase *tcase = tcase_create("shm");
    tcase_add_unchecked_fixture(tcase, start, stop);
    tcase_add_checked_fixture(tcase, NULL, xt_reap);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, what_is_registered_is_shown);
    tcase_add_test(tcase, wrong_regions);
    tcase_add_test(tcase, no_more_than_128);
    tcase_add_test(tcase, cuda_regions);
    tcase_add_test(tcase, values_in_shared_memory);
    tcase_add_test(tcase, spare_bits_in_shared_memory);
    tcase_add_test(tcase, ranges_outside_of_a_region);
    tcase_add_test(tcase, regions_belong_to_their_key);
    tcase_add_test(tcase, memory_that_shrinks);
    tcase_add_test(tcase, memory_that_shrinks_while_it_is_used);
    tcase_add_test(tcase, images_in_place);
    tcase_add_test(tcase, not_allowed);
    suite_add_tcase(suite, tcase);
    xt_add_stopped_case(suite);
    return suite;
}
