/* tls.h: certificates made on the spot, and a client that speaks TLS. */
#ifndef XT_TLS_H
#define XT_TLS_H

#include "client.h"

/* Writes a fresh key and a certificate signed by itself, as PEM. NULL: not that one. */
void xt_make_certificate(const char *cert_path, const char *key_path);

typedef struct xt_tls {
    int fd; /* -1: none */
    struct gnutls_session_int *session;
    void *credentials;
    unsigned char peer[32]; /* SHA-256 of the certificate that was shown */
} xt_tls;

/* Shakes hands; priorities of the TLS library, NULL: its own. False when that fails. */
bool xt_tls_connect(xt_tls *tls, int port, const char *priorities);
void xt_tls_close(xt_tls *tls); /* safe to repeat */
/* Sends that text, and takes a small answer; its status, 0 when there is none. */
int xt_tls_ask(xt_tls *tls, const char *request, char *answer, size_t size);
int xt_tls_get(xt_tls *tls, const char *target); /* the same of one GET */
/* SHA-256 of the first certificate of a PEM file. */
void xt_certificate_digest(const char *path, unsigned char digest[32]);

#endif
