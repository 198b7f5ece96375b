/* tls.c: see tls.h. The TLS library asks for a certificate and its key at every handshake and frees
 * what it gets (GNUTLS_CERT_RETR_DEINIT_ALL), so each handshake gets copies: a reload may free the
 * pair of before at once, whatever handshakes are on their way. */
#include "tls.h"

#include "log.h"
#include "secrets.h"
#include "xn_mem.h"

#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define MAX_PEM_BYTES (1 << 20)
#define MAX_CHAIN 16
/* Switched off behind whatever --tls-ciphers says. */
#define OLD_VERSIONS ":-VERS-TLS1.0:-VERS-TLS1.1"
#define OLD_CIPHERS                                                                                \
    ":-AES-128-CBC:-AES-192-CBC:-AES-256-CBC:-CAMELLIA-128-CBC:-CAMELLIA-192-CBC"                  \
    ":-CAMELLIA-256-CBC:-3DES-CBC"

typedef struct pair {
    gnutls_pcert_st chain[MAX_CHAIN]; /* the server's own first */
    unsigned count;
    gnutls_x509_privkey_t key;
} pair;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards current and what it points to */
static pair *current;

static void free_pair(pair *p) {
    if (!p)
        return;
    for (unsigned i = 0; i < p->count; i++)
        gnutls_pcert_deinit(&p->chain[i]);
    if (p->key)
        gnutls_x509_privkey_deinit(p->key); /* wipes it */
    xn_mem_free(p);
}

/* ---- the files ---- */

static xn_status read_chain(const char *path, const gnutls_datum_t *pem, pair *p, xn_error *error) {
    unsigned count = MAX_CHAIN;
    int result = gnutls_pcert_list_import_x509_raw(p->chain, &count, pem, GNUTLS_X509_FMT_PEM,
                                                   GNUTLS_X509_CRT_LIST_SORT);
    if (result == GNUTLS_E_SHORT_MEMORY_BUFFER)
        return xn_fail(error, XN_ERR_MALFORMED, "tls-cert",
                       "--tls-cert %.200s has more than %d certificates", path, MAX_CHAIN);
    if (result < 0 || !count)
        return xn_fail(error, XN_ERR_MALFORMED, "tls-cert",
                       "--tls-cert %.200s is no PEM certificate: %s", path,
                       gnutls_strerror(result));
    p->count = count;
    return XN_OK;
}

static xn_status read_key(const char *path, const gnutls_datum_t *pem, pair *p, xn_error *error) {
    int result = gnutls_x509_privkey_init(&p->key);
    if (result < 0)
        return xn_fail(error, XN_ERR_NO_MEMORY, "tls-key", "no memory for the key %.200s", path);
    result = gnutls_x509_privkey_import2(p->key, pem, GNUTLS_X509_FMT_PEM, NULL, 0);
    if (result == GNUTLS_E_DECRYPTION_FAILED)
        return xn_fail(error, XN_ERR_MALFORMED, "tls-key",
                       "--tls-key %.200s is encrypted; give the key without a password", path);
    if (result < 0)
        return xn_fail(error, XN_ERR_MALFORMED, "tls-key",
                       "--tls-key %.200s is no PEM private key: %s", path, gnutls_strerror(result));
    return XN_OK;
}

/* That the key is the certificate's, by the public key that both stand for. */
static xn_status check_match(const char *cert_path, const char *key_path, const pair *p,
                             xn_error *error) {
    unsigned char of_cert[64], of_key[64];
    size_t cert_length = sizeof of_cert, key_length = sizeof of_key;
    int result = gnutls_pubkey_get_key_id(p->chain[0].pubkey, GNUTLS_KEYID_USE_SHA256, of_cert,
                                          &cert_length);
    if (result >= 0)
        result =
            gnutls_x509_privkey_get_key_id(p->key, GNUTLS_KEYID_USE_SHA256, of_key, &key_length);
    if (result < 0)
        return xn_fail(error, XN_ERR_MALFORMED, "tls-key",
                       "--tls-key %.200s cannot be compared with --tls-cert %.200s: %s", key_path,
                       cert_path, gnutls_strerror(result));
    if (cert_length != key_length || memcmp(of_cert, of_key, key_length) != 0)
        return xn_fail(error, XN_ERR_MALFORMED, "tls-key",
                       "--tls-key %.200s is not the key of the certificate --tls-cert %.200s",
                       key_path, cert_path);
    return XN_OK;
}

