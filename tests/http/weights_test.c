/* /weights on a real daemon, in every form: the life of registered weights, and a request's own
 * scale and bias. Names, bodies and limits: exchanges/weights.txt. */
#include "client/wire.h"

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

static void check_named(const char *name, const xt_problem *problem, xt_form form) {
    const xt_options options = {.weights_name = name, .in_file = form % 2};
    xt_conv_check(daemon_, problem, form, form, &options);
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
    ck_assert(xt_put_weights(daemon_, name, &first, form));
    for (int f = 0; f < XT_FORMS; f++)
        check_named(name, &first, (xt_form)f);

    ck_assert(!xt_put_weights(daemon_, name, &second, form)); /* replaced */
    for (int f = 0; f < XT_FORMS; f++)
        check_named(name, &second, (xt_form)f);

    char *item = xt_get(daemon_, target);
    ck_assert_double_eq(xt_json_number(item, "requests"), XT_FORMS);
    ck_assert(xt_json_valid(item) && xt_json_is(item, "name", name));
    ck_assert(xt_json_is(item, "datatype", "FP32"));
    char *hash = xt_json_string(item, "hash"); /* of the values, whatever form they came in */
    ck_assert_msg(hash && strlen(hash) == 16 && strspn(hash, "0123456789abcdef") == 16, "%s", item);
    ck_assert(xt_put_weights(daemon_, "other", &second, (xt_form)((form + 1) % XT_FORMS)));
    char *other = xt_get(daemon_, "/weights/other");
    ck_assert(xt_json_is(other, "hash", hash));
    free(other);
    ck_assert(!xt_put_weights(daemon_, "other", &first, form));
    other = xt_get(daemon_, "/weights/other");
    ck_assert(!xt_json_is(other, "hash", hash));
    free(other);
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
    xt_conv(daemon_, &second, form, &(xt_options){.weights_name = name}, &response);
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
    ck_assert(xt_put_weights(daemon_, "affine", &registered, XT_OIP));
    for (int form = 0; form < XT_FORMS; form++) {
        xt_options options = {.weights_name = "affine", .own_affine = true};
        xt_conv_check(daemon_, &own, (xt_form)form, (xt_form)form, &options);
        check_named("affine", &registered, (xt_form)form);
    }
    ck_assert_int_eq(delete_weights(daemon_, "affine"), 204);
    xt_problem_free(&registered);
    xt_problem_free(&own);
}
END_TEST

XN_SUITE(http_weights) {
    Suite *s = suite_create("http_weights");
    TCase *t = tcase_create("weights");
    tcase_set_timeout(t, 120);
    tcase_add_unchecked_fixture(t, start, stop);
    tcase_add_loop_test(t, life_of_a_name, 0, XT_FORMS);
    tcase_add_test(t, own_scale_and_bias);
    suite_add_tcase(s, t);
    xt_add_stopped_case(s);
    return s;
}
