/* process.c: see http.h. */
#include "../clock.h"
#include "http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { START_SECONDS = 60, MOST_ARGUMENTS = 64 };

void *bench_take(size_t bytes) {
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory)
        xn_bench_fail("bench-http", "no memory");
    return memory;
}

bool bench_next_word(const char **at, char *text, size_t size) {
    const char *start = *at + strspn(*at, " ,");
    const size_t length = strcspn(start, " ,");
    *at = start + length;
    if (!length || length >= size)
        return false;
    memcpy(text, start, length);
    text[length] = '\0';
    return true;
}

int bench_pin(const char *cpus) {
    char word[16];
    cpu_set_t set;
    CPU_ZERO(&set);
    if (!cpus)
        return sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
    while (bench_next_word(&cpus, word, sizeof word))
        CPU_SET((size_t)strtoul(word, NULL, 10) % CPU_SETSIZE, &set);
    if (sched_setaffinity(0, sizeof set, &set))
        xn_bench_fail("cores", strerror(errno));
    return CPU_COUNT(&set);
}

/* ---- starting and ending ---- */

static void run_child(char *const argv[], const char *cpus, int stream, int fd) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    bench_pin(cpus);
    dup2(fd, stream);
    execvp(argv[0], argv);
    fprintf(stderr, "bench: %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

/* What a program prints later goes nowhere. */
static void *drain(void *context) {
    const int fd = *(int *)context;
    char bytes[4096];
    while (read(fd, bytes, sizeof bytes) > 0) {
    }
    close(fd);
    free(context);
    return NULL;
}

static void drain_aside(int fd) {
    pthread_t thread;
    int *own = bench_take(sizeof *own);
    *own = fd;
    if (pthread_create(&thread, NULL, drain, own))
        xn_bench_fail("process", "no thread");
    pthread_detach(thread);
}

/* The line with marker among `text`, whole. */
static const char *find_line(char *text, const char *marker) {
    char *at = strstr(text, marker), *end = at ? strchr(at, '\n') : NULL;
    if (!end)
        return NULL;
    *end = '\0';
    while (at > text && at[-1] != '\n')
        at--;
    return at;
}

static void wait_for_line(const bench_process *p, const char *name, const char *marker, char *line,
                          size_t size) {
    static char text[1 << 16];
    const int64_t end = xn_bench_now_ns() + INT64_C(1000000000) * START_SECONDS;
    size_t have = 0;
    while (xn_bench_now_ns() < end && have < sizeof text - 1) {
        struct pollfd ready = {.fd = p->fd, .events = POLLIN};
        if (poll(&ready, 1, 1000) <= 0)
            continue;
        const ssize_t n = read(p->fd, text + have, sizeof text - 1 - have);
        if (n <= 0)
            break;
        text[have += (size_t)n] = '\0';
        const char *found = find_line(text, marker);
        if (found) {
            snprintf(line, size, "%s", found);
            return;
        }
    }
    fputs(text, stderr);
    xn_bench_fail(name, "did not start");
}

void bench_process_start(bench_process *p, char *const argv[], const char *cpus, int stream,
                         const char *marker, char *line, size_t size) {
    int ends[2];
    if (pipe(ends))
        xn_bench_fail("pipe", strerror(errno));
    p->pid = fork();
    if (p->pid < 0)
        xn_bench_fail("fork", strerror(errno));
    if (p->pid == 0) {
        close(ends[0]);
        run_child(argv, cpus, stream, ends[1]);
    }
    close(ends[1]);
    p->fd = ends[0];
    wait_for_line(p, argv[0], marker, line, size);
    drain_aside(p->fd);
}

void bench_process_stop(bench_process *p) {
    if (p->pid <= 0)
        return;
    kill(p->pid, SIGTERM);
    waitpid(p->pid, NULL, 0);
    p->pid = 0;
}

double bench_cpu_us(pid_t pid) {
    clockid_t clock;
    struct timespec t = {0};
    if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &t))
        return NAN;
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static struct sockaddr_in on_loopback(const char *port) {
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                .sin_port = htons((uint16_t)atoi(port))};
}

