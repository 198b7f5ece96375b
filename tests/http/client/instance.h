/* instance.h: the whole server inside the test, on a port of its own, over an engine that the test
 * has made: so that hooks and fake backends reach everything from the socket down. This is the one
 * place where tests put a service together. */
#ifndef XT_INSTANCE_H
#define XT_INSTANCE_H

#include "client.h"
#include "service.h"

typedef struct xt_instance {
    xn_config config;
    xn_service service; /* takes the engine */
    xn_http *http;
    xt_daemon address; /* only its port: for the client functions */
} xt_instance;

/* Everything zero and the configuration's defaults; no log but errors, no canary thread. */
void xt_instance_init(xt_instance *instance);
/* Serves with that engine, which the instance takes, whatever happens: xt_instance_stop follows a
 * failure too. Models that the configuration names are loaded. The configuration must not change
 * any more. */
xn_status xt_instance_start(xt_instance *instance, xn_engine *engine, xn_error *error);
/* As the daemon does: drains, waits until nothing is left (else the test fails), ends. */
void xt_instance_stop(xt_instance *instance);

#endif
