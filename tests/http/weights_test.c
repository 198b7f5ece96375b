/* /weights on a real daemon: the life of registered weights, their limits, and replacing and
 * deleting them while requests use them. */
#include "client/wire.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static xt_daemon *daemon_;

static void start(void) {
    daemon_ = xt_daemon_start_shared(XT_NO_FLAGS);
}

static void stop(void) {
    xt_daemon_stop_shared(daemon_);
}

static const xt_case plain = {"named", 2, 3, 6, 7, 4, 3, 3, .padding_name = "same"};
static const xt_case affine = {"named, scale and bias", 1,           3, 6, 7, 4, 3, 3,
                               .scale = true,           .bias = true};

static int put_weights(xt_daemon *daemon, const char *name, const xt_problem *problem, xt_form form,
                       xt_response *response) {
    xt_message message;
    xt_buffer target = {0};
    xt_encode_weights(problem, form, &message);
    xt_print(&target, "/weights/%s", name);
    xt_fetch(daemon, "PUT", target.data, message.headers.data, message.body.data,
             message.body.length, response);
    xt_buffer_free(&target);
    xt_message_free(&message);
    return response->status;
}

static int put_only(xt_daemon *daemon, const char *name, const xt_problem *problem, xt_form form) {
    xt_response response;
    int status = put_weights(daemon, name, problem, form, &response);
    xt_response_free(&response);
    return status;
}

static void conv_named(xt_daemon *daemon, const char *name, const xt_problem *problem, xt_form form,
                       xt_response *response) {
    xt_message message;
    xt_encode(problem, form, &(xt_options){.weights_name = name, .in_file = form % 2}, &message);
    xt_fetch(daemon, "POST", message.target.data, message.headers.data, message.body.data,
             message.body.length, response);
    xt_message_free(&message);
}

static void check_named(xt_daemon *daemon, const char *name, const xt_problem *problem,
                        xt_form form) {
    xt_response response;
    char error[512] = "";
    conv_named(daemon, name, problem, form, &response);
    ck_assert_msg(xt_response_matches(&response, form, problem, NULL, error, sizeof error),
                  "weights %s, %s: %s", name, xt_form_type(form), error);
    xt_response_free(&response);
}

static int delete_weights(xt_daemon *daemon, const char *name) {
    char target[200];
    xt_response response;
    snprintf(target, sizeof target, "/weights/%s", name);
    xt_fetch(daemon, "DELETE", target, "", NULL, 0, &response);
    int status = response.status;
    if (status == 404)
        xt_check_error(&response, 404, NULL, name, target);
    else
        ck_assert_uint_eq(response.length, 0);
    xt_response_free(&response);
    return status;
}

