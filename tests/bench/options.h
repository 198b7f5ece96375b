/* options.h: the command lines of both programs: PROGRAM COMMAND [--option [VALUE] ...] [-- rest].
 */
#ifndef XN_BENCH_OPTIONS_H
#define XN_BENCH_OPTIONS_H

#include <stdbool.h>
#include <stdio.h>

typedef enum {
    XN_OPTION_TEXT,   /* const char *: */
    XN_OPTION_TEXTS,  /* xn_texts: may be given again */
    XN_OPTION_COUNT,  /* int, 0 and more */
    XN_OPTION_NUMBER, /* double, 0 and more */
    XN_OPTION_SEED,   /* uint64_t */
    XN_OPTION_FLAG    /* bool: has no value */
} xn_option_kind;

enum { XN_TEXTS = 8 };
typedef struct xn_texts {
    const char *text[XN_TEXTS];
    int count;
} xn_texts;

typedef struct xn_option {
    const char *name;
    xn_option_kind kind;
    void *to;             /* where it goes, as its kind says */
    const char *argument; /* "N"; "" of a flag */
    const char *help;     /* a line */
} xn_option;

/* From argv[2] on. rest: what stands behind "--", NULL-terminated. False with a line on stderr. */
bool xn_options_parse(int argc, char **argv, const xn_option *options, int count, char ***rest);
void xn_options_help(FILE *out, const xn_option *options, int count);

#endif
