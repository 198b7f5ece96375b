/* config.h: every setting of the daemon. One table in config.c gives each its flag, environment
 * variable (XNORD_ + the flag in upper case, '-' as '_'), configuration-file key (the flag
 * without dashes in front), type, range, default and help text. Precedence: flag over environment
 * over configuration file over default. The file has "key = value" lines, '#' comments. */
#ifndef XN_CONFIG_H
#define XN_CONFIG_H

#include "log.h"
#include "otlp_target.h"
#include "version_policy.h"
#include "xn_status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* What an open connection takes: for the headers of a request, whose limit that is, and for what
 * else belongs to a request, one after the other. */
#define XN_CONNECTION_HEADERS_BYTES 32768
#define XN_CONNECTION_REQUEST_BYTES 8192
#define XN_CONNECTION_BYTES (XN_CONNECTION_HEADERS_BYTES + XN_CONNECTION_REQUEST_BYTES)

typedef enum { XN_ACCESS_OFF, XN_ACCESS_TEXT, XN_ACCESS_JSON } xn_access_format;
typedef enum { XN_LOSS_EXIT, XN_LOSS_CPU } xn_loss_policy;
typedef enum { XN_WARMUP_ON, XN_WARMUP_OFF } xn_warmup;

typedef struct xn_config {
    /* where */
    char listen[64]; /* --listen 127.0.0.1     numeric IPv4 or IPv6 address */
    int64_t port;    /* --port 8080            0 = any free port, printed at start */
    char tls_cert[256], tls_key[256]; /* --tls-cert, --tls-key    PEM files, both or none */
    char tls_ciphers[256];            /* --tls-ciphers           the TLS library's priorities */
    char api_keys_file[256];          /* --api-keys-file          one key a line */
    char allowed_hosts[1024];         /* --allowed-hosts NAME    may be given again; with commas */
    char allowed_origins[1024];       /* --allowed-origins ORIGIN   the same */
    bool allow_unauthenticated; /* --allow-unauthenticated  listen beyond loopback without keys */
    bool allow_client_shm;      /* --allow-client-shm       shared memory that clients register */
    /* what runs it */
    char backend[8];      /* --backend auto|cuda|cpu|ref */
    char devices[64];     /* --devices all         or CUDA ordinals "0,2" */
    char cpu_isa[16];     /* --cpu-isa auto        or amx|avx512-vpopcnt|avx512|avx2|... */
    bool cpu_pin;         /* --cpu-pin             helper threads stay on a core each */
    int64_t workers;      /* --workers 0           per device; 0 = 3 a GPU, one a CPU thread */
    int64_t threads;      /* --threads 0           CPU thread budget; 0 = all the process may use */
    int64_t http_threads; /* --http-threads 0      0 = by cores (xn_config_http_threads) */
    int64_t inline_us;    /* --inline-us 100       the longest work an HTTP thread does; 0 = none */
    xn_loss_policy on_device_loss; /* --on-device-loss exit|cpu */
    int64_t canary_interval_ms;    /* --canary-interval-ms 10000     0 = only at start */
    /* batching and the queue */
    int64_t max_batch_images; /* --max-batch-images 256 */
    int64_t batch_delay_us;   /* --batch-delay-us 0     0 = only what is already waiting */
    int64_t queue_depth;      /* --queue-depth 1024     requests accepted and not yet answered */
    int64_t queue_bytes;      /* --queue-bytes 1 GiB    what they and open connections hold */
    int64_t max_requests_per_client; /* --max-requests-per-client 0   0 = 3/4 of queue_depth */
    int64_t max_bytes_per_client;    /* --max-bytes-per-client 0      0 = 3/4 of queue_bytes */
    /* limits of one request */
    int64_t max_body_bytes;     /* --max-body-bytes 256 MiB */
    int64_t max_elements;       /* --max-elements 2^27 */
    int64_t max_output_bytes;   /* --max-output-bytes 256 MiB */
    int64_t max_operations;     /* --max-operations 2e13 */
    int64_t max_picture_pixels; /* --max-picture-pixels 64000000 */
    int64_t timeout_ms;         /* --timeout-ms 30000     a request's deadline when it names none */
    int64_t max_timeout_ms;     /* --max-timeout-ms 300000 */
    /* connections */
    int64_t max_active;                  /* --max-active 0   0 = 16 a core, 64 or more */
    int64_t max_connections;             /* --max-connections 1024 */
    int64_t max_connections_per_address; /* --max-connections-per-address 256   0 = no limit */
    int64_t header_timeout_ms;           /* --header-timeout-ms 10000 */
    int64_t body_timeout_ms;             /* --body-timeout-ms 60000 */
    int64_t body_min_rate;   /* --body-min-rate 1024   bytes a second, after the first 5 s */
    int64_t send_timeout_ms; /* --send-timeout-ms 20000  for a reader to make progress */
    int64_t idle_timeout_ms; /* --idle-timeout-ms 60000  between requests of a connection */
    int64_t grace_ms;        /* --grace-ms 30000       time to finish what was accepted */
    /* weights */
    int64_t max_weights;         /* --max-weights 1024          registered names */
    int64_t max_weights_bytes;   /* --max-weights-bytes 4 GiB   host memory of all of them */
    int64_t weights_cache_bytes; /* --weights-cache-bytes 256 MiB   recognised inline weights */
    char weights_dir[256];       /* --weights-dir               registered ones are kept there */
    int64_t weights_poll_ms;     /* --weights-poll-ms 1000      0 = only at SIGHUP */
    /* answers */
    int64_t response_cache_bytes; /* --response-cache-bytes 0   0 = no cache of answers */
    /* models */
    char model_repository[256]; /* --model-repository           a folder of model folders */
    char models[1536];          /* --model [NAME=]DIR           may be given again; with commas */
    xn_warmup warmup;           /* --warmup on|off              runs before a model is ready */
    char version_policy[256];   /* --version-policy latest:1    or all, specific:1,3 */
    int64_t max_models;         /* --max-models 256             names of models */
    int64_t max_models_bytes;   /* --max-models-bytes 8 GiB     host memory of those loaded */
    int64_t max_image_bytes;    /* --max-image-bytes 0          of one image, between layers */
    /* logs */
    xn_log_format log_format;    /* --log-format text|json */
    xn_log_level log_level;      /* --log-level debug|info|warn|error */
    xn_access_format access_log; /* --access-log off|text|json   one line a request */
    char log_file[256];          /* --log-file   "" = stderr; SIGHUP opens it anew */
    /* traces */
    char otlp_endpoint[256]; /* --otlp-endpoint URL   "" = no spans are sent */
    char otlp_sample[16];    /* --otlp-sample 1       of requests that no trace comes with */
    /* what version_policy and the two above mean; read with them */
    xn_version_policy versions;
    xn_otlp_target otlp_target; /* without an endpoint: nothing */
    uint64_t otlp_ids;
} xn_config;