START_TEST(life_of_a_name) {
    xt_form form = (xt_form)_i;
    char name[32], target[64], listed[64];
    xt_problem first, second;
    xt_response response;
    snprintf(name, sizeof name, "life-%d_A.b", _i);
    snprintf(target, sizeof target, "/weights/%s", name);
    snprintf(listed, sizeof listed, "\"name\": \"%s\"", name);
    xt_problem_make(&first, &plain, xn_test_seed() + 1);
    xt_problem_make(&second, &affine, xn_test_seed() + 2);

    ck_assert_int_eq(delete_weights(daemon_, name), 404);
    ck_assert_int_eq(put_weights(daemon_, name, &first, form, &response), 201);
    ck_assert(xt_json_is(response.body, "name", name));
    xt_response_free(&response);
    for (int f = 0; f < XT_FORMS; f++)
        check_named(daemon_, name, &first, (xt_form)f);

    ck_assert_int_eq(put_only(daemon_, name, &second, form), 200); /* replaced */
    for (int f = 0; f < XT_FORMS; f++)
        check_named(daemon_, name, &second, (xt_form)f);

    char *item = xt_get(daemon_, target);
    ck_assert_double_eq(xt_json_number(item, "requests"), XT_FORMS);
    ck_assert(xt_json_valid(item) && xt_json_is(item, "name", name));
    ck_assert(xt_json_is(item, "datatype", "FP32"));
    char *hash = xt_json_string(item, "hash"); /* of the values, whatever form they came in */
    ck_assert_msg(hash && strlen(hash) == 16 && strspn(hash, "0123456789abcdef") == 16, "%s", item);
    ck_assert_int_eq(
        put_weights(daemon_, "other", &second, (xt_form)((form + 1) % XT_FORMS), &response), 201);
    ck_assert(xt_json_is(response.body, "hash", hash));
    xt_response_free(&response);
    ck_assert_int_eq(put_weights(daemon_, "other", &first, form, &response), 200);
    ck_assert(!xt_json_is(response.body, "hash", hash));
    xt_response_free(&response);
    ck_assert_int_eq(delete_weights(daemon_, "other"), 204);
    free(hash);
    const char *shape = xt_json_at(item, "shape");
    ck_assert_msg(shape && !strncmp(shape, "[4, 3, 3, 3]", 12), "%s", item);
    free(item);
    char *list = xt_get(daemon_, "/weights");
    ck_assert_msg(xt_json_valid(list) && strstr(list, listed), "%s", list);
    free(list);

    ck_assert_int_eq(delete_weights(daemon_, name), 204);
    ck_assert_int_eq(delete_weights(daemon_, name), 404);
    xt_fetch(daemon_, "GET", target, "", NULL, 0, &response);
    xt_check_error(&response, 404, NULL, name, "GET of deleted weights");
    xt_response_free(&response);
    conv_named(daemon_, name, &second, form, &response);
    xt_check_error(&response, 404, "weights", name, "POST with deleted weights");
    xt_response_free(&response);
    list = xt_get(daemon_, "/weights");
    ck_assert_ptr_null(strstr(list, listed));
    free(list);
    xt_problem_free(&first);
    xt_problem_free(&second);
}
END_TEST

/* scale and bias of the request replace those registered with the weights. */
START_TEST(own_scale_and_bias) {
    xt_problem registered, own;
    xt_message message;
    xt_response response;
    char error[512] = "";
    xt_problem_make(&registered, &affine, xn_test_seed() + 1);
    xt_problem_make(&own, &affine, xn_test_seed() + 1); /* the same, but its scale and bias */
    for (int i = 0; i < 4; i++) {
        float scale = 0.5f + (float)i, bias = -2.25f * (float)i;
        own.scale.values[i] = (double)scale;
        own.bias.values[i] = (double)bias;
        memcpy(own.scale.raw + 4 * i, &scale, 4);
        memcpy(own.bias.raw + 4 * i, &bias, 4);
    }
    xt_problem_solve(&own);
    ck_assert_int_eq(put_only(daemon_, "affine", &registered, XT_OIP), 201);
    for (int form = 0; form < XT_FORMS; form++) {
        xt_options options = {.weights_name = "affine", .own_affine = true};
        xt_encode(&own, (xt_form)form, &options, &message);
        xt_fetch(daemon_, "POST", message.target.data, message.headers.data, message.body.data,
                 message.body.length, &response);
        ck_assert_msg(
            xt_response_matches(&response, (xt_form)form, &own, NULL, error, sizeof error),
            "%s: %s", xt_form_type((xt_form)form), error);
        xt_response_free(&response);
        xt_message_free(&message);
        check_named(daemon_, "affine", &registered, (xt_form)form);
    }
    ck_assert_int_eq(delete_weights(daemon_, "affine"), 204);
    xt_problem_free(&registered);
    xt_problem_free(&own);
}
END_TEST

/* bits: 1 for a scale, 2 for a bias. A copy without the others; only its expected values, to be
 * solved for, are its own. */
static xt_problem with_affine(const xt_problem *problem, int bits) {
    xt_problem copy = *problem;
    copy.expected = copy.magnitude = NULL;
    if (!(bits & 1))
        copy.scale = (xt_tensor){0};
    if (!(bits & 2))
        copy.bias = (xt_tensor){0};
    return copy;
}

