/* main.c: bench-http: how fast the daemon answers over HTTP, and what it still answers when more
 * comes than it can do. `bench-http help` lists the sub-commands. */
#include "../options.h"
#include "http.h"

#include <string.h>
#include <sys/resource.h>

typedef struct command {
    const char *name, *what;
    int (*run)(const bench_options *options);
} command;

static const command commands[] = {
    {"wrk", "wrk against xnord, the echo ceiling and, where there is PyTorch, a peer", bench_wrk},
    {"compare", "works of several servers, or sent in several ways, in turns: --workloads",
     bench_compare},
    {"overload", "goodput, latency and memory at multiples of capacity, by an open loop",
     bench_overload},
    {"probe", "how long a health probe waits beside JSON bodies of 112 MB", bench_probe},
    {"load", "a load generator with a schedule of its own, against --port", bench_load},
    {"echo", "the least the HTTP library can do: sends a body back; prints its port", bench_echo},
    {"json", "reading JSON tensors beside Jansson", bench_json},
};

static bench_options o = {.xnord = "build/xnord",
                          .scripts = "tests/bench/http",
                          .model = "build/networks/fp32/birealnet18",
                          .sides = "32 128 512",
                          .loads = "1 2 5 10",
                          .hits = "0 10 50 90 100",
                          .gpus = "1",
                          .rounds = 3,
                          .runs = 15,
                          .seed = 1,
                          .values = 1000000,
                          .warmup = 1};

static const xn_option options[] = {
    {"json", XN_OPTION_TEXT, &o.json, "FILE", "the rows, as an array of objects"},
    {"xnord", XN_OPTION_TEXT, &o.xnord, "FILE", "the daemon (build/xnord)"},
    {"scripts", XN_OPTION_TEXT, &o.scripts, "FOLDER", "of post.lua and the peer"},
    {"rounds", XN_OPTION_COUNT, &o.rounds, "N", "medians of so many (3)"},
    {"seconds", XN_OPTION_NUMBER, &o.seconds, "S",
     "a round (wrk, overload: 3; load, compare: 4; probe: 10)"},
    {"connections", XN_OPTION_COUNT, &o.connections, "N",
     "wrk: 32; compare: the work's; overload: 1000; load: 64"},
    {"threads", XN_OPTION_COUNT, &o.threads, "N", "of echo, of load (2), of compare's generator"},
    {"cpus", XN_OPTION_TEXT, &o.cpus, "2,3", "cores of clients; of a generator one a thread"},
    {"daemon-cpus", XN_OPTION_TEXT, &o.daemon_cpus, "0,1", "cores of the daemon"},
    {"sides", XN_OPTION_TEXT, &o.sides, "LIST", "wrk: of square images (\"32 128 512\")"},
    {"workloads", XN_OPTION_TEXT, &o.workloads, "LIST",
     "overload, load: 4k 64k layer slow heavy; compare: bits shm network devices cache-4k "
     "cache-layer cache-network"},
    {"hits", XN_OPTION_TEXT, &o.hits, "LIST",
     "cache-...: percent of requests that came before (\"0 10 50 90 100\")"},
    {"gpus", XN_OPTION_TEXT, &o.gpus, "LIST", "devices: how many each daemon has (\"1\")"},
    {"loads", XN_OPTION_TEXT, &o.loads, "LIST", "overload: times the capacity (\"1 2 5 10\")"},
    {"check", XN_OPTION_FLAG, &o.check, "", "overload: a missed target is a failure"},
    {"sources", XN_OPTION_COUNT, &o.sources, "N", "addresses 127.0.0.1, ... (overload: 8)"},
    {"port", XN_OPTION_COUNT, &o.port, "N", "load: of a daemon that runs"},
    {"rate", XN_OPTION_NUMBER, &o.rate, "R",
     "load: requests a second; without it a closed loop: each connection sends when it is "
     "answered"},
    {"constant", XN_OPTION_FLAG, &o.constant, "", "load: at equal steps, not a Poisson process"},
    {"seed", XN_OPTION_SEED, &o.seed, "N", "load: of the arrivals"},
    {"warmup", XN_OPTION_NUMBER, &o.warmup, "S", "load, compare: of the schedule, not counted (1)"},
    {"patience-ms", XN_OPTION_NUMBER, &o.patience_ms, "MS", "load: wait for a free connection"},
    {"slice-ms", XN_OPTION_NUMBER, &o.slice_ms, "MS",
     "load: in the JSON, what was due and good in each (up to 1200)"},
    {"model", XN_OPTION_TEXT, &o.model, "FOLDER",
     "network, cache-network: of networks.py (build/networks/fp32/birealnet18)"},
    {"images", XN_OPTION_COUNT, &o.images, "N", "network: requests of so many alone: 1 or 8"},
    {"values", XN_OPTION_COUNT, &o.values, "N", "json: numbers in a body (1000000)"},
    {"runs", XN_OPTION_COUNT, &o.runs, "N", "json: of each side (15)"},
};

static int usage(FILE *out) {
    fputs("usage: bench-http COMMAND [option ...] [-- XNORD-FLAG ...]\n", out);
    for (int i = 0; i < XN_COUNT(commands); i++)
        fprintf(out, "  %-22s %s\n", commands[i].name, commands[i].what);
    fputs("options:\n", out);
    xn_options_help(out, options, XN_COUNT(options));
    return out == stdout ? 0 : 2;
}

/* A connection is a descriptor. */
static void allow_descriptors(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return;
    limit.rlim_cur = limit.rlim_max < 16384 ? limit.rlim_max : 16384;
    setrlimit(RLIMIT_NOFILE, &limit);
}

int main(int argc, char **argv) {
    if (argc > 1 && (!strcmp(argv[1], "help") || !strcmp(argv[1], "--help")))
        return usage(stdout);
    for (int i = 0; argc > 1 && i < XN_COUNT(commands); i++)
        if (!strcmp(argv[1], commands[i].name)) {
            allow_descriptors();
            if (!xn_options_parse(argc, argv, options, XN_COUNT(options), &o.flags) || !o.rounds)
                return 2;
            return commands[i].run(&o);
        }
    return usage(stderr);
}
