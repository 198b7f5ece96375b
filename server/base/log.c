/* log.c: one line an event, built on the stack and handed to one write(2).
 *
 * A line has at most PIPE_BUF bytes, so a pipe takes it whole or not at all, and poll(2) says
 * beforehand whether it will: where nobody reads stderr, lines are dropped and counted instead of
 * stopping the service. The first drop costs its caller STALL_MS, those after it nothing, until
 * the reader is back; then a line says how many are missing. */
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ID_MAX_BYTES 128
/* What may follow a message: its id, each byte escaped to six, and the ends. */
#define TAIL_BYTES (ID_MAX_BYTES * 6 + 32)
#define STALL_MS 100

static atomic_int current_format = XN_LOG_TEXT;
static atomic_int current_level = XN_LOG_INFO;

/* Guards all below, and keeps poll and write of one line together. */
static pthread_mutex_t output_mutex = PTHREAD_MUTEX_INITIALIZER;
static int sink = STDERR_FILENO;
static bool sink_is_file; /* a regular one: never stalls, but may be on a full disk */
static bool stalled;
static unsigned long dropped;
/* The end of a line of which a full disk took the beginning: it comes before all others. */
static char rest[XN_LINE_MAX_BYTES];
static size_t rest_length;

static const char *const level_names[] = {"debug", "info", "warn", "error"};

void xn_log_init(xn_log_format format, xn_log_level level) {
    atomic_store(&current_format, (int)format);
    atomic_store(&current_level, (int)level);
}

bool xn_log_enabled(xn_log_level level) {
    return (int)level >= atomic_load_explicit(&current_level, memory_order_relaxed);
}

static void build(xn_line *l, xn_log_level level, const char *id, const char *message,
                  size_t length, bool cut) {
    bool json = atomic_load_explicit(&current_format, memory_order_relaxed) == XN_LOG_JSON;
    xn_line_begin(l, TAIL_BYTES);
    xn_line_text(l, json ? "{\"time\": \"" : "");
    xn_line_time(l);
    xn_line_print(l, json ? "\", \"level\": \"%s\", \"message\": \"" : " %-5s ",
                  level_names[level]);
    xn_line_escaped(l, message, length, json, json ? "\"" : "");
    cut |= xn_line_rest(l);
    xn_line_text(l, cut ? "..." : "");
    xn_line_text(l, json ? "\"" : "");
    if (id) {
        xn_line_text(l, json ? ", \"id\": \"" : " id=");
        xn_line_escaped(l, id, strnlen(id, ID_MAX_BYTES), json, json ? "\"" : " =\"");
        xn_line_text(l, json ? "\"" : "");
    }
    xn_line_text(l, json ? "}\n" : "\n");
}

/* ---- where lines go ---- */

xn_status xn_log_open(const char *path, xn_error *error) {
    struct stat info;
    /* Not blocking: a FIFO that nobody reads is an error, not a hang. */
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0640);
    if (fd < 0 || fstat(fd, &info))
        goto failed;
    pthread_mutex_lock(&output_mutex);
    int former = sink;
    sink = fd;
    sink_is_file = S_ISREG(info.st_mode);
    stalled = false;
    rest_length = 0;
    pthread_mutex_unlock(&output_mutex);
    if (former != STDERR_FILENO)
        close(former);
    return XN_OK;
failed:
    xn_fail(error, XN_ERR_IO, "log-file", "--log-file: cannot write to %.200s: %s", path,
            strerror(errno));
    if (fd >= 0)
        close(fd);
    return XN_ERR_IO;
}

xn_status xn_log_check(const char *path, xn_error *error) {
    char folder[PATH_MAX];
    struct stat info;
    if (!stat(path, &info)) {
        if (S_ISDIR(info.st_mode))
            errno = EISDIR;
        else if (!access(path, W_OK))
            return XN_OK;
    } else if (errno == ENOENT) { /* the start would make it */
        const char *slash = strrchr(path, '/');
        snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1,
                 slash ? path : ".");
        if (!access(folder, W_OK | X_OK))
            return XN_OK;
    }
    return xn_fail(error, XN_ERR_IO, "log-file", "--log-file: cannot write to %.200s: %s", path,
                   strerror(errno));
}

/* Whether the bytes went out, or cannot ever (no stderr): there is nobody to tell. A full disk may
 * have room again. What it takes of a line's bytes is out; the others are kept. */
static bool write_locked(const char *bytes, size_t length) {
    ssize_t n;
    do
        n = write(sink, bytes, length);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno != EAGAIN && !sink_is_file;
    rest_length = length - (size_t)n;
    memmove(rest, bytes + n, rest_length);
    return true;
}

static bool emit_locked(const xn_line *l) {
    struct pollfd out = {.fd = sink, .events = POLLOUT};
    int ready;
    do
        ready = poll(&out, 1, stalled ? 0 : STALL_MS);
    while (ready < 0 && errno == EINTR);
    stalled = ready == 0;
    if (stalled)
        return false;
    return (!rest_length || (write_locked(rest, rest_length) && !rest_length)) &&
           write_locked(l->bytes, l->length);
}

static bool tell_dropped_locked(void) {
    char message[80];
    xn_line l;
    int length = snprintf(message, sizeof message, "%lu log lines were dropped here: %s", dropped,
                          sink_is_file            ? "the log file took no more"
                          : sink == STDERR_FILENO ? "stderr was not read"
                                                  : "the log file was not read");
    build(&l, XN_LOG_WARN, NULL, message, (size_t)length, false);
    return emit_locked(&l);
}

void xn_log_line(const xn_line *l) {
    pthread_mutex_lock(&output_mutex);
    if (dropped && tell_dropped_locked())
        dropped = 0;
    if (dropped || !emit_locked(l))
        dropped++;
    pthread_mutex_unlock(&output_mutex);
}

void xn_log(xn_log_level level, const char *id, const char *format, ...) {
    if (!xn_log_enabled(level))
        return;
    int saved = errno; /* the caller may be about to look at it */
    char message[XN_LINE_MAX_BYTES];
    xn_line l;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (length < 0)
        length = snprintf(message, sizeof message, "a message that cannot be formatted");
    bool cut = (size_t)length >= sizeof message;
    build(&l, level, id, message, cut ? sizeof message - 1 : (size_t)length, cut);
    xn_log_line(&l);
    errno = saved;
}
