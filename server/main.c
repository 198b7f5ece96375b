/* main.c: the daemon's life: read the configuration, open devices, serve, drain, leave.
 *
 * Exit status: 0 served and drained; 1 could not start, or the grace time was over before
 * everything was finished; 2 wrong usage; 3 a device was lost (a supervisor restarts); 130 a second
 * signal. What signals do: signals.h. */
#include "arenas.h"
#include "clock.h"
#include "device.h"
#include "list.h"
#include "listener.h"
#include "log.h"
#include "service.h"
#include "signals.h"
#include "spans.h"
#include "tls.h"
#include "xn_cpus.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define EXIT_USAGE 2
#define EXIT_DEVICE_LOST 3
#define EXIT_SECOND_SIGNAL 130
#define TICK_NS XN_NS_PER_S
#define UNUSED_NS (5 * XN_NS_PER_S) /* buffers unused for so long are freed */

extern char **environ;

typedef struct {
    xn_config config;
    xn_service service;
    xn_http *http;
    xn_task scan; /* the model pool's, while scans_asked > 0 */
    atomic_int scans_asked;
    bool scanned;         /* once at least; the scan's own */
    xn_error start_error; /* of the first scan, before start_failed is set */
    atomic_bool start_failed;
    int64_t grace_end_ns; /* set by the drain */
    char tls_priorities[XN_TLS_PRIORITIES_MAX];
} daemon_state;

static atomic_bool device_lost;

static void on_fatal(void *context) {
    (void)context;
    atomic_store(&device_lost, true);
    xn_signals_wake();
}

/* Called on any thread, with any locks held: the main thread frees cached memory instead. */
static atomic_bool short_of_memory;

static void on_shortage(void) {
    if (!atomic_exchange(&short_of_memory, true))
        xn_signals_wake();
}

static int list_devices(const xn_config *config) {
    const xn_backend *const *all = xn_backend_all();
    for (; *all; all++) {
        int count = 0;
        xn_error error = {.message = "no device"};
        if ((*all)->device_count(&count, &error) || !count)
            printf("%-8s none: %s\n", (*all)->name, error.message);
        for (int i = 0; i < count; i++) {
            xn_device *device = NULL;
            xn_device_info info;
            if (xn_engine_open_device(config, *all, i, &device, &error)) {
                printf("%s:%-3d not usable: %s\n", (*all)->name, i, error.message);
                continue;
            }
            (*all)->device_info(device, &info);
            printf("%-8s %s", info.id, info.description);
            if (info.memory_bytes)
                printf(", %llu MiB", (unsigned long long)(info.memory_bytes >> 20));
            putchar('\n');
            (*all)->device_close(device);
        }
    }
    return 0;
}

/* What the settings name besides devices and the log: keys and certificates. */
static xn_status read_secrets(daemon_state *d, xn_error *error) {
    const xn_config *c = &d->config;
    xn_status status = xn_tls_init(error);
    if (!status)
        status = xn_tls_priorities(c->tls_ciphers, d->tls_priorities, error);
    if (!status && c->tls_cert[0])
        status = xn_tls_load(c->tls_cert, c->tls_key, error);
    if (!status && c->api_keys_file[0])
        status = xn_auth_load(c->api_keys_file, &d->service.auth, error);
    return status;
}

/* Every connection is a descriptor: take as many as the system lets us. */
static void raise_descriptor_limit(int64_t connections) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max != RLIM_INFINITY && (int64_t)limit.rlim_max < connections + 64)
        xn_log(XN_LOG_WARN, NULL,
               "the system allows %llu open files, fewer than max-connections %lld needs",
               (unsigned long long)limit.rlim_max, (long long)connections);
}

static int http_threads(const daemon_state *d) {
    const bool on_gpu = !strcmp(xn_engine_primary(d->service.engine), "cuda");
    return xn_config_http_threads(&d->config, xn_cpus_usable(), on_gpu);
}

/* At least two: one that registers weights waits for devices. */
static int background_threads(void) {
    int cores = xn_cpus_usable();
    return cores < 2 ? 2 : cores < 8 ? cores : 8;
}

/* At most as many as may be admitted: a request that would be refused waits at its headers instead,
 * which costs less than refusing it and accepting its next connection. */
static int max_active(const xn_config *config) {
    enum { LEAST = 64, PER_CORE = 16 };
    int64_t by_cores = PER_CORE * xn_cpus_usable();
    int64_t most = by_cores > LEAST ? by_cores : LEAST;
    if (config->max_active > 0)
        most = config->max_active;
    return (int)(most < config->queue_depth ? most : config->queue_depth);
}

