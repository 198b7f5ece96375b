/* auth.c: bearer keys, kept and compared as SHA-256 digests.
 *
 * A request's key is hashed, and its digest is compared with all bytes of all digests, in constant
 * time. So the time depends only on the number of keys and on the length of the candidate, which
 * the client knows. */
#include "auth.h"

#include "secrets.h"
#include "xn_mem.h"

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <pthread.h>
#include <string.h>
#include <strings.h>

#define KEY_MIN 16
#define KEY_MAX 256
#define KEYS_MAX 1024 /* bounds the work of one request */
#define FILE_BYTES_MAX (1024 * 1024)
#define DIGEST_BYTES 32

typedef struct digest {
    unsigned char bytes[DIGEST_BYTES];
} digest;

/* Immutable: a reload makes another. */
typedef struct key_table {
    size_t count;
    digest digests[];
} key_table;

struct xn_auth {
    pthread_rwlock_t lock; /* guards keys; held for reading while they are compared */
    key_table *keys;
};

/* ---- the file ---- */

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

static bool hash(const char *key, size_t length, digest *out) {
    return gnutls_hash_fast(GNUTLS_DIG_SHA256, key, length, out->bytes) == 0;
}

static void free_table(key_table *table) {
    if (table)
        explicit_bzero(table, sizeof *table + table->count * sizeof table->digests[0]);
    xn_mem_free(table);
}

static xn_status make_table(const char *text, size_t size, size_t count, key_table **out,
                            xn_error *error) {
    const char *at = text, *key = NULL;
    size_t length = 0;
    int line = 0;
    key_table *table = xn_mem_zalloc(1, sizeof *table + count * sizeof table->digests[0]);
    if (!table)
        return xn_fail(error, XN_ERR_NO_MEMORY, "api-keys-file", "no memory for %zu keys", count);
    for (; next_key(&at, text + size, &line, &key, &length); table->count++)
        if (!hash(key, length, &table->digests[table->count])) {
            free_table(table);
            return xn_fail(error, XN_ERR_INTERNAL, "api-keys-file",
                           "api-keys-file: the TLS library computes no SHA-256");
        }
    *out = table;
    return XN_OK;
}

static xn_status read_table(const char *path, key_table **out, xn_error *error) {
    char *text = NULL;
    size_t size = 0, count = 0;
    xn_status status =
        xn_secret_read("api-keys-file", path, FILE_BYTES_MAX, true, &text, &size, error);
    if (status == XN_OK)
        status = check_keys(path, text, size, &count, error);
    if (status == XN_OK)
        status = make_table(text, size, count, out, error);
    xn_secret_free(text, size);
    return status;
}

xn_status xn_auth_load(const char *path, xn_auth **out, xn_error *error) {
    key_table *keys = NULL;
    xn_status status = read_table(path, &keys, error);
    if (status != XN_OK)
        return status;
    xn_auth *auth = xn_mem_zalloc(1, sizeof *auth);
    if (!auth) {
        free_table(keys);
        return xn_fail(error, XN_ERR_NO_MEMORY, "api-keys-file", "no memory for the keys");
    }
    pthread_rwlock_init(&auth->lock, NULL);
    auth->keys = keys;
    *out = auth;
    return XN_OK;
}

xn_status xn_auth_reload(xn_auth *auth, const char *path, xn_error *error) {
    key_table *keys = NULL;
    xn_status status = read_table(path, &keys, error);
    if (status != XN_OK)
        return status;
    pthread_rwlock_wrlock(&auth->lock);
    key_table *former = auth->keys;
    auth->keys = keys;
    pthread_rwlock_unlock(&auth->lock);
    free_table(former);
    return XN_OK;
}

void xn_auth_free(xn_auth *auth) {
    if (!auth)
        return;
    pthread_rwlock_destroy(&auth->lock);
    free_table(auth->keys);
    xn_mem_free(auth);
}

/* ---- one request ---- */

/* The key of "Bearer KEY". False when the header has another form; returning early for that reveals
 * nothing about keys. */
static bool read_header(const char *header, const char **key, size_t *length) {
    if (strncasecmp(header, "Bearer", 6) || header[6] != ' ')
        return false;
    header += 6;
    while (*header == ' ')
        header++;
    size_t n = strlen(header);
    while (n && (header[n - 1] == ' ' || header[n - 1] == '\t'))
        n--;
    *key = header;
    *length = n;
    return n >= KEY_MIN && n <= KEY_MAX;
}

static uint64_t first_bytes(const digest *d) {
    uint64_t value = 0;
    memcpy(&value, d->bytes, sizeof value);
    return value;
}

bool xn_auth_match(xn_auth *auth, const char *header, uint64_t *identity) {
    const char *key = NULL;
    size_t length = 0;
    digest candidate;
    bool found = false;
    if (identity)
        *identity = 0;
    if (!auth)
        return true;
    if (!header || !read_header(header, &key, &length) || !hash(key, length, &candidate))
        return false;
    pthread_rwlock_rdlock(&auth->lock);
    for (size_t i = 0; i < auth->keys->count; i++)
        found |= !gnutls_memcmp(auth->keys->digests[i].bytes, candidate.bytes, DIGEST_BYTES);
    pthread_rwlock_unlock(&auth->lock);
    if (identity)
        *identity = found ? first_bytes(&candidate) : 0;
    explicit_bzero(&candidate, sizeof candidate);
    return found;
}
