/* http.h: bench-http's command line, and the processes that its sub-commands start. */
#ifndef XN_BENCH_HTTP_H
#define XN_BENCH_HTTP_H

#include "../report.h"

#include <netinet/in.h>
#include <sys/types.h>

typedef struct bench_options {
    const char *json; /* NULL: none */
    const char *xnord, *scripts, *model;
    char **flags;                   /* xnord's, behind "--"; NULL-terminated */
    const char *cpus, *daemon_cpus; /* "2,3"; NULL: all; of overload half each */
    const char *workloads, *loads, *sides, *hits, *gpus; /* lists with spaces or commas */
    int rounds, runs, values, port;
    int threads, connections, sources; /* 0: the sub-command's */
    int images;                        /* of a request to a network; 0: all there are */
    double seconds, warmup, rate, patience_ms, slice_ms;
    bool constant, check;
    uint64_t seed;
} bench_options;

/* Sub-commands, each in a file of its name; the program's exit status. */
int bench_echo(const bench_options *o);
int bench_load(const bench_options *o);
int bench_json(const bench_options *o);
int bench_wrk(const bench_options *o);
int bench_compare(const bench_options *o);
int bench_overload(const bench_options *o);
int bench_probe(const bench_options *o);

/* Ends the program where there is no memory. */
void *bench_take(size_t bytes);

/* The next word of a list, into text; false at the end. at moves on. */
bool bench_next_word(const char **at, char *text, size_t size);
/* This process and its threads to come, "0,1,5"; NULL: as it is. How many cores they have. */
int bench_pin(const char *cpus);

/* ---- processes (process.c) ---- */

typedef struct bench_process {
    pid_t pid;
    int fd;
} bench_process;

/* Starts a program on those cores and waits for the first line of its output stream (1 or 2) that
 * has marker in it. It ends when this process does. Exits with what it printed where no such line
 * comes. */
void bench_process_start(bench_process *p, char *const argv[], const char *cpus, int stream,
                         const char *marker, char *line, size_t size);
void bench_process_stop(bench_process *p);
/* CPU time of all threads of a process so far; 0: of this one. NAN where there is none. */
double bench_cpu_us(pid_t pid);

/* xnord on a free port of loopback, with the options' flags and `more` (NULL: none). */
void bench_daemon_start(bench_process *p, const bench_options *o, const char *const *more,
                        struct sockaddr_in *address);

/* The same with the folder of --model as "network". more: at most 8. */
void bench_model_start(bench_process *p, const bench_options *o, const char *const *more,
                       struct sockaddr_in *address);

/* Waits until it serves; the name of its backend, "?" where it does not say. */
void bench_daemon_ready(const struct sockaddr_in *server, char *backend, size_t size);

/* `bench-http echo`, on a free port of loopback, on the daemon's cores and with as many threads as
 * they are, up to 8: those that the daemon takes on a CPU. With a GPU it takes more of many cores,
 * since they wait for it; those of echo wait for nothing. */
void bench_echo_start(bench_process *p, const bench_options *o, struct sockaddr_in *address);

/* One exchange on a connection of its own, which the request asks to close. The whole answer,
 * terminated and owned by the caller, or NULL with a line on stderr. */
char *bench_exchange(const struct sockaddr_in *server, const char *bytes, size_t length,
                     size_t *answer_length);
/* The answer to GET path, likewise. */
char *bench_get(const struct sockaddr_in *server, const char *path);

#endif