static xn_status start_http(daemon_state *d, xn_error *error) {
    const xn_config *c = &d->config;
    xn_http_handler handler;
    const xn_http_options options = {.listen = c->listen,
                                     .port = (int)c->port,
                                     .tls_retrieve = c->tls_cert[0] ? xn_tls_retrieve() : NULL,
                                     .tls_priorities = d->tls_priorities,
                                     .threads = http_threads(d),
                                     .max_connections = (int)c->max_connections,
                                     .max_connections_per_address =
                                         (int)c->max_connections_per_address,
                                     .max_active = max_active(c),
                                     .header_timeout_ms = c->header_timeout_ms,
                                     .body_timeout_ms = c->body_timeout_ms,
                                     .send_timeout_ms = c->send_timeout_ms,
                                     .idle_timeout_ms = c->idle_timeout_ms,
                                     .body_min_rate = c->body_min_rate,
                                     .any_host = d->service.auth != NULL,
                                     .allowed_hosts = c->allowed_hosts,
                                     .allowed_origins = c->allowed_origins,
                                     .traces = d->service.spans != NULL,
                                     .trace_ids = c->otlp_ids,
                                     .metrics = xn_engine_metrics(d->service.engine),
                                     .admission = xn_engine_admission(d->service.engine)};
    xn_service_handler(&d->service, &handler);
    return xn_http_start(&options, &handler, &d->http, error);
}

/* Connections are accepted up to --max-connections; the bytes that they hold are not there for
 * requests. */
static void warn_of_connections(const xn_config *config) {
    int64_t bytes = config->max_connections * XN_CONNECTION_BYTES;
    if (bytes > config->queue_bytes / 2)
        xn_log(XN_LOG_WARN, NULL,
               "%lld connections may hold %lld bytes for their headers, more than half of "
               "--queue-bytes %lld; lower --max-connections or raise --queue-bytes",
               (long long)config->max_connections, (long long)bytes,
               (long long)config->queue_bytes);
}

static void weights_loaded(void *context) {
    xn_engine_set_loading(context, XN_LOADING_WEIGHTS, false);
}

/* Until its files are read, the daemon is not ready. */
static xn_status open_weights_dir(daemon_state *d, xn_error *error) {
    const xn_config *c = &d->config;
    const xn_weights_dir_options options = {.path = c->weights_dir,
                                            .poll_ms = c->weights_poll_ms,
                                            .max_elements = c->max_elements,
                                            .max_weights = c->max_weights,
                                            .loaded = weights_loaded,
                                            .context = d->service.engine};
    if (!c->weights_dir[0])
        return XN_OK;
    xn_engine_set_loading(d->service.engine, XN_LOADING_WEIGHTS, true);
    return xn_weights_dir_open(&options, xn_engine_store(d->service.engine),
                               xn_engine_metrics(d->service.engine), &d->service.weights_dir,
                               error);
}

/* On a thread of the model pool. One scan serves all calls of ask_for_scan before it; another
 * follows for those that come meanwhile. */
static void scan_models(xn_task *task) {
    daemon_state *d = XN_ITEM(task, daemon_state, scan);
    int asked;
    do {
        xn_error error;
        asked = atomic_load(&d->scans_asked);
        if (xn_models_scan(d->service.models, &error))
            xn_log(XN_LOG_ERROR, NULL, "%s", error.message);
        if (!d->scanned && xn_models_check_named(d->service.models, &d->start_error)) {
            atomic_store(&d->start_failed, true); /* it never gets ready */
            xn_signals_wake();
        } else if (!atomic_load(&d->start_failed)) {
            xn_engine_set_loading(d->service.engine, XN_LOADING_MODELS, false);
        }
        d->scanned = true;
    } while (atomic_fetch_sub(&d->scans_asked, asked) != asked);
}

static void ask_for_scan(daemon_state *d) {
    if (atomic_fetch_add(&d->scans_asked, 1) == 0)
        xn_thread_pool_submit(d->service.model_pool, &d->scan);
}

static bool has_models(const xn_config *config) {
    return config->model_repository[0] || config->models[0];
}

/* Until they are loaded, the daemon is not ready. */
static xn_status open_models(daemon_state *d, xn_error *error) {
    xn_engine *engine = d->service.engine;
    xn_status status = xn_service_create_models(&d->service, error);
    if (status)
        return status;
    xn_metrics_set_more(xn_engine_metrics(engine), xn_models_metrics, d->service.models);
    if (has_models(&d->config)) {
        d->scan.run = scan_models; /* once: later the pool may have it at any time */
        xn_engine_set_loading(engine, XN_LOADING_MODELS, true);
        ask_for_scan(d);
    }
    return XN_OK;
}

