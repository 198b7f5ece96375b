/* lower_place.c: where values lie. Inserts copies where a value must have a form that its node does
 * not give it; then each concat, and the result, hold what they are made of as their parts. */
#include "lower.h"

/* ---- forms ---- */

/* The reader takes bits there. */
static bool takes_bits(const xn_node *reader, int slot) {
    return slot == 0 && (xn_lower_reads_signs(reader) || xn_lower_is_map(reader) ||
                         reader->op == XN_OP_MAX_POOL);
}

/* The reader takes the network's input there as it is. */
static bool takes_input(const xn_lowering *l, const xn_node *reader, int slot) {
    const xn_graph *g = l->graph;
    const bool nhwc = g->input_layout == XN_IMAGE_NHWC && g->input_shape.rank == 3;
    const bool real = g->input_datatype != XN_UINT8;
    const xn_lower_reading reads = slot == 0 ? xn_lower_reads(reader->op) : XN_READS_REALS;
    return reads >= XN_READS_NHWC || (!nhwc && (real || reads == XN_READS_TYPES));
}

/* All that read `node` and do not take it as it is read one copy of it. */
static bool convert(xn_lowering *l, int node) {
    const bool binary = xn_lower_is_binary(l, node);
    int copy = XN_NOWHERE;
    const xn_use *next;
    for (const xn_use *use = l->nodes[node].readers; use; use = next) {
        const xn_node *reader = &l->nodes[use->reader];
        next = use->next;
        if (use->reader == copy ||
            (binary ? takes_bits(reader, use->slot) : takes_input(l, reader, use->slot)))
            continue;
        if (copy == XN_NOWHERE)
            copy = xn_lower_insert(l, XN_NODE_COPY, node);
        if (copy == XN_NOWHERE)
            return false;
        xn_lower_set_input(l, use->reader, use->slot, copy);
    }
    return true;
}

/* ---- parts ---- */

/* What has the memory of a flattened image. */
static int behind_flatten(const xn_lowering *l, int node) {
    while (l->nodes[node].op == XN_OP_FLATTEN)
        node = l->nodes[node].inputs[0];
    return node;
}

/* Nothing but one other node reads it, or its flattened form. */
static bool is_read_once(const xn_lowering *l, int node) {
    while (l->nodes[node].op == XN_OP_FLATTEN && xn_lower_only_reader(l, node) != XN_NOWHERE)
        node = l->nodes[node].inputs[0];
    return xn_lower_only_reader(l, node) != XN_NOWHERE;
}

/* A concat none of whose parts is read by anything else. */
static bool is_private(const xn_lowering *l, const xn_node *concat) {
    for (int k = 0; k < concat->input_count; k++) {
        const int part = behind_flatten(l, concat->inputs[k]);
        if (l->nodes[part].op == XN_OP_CONCAT || !is_read_once(l, concat->inputs[k]))
            return false;
    }
    return true;
}

/* No step reads the result. */
static bool may_be_result(const xn_lowering *l, int input) {
    const xn_node *n = &l->nodes[behind_flatten(l, input)];
    return is_read_once(l, input) && (n->op != XN_OP_CONCAT || is_private(l, n));
}

static bool may_be_part(const xn_lowering *l, int input, const xn_node *holder) {
    const int node = behind_flatten(l, input);
    const xn_node *n = &l->nodes[node];
    if ((!xn_lower_is_step(n) && n->op != XN_OP_CONCAT) || xn_lower_is_binary(l, node) ||
        n->holder != XN_NOWHERE)
        return false;
    return holder->op != XN_NODE_RESULT || may_be_result(l, input);
}

static bool hold(xn_lowering *l, int holder) {
    int64_t offset = 0;
    for (int k = 0; k < l->nodes[holder].input_count; k++) {
        int input = l->nodes[holder].inputs[k];
        if (!may_be_part(l, input, &l->nodes[holder])) {
            input = xn_lower_insert(l, XN_NODE_COPY, input);
            if (input == XN_NOWHERE)
                return false;
            xn_lower_set_input(l, holder, k, input);
        }
        xn_node *part = &l->nodes[behind_flatten(l, input)];
        part->holder = holder;
        part->holder_offset = offset;
        offset += xn_extent_elements(&part->extent);
    }
    return true;
}

/* ---- what is never rounded ---- */

static bool is_exact_in_fp16(xn_datatype datatype) {
    return datatype == XN_FP16 || datatype == XN_UINT8 || datatype == XN_BITS;
}

/* A tensor that holds the input, or a copy of it. */
static bool has_unrounded(const xn_lowering *l, int node) {
    const int root = xn_lower_locate(l, node).root;
    return root == 0 ? !is_exact_in_fp16(l->graph->input_datatype) : l->nodes[root].unrounded;
}

static bool mark(xn_lowering *l, int node) {
    xn_node *root = &l->nodes[xn_lower_locate(l, node).root];
    const bool changes = !root->unrounded;
    root->unrounded = true;
    return changes;
}

/* With FP16 between steps the network's input and its outputs are still never rounded: a tensor
 * that holds one of them, or a copy, is FP32, with all of its parts. */
static void mark_unrounded(xn_lowering *l) {
    const xn_node *result = &l->nodes[l->result];
    for (int k = 0; k < result->input_count; k++) {
        const xn_node *part = &l->nodes[behind_flatten(l, result->inputs[k])];
        if (part->op == XN_NODE_COPY && !xn_lower_is_binary(l, part->inputs[0]))
            mark(l, part->inputs[0]);
    }
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = 0; i < l->count; i++)
            if (l->nodes[i].op == XN_NODE_COPY && has_unrounded(l, l->nodes[i].inputs[0]))
                changed = mark(l, i) || changed;
    }
}

bool xn_lower_place(xn_lowering *l) {
    for (int i = 0, count = l->count; i < count; i++)
        if ((i == 0 || (l->nodes[i].op != XN_NODE_DEAD && xn_lower_is_binary(l, i))) &&
            !convert(l, i))
            return false;
    if (!hold(l, l->result))
        return false;
    for (int i = 0, count = l->count; i < count; i++)
        if (l->nodes[i].op == XN_OP_CONCAT && !hold(l, i))
            return false;
    mark_unrounded(l);
    return true;
}

xn_location xn_lower_locate(const xn_lowering *l, int node) {
    xn_location at = {.root = node};
    for (;;) {
        const xn_node *n = &l->nodes[at.root];
        if (n->holder != XN_NOWHERE) {
            at.offset += n->holder_offset;
            at.root = n->holder;
        } else if (n->op == XN_OP_FLATTEN) {
            at.root = n->inputs[0];
        } else if (n->op == XN_OP_SLICE) {
            at.offset += n->attributes.from * n->extent.height * n->extent.width;
            at.root = n->inputs[0];
        } else {
            return at;
        }
    }
}

xn_datatype xn_lower_datatype(const xn_lowering *l, int node) {
    const xn_node *root = &l->nodes[xn_lower_locate(l, node).root];
    if (root->op == XN_NODE_INPUT)
        return l->graph->input_datatype;
    return root->op == XN_NODE_RESULT || root->unrounded ? XN_FP32 : l->edges;
}
