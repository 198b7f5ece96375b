/* signals.h: what signals do to the daemon. They are taken on the main thread by waiting for them:
 * there is no signal handler but that of SIGBUS, for files that were cut short (mapping.h).
 *
 *   SIGTERM, SIGINT, SIGQUIT   drain and leave
 *   SIGHUP                     reload
 *   SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGPIPE, SIGXFSZ, SIGPWR, SIGSTKFLT,
 *   SIGTTIN, SIGTTOU and real-time signals: nothing, though most would end a process by default
 *   all others                 as usual: SIGTSTP stops, SIGCONT goes on, a fault ends it */
#ifndef XN_SIGNALS_H
#define XN_SIGNALS_H

#include <stdbool.h>
#include <stdint.h>

void xn_signals_init(void); /* on the main thread, before any other is started */
/* The next signal, or 0 after the time, when there was none to act on or when woken. Main thread.
 */
int xn_signals_wait(int64_t ns);
void xn_signals_wake(void); /* ends a wait of the main thread; any thread */
bool xn_signal_ends(int signal);
const char *xn_signal_name(int signal); /* of those that are acted on */

#endif