static xn_status start(daemon_state *d, xn_error *error) {
    xn_status status;
    d->service.config = &d->config;
    if (d->config.log_file[0] && (status = xn_log_open(d->config.log_file, error)))
        return status;
    raise_descriptor_limit(d->config.max_connections);
    warn_of_connections(&d->config);
    if ((status = read_secrets(d, error)))
        return status;
    if ((status = xn_engine_create(&d->config, &d->service.engine, error)))
        return status;
    xn_engine_on_fatal(d->service.engine, on_fatal, NULL);
    if ((status =
             xn_thread_pool_create(background_threads(), &d->service.background_pool, error)) ||
        (status = xn_thread_pool_create(XN_MODEL_POOL_THREADS, &d->service.model_pool, error)))
        return status;
    if (d->config.allow_client_shm &&
        (status =
             xn_shared_memory_create(d->service.engine, d->service.background_pool,
                                     (size_t)d->config.queue_bytes, &d->service.shared, error)))
        return status;
    if ((status = open_weights_dir(d, error)))
        return status;
    if ((status = open_models(d, error)))
        return status;
    if ((status = xn_service_open_spans(&d->service, error)))
        return status;
    return start_http(d, error);
}

/* What start would find wrong, without serving and beside a daemon that serves. */
static xn_status check(daemon_state *d, char fallback_reason[XN_FALLBACK_REASON_MAX],
                       xn_error *error) {
    xn_status status = XN_OK;
    if (d->config.log_file[0])
        status = xn_log_check(d->config.log_file, error);
    raise_descriptor_limit(d->config.max_connections);
    if (!status)
        status = read_secrets(d, error);
    if (!status)
        status = xn_engine_check(&d->config, fallback_reason, error);
    if (!status && d->config.weights_dir[0])
        status = xn_weights_dir_check(d->config.weights_dir, error);
    if (!status)
        status = xn_models_check(&d->config, error);
    if (!status)
        status = xn_listener_check(d->config.listen, (int)d->config.port, error);
    return status;
}

static void announce(const daemon_state *d) {
    const xn_config *c = &d->config;
    const xn_engine *engine = d->service.engine;
    const char *scheme = c->tls_cert[0] ? "https" : "http";
    bool v6 = strchr(c->listen, ':') != NULL;
    char url[128];
    bool any = !strcmp(c->listen, "0.0.0.0") || !strcmp(c->listen, "::");
    snprintf(url, sizeof url, "%s://%s%s%s:%d", scheme, v6 ? "[" : "", c->listen, v6 ? "]" : "",
             xn_http_port(d->http));
    xn_log(XN_LOG_INFO, NULL, "xnord %s, backend %s", XN_VERSION, xn_engine_primary(engine));
    if (xn_engine_fallback_reason(engine)[0])
        xn_log(XN_LOG_WARN, NULL, "serving on the CPU: %s", xn_engine_fallback_reason(engine));
    for (int i = 0; i < xn_engine_device_count(engine); i++) {
        xn_device_info info;
        xn_engine_device_info(engine, i, &info);
        xn_log(XN_LOG_INFO, NULL, "device %s: %s", info.id, info.description);
    }
    xn_log(XN_LOG_INFO, NULL,
           "limits: body %lld, output %lld, queue %lld bytes; %lld elements; %lld operations; %lld "
           "requests in the queue; %lld connections; batches of %lld images, delay %lld us",
           (long long)c->max_body_bytes, (long long)c->max_output_bytes, (long long)c->queue_bytes,
           (long long)c->max_elements, (long long)c->max_operations, (long long)c->queue_depth,
           (long long)c->max_connections, (long long)c->max_batch_images,
           (long long)c->batch_delay_us);
    xn_log(XN_LOG_INFO, NULL, "keys: %s", d->service.auth ? "required" : "none, open to all");
    if (xn_http_library_version()[0] == '0')
        xn_log(XN_LOG_WARN, NULL,
               "libmicrohttpd %s: of malformed heads, those with NUL beside a bare LF are read as "
               "if it were CR LF; version 1.0.1 refuses them (PROTOCOL.md, section 13)",
               xn_http_library_version());
    xn_log(XN_LOG_INFO, NULL, "listening on %s", url);
    snprintf(url, sizeof url, "%s://%s%s%s:%d", scheme, v6 ? "[" : "",
             any ? (v6 ? "::1" : "127.0.0.1") : c->listen, v6 ? "]" : "", xn_http_port(d->http));
    xn_log(
        XN_LOG_INFO, NULL,
        "try: curl -sS %s%s/conv -H 'Content-Type: application/json' %s-d '{\"input\": {\"shape\": "
        "[1,1,3,3], \"datatype\": \"FP32\", \"data\": [1,-2,3,-4,5,-6,7,-8,9]}, \"weights\": "
        "{\"shape\": [1,1,3,3], \"datatype\": \"FP32\", \"data\": [1,-1,1,-1,1,-1,1,-1,1]}}'",
        c->tls_cert[0] ? "-k " : "", url,
        d->service.auth ? "-H \"Authorization: Bearer $KEY\" " : "");
}

