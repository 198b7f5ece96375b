/* laws.h: what must hold, and what a failure shows. */
#ifndef XN_SIM_LAWS_H
#define XN_SIM_LAWS_H

#include <stdbool.h>
#include <stdint.h>

/* Ends the process with the law, the seed, and the last events, unless it holds. */
#define law(holds, text)                                                                           \
    do {                                                                                           \
        if (!(holds))                                                                              \
            law_broken(__FILE__, __LINE__, (text));                                                \
    } while (0)
_Noreturn void law_broken(const char *file, int line, const char *text);

/* An event: counted, and kept as a line for the last ones: time, fiber, request or NULL, what. */
struct xn_request;
__attribute__((format(printf, 3, 4))) void event(const struct xn_request *of, const char *what,
                                                 const char *format, ...);
uint64_t events_counted(void);
void events_begin(uint64_t seed);

#endif
