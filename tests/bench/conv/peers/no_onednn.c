/* no_onednn.c: in place of peer_onednn.c where oneDNN's headers are not installed. */
#include "peer_onednn.h"

const char *xn_peer_version(void) {
    return NULL;
}

xn_peer *xn_peer_create(const xn_bench_shape *shape, xn_peer_type type, xn_peer_form form) {
    (void)shape, (void)type, (void)form;
    return NULL;
}

void xn_peer_free(xn_peer *peer) {
    (void)peer;
}

void xn_peer_run(void *peer) {
    (void)peer;
}

const char *xn_peer_kernel(const xn_peer *peer) {
    (void)peer;
    return "";
}

const float *xn_peer_input(const xn_peer *peer) {
    (void)peer;
    return NULL;
}

const float *xn_peer_weights(const xn_peer *peer) {
    (void)peer;
    return NULL;
}

const float *xn_peer_output(const xn_peer *peer) {
    (void)peer;
    return NULL;
}
