/* peers.h: what a user would take instead, beside a layer: on the CPU OpenVINO's binary convolution
 * and oneDNN's in its three datatypes, taking turns with ours; from commands that print it, cuDNN's
 * fp16 on a GPU (peer_torch_conv.py) and OpenCV's filter2D for one channel (peer_opencv.py). */
#ifndef XN_BENCH_PEERS_H
#define XN_BENCH_PEERS_H

#include "bench/conv/bench.h"
#include "peer_onednn.h"
#include "peer_openvino.h"

enum {
    XN_PEER_FORMS = XN_PEER_PLAIN + 1,
    XN_PEER_ONEDNN = XN_PEER_TYPES * XN_PEER_FORMS,
    XN_PEER_OPENVINO = XN_PEER_ONEDNN, /* the last of the sides */
    XN_PEER_SIDES
};

typedef struct xn_peers {
    xn_peer *peer[XN_PEER_ONEDNN]; /* NULL: none */
    xn_openvino *openvino;         /* the same */
    xn_contender sides[XN_PEER_SIDES];
} xn_peers;

/* Peers that compute what a kind does: with fp32 in and out, or packed in their own layouts and
 * datatypes; beside real-valued modes oneDNN's fp32 in every form. Their results are checked. */
void xn_peers_make(const xn_bench_session *s, xn_bench_data *data, const xn_bench_kind *kind,
                   xn_peers *out);
void xn_peers_free(xn_peers *peers);
double xn_peers_form_us(const xn_peers *peers, xn_peer_type type, xn_peer_form form);
/* Microseconds of a datatype: the faster of the forms that read and write what the kind does; NAN:
 * none. */
double xn_peers_us(const xn_peers *peers, xn_peer_type type, const xn_bench_kind *kind);
/* All NAN: none. */
xn_stats xn_peers_openvino(const xn_peers *peers);

/* Figures of cuDNN by shape, and of OpenCV's filter2D: ask the command once. NAN: none. */
double xn_peer_cudnn_us(const xn_bench_session *s, const xn_bench_shape *shape);
double xn_peer_filter2d_us(const xn_bench_session *s, const xn_bench_shape *shape);

#endif
