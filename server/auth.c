/* auth.c: bearer keys, compared in constant time.
 *
 * Every key is kept padded with zeros to KEY_MAX bytes and the candidate is brought to the
 * same form; a request is compared with all bytes of all keys, always, and the results are joined
 * without a branch. What is left in the time taken is the number of keys and the length of the
 * candidate, which the client knows. */
#include "auth.h"

#include "xn_mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define KEY_MIN 16
#define KEY_MAX 256
#define KEYS_MAX 1024 /* bounds the work of one request */
#define FILE_BYTES_MAX (1024 * 1024)

typedef struct padded_key {
    unsigned char bytes[KEY_MAX]; /* zeros past the length */
    uint32_t length;
} padded_key;

struct xn_auth {
    size_t count;
    padded_key keys[];
};

/* ---- the file ---- */

/* Reads the whole file with read(2): stdio would leave copies of the keys in its buffer. */
static xn_status slurp(const char *path, char *bytes, size_t *length, xn_error *error) {
    xn_status status = XN_OK;
    size_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return xn_fail(error, XN_ERR_IO, "api-keys-file", "api-keys-file %.200s: %s", path,
                       strerror(errno));
    while (n <= FILE_BYTES_MAX) {
        ssize_t got = read(fd, bytes + n, FILE_BYTES_MAX + 1 - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            status = xn_fail(error, XN_ERR_IO, "api-keys-file", "api-keys-file %.200s: %s", path,
                             strerror(errno));
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    if (status == XN_OK && n > FILE_BYTES_MAX)
        status = xn_fail(error, XN_ERR_MALFORMED, "api-keys-file",
                         "api-keys-file %.200s is larger than %d bytes", path, FILE_BYTES_MAX);
    close(fd);
    *length = n;
    return status;
}

/* The next line that is neither blank nor a comment, without the space around it. */
static bool next_key(const char **at, const char *stop, int *line, const char **key,
                     size_t *length) {
    while (*at < stop) {
        const char *start = *at, *end = memchr(start, '\n', (size_t)(stop - start));
        end = end ? end : stop;
        *at = end + (end < stop);
        ++*line;
        while (start < end && (*start == ' ' || *start == '\t'))
            start++;
        while (end > start && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r'))
            end--;
        if (start == end || *start == '#')
            continue;
        *key = start;
        *length = (size_t)(end - start);
        return true;
    }
    return false;
}

/* Checks all lines and counts the keys. Messages name the line, never what is on it. */
static xn_status check_keys(const char *path, const char *text, size_t size, size_t *count,
                            xn_error *error) {
    const char *at = text, *key = NULL;
    size_t length = 0, n = 0;
    for (int line = 0; next_key(&at, text + size, &line, &key, &length); n++) {
        if (length < KEY_MIN || length > KEY_MAX)
            return xn_fail(error, XN_ERR_MALFORMED, "api-keys-file",
                           "%.200s:%d: the key has %zu characters; %d to %d are accepted", path,
                           line, length, KEY_MIN, KEY_MAX);
        for (size_t i = 0; i < length; i++)
            if (key[i] <= 0x20 || key[i] >= 0x7f)
                return xn_fail(error, XN_ERR_MALFORMED, "api-keys-file",
                               "%.200s:%d: character %zu of the key is not a printable ASCII "
                               "character other than space",
                               path, line, i + 1);
    }
    if (!n)
        return xn_fail(error, XN_ERR_MALFORMED, "api-keys-file",
                       "api-keys-file %.200s has no key; one a line of %d to %d characters is "
                       "needed",
                       path, KEY_MIN, KEY_MAX);
    if (n > KEYS_MAX)
        return xn_fail(error, XN_ERR_MALFORMED, "api-keys-file",
                       "api-keys-file %.200s has %zu keys; at most %d are accepted", path, n,
                       KEYS_MAX);
    *count = n;
    return XN_OK;
}

xn_status xn_auth_load(const char *path, xn_auth **out, xn_error *error) {
    xn_auth *auth = NULL;
    size_t size = 0, count = 0;
    char *text = xn_mem_alloc(FILE_BYTES_MAX + 1);
    if (!text)
        return xn_fail(error, XN_ERR_NO_MEMORY, "api-keys-file", "no memory to read %.200s", path);
    xn_status status = slurp(path, text, &size, error);
    if (status == XN_OK)
        status = check_keys(path, text, size, &count, error);
    if (status != XN_OK)
        goto done;
    auth = xn_mem_zalloc(1, sizeof *auth + count * sizeof auth->keys[0]);
    if (!auth) {
        status = xn_fail(error, XN_ERR_NO_MEMORY, "api-keys-file", "no memory for %zu keys", count);
        goto done;
    }
    const char *at = text, *key = NULL;
    size_t length = 0;
    int line = 0;
    for (; next_key(&at, text + size, &line, &key, &length); auth->count++) {
        memcpy(auth->keys[auth->count].bytes, key, length);
        auth->keys[auth->count].length = (uint32_t)length;
    }
    *out = auth;
done:
    explicit_bzero(text, size);
    xn_mem_free(text);
    return status;
}

void xn_auth_free(xn_auth *auth) {
    if (!auth)
        return;
    explicit_bzero(auth, sizeof *auth + auth->count * sizeof auth->keys[0]);
    xn_mem_free(auth);
}

/* ---- one request ---- */

/* "Bearer KEY" to the padded form. False when the header is no such thing, which tells a client
 * nothing that it does not know. */
static bool read_header(const char *header, padded_key *out) {
    if (strncasecmp(header, "Bearer", 6) || header[6] != ' ')
        return false;
    const char *key = header + 6;
    while (*key == ' ')
        key++;
    size_t length = strlen(key);
    while (length && (key[length - 1] == ' ' || key[length - 1] == '\t'))
        length--;
    if (length < KEY_MIN || length > KEY_MAX)
        return false;
    memset(out, 0, sizeof *out);
    memcpy(out->bytes, key, length);
    out->length = (uint32_t)length;
    return true;
}

/* 1 if equal, else 0, by the same instructions either way. */
static uint32_t equal(const padded_key *a, const padded_key *b) {
    uint32_t difference = a->length ^ b->length;
    for (size_t i = 0; i < KEY_MAX; i++)
        difference |= (uint32_t)(a->bytes[i] ^ b->bytes[i]);
    /* The compiler must not know the value, or it could decide early. */
    __asm__ volatile("" : "+r"(difference));
    return (uint32_t)(((uint64_t)difference - 1) >> 63);
}

bool xn_auth_allows(const xn_auth *auth, const char *header) {
    padded_key candidate;
    uint32_t found = 0;
    if (!auth)
        return true;
    if (!header || !read_header(header, &candidate))
        return false;
    for (size_t i = 0; i < auth->count; i++)
        found |= equal(&auth->keys[i], &candidate);
    explicit_bzero(&candidate, sizeof candidate);
    return found != 0;
}
