/* lower.h: what the parts of lowering share: the network as nodes, which rules rewrite before steps
 * are made of them.
 *
 *   op_table.c       what each op takes, and makes
 *   lower_nodes.c    nodes of a graph; memory, users, order
 *   lower_rewrite.c  rules that change the nodes
 *   lower_stem.c     the first layers of a picture as one step
 *   lower_place.c    copies where values must have another form, and where each value lies
 *   lower_steps.c    steps of the nodes, each with as much in its epilogue as fits
 *   lower.c          these, one after the other */
#ifndef XN_LOWER_H
#define XN_LOWER_H

#include "graph.h"
#include "xn_network.h"
#include "xn_planes.h"

/* Ops of nodes: those of layers, and */
enum {
    XN_NODE_INPUT = XN_OP_COUNT, /* the network's input */
    XN_NODE_STEM,                /* conv of the input, bytes, and of what normalises them */
    XN_NODE_COPY,                /* the same values in another form: bits as reals, or elsewhere */
    XN_NODE_RESULT,              /* reads what is asked for; no step */
    XN_NODE_DEAD,
    XN_NODE_COUNT
};

/* What a node's first input may be when it is not one that steps write: FP32 or FP16, NCHW. */
typedef enum {
    XN_READS_REALS, /* no other; the network's input only of those datatypes */
    XN_READS_TYPES, /* the network's input of any datatype, NCHW */
    XN_READS_NHWC,  /* the network's input of any datatype and layout */
    XN_READS_ALL    /* the same, and bits */
} xn_lower_reading;

enum { XN_NOWHERE = -1 };

/* A parameter that a graph has once for all channels may become a value for each here: a small file
 * may ask for more memory than there is, and for minutes of work on it. */
#define XN_LOWER_MAX_BYTES ((size_t)1 << 30)

/* Of channels. */
typedef struct xn_values {
    int32_t step; /* 0: one value for all; 1: one for each */
    double at[];
} xn_values;

static inline double xn_value(const xn_values *values, int32_t channel) {
    return values->at[(size_t)channel * (size_t)values->step];
}

/* Whether values, or NULL, are not one for all. */
static inline bool xn_values_vary(const xn_values *values) {
    return values && values->step;
}

static inline int32_t xn_values_count(const xn_values *values, int32_t channels) {
    return !values ? 0 : values->step ? channels : 1;
}

/* One input of a live node, in the list of all that read the same node. */
typedef struct xn_use {
    int reader, slot;
    struct xn_use *before, *next;
} xn_use;

typedef struct xn_node {
    int op;
    int input_count;
    int *inputs;  /* nodes; changed by xn_lower_set_input alone */
    xn_use *uses; /* [input_count] */
    xn_use *readers, *last_reader;
    xn_extent extent;
    const xn_tensor *weight; /* conv */
    xn_conv conv;            /* conv, pools: geometry */
    /* Or NULL. */
    xn_values *scale, *bias;  /* conv, affine */
    xn_values *slope;         /* prelu */
    xn_values *shift;         /* sign */
    xn_values *turned;        /* max_pool of signs: -1 where it takes the least, else 1 */
    const float *kernel;      /* stem */
    xn_values *gain, *offset; /* stem: of the channels of the input */
    xn_attributes attributes; /* those of its op; the others are 0 */

    /* Where its values lie: in part of what another node has (concat, result), or in a tensor. */
    int holder;
    int64_t holder_offset; /* elements */
    int32_t tensor, bits;  /* numbers, of the reals and of the signs; or XN_NOWHERE */
    bool unrounded;        /* its tensor is FP32 in any precision: see lower_place.c */
    bool known, binary;    /* max_pool: whether it is known if it lies as bits, and if so */
    bool grouped;          /* a convolution with groups reads its bits */
    bool done;             /* its step is made */
} xn_node;

typedef struct xn_block {
    struct xn_block *next;
} xn_block;