static void check_affine(xt_daemon *daemon, const xt_problem *registered, int has,
                         const xt_problem *own, int gives) {
    xt_options options = {.weights_name = "either", .own_affine = true};
    xt_problem put = with_affine(registered, has), asked = with_affine(own, gives), want = asked;
    xt_message message;
    xt_response response;
    char error[512] = "";
    if (!(gives & 1))
        want.scale = put.scale;
    if (!(gives & 2))
        want.bias = put.bias;
    xt_problem_solve(&want);
    int status = put_only(daemon, "either", &put, XT_OIP);
    ck_assert(status == 200 || status == 201);
    for (int form = 0; form < XT_FORMS; form++) {
        xt_encode(&asked, (xt_form)form, &options, &message);
        xt_fetch(daemon, "POST", message.target.data, message.headers.data, message.body.data,
                 message.body.length, &response);
        ck_assert_msg(
            xt_response_matches(&response, (xt_form)form, &want, NULL, error, sizeof error),
            "registered with %d, asked with %d, %s: %s", has, gives, xt_form_type((xt_form)form),
            error);
        xt_response_free(&response);
        xt_message_free(&message);
    }
    free(want.expected);
    free(want.magnitude);
}

/* What a request does not give comes from the registered weights: all 16 combinations. */
START_TEST(scale_and_bias_from_either_side) {
    static const char *const backends[] = {"cpu", "ref"};
    xt_problem registered, own;
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--backend", backends[_i]));
    xt_problem_make(&registered, &affine, xn_test_seed() + 1);
    xt_problem_make(&own, &affine, xn_test_seed() + 1);
    for (int i = 0; i < 4; i++) {
        float scale = 0.5f + (float)i, bias = -2.25f * (float)i;
        own.scale.values[i] = (double)scale;
        own.bias.values[i] = (double)bias;
        memcpy(own.scale.raw + 4 * i, &scale, 4);
        memcpy(own.bias.raw + 4 * i, &bias, 4);
    }
    for (int has = 0; has < 4; has++)
        for (int gives = 0; gives < 4; gives++)
            check_affine(d, &registered, has, &own, gives);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
    xt_problem_free(&registered);
    xt_problem_free(&own);
}
END_TEST

START_TEST(parameters_are_refused) {
    xt_problem problem;
    xt_message message;
    xt_response response;
    xt_problem_make(&problem, &plain, xn_test_seed());
    for (int form = 0; form < XT_FORMS; form++) {
        xt_encode_weights(&problem, (xt_form)form, &message);
        xt_fetch(daemon_, "PUT", "/weights/parameters?stride=1", message.headers.data,
                 message.body.data, message.body.length, &response);
        xt_check_error(&response, 400, NULL, "stride", "PUT with a parameter");
        xt_response_free(&response);
        xt_message_free(&message);
    }
    xt_problem_free(&problem);
}
END_TEST

START_TEST(names_are_checked) {
    static const char *const bad[] = {"a%20b", "a%2Fb", ".",      "..",    "a:b", "%C3%A9",
                                      "",      "a%00b", "%2e%2e", "a%22b", "a/b", "a%0Ab"};
    char longest[140];
    xt_problem problem;
    xt_response response;
    xt_problem_make(&problem, &plain, xn_test_seed());
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int status = put_weights(daemon_, bad[i], &problem, XT_OIP, &response);
        xt_check_error(&response, status == 404 ? 404 : 400, NULL, NULL, bad[i]);
        xt_response_free(&response);
    }
    memset(longest, 'n', sizeof longest);
    longest[128] = 0;
    ck_assert_int_eq(put_only(daemon_, longest, &problem, XT_OIP), 201);
    check_named(daemon_, longest, &problem, XT_JSON);
    ck_assert_int_eq(delete_weights(daemon_, longest), 204);
    longest[128] = 'n';
    longest[129] = 0;
    put_weights(daemon_, longest, &problem, XT_OIP, &response);
    xt_check_error(&response, 400, "name", "128", "a name of 129 characters");
    xt_response_free(&response);
    xt_problem_free(&problem);
}
END_TEST