/* What the command line asks for besides settings. */
typedef enum {
    XN_COMMAND_SERVE,
    XN_COMMAND_HELP,
    XN_COMMAND_VERSION,
    XN_COMMAND_CHECK_CONFIG,
    XN_COMMAND_LIST_DEVICES
} xn_command;

void xn_config_default(xn_config *config);

/* Reads everything: --config FILE (or XNORD_CONFIG), the environment, the flags ("--flag value"
 * and "--flag=value"; booleans take no value or true/false; byte sizes take K, M, G suffixes of
 * 1024). Unknown flags, keys and XNORD_* variables (except XNORD_CONFIG, XNORD_TEST_*,
 * XNORD_BIN) are errors that name them; an out-of-range value names the setting, the value, the
 * range and where it came from. environment is an envp-like array. */
xn_status xn_config_load(int argc, char *const *argv, char *const *environment, xn_config *out,
                         xn_command *command, xn_error *error);

void xn_config_help(FILE *out);                           /* --help */
void xn_config_print(const xn_config *config, FILE *out); /* as a configuration file */
bool xn_config_is_loopback(const xn_config *config);
/* What --max-image-bytes means: itself, or of 0 a quarter of --queue-bytes. */
int64_t xn_config_image_bytes(const xn_config *config);

/* Threads that speak HTTP on a machine of `cores` cores: http_threads, or as many as cores, at most
 * 8. Where they wait for a GPU (on_gpu: it is what serves), three quarters of the cores where that
 * is more, at most 16. Pure. */
int xn_config_http_threads(const xn_config *config, int cores, bool on_gpu);

/* One of config->models: "NAME=DIR", or "DIR" (then name is ""). Takes it off the front of *list;
 * false at its end. What was loaded was checked: it fits, and names are such as models have. */
#define XN_CONFIG_MODEL_NAME 128
typedef struct xn_config_model {
    char name[XN_CONFIG_MODEL_NAME + 1];
    char folder[256];
} xn_config_model;
bool xn_config_next_model(const char **list, xn_config_model *out);

#endif