static void warn_of_age(const char *path, const pair *p) {
    gnutls_x509_crt_t cert;
    time_t now = time(NULL);
    if (gnutls_x509_crt_init(&cert) < 0)
        return;
    if (gnutls_x509_crt_import(cert, &p->chain[0].cert, GNUTLS_X509_FMT_DER) >= 0) {
        if (gnutls_x509_crt_get_expiration_time(cert) < now)
            xn_log(XN_LOG_WARN, NULL, "--tls-cert %s has expired; clients will refuse it", path);
        else if (gnutls_x509_crt_get_activation_time(cert) > now)
            xn_log(XN_LOG_WARN, NULL, "--tls-cert %s is not valid yet; clients will refuse it",
                   path);
    }
    gnutls_x509_crt_deinit(cert);
}

static xn_status read_pair(const char *cert_path, const char *key_path, pair *p, xn_error *error) {
    char *text = NULL;
    size_t length = 0;
    xn_status status =
        xn_secret_read("tls-cert", cert_path, MAX_PEM_BYTES, false, &text, &length, error);
    if (status)
        return status;
    status =
        read_chain(cert_path, &(gnutls_datum_t){(unsigned char *)text, (unsigned)length}, p, error);
    xn_secret_free(text, length);
    text = NULL;
    if (!status)
        status = xn_secret_read("tls-key", key_path, MAX_PEM_BYTES, true, &text, &length, error);
    if (status)
        return status;
    status =
        read_key(key_path, &(gnutls_datum_t){(unsigned char *)text, (unsigned)length}, p, error);
    xn_secret_free(text, length);
    return status ? status : check_match(cert_path, key_path, p, error);
}

xn_status xn_tls_load(const char *cert_path, const char *key_path, xn_error *error) {
    pair *fresh = xn_mem_zalloc(1, sizeof *fresh);
    if (!fresh)
        return xn_fail(error, XN_ERR_NO_MEMORY, "tls-cert", "no memory for the certificate");
    xn_status status = read_pair(cert_path, key_path, fresh, error);
    if (status) {
        free_pair(fresh);
        return status;
    }
    warn_of_age(cert_path, fresh);
    pthread_mutex_lock(&lock);
    pair *former = current;
    current = fresh;
    pthread_mutex_unlock(&lock);
    free_pair(former);
    return XN_OK;
}

void xn_tls_unload(void) {
    pthread_mutex_lock(&lock);
    free_pair(current);
    current = NULL;
    pthread_mutex_unlock(&lock);
}

/* ---- a handshake ---- */

static int copy_key(const pair *p, gnutls_privkey_t *out) {
    int result = gnutls_privkey_init(out);
    if (result < 0)
        return result;
    result = gnutls_privkey_import_x509(*out, p->key, GNUTLS_PRIVKEY_IMPORT_COPY);
    if (result < 0)
        gnutls_privkey_deinit(*out);
    return result;
}

static int copy_chain(const pair *p, gnutls_pcert_st **out) {
    gnutls_pcert_st *chain = gnutls_malloc(p->count * sizeof *chain); /* the library frees it */
    int result = chain ? 0 : GNUTLS_E_MEMORY_ERROR;
    unsigned done = 0;
    for (; result >= 0 && done < p->count; done += result >= 0)
        result = gnutls_pcert_import_x509_raw(&chain[done], &p->chain[done].cert,
                                              GNUTLS_X509_FMT_DER, 0);
    if (result < 0) {
        while (done)
            gnutls_pcert_deinit(&chain[--done]);
        gnutls_free(chain);
        return result;
    }
    *out = chain;
    return 0;
}