typedef struct xn_lowering {
    const xn_graph *graph;
    const xn_memory *tensors; /* where the graph's lie, if that stays; or NULL */
    xn_node *nodes;
    int count, capacity;
    int result; /* that node */
    int *order; /* of the live nodes, each behind what it reads */
    int order_count;
    xn_datatype edges; /* of reals between steps that may be rounded */
    int32_t tensor_count;
    xn_network *network;
    xn_block *blocks; /* all memory, freed at the end */
    size_t bytes;     /* of all blocks */
    bool no_memory;   /* an allocation failed; what was to be made is not there */
    bool too_large;   /* and that because of XN_LOWER_MAX_BYTES */
} xn_lowering;

/* ---- op_table.c ---- */

/* The kind of a node's step. */
xn_step_kind xn_lower_kind(int op);
xn_lower_reading xn_lower_reads(int op);
/* Those that the op takes; the others are 0. */
void xn_lower_take_attributes(int op, const xn_attributes *from, xn_attributes *to);

/* ---- lower_nodes.c ---- */

/* Zeroed memory until the end of lowering; NULL, and no_memory is set. */
void *xn_lower_take(xn_lowering *l, size_t count, size_t bytes);
/* Zeroes: one for each of the channels, or one for all. */
xn_values *xn_lower_values(xn_lowering *l, int32_t channels, bool vary);
/* The same values, one for each of the channels; NULL without memory, or where there are none. */
xn_values *xn_lower_spread(xn_lowering *l, xn_values *values, int32_t channels);
void xn_lower_free(xn_lowering *l);
bool xn_lower_build(xn_lowering *l);
/* A new node that reads one other and has its extent; XN_NOWHERE without memory. */
int xn_lower_insert(xn_lowering *l, int op, int input);
/* The node that reads it, where one does, and in one place; else XN_NOWHERE. */
int xn_lower_only_reader(const xn_lowering *l, int node);
void xn_lower_set_input(xn_lowering *l, int node, int slot, int to);
/* Everything that reads `from`, but node `except`, reads `to` instead. */
void xn_lower_redirect(xn_lowering *l, int from, int to, int except);
/* Marks nodes that nothing asked for needs as dead. */
bool xn_lower_sweep(xn_lowering *l);
bool xn_lower_sort(xn_lowering *l);

/* Signs, a packed input, or a max-pool of those: lies as bits. */
bool xn_lower_is_binary(const xn_lowering *l, int node);
/* A convolution that reads signs. */
bool xn_lower_reads_signs(const xn_node *n);
/* Makes a step of its own, unless another takes it in. */
bool xn_lower_is_step(const xn_node *n);
/* A step that takes values one by one, of any datatype and as bits, as its first input. */
bool xn_lower_is_map(const xn_node *n);

/* ---- lower_rewrite.c, lower_place.c, lower_steps.c: false without memory ---- */

bool xn_lower_rewrite(xn_lowering *l);
bool xn_lower_place(xn_lowering *l);

/* Part of a tensor: the node that has it as a whole, and the first element. */
typedef struct xn_location {
    int root;
    int64_t offset;
} xn_location;
xn_location xn_lower_locate(const xn_lowering *l, int node);
/* Of the tensor that has the values of a node. */
xn_datatype xn_lower_datatype(const xn_lowering *l, int node);

xn_status xn_lower_steps(xn_lowering *l, xn_error *error);

/* ---- lower_stem.c ---- */

/* Makes stems of convolutions of pictures; false without memory. */
bool xn_lower_find_stems(xn_lowering *l);
/* An array of a value for each channel, as planes are made of; NULL where there are no values. */
const double *xn_lower_each(xn_lowering *l, xn_values *values, int32_t channels);
/* What the kernel of a stem is made of, but for factor and bias. */
xn_planes_source xn_lower_planes_of(xn_lowering *l, const xn_node *stem);
/* Values that may be multiplied by a power of 2 from 2^-60 to 2^60 and stay normal in fp32. */
bool xn_lower_is_moderate(const xn_values *values, int32_t channels);
/* Whether a max-pool is the one that a stem may have behind it. */
bool xn_lower_is_stem_pool(const xn_node *pool);

#endif