START_TEST(bad_bodies_are_refused) {
    static const struct {
        const char *body;
        int status;
        const char *field;
    } table[] = {
        {"{}", 400, "weights"},
        {"[]", 400, NULL},
        {"{\"weights\": \"name\"}", 400, "weights"},
        {"{\"weights\": {\"shape\": [1,1,1,1], \"datatype\": \"FP32\", \"data\": [1]}, \"x\": 1}",
         400, "x"},
        {"{\"weights\": {\"shape\": [1,1,1,1], \"datatype\": \"FP64\", \"data\": [1]}}", 400,
         "weights"},
        {"{\"weights\": {\"shape\": [1,1,1,1], \"datatype\": \"FP32\", \"data\": [1,2]}}", 400,
         "weights"},
        {"{\"weights\": {\"shape\": [1,1,1], \"datatype\": \"FP32\", \"data\": [1]}}", 422,
         "weights.shape"},
        {"{\"weights\": {\"shape\": [1,1,1,0], \"datatype\": \"FP32\", \"data\": []}}", 400,
         "weights"},
        {"{\"weights\": {\"shape\": [2,1,1,1], \"datatype\": \"FP32\", \"data\": [1,2]}, "
         "\"scale\": {\"shape\": [3], \"datatype\": \"FP32\", \"data\": [1,2,3]}}",
         422, "scale"},
        {"{\"weights\": {\"shape\": [2,1,1,1], \"datatype\": \"FP32\", \"data\": [1,2]}, "
         "\"bias\": {\"shape\": [1,2], \"datatype\": \"FP32\", \"data\": [1,2]}}",
         422, "bias"},
    };
    xt_response response;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        xt_fetch(daemon_, "PUT", "/weights/refused", "Content-Type: application/json\r\n",
                 table[i].body, strlen(table[i].body), &response);
        xt_check_error(&response, table[i].status, table[i].field, NULL, table[i].body);
        xt_response_free(&response);
    }
    xt_fetch(daemon_, "GET", "/weights/refused", "", NULL, 0, &response);
    ck_assert_int_eq(response.status, 404); /* none of them left anything */
    xt_response_free(&response);
    ck_assert(xt_metric_becomes(daemon_, "xnord_inflight_requests", 0));
}
END_TEST

START_TEST(wrong_geometry_for_registered_weights) {
    static const xt_case other = {"five channels", 1, 5, 6, 7, 4, 3, 3, .groups = 1};
    xt_problem problem, mismatch;
    xt_response response;
    xt_problem_make(&problem, &plain, xn_test_seed());
    xt_problem_make(&mismatch, &other, xn_test_seed());
    ck_assert_int_eq(put_only(daemon_, "three", &problem, XT_OIP), 201);
    conv_named(daemon_, "three", &mismatch, XT_OIP, &response);
    xt_check_error(&response, 422, "shape", "5", "an input of 5 channels");
    xt_response_free(&response);
    ck_assert_int_eq(delete_weights(daemon_, "three"), 204);
    xt_problem_free(&problem);
    xt_problem_free(&mismatch);
}
END_TEST

