/* instance.c: see instance.h. */
#include "instance.h"

#include "clock.h"
#include "log.h"
#include "xn_proto.h"

#include <string.h>

void xt_instance_init(xt_instance *i) {
    memset(i, 0, sizeof *i);
    xn_proto_init();
    xn_log_init(XN_LOG_TEXT, XN_LOG_ERROR);
    xn_config_default(&i->config);
    i->config.port = 0;
    i->config.canary_interval_ms = 0;
}

xn_status xt_instance_start(xt_instance *i, xn_engine *engine, xn_error *error) {
    const xn_config *config = &i->config;
    i->service.config = config;
    i->service.engine = engine;
    xn_status status = xn_thread_pool_create(2, &i->service.background_pool, error);
    if (!status)
        status = xn_thread_pool_create(XN_MODEL_POOL_THREADS, &i->service.model_pool, error);
    if (!status && config->allow_client_shm)
        status = xn_shared_memory_create(engine, i->service.background_pool,
                                         (size_t)config->queue_bytes, &i->service.shared, error);
    if (!status)
        status = xn_service_create_models(&i->service, error);
    if (!status)
        status = xn_models_scan(i->service.models, error);
    if (status)
        return status;
    xn_http_handler handler;
    xn_service_handler(&i->service, &handler);
    const xn_http_options options = {.listen = config->listen,
                                     .threads = 2,
                                     .max_connections = 64,
                                     .header_timeout_ms = config->header_timeout_ms,
                                     .body_timeout_ms = config->body_timeout_ms,
                                     .send_timeout_ms = config->send_timeout_ms,
                                     .idle_timeout_ms = config->idle_timeout_ms,
                                     .body_min_rate = config->body_min_rate,
                                     .any_host = true,
                                     .allowed_hosts = "",
                                     .allowed_origins = "",
                                     .metrics = xn_engine_metrics(engine),
                                     .admission = xn_engine_admission(engine)};
    status = xn_http_start(&options, &handler, &i->http, error);
    if (!status)
        i->address.port = xn_http_port(i->http);
    return status;
}

/* What hands requests back ends before HTTP does. */
void xt_instance_stop(xt_instance *i) {
    int64_t deadline_ns = xn_now_ns() + XT_PATIENCE_MS * XN_NS_PER_MS;
    if (i->http)
        xn_http_drain(i->http);
    if (i->service.engine) {
        xn_engine_drain(i->service.engine);
        ck_assert(xn_engine_wait_idle(i->service.engine, deadline_ns));
        xn_engine_stop(i->service.engine);
    }
    xn_thread_pool_stop(i->service.model_pool);
    xn_thread_pool_stop(i->service.background_pool);
    if (i->http)
        xn_http_stop(i->http, deadline_ns);
    xn_shared_memory_free(i->service.shared);
    xn_thread_pool_free(i->service.model_pool);
    xn_thread_pool_free(i->service.background_pool);
    xn_models_free(i->service.models);
    xn_engine_free(i->service.engine);
}
