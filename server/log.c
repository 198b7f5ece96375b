/* log.c: one line an event, built on the stack and handed to one write(2).
 *
 * A line has at most PIPE_BUF bytes, so a pipe takes it whole or not at all, and poll(2) says
 * beforehand whether it will: where nobody reads stderr, lines are dropped and counted instead of
 * stopping the service. The first drop costs its caller STALL_MS, those after it nothing, until
 * the reader is back; then a line says how many are missing.
 *
 * What is not plain text is escaped: control characters (C1 and the line separators of Unicode
 * too), invalid UTF-8, direction marks that make a terminal show another text than there is. */
#include "log.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 4096
#define ID_MAX_BYTES 128
/* What may follow a message: its id, each byte escaped to six, and the ends. */
#define TAIL_BYTES (ID_MAX_BYTES * 6 + 32)
#define STALL_MS 100

_Static_assert(LINE_MAX_BYTES <= PIPE_BUF, "a pipe must take a line whole");

static atomic_int current_format = XN_LOG_TEXT;
static atomic_int current_level = XN_LOG_INFO;

/* Guards stalled and dropped, and keeps poll and write of one line together. */
static pthread_mutex_t output_mutex = PTHREAD_MUTEX_INITIALIZER;
static bool stalled;
static unsigned long dropped;

static const char *const level_names[] = {"debug", "info", "warn", "error"};

typedef struct line {
    char bytes[LINE_MAX_BYTES];
    size_t length;
    size_t limit; /* how far the part being written may reach */
    bool full;    /* something did not fit, so nothing after it may follow */
} line;

void xn_log_init(xn_log_format format, xn_log_level level) {
    atomic_store(&current_format, (int)format);
    atomic_store(&current_level, (int)level);
}

bool xn_log_enabled(xn_log_level level) {
    return (int)level >= atomic_load_explicit(&current_level, memory_order_relaxed);
}

/* All of it or nothing: an escape or a UTF-8 sequence is never cut. */
static void put(line *l, const char *bytes, size_t length) {
    if (l->full || length > l->limit - l->length) {
        l->full = true;
        return;
    }
    memcpy(l->bytes + l->length, bytes, length);
    l->length += length;
}

static void put_text(line *l, const char *text) {
    put(l, text, strlen(text));
}

/* The length of the valid UTF-8 sequence at text (RFC 3629), its code point in *code; 0 if none. */
static size_t utf8_length(const unsigned char *text, size_t left, uint32_t *code) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = text[0] < 0x80             ? 1
                    : (text[0] & 0xe0) == 0xc0 ? 2
                    : (text[0] & 0xf0) == 0xe0 ? 3
                    : (text[0] & 0xf8) == 0xf0 ? 4
                                               : 0;
    if (!length || length > left)
        return 0;
    uint32_t value = length == 1 ? text[0] : text[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
        value = value << 6 | (text[i] & 0x3fu);
    }
    if (length > 1 && (value < least[length] || value > 0x10ffff || value >> 11 == 0x1b))
        return 0;
    *code = value;
    return length;
}

/* Valid, but must not reach a terminal or a line-wise reader as it is. */
static bool is_unsafe(uint32_t code) {
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029 ||
           code == 0x200e || code == 0x200f || code == 0x061c ||
           (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) ||
           code == 0xfeff;
}

/* The letter of a two-character escape that JSON and C have in common, or 0. */
static char short_escape(uint32_t code) {
    switch (code) {
    case '\n':
        return 'n';
    case '\r':
        return 'r';
    case '\t':
        return 't';
    case '\\':
        return '\\';
    default:
        return 0;
    }
}

/* Escapes text. In JSON a reader decodes \u001b and \\xff; in text both are there to be read.
 * extra: further ASCII characters to escape, for ids in text, which a space would end. */
static void put_escaped(line *l, const char *text, size_t length, bool json, const char *extra) {
    const unsigned char *at = (const unsigned char *)text, *end = at + length;
    while (at < end && !l->full) {
        uint32_t code = 0;
        char escape[16];
        size_t n = utf8_length(at, (size_t)(end - at), &code);
        if (!n)
            snprintf(escape, sizeof escape, json ? "\\\\x%02x" : "\\x%02x", *at);
        else if (short_escape(code))
            snprintf(escape, sizeof escape, "\\%c", short_escape(code));
        else if (is_unsafe(code) || (code < 0x80 && strchr(extra, (int)code)))
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned)code);
        else
            escape[0] = 0;
        if (escape[0])
            put_text(l, escape);
        else
            put(l, (const char *)at, n);
        at += n ? n : 1;
    }
}

static void put_time(line *l) {
    struct timespec now;
    struct tm utc;
    char text[64];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(text + n, sizeof text - n, ".%03dZ", (int)(now.tv_nsec / 1000000));
    put_text(l, text);
}

static void build(line *l, xn_log_level level, const char *id, const char *message, size_t length,
                  bool cut) {
    bool json = atomic_load_explicit(&current_format, memory_order_relaxed) == XN_LOG_JSON;
    char head[64];
    l->length = 0;
    l->full = false;
    l->limit = LINE_MAX_BYTES - TAIL_BYTES;
    put_text(l, json ? "{\"time\": \"" : "");
    put_time(l);
    snprintf(head, sizeof head, json ? "\", \"level\": \"%s\", \"message\": \"" : " %-5s ",
             level_names[level]);
    put_text(l, head);
    put_escaped(l, message, length, json, json ? "\"" : "");
    cut |= l->full;
    l->full = false;
    l->limit = LINE_MAX_BYTES;
    put_text(l, cut ? "..." : "");
    put_text(l, json ? "\"" : "");
    if (id) {
        put_text(l, json ? ", \"id\": \"" : " id=");
        put_escaped(l, id, strnlen(id, ID_MAX_BYTES), json, json ? "\"" : " =\"");
        put_text(l, json ? "\"" : "");
    }
    put_text(l, json ? "}\n" : "\n");
}

/* Whether the line went out, or cannot ever (no stderr): there is nobody to tell. */
static bool emit_locked(const line *l) {
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
    int ready;
    do
        ready = poll(&out, 1, stalled ? 0 : STALL_MS);
    while (ready < 0 && errno == EINTR);
    stalled = ready == 0;
    if (stalled)
        return false;
    while (write(STDERR_FILENO, l->bytes, l->length) < 0)
        if (errno != EINTR)
            return errno != EAGAIN;
    return true;
}

static bool tell_dropped_locked(void) {
    char message[80];
    line l;
    int length = snprintf(message, sizeof message,
                          "%lu log lines were dropped here: stderr was not read", dropped);
    build(&l, XN_LOG_WARN, NULL, message, (size_t)length, false);
    return emit_locked(&l);
}

void xn_log(xn_log_level level, const char *id, const char *format, ...) {
    if (!xn_log_enabled(level))
        return;
    int saved = errno; /* the caller may be about to look at it */
    char message[LINE_MAX_BYTES];
    line l;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (length < 0)
        length = snprintf(message, sizeof message, "a message that cannot be formatted");
    bool cut = (size_t)length >= sizeof message;
    build(&l, level, id, message, cut ? sizeof message - 1 : (size_t)length, cut);

    pthread_mutex_lock(&output_mutex);
    if (dropped && tell_dropped_locked())
        dropped = 0;
    if (dropped || !emit_locked(&l))
        dropped++;
    pthread_mutex_unlock(&output_mutex);
    errno = saved;
}
