/* coding.c: see coding.h. */
#include "coding.h"

#include "xn_mem.h"

#include <limits.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

#define STEP_BYTES ((size_t)256 << 10) /* decoded between two calls of grow */
#define BEST_RATIO 1032                /* of deflate: 258 bytes in 2 bits */
#define GZIP_WINDOW (15 + 16)
#define ZLIB_WINDOW 15
#define MEMORY_LEVEL 8 /* zlib's own default */

static const char *const names[] = {"identity", "gzip", "deflate"};

const char *xn_coding_name(xn_coding coding) {
    return names[coding];
}

static bool is_name(const char *text, size_t length, const char *name) {
    return strlen(name) == length && !strncasecmp(text, name, length);
}

static bool find(const char *text, size_t length, xn_coding *out) {
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (is_name(text, length, names[i])) {
            *out = (xn_coding)i;
            return true;
        }
    if (!is_name(text, length, "x-gzip"))
        return false;
    *out = XN_CODING_GZIP;
    return true;
}

bool xn_coding_parse(const char *content_encoding, xn_coding *out) {
    return find(content_encoding, strlen(content_encoding), out);
}

/* ---- Accept-Encoding ---- */

static size_t skip_blanks(const char *text, size_t at, size_t end) {
    while (at < end && (text[at] == ' ' || text[at] == '\t'))
        at++;
    return at;
}

/* In thousandths. 0 for a malformed q-value: that coding is not used. */
static int weight_of(const char *text, size_t length) {
    int value = 0, unit = 1000;
    size_t at = skip_blanks(text, 0, length);
    if (at == length)
        return 1000;
    if (length - at < 3 || (text[at] != 'q' && text[at] != 'Q') || text[at + 1] != '=')
        return 0;
    for (at += 2; at < length && unit; at++) {
        if (text[at] == '.' && unit == 100)
            continue;
        if (text[at] < '0' || text[at] > '9')
            break;
        value += (text[at] - '0') * unit;
        unit /= 10;
    }
    return skip_blanks(text, at, length) == length && value <= 1000 ? value : 0;
}

xn_coding xn_coding_choose(const char *accept_encoding) {
    xn_coding best = XN_CODING_IDENTITY;
    int best_weight = 0;
    for (const char *at = accept_encoding; at && *at;) {
        size_t length = strcspn(at, ","), name = strcspn(at, ",;"), from = skip_blanks(at, 0, name);
        size_t end = name, rest = name < length ? name + 1 : length;
        while (end > from && (at[end - 1] == ' ' || at[end - 1] == '\t'))
            end--;
        int weight = weight_of(at + rest, length - rest);
        xn_coding coding;
        if (find(at + from, end - from, &coding) && weight > best_weight) {
            best = coding;
            best_weight = weight;
        }
        at += length + (at[length] == ',');
    }
    return best;
}

/* ---- streams ---- */

static void *take(void *context, uInt count, uInt size) {
    size_t bytes;
    (void)context;
    return xn_mul_size(count, size, &bytes) ? xn_mem_alloc(bytes) : NULL;
}

static void give_back(void *context, void *memory) {
    (void)context;
    xn_mem_free(memory);
}

static z_stream new_stream(const void *body) {
    return (z_stream){.zalloc = take, .zfree = give_back, .next_in = (void *)(uintptr_t)body};
}

static int window_of(xn_coding coding) {
    return coding == XN_CODING_GZIP ? GZIP_WINDOW : ZLIB_WINDOW;
}

/* zlib counts in unsigned ints. */
static uInt piece(size_t bytes) {
    return bytes < UINT_MAX ? (uInt)bytes : UINT_MAX;
}

size_t xn_coding_most(size_t length) {
    size_t most;
    return xn_mul_size(length, BEST_RATIO, &most) ? most : SIZE_MAX;
}

