/* signals.c: see signals.h. */
#include "signals.h"

#include "clock.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <time.h>

#define WAKE SIGUSR1 /* from another process it wakes the main thread too, without effect */

static pthread_t main_thread;
static sigset_t taken;

static const struct {
    int signal;
    bool ends;
    const char *name;
} acted_on[] = {{SIGTERM, true, "SIGTERM"},
                {SIGINT, true, "SIGINT"},
                {SIGQUIT, true, "SIGQUIT"},
                {SIGHUP, false, "SIGHUP"}};
enum { ACTED_ON = sizeof acted_on / sizeof *acted_on };

static const int ignored[] = {SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO,  SIGPIPE,
                              SIGXFSZ, SIGPWR,  SIGSTKFLT, SIGTTIN, SIGTTOU};

/* A handler that is there already stays: it is a profiler's or a sanitizer's. */
static void ignore(int signal) {
    struct sigaction before;
    const struct sigaction nothing = {.sa_handler = SIG_IGN};
    if (!sigaction(signal, NULL, &before) && before.sa_handler == SIG_DFL)
        sigaction(signal, &nothing, NULL);
}

void xn_signals_init(void) {
    main_thread = pthread_self();
    sigemptyset(&taken);
    sigaddset(&taken, WAKE);
    for (int i = 0; i < ACTED_ON; i++)
        sigaddset(&taken, acted_on[i].signal);
    pthread_sigmask(SIG_BLOCK, &taken, NULL);
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        ignore(ignored[i]);
    for (int signal = SIGRTMIN; signal <= SIGRTMAX; signal++)
        ignore(signal);
}

int xn_signals_wait(int64_t ns) {
    const struct timespec time = {(time_t)(ns / XN_NS_PER_S), (long)(ns % XN_NS_PER_S)};
    int signal = sigtimedwait(&taken, NULL, &time);
    return signal > 0 && signal != WAKE ? signal : 0;
}

void xn_signals_wake(void) {
    pthread_kill(main_thread, WAKE);
}

bool xn_signal_ends(int signal) {
    for (int i = 0; i < ACTED_ON; i++)
        if (acted_on[i].signal == signal)
            return acted_on[i].ends;
    return false;
}

const char *xn_signal_name(int signal) {
    for (int i = 0; i < ACTED_ON; i++)
        if (acted_on[i].signal == signal)
            return acted_on[i].name;
    return "no signal";
}
