/* bench_turns.c: see bench_turns.h. */
#include "bench_turns.h"

#include "bench_clock.h"

static const int64_t turn_ns = 15000000, pause_ns = 10000000;

static void take_turn(xn_contender *s) {
    const struct timespec pause = {0, pause_ns};
    nanosleep(&pause, NULL);
    s->run(s->context);
    int64_t end = xn_bench_now_ns() + turn_ns;
    for (int i = 0; i < XN_BENCH_TURN_RUNS && (i < 2 || xn_bench_now_ns() < end); i++) {
        int64_t start = xn_bench_now_ns();
        s->run(s->context);
        s->samples[s->count++] = xn_bench_now_ns() - start;
    }
}

void xn_bench_turns(xn_contender *sides, int count) {
    for (int round = 0; round < XN_BENCH_ROUNDS; round++)
        for (int i = 0; i < count; i++)
            if (sides[i].run)
                take_turn(&sides[i]);
    for (int i = 0; i < count; i++)
        if (sides[i].run)
            xn_bench_summarise(sides[i].samples, sides[i].count, &sides[i].stats);
}

xn_contender *xn_bench_contenders(int count) {
    return xn_bench_take((size_t)count, sizeof(xn_contender));
}