void bench_daemon_start(bench_process *p, const bench_options *o, const char *const *more,
                        struct sockaddr_in *address) {
    char *argv[MOST_ARGUMENTS] = {(char *)o->xnord, (char *)"--port", (char *)"0"};
    char line[512];
    int n = 3;
    for (int i = 0; more && more[i] && n < MOST_ARGUMENTS - 1; i++)
        argv[n++] = (char *)more[i];
    for (int i = 0; o->flags[i] && n < MOST_ARGUMENTS - 1; i++)
        argv[n++] = o->flags[i];
    bench_process_start(p, argv, o->daemon_cpus, STDERR_FILENO, "listening on", line, sizeof line);
    const char *colon = strrchr(strstr(line, "listening on"), ':');
    *address = on_loopback(colon ? colon + 1 : "0");
}

void bench_daemon_ready(const struct sockaddr_in *server, char *backend, size_t size) {
    const struct timespec step = {0, 20000000};
    const int64_t end = xn_bench_now_ns() + INT64_C(1000000000) * START_SECONDS;
    char *ready = bench_get(server, "/v2/health/ready");
    while (ready && strncmp(ready, "HTTP/1.1 200", 12) && xn_bench_now_ns() < end) {
        free(ready);
        nanosleep(&step, NULL);
        ready = bench_get(server, "/v2/health/ready");
    }
    if (!ready || strncmp(ready, "HTTP/1.1 200", 12))
        xn_bench_fail("xnord", "is not ready");
    const char *at = strstr(ready, "\"backend\": \"");
    snprintf(backend, size, "%.*s", at ? (int)strcspn(at + 12, "\"") : 1, at ? at + 12 : "?");
    free(ready);
}

/* Cores of a list, or those of this process. */
static int count_cores(const char *cpus) {
    char word[16];
    int count = 0;
    if (!cpus)
        return bench_pin(NULL);
    while (bench_next_word(&cpus, word, sizeof word))
        count++;
    return count;
}

void bench_echo_start(bench_process *p, const bench_options *o, struct sockaddr_in *address) {
    const int cores = count_cores(o->daemon_cpus);
    char threads[24], line[64];
    char *argv[] = {(char *)"/proc/self/exe", (char *)"echo", (char *)"--threads", threads, NULL};
    snprintf(threads, sizeof threads, "%d", cores < 8 ? cores : 8);
    bench_process_start(p, argv, o->daemon_cpus, STDOUT_FILENO, "", line, sizeof line);
    *address = on_loopback(line);
}

/* ---- one exchange ---- */

char *bench_exchange(const struct sockaddr_in *server, const char *bytes, size_t length,
                     size_t *answer_length) {
    size_t sent = 0, have = 0, size = 1 << 16;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char *answer = malloc(size);
    if (fd < 0 || !answer || connect(fd, (const struct sockaddr *)server, sizeof *server))
        goto failed;
    while (sent < length) {
        const ssize_t n = send(fd, bytes + sent, length - sent, MSG_NOSIGNAL);
        if (n <= 0)
            break; /* it may have answered all the same */
        sent += (size_t)n;
    }
    for (ssize_t n; (n = recv(fd, answer + have, size - have - 1, 0)) > 0;) {
        have += (size_t)n;
        if (size - have < 2) {
            char *more = realloc(answer, size * 2);
            if (!more)
                goto failed;
            answer = more;
            size *= 2;
        }
    }
    close(fd);
    answer[have] = '\0';
    if (answer_length)
        *answer_length = have;
    return answer;
failed:
    perror("bench: an exchange with the daemon");
    if (fd >= 0)
        close(fd);
    free(answer);
    return NULL;
}

char *bench_get(const struct sockaddr_in *server, const char *path) {
    char request[256];
    const int length =
        snprintf(request, sizeof request,
                 "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path);
    return bench_exchange(server, request, (size_t)length, NULL);
}
