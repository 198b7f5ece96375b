/* tls.h: the certificate and key that new connections are shown, changeable while others are open,
 * and what TLS may use. One pair a process. Of the daemon's files this and auth.c alone know the
 * TLS library. */
#ifndef XN_TLS_H
#define XN_TLS_H

#include "xn_status.h"

#include <stddef.h>

/* Reads both PEM files, checks that they belong together, and shows them to every client from the
 * next handshake on. On failure the pair of before stays. */
xn_status xn_tls_load(const char *cert_path, const char *key_path, xn_error *error);
void xn_tls_unload(void); /* wipes the key; when no connection is open */

/* Whether the TLS library could set itself up when the program was loaded; where it could not, it
 * would crash later. To be asked before any other use of it, also for keys (auth.h). */
xn_status xn_tls_init(xn_error *error);

#define XN_TLS_PRIORITIES_MAX 480

/* The priority string for the TLS library: --tls-ciphers, and never less than TLS 1.2, never CBC.
 * An unknown word, and one that leaves no such version or no cipher, is XN_ERR_MALFORMED. */
xn_status xn_tls_priorities(const char *ciphers, char priorities[XN_TLS_PRIORITIES_MAX],
                            xn_error *error);

/* For the HTTP library's option of that name (gnutls_certificate_retrieve_function3), which is all
 * that it needs to know. */
typedef void xn_tls_callback(void);
xn_tls_callback *xn_tls_retrieve(void);

#endif
