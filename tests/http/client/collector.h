/* collector.h: a collector of spans on a free port of loopback, that answers as the test says. */
#ifndef XT_COLLECTOR_H
#define XT_COLLECTOR_H

#include "client.h"

#include <pthread.h>
#include <stdatomic.h>

/* To one POST. */
typedef enum {
    XT_REPLY_TEXT,   /* the text, once the request is read */
    XT_REPLY_SLOWLY, /* the same, byte by byte */
    XT_REPLY_EARLY,  /* the text before the body is read, and a close */
    XT_REPLY_RESET,  /* a reset instead */
    XT_REPLY_NEVER   /* nothing, until the collector stops */
} xt_reply_kind;

typedef struct xt_reply {
    xt_reply_kind kind;
    const char *text;
} xt_reply;

enum { XT_COLLECTOR_POSTS = 64 };

typedef struct xt_collector {
    int listener, port;
    pthread_t thread;
    const xt_reply *replies; /* the last one again and again */
    int reply_count;
    atomic_bool stops;
    atomic_int posts;      /* that came */
    pthread_mutex_t mutex; /* guards: */
    int64_t came_ms[XT_COLLECTOR_POSTS];
    xt_buffer taken; /* requests that were answered 2xx, one behind the other */
} xt_collector;

void xt_collector_start(xt_collector *collector, const xt_reply *replies, int count);
void xt_collector_stop(xt_collector *collector); /* its counts and texts stay */
void xt_collector_free(xt_collector *collector);
/* "http://127.0.0.1:PORT" */
const char *xt_collector_url(const xt_collector *collector, char url[40]);
/* How often the text is in what was taken. */
int xt_collector_count(xt_collector *collector, const char *text);

#endif