START_TEST(limits) {
    xt_problem small, big;
    xt_response response;
    static const xt_case large = {"large", 1, 64, 3, 3, 64, 3, 3, .groups = 1};
    xt_problem_make(&small, &plain, xn_test_seed());
    xt_problem_make(&big, &large, xn_test_seed());
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--max-weights", "2", "--max-weights-bytes", "64K"));
    ck_assert_int_eq(put_only(d, "a", &small, XT_OIP), 201);
    put_weights(d, "b", &big, XT_OIP, &response);
    xt_check_error(&response, 413, NULL, "--max-weights-bytes", "weights over the limit");
    xt_response_free(&response);
    ck_assert_int_eq(put_only(d, "b", &small, XT_OIP), 201);
    put_weights(d, "c", &small, XT_OIP, &response);
    xt_check_error(&response, 413, NULL, "--max-weights ", "a third name");
    xt_response_free(&response);
    ck_assert_int_eq(put_only(d, "a", &small, XT_OIP), 200); /* replacing needs no place */
    put_weights(d, "a", &big, XT_OIP, &response);            /* a failed one keeps the old */
    xt_check_error(&response, 413, NULL, "--max-weights-bytes", "a replacement over the limit");
    xt_response_free(&response);
    check_named(d, "a", &small, XT_OIP);
    ck_assert_int_eq(delete_weights(d, "b"), 204);
    ck_assert_int_eq(put_only(d, "c", &small, XT_OIP), 201);
    ck_assert(xt_metric_becomes(d, "xnord_weights", 2));
    ck_assert_int_eq(xt_daemon_stop(d), 0);
    xt_problem_free(&small);
    xt_problem_free(&big);
}
END_TEST

/* ---- replaced while in use ---- */

enum { USERS = 3, REPLACEMENTS = 40 };

typedef struct user {
    pthread_t thread;
    const xt_problem *versions; /* two: either is right */
    atomic_bool *enough;
    int answered;
    char error[512];
} user;

/* An answer must be wholly of one version, or 404 while the name is gone. */
static void check_either(user *u, const xt_response *response) {
    if (response->status == 404)
        return;
    char first[256] = "", second[256] = "";
    if (!xt_response_matches(response, XT_OIP, &u->versions[0], NULL, first, sizeof first) &&
        !xt_response_matches(response, XT_OIP, &u->versions[1], NULL, second, sizeof second))
        snprintf(u->error, sizeof u->error, "neither version: %.200s / %.200s", first, second);
    u->answered++;
}

static void *use(void *context) {
    user *u = context;
    xt_message message;
    xt_conn conn;
    xt_encode(&u->versions[0], XT_OIP, &(xt_options){.weights_name = "busy"}, &message);
    if (!xt_connect(&conn, daemon_))
        snprintf(u->error, sizeof u->error, "cannot connect");
    while (!u->error[0] && !atomic_load(u->enough)) {
        xt_response response;
        xt_result result = xt_post(&conn, &message, &response);
        if (result != XT_GOT)
            snprintf(u->error, sizeof u->error, "got %s", xt_result_name(result));
        else
            check_either(u, &response);
        xt_response_free(&response);
    }
    xt_disconnect(&conn);
    xt_message_free(&message);
    return NULL;
}

/* Two versions with the same input. */
static void make_versions(xt_problem versions[2]) {
    static const xt_case what = {
        "busy", 1, 16, 12, 12, 16, 3, 3, .scaling = "none", .output_datatype = "INT32"};
    xt_problem_make(&versions[0], &what, xn_test_seed() + 7);
    xt_problem_make(&versions[1], &what, xn_test_seed() + 8);
    memcpy(versions[1].input.values, versions[0].input.values,
           (size_t)versions[0].input.count * sizeof(double));
    memcpy(versions[1].input.raw, versions[0].input.raw, versions[0].input.bytes);
    xt_problem_solve(&versions[1]);
}