static xn_status refuse(xn_coding coding, const char *why, xn_error *error) {
    return xn_fail(error, XN_ERR_MALFORMED, "Content-Encoding",
                   "Content-Encoding is %s, and the body is not: %s", xn_coding_name(coding), why);
}

/* Decodes one step, at most `room` bytes; *ended: the stream is complete. */
static xn_status decode_step(z_stream *stream, xn_coding coding, const unsigned char *end,
                             size_t room, bool *ended, xn_error *error) {
    stream->avail_in = piece((size_t)(end - stream->next_in));
    stream->avail_out = piece(room);
    int result = inflate(stream, Z_NO_FLUSH);
    *ended = result == Z_STREAM_END;
    switch (result) {
    case Z_OK:
    case Z_STREAM_END:
        return XN_OK;
    case Z_BUF_ERROR: /* no progress: there are no more bytes, or there is no room */
        return stream->next_in == end && stream->avail_out
                   ? refuse(coding, "it ends in the middle", error)
                   : XN_OK;
    case Z_MEM_ERROR:
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory to decode the body");
    case Z_NEED_DICT:
        return refuse(coding, "it needs a dictionary", error);
    default:
        return refuse(coding, stream->msg ? stream->msg : "it is not valid", error);
    }
}

static xn_status decode(z_stream *stream, xn_coding coding, const unsigned char *end,
                        unsigned char *out, size_t room, const char *limit, xn_coding_grow grow,
                        void *context, size_t *decoded, xn_error *error) {
    unsigned char probe = 0; /* output byte that tells, without room, whether more would follow */
    for (bool ended = false; !ended;) {
        size_t written = *decoded, step = room - written < STEP_BYTES ? room - written : STEP_BYTES;
        xn_status status = step ? grow(context, written + step, error) : XN_OK;
        if (status != XN_OK)
            return status;
        stream->next_out = step ? out + written : &probe;
        if ((status = decode_step(stream, coding, end, step ? step : 1, &ended, error)) != XN_OK)
            return status;
        size_t made = (size_t)(stream->next_out - (step ? out + written : &probe));
        if (!step && made)
            return xn_fail_limit(error, limit, "Content-Encoding",
                                 "the body is more than %zu bytes once it is decoded", room);
        *decoded += made;
    }
    return stream->next_in == end ? XN_OK : refuse(coding, "there are bytes behind its end", error);
}

xn_status xn_coding_decode(xn_coding coding, const void *body, size_t length, void *out,
                           size_t room, const char *limit, xn_coding_grow grow, void *context,
                           size_t *decoded, xn_error *error) {
    z_stream stream = new_stream(body);
    size_t bytes = 0;
    if (inflateInit2(&stream, window_of(coding)) != Z_OK)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "no memory to decode the body");
    xn_status status = decode(&stream, coding, (const unsigned char *)body + length, out, room,
                              limit, grow, context, &bytes, error);
    inflateEnd(&stream);
    if (status == XN_OK)
        *decoded = bytes;
    return status;
}

bool xn_coding_encode(xn_coding coding, const void *body, size_t length, void *out, size_t room,
                      size_t *coded) {
    z_stream stream = new_stream(body);
    const unsigned char *end = (const unsigned char *)body + length;
    unsigned char *stop = (unsigned char *)out + room;
    int result = Z_OK;
    if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, window_of(coding), MEMORY_LEVEL,
                     Z_DEFAULT_STRATEGY) != Z_OK)
        return false;
    stream.next_out = out;
    while (result == Z_OK && stream.next_out < stop) {
        stream.avail_in = piece((size_t)(end - stream.next_in));
        stream.avail_out = piece((size_t)(stop - stream.next_out));
        bool last = stream.next_in + stream.avail_in == end;
        result = deflate(&stream, last ? Z_FINISH : Z_NO_FLUSH);
    }
    *coded = (size_t)(stream.next_out - (unsigned char *)out);
    deflateEnd(&stream);
    return result == Z_STREAM_END;
}
