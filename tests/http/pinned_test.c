/* Shared memory of clients that a device reaches where it lies: the HTTP server over the fake GPU,
 * which pins regions, aborts where that is misused, and is lost when a test says so. Whatever
 * happens, answers are right; what is in place and what is copied is held against a model. */
#include "client/instance.h"
#include "client/oip.h"
#include "unit/engine/engine_bench.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SHM "/v2/systemsharedmemory/"

enum {
    OBJECTS = 3,
    REGIONS = 4,
    OBJECT_BYTES = 65536,
    STEPS = 150,
    MOST_IMAGES = 8,
    NAP_MAX = 10000
};
static const float weight = 2.5f;

typedef struct object {
    char key[64];
    unsigned char *memory; /* the client's */
} client_object;

/* What is known of a region by its name. */
typedef struct shown {
    bool there, pinned;
    int object;
    size_t offset, bytes;
} shown;

typedef struct rig {
    xt_instance server;
    xn_rng rng;
    client_object objects[OBJECTS];
    shown regions[REGIONS];
    bool lost;           /* the GPU */
    int inputs, outputs; /* in place */
} rig;
static rig r;

static fake_control *const gpu = &fake[FAKE_GPU];

/* ---- the server and its client ---- */

static void map_objects(void) {
    for (int i = 0; i < OBJECTS; i++) {
        client_object *o = &r.objects[i];
        snprintf(o->key, sizeof o->key, "/xnord-pinned-%d-%d", (int)getpid(), i);
        const int fd = shm_open(o->key, O_RDWR | O_CREAT | O_EXCL, 0600);
        ck_assert(fd >= 0 && !ftruncate(fd, OBJECT_BYTES));
        o->memory = mmap(NULL, OBJECT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        ck_assert_ptr_ne(o->memory, MAP_FAILED);
        close(fd);
    }
}

static void post(const char *target, const char *body, int status) {
    xt_expect(&r.server.address, "POST", target, "", body, status);
}

/* inline_us: 0 where a test holds a run, which must not be an HTTP thread's. */
static void start(int64_t most_pinned, int64_t inline_us) {
    static const char weights[] = "{\"weights\": {\"shape\": [1, 1, 1, 1], \"datatype\": \"FP32\", "
                                  "\"data\": [2.5]}}";
    xn_error error = {0};
    fake_reset();
    memset(&r, 0, sizeof r);
    r.rng = (xn_rng){xn_test_seed()};
    xt_instance_init(&r.server);
    r.server.config.on_device_loss = XN_LOSS_CPU;
    r.server.config.allow_client_shm = true;
    r.server.config.inline_us = inline_us;
    if (most_pinned)
        r.server.config.queue_bytes = most_pinned;
    xn_engine *engine = fake_engine_pair(&r.server.config, 1);
    ck_assert_msg(!xt_instance_start(&r.server, engine, &error), "%s", error.message);
    xt_expect(&r.server.address, "PUT", "/weights/w", "Content-Type: application/json\r\n", weights,
              201);
    map_objects();
}

static void stop(void) {
    xt_instance_stop(&r.server);
    fake_expect_all_freed();
    for (int i = 0; i < OBJECTS; i++) {
        munmap(r.objects[i].memory, OBJECT_BYTES);
        shm_unlink(r.objects[i].key);
    }
}

static void wait_for(atomic_int *value, int expected) {
    for (int i = 0; i < NAP_MAX && atomic_load(value) != expected; i++)
        xt_nap();
    ck_assert_int_eq(atomic_load(value), expected);
}

/* What a lost GPU did not let go of is still mapped: nothing else can lie there. */
static void expect_stale_mapped(void) {
    unsigned char pages[OBJECT_BYTES / 4096 + 1];
    for (int i = 0; i < gpu->pin_count; i++) {
        const fake_pin *pin = &gpu->pins[i];
        ck_assert(pin->bytes <= sizeof pages * 4096);
        ck_assert(!pin->stale || !mincore((void *)pin->memory, pin->bytes, pages));
    }
}

/* ---- regions ---- */

static size_t below(size_t limit) {
    return (size_t)xn_rng_below(&r.rng, limit);
}

static void register_at(int region, int object, size_t offset, size_t bytes, bool fails) {
    char target[100], body[200];
    const int before = atomic_load(&gpu->registers);
    shown *s = &r.regions[region];
    gpu->register_failure = fails ? XN_ERR_UNSUPPORTED : XN_OK;
    snprintf(target, sizeof target, SHM "region/r%d/register", region);
    snprintf(body, sizeof body, "{\"key\": \"%s\", \"offset\": %zu, \"byte_size\": %zu}",
             r.objects[object].key, offset, bytes);
    post(target, body, s->there ? 400 : 200);
    if (s->there)
        return;
    *s = (shown){true, !r.lost && !fails, object, offset, bytes};
    if (!r.lost)
        wait_for(&gpu->registers, before + 1);
}

static void register_some(void) {
    const size_t offset = below(OBJECT_BYTES - 4096);
    const size_t whole = below(4) ? offset / 4 * 4 : offset;
    register_at((int)below(REGIONS), (int)below(OBJECTS), whole, 1 + below(OBJECT_BYTES - whole),
                !below(4));
}

static void forget(int region) {
    shown *s = &r.regions[region];
    char target[100];
    snprintf(target, sizeof target, SHM "region/r%d/unregister", region);
    post(target, "", 200);
    *s = (shown){0};
}

static void unregister_some(void) {
    const int region = (int)below(REGIONS);
    if (below(8)) {
        forget(region);
    } else {
        post(SHM "unregister", "", 200);
        memset(r.regions, 0, sizeof r.regions);
    }
}

static void resize(int object, off_t bytes) {
    const int fd = shm_open(r.objects[object].key, O_RDWR, 0);
    ck_assert(fd >= 0 && !ftruncate(fd, bytes));
    close(fd);
}

/* The client's file is cut and grows again: pinned pages are not the object's any more. */
static void cut_some(void) {
    const int object = (int)below(OBJECTS);
    const size_t left = below(OBJECT_BYTES) / 4096 * 4096;
    resize(object, (off_t)left);
    resize(object, OBJECT_BYTES);
    for (int i = 0; i < REGIONS; i++)
        if (r.regions[i].object == object && r.regions[i].offset + r.regions[i].bytes > left)
            r.regions[i].pinned = false;
}

/* ---- inferences ---- */

typedef struct inference {
    const shown *in, *out;
    int images;
    size_t in_at, out_at;
    bool cpu, in_fits, out_fits;
} inference;

static bool fits(const shown *s, size_t at, int images) {
    return s->there && at + (size_t)images * sizeof(float) <= s->bytes;
}

static size_t place_in(const shown *s) {
    const size_t at = below(s->bytes ? s->bytes : 1);
    return below(4)
               ? (at + s->offset) / 4 * 4 < s->offset ? 0 : (at + s->offset) / 4 * 4 - s->offset
               : at;
}

static inference make_inference(void) {
    inference i = {.in = &r.regions[below(REGIONS)],
                   .out = &r.regions[below(REGIONS)],
                   .images = 1 + (int)below(MOST_IMAGES),
                   .cpu = !below(6)};
    i.in_at = place_in(i.in);
    i.out_at = place_in(i.out);
    i.in_fits = fits(i.in, i.in_at, i.images);
    i.out_fits = fits(i.out, i.out_at, i.images);
    return i;
}

static unsigned char *at_client(const shown *s, size_t at) {
    return r.objects[s->object].memory + s->offset + at;
}

static bool in_place(const inference *i, const shown *s, size_t at) {
    return s->pinned && !i->cpu && !r.lost && (s->offset + at) % sizeof(float) == 0;
}

static size_t body_of(const inference *i, char *text, size_t size) {
    const size_t bytes = (size_t)i->images * sizeof(float);
    const int n = snprintf(
        text, size,
        "{\"inputs\": [{\"name\": \"input\", \"shape\": [%d, 1, 1, 1], \"datatype\": \"FP32\", "
        "\"parameters\": {\"shared_memory_region\": \"r%d\", \"shared_memory_byte_size\": %zu, "
        "\"shared_memory_offset\": %zu}}], \"outputs\": [{\"name\": \"output\", \"parameters\": "
        "{\"shared_memory_region\": \"r%d\", \"shared_memory_byte_size\": %zu, "
        "\"shared_memory_offset\": %zu}}], \"parameters\": {\"mode\": \"float\"%s}}",
        i->images, (int)(i->in - r.regions), bytes, i->in_at, (int)(i->out - r.regions), bytes,
        i->out_at, i->cpu ? ", \"backend\": \"cpu\"" : "");
    ck_assert(n > 0 && (size_t)n < size);
    return (size_t)n;
}

/* Values of the client, and what they must become; the two may overlap. */
static void fill(const inference *i, float *expected) {
    float values[MOST_IMAGES];
    for (int k = 0; k < i->images; k++) {
        values[k] = (float)(int)below(1000);
        expected[k] = values[k] * weight;
    }
    memcpy(at_client(i->in, i->in_at), values, (size_t)i->images * sizeof *values);
}

static bool overlap(const inference *i) {
    const unsigned char *in = at_client(i->in, i->in_at);
    const unsigned char *out = at_client(i->out, i->out_at);
    const size_t bytes = (size_t)i->images * sizeof(float);
    return in < out + bytes && out < in + bytes;
}

/* Refused with a text that has that part; NULL: computed, and right where the client reads it. */
static void infer(const inference *i, const char *part) {
    float expected[MOST_IMAGES] = {0};
    char body[1000];
    xt_response response;
    const size_t length = body_of(i, body, sizeof body);
    if (i->in_fits)
        fill(i, expected);
    xt_fetch(&r.server.address, "POST", "/v2/models/w/infer", "", body, length, &response);
    if (part)
        xt_check_oip_error(&response, 400, part, body);
    else
        ck_assert_msg(response.status == 200, "%s", response.body);
    if (!part)
        ck_assert_mem_eq(at_client(i->out, i->out_at), expected,
                         (size_t)i->images * sizeof *expected);
    xt_response_free(&response);
}

static void infer_some(void) {
    const inference i = make_inference();
    const bool fit = i.in_fits && i.out_fits;
    if (fit && overlap(&i))
        return;
    infer(&i, fit ? NULL : "");
    if (!fit)
        return;
    r.inputs += in_place(&i, i.in, i.in_at);
    r.outputs += in_place(&i, i.out, i.out_at);
    ck_assert_int_eq(gpu->pinned_inputs, r.inputs);
    ck_assert_int_eq(gpu->pinned_outputs, r.outputs);
}

/* Sends one and waits until the GPU runs it, where it stays until its gate is posted. */
static void hold(const inference *i, float *expected, xt_conn *conn) {
    char body[1000], head[200];
    fill(i, expected);
    const size_t length = body_of(i, body, sizeof body);
    snprintf(head, sizeof head,
             "POST /v2/models/w/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n", length);
    gpu->gated = true;
    ck_assert(xt_connect(conn, &r.server.address));
    ck_assert(xt_send_text(conn, head) && xt_send(conn, body, length));
    fake_wait(&gpu->entered);
    gpu->gated = false;
}

static void let_go(xt_conn *conn, int status) {
    xt_response response;
    sem_post(&gpu->gate);
    ck_assert_int_eq(xt_receive(conn, false, false, &response), XT_GOT);
    ck_assert_msg(response.status == status, "%s", response.body);
    xt_response_free(&response);
    xt_disconnect(conn);
}

/* ---- tests ---- */

START_TEST(any_order) {
    start(0, 100);
    r.rng.state += (uint64_t)_i;
    const int loss = 1 + (int)below(2 * STEPS);
    for (int step = 0; step < STEPS; step++) {
        const size_t what = below(16);
        if (step == loss) {
            gpu->lost[0] = true;
            post("/v2/models/w/infer",
                 "{\"inputs\": [{\"name\": \"input\", \"shape\": [1, 1, 1, 1], \"datatype\": "
                 "\"FP32\", \"data\": [3]}], \"parameters\": {\"mode\": \"float\"}}",
                 503);
            while (strcmp(xn_engine_primary(r.server.service.engine), "cpu") != 0)
                xt_nap();
            r.lost = true;
        } else if (what < 4) {
            register_some();
        } else if (what < 5) {
            unregister_some();
        } else if (what < 6) {
            cut_some();
        } else {
            infer_some();
        }
    }
    ck_assert(r.inputs > 0 && r.outputs > 0);
    stop();
    expect_stale_mapped();
}
END_TEST

/* Cut by less than a page the region has all of its pinned pages, but not all of its bytes: what is
 * behind the end is an error, and what is in front of it is copied. */
START_TEST(cut_short_within_a_page) {
    enum { BYTES = 8192, LEFT = BYTES - 100 };
    static const size_t places[] = {0, LEFT - 2 * sizeof(float), LEFT, BYTES - 2 * sizeof(float)};
    start(0, 100);
    register_at(0, 0, 0, BYTES, false);
    register_at(1, 1, 0, BYTES, false);
    resize(0, LEFT);
    for (int k = 0; k < 4; k++) {
        inference i = {.in = &r.regions[0],
                       .out = &r.regions[1],
                       .images = 2,
                       .in_at = places[k],
                       .in_fits = true};
        infer(&i, k < 2 ? NULL : "shrunk");
    }
    ck_assert_int_eq(gpu->pinned_inputs, 0);
    stop();
}
END_TEST

/* One that runs keeps its region; the end of it unpins it. */
START_TEST(unregistered_while_it_runs) {
    xt_conn conn;
    float expected[MOST_IMAGES];
    start(0, 0);
    register_at(0, 0, 4096, 8192, false);
    register_at(1, 1, 0, 8192, false);
    inference i = {.in = &r.regions[0], .out = &r.regions[1], .images = 3, .in_at = 8};
    const shown out = *i.out;
    hold(&i, expected, &conn);
    post(SHM "unregister", "", 200);
    char *none = xt_get(&r.server.address, SHM "status");
    ck_assert_str_eq(none, "[]\n");
    free(none);
    ck_assert_int_eq(gpu->live_pins, 2);
    let_go(&conn, 200);
    ck_assert(!memcmp(at_client(&out, 0), expected, 3 * sizeof *expected));
    wait_for(&gpu->live_pins, 0);
    stop();
}
END_TEST

/* Lost in the middle of a run: that one fails, what comes later is copied, and nothing comes to lie
 * where the GPU may still take addresses for old pages. */
START_TEST(lost_while_it_runs) {
    xt_conn conn;
    float expected[MOST_IMAGES];
    start(0, 0);
    register_at(0, 0, 0, 4096, false);
    register_at(1, 0, 4096, 4096, false);
    inference i = {.in = &r.regions[0], .out = &r.regions[1], .images = 2, .in_fits = true};
    hold(&i, expected, &conn);
    gpu->lost[0] = true;
    let_go(&conn, 503);
    r.lost = true;
    infer(&i, NULL);
    post(SHM "unregister", "", 200);
    wait_for(&gpu->live_pins, 0);
    memset(r.regions, 0, sizeof r.regions);
    for (int k = 0; k < REGIONS; k++)
        register_at(k, 0, 4096 * (size_t)k, 4096, false);
    ck_assert_int_eq(gpu->registers, 2);
    stop();
    ck_assert_int_eq(gpu->pin_count, 2);
    expect_stale_mapped();
}
END_TEST

/* What is beyond --queue-bytes serves all the same. */
START_TEST(no_more_than_may_be_pinned) {
    enum { LEAST = 4 << 20 };
    start(LEAST, 100);
    resize(0, LEAST);
    register_at(0, 0, 0, LEAST - 4096, false);
    register_at(1, 1, 100, 3000, false);
    ck_assert_uint_eq(gpu->most_pinned_bytes, LEAST);
    char more[200];
    snprintf(more, sizeof more, "{\"key\": \"%s\", \"offset\": 0, \"byte_size\": 100}",
             r.objects[2].key);
    post(SHM "region/r2/register", more, 200);
    r.regions[2] = (shown){true, false, 2, 0, 100};
    inference i = {.in = &r.regions[1], .out = &r.regions[2], .images = 2, .in_fits = true};
    for (int round = 0; round < 10; round++)
        infer(&i, NULL);
    ck_assert(gpu->pinned_inputs == 10 && gpu->pinned_outputs == 0);
    forget(2); /* else it would be pinned in the room of the other, where that came too late */
    forget(0);
    wait_for(&gpu->live_pins, 1);
    register_at(3, 2, 0, 100, false);
    stop();
}
END_TEST

/* Its key is what the cache holds answers by, and is read again to keep one. */
START_TEST(the_cache_of_answers_has_copies) {
    xn_error error = {0};
    fake_reset();
    memset(&r, 0, sizeof r);
    xt_instance_init(&r.server);
    r.server.config.allow_client_shm = true;
    r.server.config.response_cache_bytes = 1 << 20;
    xn_engine *engine = fake_engine_pair(&r.server.config, 1);
    ck_assert_msg(!xt_instance_start(&r.server, engine, &error), "%s", error.message);
    ck_assert(!xn_engine_uses_pinned(engine, 0));
    map_objects();
    char body[200];
    snprintf(body, sizeof body, "{\"key\": \"%s\", \"offset\": 0, \"byte_size\": 100}",
             r.objects[0].key);
    post(SHM "region/r0/register", body, 200);
    stop();
    ck_assert_int_eq(gpu->registers, 0);
}
END_TEST

XN_SUITE(http_pinned) {
    Suite *suite = suite_create("http_pinned");
    TCase *tcase = tcase_create("pinned");
    tcase_add_checked_fixture(tcase, NULL, xt_reap);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, any_order, 0, 8);
    tcase_add_test(tcase, cut_short_within_a_page);
    tcase_add_test(tcase, unregistered_while_it_runs);
    tcase_add_test(tcase, lost_while_it_runs);
    tcase_add_test(tcase, no_more_than_may_be_pinned);
    tcase_add_test(tcase, the_cache_of_answers_has_copies);
    suite_add_tcase(suite, tcase);
    return suite;
}