static int copy_pair(const pair *p, gnutls_pcert_st **chain, unsigned *count,
                     gnutls_privkey_t *key) {
    int result = p ? copy_key(p, key) : GNUTLS_E_NO_CERTIFICATE_FOUND;
    if (result < 0)
        return result;
    result = copy_chain(p, chain);
    if (result < 0)
        gnutls_privkey_deinit(*key);
    else
        *count = p->count;
    return result;
}

static int retrieve(gnutls_session_t session, const struct gnutls_cert_retr_st *info,
                    gnutls_pcert_st **chain, unsigned *count, gnutls_ocsp_data_st **ocsp,
                    unsigned *ocsp_count, gnutls_privkey_t *key, unsigned *flags) {
    (void)session, (void)info;
    *ocsp = NULL;
    *ocsp_count = 0;
    *flags = GNUTLS_CERT_RETR_DEINIT_ALL;
    pthread_mutex_lock(&lock);
    int result = copy_pair(current, chain, count, key);
    pthread_mutex_unlock(&lock);
    return result < 0 ? -1 : 0;
}

xn_tls_callback *xn_tls_retrieve(void) {
    gnutls_certificate_retrieve_function3 *function = retrieve;
    return (xn_tls_callback *)function;
}

/* ---- what may be used ---- */

static bool has_ciphers(gnutls_priority_t priority) {
    const unsigned *ciphers;
    return gnutls_priority_cipher_list(priority, &ciphers) > 0;
}

static bool has_only_new_versions(gnutls_priority_t priority) {
    const unsigned *versions = NULL;
    int count = gnutls_priority_protocol_list(priority, &versions), usable = 0;
    for (int i = 0; i < count; i++) {
        bool old = versions[i] == GNUTLS_SSL3 || versions[i] == GNUTLS_TLS1_0 ||
                   versions[i] == GNUTLS_TLS1_1;
        if (old)
            return false;
        usable += versions[i] == GNUTLS_TLS1_2 || versions[i] == GNUTLS_TLS1_3;
    }
    return usable > 0;
}

xn_status xn_tls_init(xn_error *error) {
    int result = gnutls_global_init();
    if (result < 0)
        return xn_fail(error, XN_ERR_NO_MEMORY, NULL, "the TLS library did not start: %s",
                       gnutls_strerror(result));
    return XN_OK;
}

xn_status xn_tls_priorities(const char *ciphers, char priorities[XN_TLS_PRIORITIES_MAX],
                            xn_error *error) {
    gnutls_priority_t priority = NULL;
    const char *at = NULL;
    /* On its own first, so that what is wrong is wrong in what the user wrote. */
    int result = gnutls_priority_init(&priority, ciphers, &at);
    if (result == GNUTLS_E_MEMORY_ERROR)
        return xn_fail(error, XN_ERR_NO_MEMORY, "tls-ciphers", "no memory for --tls-ciphers");
    /* Nothing is left where the system's configuration disables the old versions: judged below. */
    if (result < 0 && result != GNUTLS_E_NO_PRIORITIES_WERE_SET)
        return xn_fail(error, XN_ERR_MALFORMED, "tls-ciphers",
                       "--tls-ciphers is \"%.100s\"; it is no priority string of GnuTLS from "
                       "\"%.40s\" on; the plain one is NORMAL",
                       ciphers, at ? at : ciphers);
    if (result >= 0)
        gnutls_priority_deinit(priority);
    snprintf(priorities, XN_TLS_PRIORITIES_MAX, "%s" OLD_VERSIONS OLD_CIPHERS, ciphers);
    result = gnutls_priority_init(&priority, priorities, NULL);
    bool fits = result >= 0 && has_only_new_versions(priority) && has_ciphers(priority);
    if (result >= 0)
        gnutls_priority_deinit(priority);
    if (!fits)
        return xn_fail(error, XN_ERR_MALFORMED, "tls-ciphers",
                       "--tls-ciphers is \"%.100s\"; of TLS 1.2 and TLS 1.3, without CBC, it "
                       "leaves nothing",
                       ciphers);
    return XN_OK;
}