static void log_reload(const char *what, xn_status status, const xn_error *error) {
    if (status)
        xn_log(XN_LOG_ERROR, NULL, "SIGHUP: %s stays as it was: %s", what, error->message);
    else
        xn_log(XN_LOG_INFO, NULL, "SIGHUP: %s was read anew", what);
}

/* Each on its own: what cannot be read anew stays as it was. The settings themselves are those of
 * the start. */
static void reload(daemon_state *d) {
    const xn_config *c = &d->config;
    xn_error error;
    if (c->log_file[0] && xn_log_open(c->log_file, &error))
        xn_log(XN_LOG_ERROR, NULL, "SIGHUP: the log stays where it was: %s", error.message);
    else
        xn_log(XN_LOG_INFO, NULL, "SIGHUP: %s",
               c->log_file[0] ? "the log goes on here" : "reloading");
    if (d->service.auth)
        log_reload("api-keys-file", xn_auth_reload(d->service.auth, c->api_keys_file, &error),
                   &error);
    if (c->tls_cert[0])
        log_reload("the certificate", xn_tls_load(c->tls_cert, c->tls_key, &error), &error);
    if (has_models(c))
        ask_for_scan(d);
    if (d->service.weights_dir)
        xn_weights_dir_look(d->service.weights_dir);
}

/* What the buffer pool has not used for a while goes back to the C library, and from there to the
 * system, like what loading models has left; but for the end of each thread's heap, of up to 64
 * MiB, which malloc_trim leaves alone. */
static void give_back_memory(const daemon_state *d) {
    bool changed = xn_models_changed(d->service.models);
    if (atomic_exchange(&short_of_memory, false)) {
        xn_engine_reclaim(d->service.engine);
        changed = true;
    }
    if (xn_buffers_trim(xn_engine_buffers(d->service.engine), xn_now_ns() - UNUSED_NS) || changed)
        malloc_trim(0);
}

/* Once a second, and after every signal. */
static void tick(const daemon_state *d) {
    xn_service_tick(xn_now_ns());
    give_back_memory(d);
}

/* Waits up to that long for a signal and does what is done at any time. Returns one that ends. */
static int attend(daemon_state *d, int64_t ns) {
    int signal = xn_signals_wait(ns);
    if (signal && !xn_signal_ends(signal))
        reload(d);
    tick(d);
    return xn_signal_ends(signal) ? signal : 0;
}

static void attend_or_leave(daemon_state *d) {
    if (!attend(d, 0))
        return;
    xn_log(XN_LOG_WARN, NULL, "second signal: leaving at once");
    _exit(EXIT_SECOND_SIGNAL);
}

/* What was accepted is finished, or the grace time passes, or a second signal comes. */
static int drain(daemon_state *d) {
    d->grace_end_ns = xn_now_ns() + d->config.grace_ms * XN_NS_PER_MS;
    xn_http_drain(d->http); /* first: what the engine's drain sets free is answered with it */
    xn_models_stop(d->service.models);
    xn_engine_drain(d->service.engine);
    while (!xn_engine_wait_idle(d->service.engine, xn_now_ns() + 20 * XN_NS_PER_MS)) {
        attend_or_leave(d);
        if (xn_now_ns() > d->grace_end_ns) {
            xn_log(XN_LOG_ERROR, NULL,
                   "the grace time of %lld ms is over and %lld requests are not finished",
                   (long long)d->config.grace_ms,
                   (long long)xn_metrics_gauge(xn_engine_metrics(d->service.engine),
                                               XN_GAUGE_INFLIGHT));
            _exit(EXIT_FAILURE);
        }
    }
    return EXIT_SUCCESS;
}

