/* tls.c: see tls.h. */
#include "tls.h"

#include <arpa/inet.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void must(int result, const char *what) {
    ck_assert_msg(result >= 0, "%s: %s", what, gnutls_strerror(result));
}

static void write_pem(const char *path, const gnutls_datum_t *pem) {
    FILE *file = path ? fopen(path, "w") : NULL;
    ck_assert(!path || (file && fwrite(pem->data, 1, pem->size, file) == pem->size));
    if (file)
        ck_assert_int_eq(fclose(file), 0);
}

void xt_make_certificate(const char *cert_path, const char *key_path) {
    gnutls_x509_privkey_t key;
    gnutls_x509_crt_t cert;
    gnutls_datum_t pem;
    unsigned char serial[8];
    must(gnutls_rnd(GNUTLS_RND_NONCE, serial, sizeof serial), "serial");
    serial[0] &= 0x7f;
    must(gnutls_x509_privkey_init(&key), "key");
    must(gnutls_x509_privkey_generate(key, GNUTLS_PK_ECDSA,
                                      GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0),
         "generate");
    must(gnutls_x509_crt_init(&cert), "certificate");
    must(gnutls_x509_crt_set_version(cert, 3), "version");
    must(gnutls_x509_crt_set_serial(cert, serial, sizeof serial), "serial");
    must(gnutls_x509_crt_set_activation_time(cert, time(NULL) - 3600), "activation");
    must(gnutls_x509_crt_set_expiration_time(cert, time(NULL) + 86400), "expiration");
    must(gnutls_x509_crt_set_dn(cert, "CN=localhost", NULL), "name");
    must(gnutls_x509_crt_set_key(cert, key), "set key");
    must(gnutls_x509_crt_sign2(cert, cert, key, GNUTLS_DIG_SHA256, 0), "sign");
    must(gnutls_x509_crt_export2(cert, GNUTLS_X509_FMT_PEM, &pem), "export");
    write_pem(cert_path, &pem);
    gnutls_free(pem.data);
    must(gnutls_x509_privkey_export2(key, GNUTLS_X509_FMT_PEM, &pem), "export");
    write_pem(key_path, &pem);
    gnutls_free(pem.data);
    gnutls_x509_crt_deinit(cert);
    gnutls_x509_privkey_deinit(key);
}

void xt_certificate_digest(const char *path, unsigned char digest[32]) {
    gnutls_x509_crt_t cert;
    gnutls_datum_t pem;
    size_t size = 32;
    must(gnutls_load_file(path, &pem), path);
    must(gnutls_x509_crt_init(&cert), "certificate");
    must(gnutls_x509_crt_import(cert, &pem, GNUTLS_X509_FMT_PEM), path);
    must(gnutls_x509_crt_get_fingerprint(cert, GNUTLS_DIG_SHA256, digest, &size), path);
    gnutls_x509_crt_deinit(cert);
    gnutls_free(pem.data);
}

static bool take_peer(xt_tls *tls) {
    unsigned count = 0;
    const gnutls_datum_t *certs = gnutls_certificate_get_peers(tls->session, &count);
    return certs && count &&
           !gnutls_hash_fast(GNUTLS_DIG_SHA256, certs->data, certs->size, tls->peer);
}

bool xt_tls_connect(xt_tls *tls, int port, const char *priorities) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    gnutls_certificate_credentials_t credentials = NULL;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    *tls = (xt_tls){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    if (tls->fd < 0 || connect(tls->fd, (struct sockaddr *)&to, sizeof to) ||
        gnutls_certificate_allocate_credentials(&credentials) < 0) {
        xt_tls_close(tls);
        return false;
    }
    tls->credentials = credentials;
    int result = gnutls_init(&tls->session, GNUTLS_CLIENT);
    if (result >= 0)
        result = priorities ? gnutls_priority_set_direct(tls->session, priorities, NULL)
                            : gnutls_set_default_priority(tls->session);
    if (result >= 0)
        result = gnutls_credentials_set(tls->session, GNUTLS_CRD_CERTIFICATE, credentials);
    if (result >= 0) {
        gnutls_transport_set_int(tls->session, tls->fd);
        gnutls_handshake_set_timeout(tls->session, XT_PATIENCE_MS);
        do
            result = gnutls_handshake(tls->session);
        while (result < 0 && !gnutls_error_is_fatal(result));
    }
    if (result >= 0 && take_peer(tls))
        return true;
    xt_tls_close(tls);
    return false;
}

void xt_tls_close(xt_tls *tls) {
    if (tls->session)
        gnutls_deinit(tls->session);
    if (tls->credentials)
        gnutls_certificate_free_credentials(tls->credentials);
    if (tls->fd >= 0)
        close(tls->fd);
    *tls = (xt_tls){.fd = -1};
}

int xt_tls_ask(xt_tls *tls, const char *request, char *answer, size_t size) {
    size_t have = 0;
    const size_t length = strlen(request);
    if (tls->fd < 0 || gnutls_record_send(tls->session, request, length) != (ssize_t)length)
        return 0;
    gnutls_record_set_timeout(tls->session, XT_PATIENCE_MS);
    for (;;) {
        ssize_t got = gnutls_record_recv(tls->session, answer + have, size - 1 - have);
        if (got == GNUTLS_E_INTERRUPTED || got == GNUTLS_E_AGAIN)
            continue;
        if (got <= 0)
            return 0;
        have += (size_t)got;
        answer[have] = 0;
        const char *body = strstr(answer, "\r\n\r\n"),
                   *said = strcasestr(answer, "Content-Length:");
        if (body && said && have >= (size_t)(body + 4 - answer) + strtoul(said + 15, NULL, 10))
            return atoi(answer + strlen("HTTP/1.1 "));
    }
}

int xt_tls_get(xt_tls *tls, const char *target) {
    char request[200], answer[4096];
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", target);
    return xt_tls_ask(tls, request, answer, sizeof answer);
}
