/* no_openvino.c: in place of peer_openvino.c where OpenVINO is not installed. */
#include "peer_openvino.h"

const char *xn_openvino_version(void) {
    return NULL;
}

xn_openvino *xn_openvino_create(const xn_bench_data *data, xn_openvino_kind kind) {
    (void)data, (void)kind;
    return NULL;
}

void xn_openvino_free(xn_openvino *peer) {
    (void)peer;
}

xn_contender xn_openvino_contender(xn_openvino *peer) {
    (void)peer;
    return (xn_contender){.place = NULL};
}
