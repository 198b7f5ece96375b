/* Random sequences of PUT, DELETE, GET and conv against a plain model of what must come out: one
 * client that keeps its connection, and several at once on names of their own.
 *
 * XNORD_TEST_MODEL_SEQUENCES: how many sequences a test plays, in place of the default (fewer where
 * XNORD_TEST_EVERY asks for less). XNORD_TEST_MODEL_SEED: only the one of that seed, as a failure
 * prints it. */
#include "client/model.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { SEQUENCES = 1500, PLAYERS = 4 };

static uint64_t number_from(const char *name, uint64_t fallback) {
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 0) : fallback;
}

/* ---- players ---- */

typedef struct player {
    pthread_t thread;
    xt_model model;
    uint64_t first, sequences, failed; /* failed: the seed, when model.error says something */
    char prefix[16];
} player;

static void *play(void *context) {
    player *p = context;
    for (uint64_t i = 0; i < p->sequences && !p->model.error[0]; i++) {
        xn_rng rng = {p->first + i};
        uint64_t seed = p->sequences == 1 ? p->first : xn_rng_next(&rng);
        if (!xt_model_play(&p->model, seed, p->prefix))
            p->failed = seed;
    }
    return NULL;
}

static void prepare(player *p, const xt_daemon *daemon, const char *served, int index) {
    uint64_t alone = number_from("XNORD_TEST_MODEL_SEED", 0);
    *p = (player){.first = xn_test_seed() * 1000003u + (uint64_t)index * 1000000007u,
                  .sequences = number_from("XNORD_TEST_MODEL_SEQUENCES",
                                           SEQUENCES / number_from("XNORD_TEST_EVERY", 1) + 1)};
    p->model.daemon = daemon;
    p->model.served = served;
    if (alone) {
        p->first = alone;
        p->sequences = 1;
    }
    snprintf(p->prefix, sizeof p->prefix, "model-%d", index);
}

static void judge(const player *p) {
    ck_assert_msg(!p->model.error[0], "%s; XNORD_TEST_MODEL_SEED=%llu plays it alone",
                  p->model.error, (unsigned long long)p->failed);
}

/* ---- tests ---- */

/* What the runner was started with, and the backends that every build has. */
static xt_daemon *start(int index) {
    switch (index) {
    case 0:
        return xt_daemon_start(XT_NO_FLAGS);
    case 1: /* inline weights are forgotten all the time */
        return xt_daemon_start(XT_FLAGS("--backend", "ref", "--weights-cache-bytes", "4K"));
    default:
        return xt_daemon_start(XT_FLAGS("--backend", "cpu", "--weights-cache-bytes", "64K"));
    }
}

START_TEST(one_client) {
    player p;
    xt_daemon *daemon = start(_i);
    char *served = xt_get(daemon, "/v2/health/ready");
    prepare(&p, daemon, served, _i);
    play(&p);
    judge(&p);
    ck_assert(p.sequences < 50 || (p.model.played[0] > (int64_t)p.sequences &&
                                   p.model.played[1] > (int64_t)p.sequences / 2));
    ck_assert_int_eq(xt_daemon_stop(daemon), 0);
    free(served);
}
END_TEST

START_TEST(several_clients) {
    player players[PLAYERS];
    xt_daemon *daemon = start(_i);
    char *served = xt_get(daemon, "/v2/health/ready");
    for (int i = 0; i < PLAYERS; i++) {
        player *p = &players[i];
        prepare(p, daemon, served, 10 + i);
        p->model.crowd = true;
        p->sequences = p->sequences > PLAYERS ? p->sequences / PLAYERS : 1;
        ck_assert_int_eq(pthread_create(&p->thread, NULL, play, p), 0);
    }
    for (int i = 0; i < PLAYERS; i++)
        pthread_join(players[i].thread, NULL);
    for (int i = 0; i < PLAYERS; i++)
        judge(&players[i]);
    ck_assert_int_eq(xt_daemon_stop(daemon), 0);
    free(served);
}
END_TEST

XN_SUITE(http_model) {
    Suite *s = suite_create("http_model");
    TCase *t = tcase_create("model");
    tcase_set_timeout(t, 3600);
    tcase_add_checked_fixture(t, NULL, xt_reap);
    tcase_add_loop_test(t, one_client, 0, 3);
    tcase_add_loop_test(t, several_clients, 0, 2);
    suite_add_tcase(s, t);
    return s;
}