START_TEST(replaced_and_deleted_while_in_use) {
    xt_problem versions[2];
    user users[USERS] = {0};
    atomic_bool enough = false;
    make_versions(versions);
    ck_assert_int_eq(put_only(daemon_, "busy", &versions[0], XT_OIP), 201);
    for (int i = 0; i < USERS; i++) {
        users[i].versions = versions;
        users[i].enough = &enough;
        ck_assert_int_eq(pthread_create(&users[i].thread, NULL, use, &users[i]), 0);
    }
    int statuses[2] = {0};
    for (int i = 0; i < REPLACEMENTS; i++) {
        statuses[put_only(daemon_, "busy", &versions[i % 2], XT_OIP) == 200]++;
        if (i % 8 == 7)
            ck_assert_int_eq(delete_weights(daemon_, "busy"), 204);
    }
    put_only(daemon_, "busy", &versions[0], XT_OIP);
    atomic_store(&enough, true);
    int answered = 0;
    for (int i = 0; i < USERS; i++) {
        pthread_join(users[i].thread, NULL);
        ck_assert_msg(!users[i].error[0], "user %d, seed %llu: %s", i,
                      (unsigned long long)xn_test_seed(), users[i].error);
        answered += users[i].answered;
    }
    ck_assert_int_eq(statuses[0], REPLACEMENTS / 8 - (REPLACEMENTS % 8 == 0));
    ck_assert_int_gt(answered, 0);
    check_named(daemon_, "busy", &versions[0], XT_OIP);
    ck_assert_int_eq(delete_weights(daemon_, "busy"), 204);
    xt_problem_free(&versions[0]);
    xt_problem_free(&versions[1]);
}
END_TEST

/* ---- put and deleted at once ---- */

enum { RIVALS = 2, ROUNDS = 400 };

typedef struct rival {
    pthread_t thread;
    const xt_message *message; /* NULL: it deletes */
    int refused, last;         /* PUTs that were not answered with what they did; one's status */
} rival;

static void *rival_main(void *context) {
    rival *r = context;
    xt_conn conn;
    bool open = xt_connect(&conn, daemon_);
    for (int i = 0; open && i < ROUNDS; i++) {
        xt_response response;
        xt_result result =
            r->message ? xt_put(&conn, "/weights/contested", r->message, &response)
                       : xt_request(&conn, "DELETE", "/weights/contested", "", NULL, 0, &response);
        open = result == XT_GOT;
        if (r->message && (!open || (response.status != 200 && response.status != 201))) {
            r->refused++;
            r->last = open ? response.status : -1;
        }
        xt_response_free(&response);
    }
    r->refused += !open;
    xt_disconnect(&conn);
    return NULL;
}

START_TEST(a_put_that_races_a_delete_answers_what_it_did) {
    xt_problem problem;
    xt_message message;
    rival rivals[2 * RIVALS] = {0};
    xt_problem_make(&problem, &plain, xn_test_seed());
    xt_encode_weights(&problem, XT_OIP, &message);
    for (int i = 0; i < 2 * RIVALS; i++) {
        rivals[i].message = i < RIVALS ? &message : NULL;
        ck_assert_int_eq(pthread_create(&rivals[i].thread, NULL, rival_main, &rivals[i]), 0);
    }
    for (int i = 0; i < 2 * RIVALS; i++)
        pthread_join(rivals[i].thread, NULL);
    for (int i = 0; i < 2 * RIVALS; i++)
        ck_assert_msg(!rivals[i].refused, "%d of %d PUTs were not answered with 200 or 201, but %d",
                      rivals[i].refused, ROUNDS, rivals[i].last);
    delete_weights(daemon_, "contested");
    xt_message_free(&message);
    xt_problem_free(&problem);
}
END_TEST

XN_SUITE(http_weights) {
    Suite *s = suite_create("http_weights");
    TCase *t = tcase_create("weights");
    tcase_set_timeout(t, 120);
    tcase_add_unchecked_fixture(t, start, stop);
    tcase_add_loop_test(t, life_of_a_name, 0, XT_FORMS);
    tcase_add_test(t, own_scale_and_bias);
    tcase_add_test(t, parameters_are_refused);
    tcase_add_test(t, names_are_checked);
    tcase_add_test(t, bad_bodies_are_refused);
    tcase_add_test(t, wrong_geometry_for_registered_weights);
    tcase_add_test(t, replaced_and_deleted_while_in_use);
    tcase_add_test(t, a_put_that_races_a_delete_answers_what_it_did);
    suite_add_tcase(s, t);
    xt_add_stopped_case(s);
    t = tcase_create("limits");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, NULL, xt_reap);
    tcase_add_test(t, limits);
    tcase_add_loop_test(t, scale_and_bias_from_either_side, 0, 2);
    suite_add_tcase(s, t);
    return s;
}