static int cannot_start(const xn_config *config, const xn_error *error) {
    xn_log(XN_LOG_ERROR, NULL, "cannot start: %s", error->message);
    if (config->log_file[0]) /* where a supervisor looks first */
        fprintf(stderr, "xnord: cannot start: %s\n", error->message);
    return EXIT_FAILURE;
}

static int serve(daemon_state *d) {
    int signal = 0;
    while (!signal && !atomic_load(&device_lost) && !atomic_load(&d->start_failed))
        signal = attend(d, TICK_NS);
    if (atomic_load(&d->start_failed)) {
        drain(d);
        return cannot_start(&d->config, &d->start_error);
    }
    if (atomic_load(&device_lost))
        xn_log(XN_LOG_ERROR, NULL, "a device is lost: finishing what can be, then exit %d",
               EXIT_DEVICE_LOST);
    else
        xn_log(XN_LOG_INFO, NULL, "%s: draining", xn_signal_name(signal));
    int result = drain(d);
    return atomic_load(&device_lost) ? EXIT_DEVICE_LOST : result;
}

/* Those of the last requests too; a collector that is away has the rest of the grace time. */
static void end_spans(daemon_state *d) {
    xn_exporter *spans = d->service.spans;
    if (!spans)
        return;
    xn_exporter_stop(spans, d->grace_end_ns);
    while (!xn_exporter_ended(spans, xn_now_ns() + 20 * XN_NS_PER_MS) &&
           xn_now_ns() < d->grace_end_ns + XN_EXPORTER_END_NS)
        attend_or_leave(d);
    xn_exporter_free(spans);
}

/* Nothing is admitted any more. The threads that hand requests back end before the server: such a
 * call may return after its request was answered and is gone, and still needs the server then. */
static void cleanup(daemon_state *d) {
    xn_models_stop(d->service.models);
    if (d->service.engine)
        xn_engine_stop(d->service.engine);
    xn_thread_pool_stop(d->service.model_pool);
    xn_thread_pool_stop(d->service.background_pool);
    if (d->http)
        xn_http_stop(d->http, xn_now_ns() + 2 * XN_NS_PER_S);
    end_spans(d);
    xn_shared_memory_free(d->service.shared);
    xn_thread_pool_free(d->service.model_pool);
    xn_thread_pool_free(d->service.background_pool);
    xn_weights_dir_close(d->service.weights_dir);
    xn_models_free(d->service.models);
    xn_engine_free(d->service.engine);
    xn_auth_free(d->service.auth);
    xn_tls_unload();
}

static int run_daemon(daemon_state *d) {
    xn_error error;
    int result;
    xn_signals_init(); /* before any thread is started */
    xn_mem_set_shortage(on_shortage);
    xn_arenas_set_up(xn_cpus_usable());
    xn_proto_init(); /* once, before any thread */
    xn_log_init(d->config.log_format, d->config.log_level);
    if (start(d, &error)) {
        result = cannot_start(&d->config, &error);
    } else {
        announce(d);
        result = serve(d);
    }
    cleanup(d);
    if (result == EXIT_SUCCESS)
        xn_log(XN_LOG_INFO, NULL, "finished everything, goodbye");
    return result;
}

static int check_config(daemon_state *d) {
    char fallback_reason[XN_FALLBACK_REASON_MAX] = "";
    xn_error error;
    xn_log_init(d->config.log_format, d->config.log_level);
    xn_status status = check(d, fallback_reason, &error);
    if (status)
        xn_log(XN_LOG_ERROR, NULL, "cannot start: %s", error.message);
    else if (fallback_reason[0])
        xn_log(XN_LOG_WARN, NULL, "would serve on the CPU: %s", fallback_reason);
    if (!status)
        xn_config_print(&d->config, stdout);
    cleanup(d);
    return status ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv) {
    static daemon_state d;
    xn_command command = XN_COMMAND_SERVE;
    xn_error error;
    if (xn_config_load(argc, argv, environ, &d.config, &command, &error)) {
        fprintf(stderr, "xnord: %s\nxnord --help lists every setting\n", error.message);
        return EXIT_USAGE;
    }
    switch (command) {
    case XN_COMMAND_HELP:
        xn_config_help(stdout);
        return EXIT_SUCCESS;
    case XN_COMMAND_VERSION:
        puts("xnord " XN_VERSION);
        return EXIT_SUCCESS;
    case XN_COMMAND_CHECK_CONFIG:
        return check_config(&d);
    case XN_COMMAND_LIST_DEVICES:
        return list_devices(&d.config);
    case XN_COMMAND_SERVE:
        break;
    }
    return run_daemon(&d);
}
