/* lower_nodes.c: the nodes that lowering works on, made of a graph's layers. */
#include "lower.h"

#include "pack.h"
#include "xn_mem.h"

#include <string.h>

/* ---- memory ---- */

void *xn_lower_take(xn_lowering *l, size_t count, size_t bytes) {
    size_t size;
    enum { HEAD = XN_MEM_ALIGNMENT };
    xn_block *block = NULL;
    if (xn_mul_size(count, bytes, &size) && xn_add_size(size, HEAD, &size)) {
        l->too_large = l->too_large || size > XN_LOWER_MAX_BYTES - l->bytes;
        block = l->too_large ? NULL : xn_mem_zalloc(size, 1);
    }
    if (!block) {
        l->no_memory = true;
        return NULL;
    }
    l->bytes += size;
    block->next = l->blocks;
    l->blocks = block;
    return (char *)block + HEAD;
}

xn_values *xn_lower_values(xn_lowering *l, int32_t channels, bool vary) {
    const size_t count = vary ? (size_t)channels : 1;
    xn_values *values = xn_lower_take(l, 1 + count, sizeof values->at[0]);
    _Static_assert(sizeof *values <= sizeof values->at[0], "it has the room of one more value");
    if (values)
        values->step = vary;
    return values;
}

xn_values *xn_lower_spread(xn_lowering *l, xn_values *values, int32_t channels) {
    if (!values || values->step)
        return values;
    xn_values *each = xn_lower_values(l, channels, true);
    for (int32_t c = 0; each && c < channels; c++)
        each->at[c] = values->at[0];
    return each;
}

void xn_lower_free(xn_lowering *l) {
    while (l->blocks) {
        xn_block *next = l->blocks->next;
        xn_mem_free(l->blocks);
        l->blocks = next;
    }
}

/* ---- nodes ---- */

static void link(xn_lowering *l, int node, xn_use *use) {
    xn_node *n = &l->nodes[node];
    use->before = n->last_reader;
    use->next = NULL;
    *(n->last_reader ? &n->last_reader->next : &n->readers) = use;
    n->last_reader = use;
}

static void unlink_use(xn_lowering *l, int node, const xn_use *use) {
    xn_node *n = &l->nodes[node];
    *(use->before ? &use->before->next : &n->readers) = use->next;
    *(use->next ? &use->next->before : &n->last_reader) = use->before;
}

static int add_node(xn_lowering *l, int op, const int *inputs, int input_count,
                    const xn_extent *extent) {
    const size_t room = input_count ? (size_t)input_count : 1;
    int *copy = xn_lower_take(l, room, sizeof *copy);
    xn_use *uses = xn_lower_take(l, room, sizeof *uses);
    if (!copy || !uses)
        return XN_NOWHERE;
    if (l->count == l->capacity) {
        int capacity = 2 * l->capacity + 64;
        xn_node *nodes = xn_lower_take(l, (size_t)capacity, sizeof *nodes);
        if (!nodes)
            return XN_NOWHERE;
        if (l->count)
            memcpy(nodes, l->nodes, (size_t)l->count * sizeof *nodes);
        l->nodes = nodes;
        l->capacity = capacity;
    }
    for (int k = 0; k < input_count; k++) {
        copy[k] = inputs[k];
        uses[k] = (xn_use){.reader = l->count, .slot = k};
        link(l, inputs[k], &uses[k]);
    }
    l->nodes[l->count] = (xn_node){.op = op,
                                   .inputs = copy,
                                   .uses = uses,
                                   .input_count = input_count,
                                   .extent = *extent,
                                   .holder = XN_NOWHERE,
                                   .tensor = XN_NOWHERE,
                                   .bits = XN_NOWHERE};
    return l->count++;
}

int xn_lower_insert(xn_lowering *l, int op, int input) {
    const xn_extent extent = l->nodes[input].extent;
    return add_node(l, op, &input, 1, &extent);
}

int xn_lower_only_reader(const xn_lowering *l, int node) {
    const xn_use *use = l->nodes[node].readers;
    return use && !use->next ? use->reader : XN_NOWHERE;
}

void xn_lower_set_input(xn_lowering *l, int node, int slot, int to) {
    xn_node *n = &l->nodes[node];
    n->known = false;
    unlink_use(l, n->inputs[slot], &n->uses[slot]);
    n->inputs[slot] = to;
    link(l, to, &n->uses[slot]);
}

void xn_lower_redirect(xn_lowering *l, int from, int to, int except) {
    const xn_use *next;
    for (const xn_use *use = l->nodes[from].readers; use; use = next) {
        next = use->next;
        if (use->reader != except)
            xn_lower_set_input(l, use->reader, use->slot, to);
    }
}

static bool is_packed(const xn_lowering *l) {
    return l->graph->input_datatype == XN_BITS;
}

/* Each pool on the way keeps the answer until it reads something else. No rule changes the answer
 * of a pool that another pool reads. */
bool xn_lower_is_binary(const xn_lowering *l, int node) {
    xn_node *nodes = l->nodes;
    int at = node;
    while (nodes[at].op == XN_OP_MAX_POOL && !nodes[at].known)
        at = nodes[at].inputs[0];
    const bool signs = nodes[at].op == XN_OP_SIGN || (at == 0 && is_packed(l));
    const bool binary = nodes[at].op == XN_OP_MAX_POOL ? nodes[at].binary : signs;
    for (; node != at; node = nodes[node].inputs[0]) {
        nodes[node].known = true;
        nodes[node].binary = binary;
    }
    return binary;
}

bool xn_lower_reads_signs(const xn_node *n) {
    return n->op == XN_OP_CONV && n->conv.mode == XN_MODE_XNOR && !n->attributes.k_map;
}

bool xn_lower_is_step(const xn_node *n) {
    return xn_lower_kind(n->op) != XN_STEP_NONE;
}

bool xn_lower_is_map(const xn_node *n) {
    return xn_lower_reads(n->op) == XN_READS_ALL;
}

/* ---- of layers ---- */

static double element(const xn_tensor *tensor, int64_t i) {
    const size_t size = xn_datatype_bytes(tensor->datatype);
    float value;
    xn_tensor_to_fp32(tensor->datatype, (const char *)tensor->data + (size_t)i * size, &value, 1);
    return (double)value;
}

/* A tensor's values, each for `each` channels in a row; a single one is for all. */
static xn_values *values_of(xn_lowering *l, const xn_tensor *tensor, int64_t channels,
                            int64_t each) {
    xn_values *values = xn_lower_values(l, (int32_t)channels, tensor->elements > 1);
    for (int32_t i = 0; i < xn_values_count(values, (int32_t)channels); i++)
        values->at[i] = element(tensor, i / each);
    return values;
}

static bool set_values(xn_lowering *l, const xn_tensor *tensor, int64_t channels, xn_values **out) {
    *out = tensor ? values_of(l, tensor, channels, 1) : NULL;
    return !tensor || *out;
}

static bool set_number(xn_lowering *l, float number, xn_values **out) {
    *out = xn_lower_values(l, 1, false);
    if (*out)
        (*out)->at[0] = (double)number;
    return *out;
}

/* Packed bits as numbers, for the modes that multiply by them. */
static const xn_tensor *unpack(xn_lowering *l, const xn_tensor *packed) {
    const int64_t *d = packed->shape.dims, taps = packed->shape.rank == 4 ? d[2] * d[3] : 1;
    const size_t count = (size_t)packed->elements;
    xn_tensor *tensor = xn_lower_take(l, 1, sizeof *tensor);
    int8_t *signs = xn_lower_take(l, count, sizeof *signs);
    if (!tensor || !signs)
        return NULL;
    xn_unpack_signs(packed->data, d[0], d[1], taps, signs);
    *tensor = (xn_tensor){XN_INT8, packed->shape, packed->elements, count, signs};
    return tensor;
}

static bool set_weight(xn_lowering *l, xn_node *n, const xn_tensor *weight) {
    const bool multiplies = n->op == XN_OP_CONV && n->conv.mode != XN_MODE_XNOR;
    n->weight = multiplies && weight->datatype == XN_BITS ? unpack(l, weight) : weight;
    return n->weight || !weight;
}

static bool set_parts(xn_lowering *l, xn_node *n, const xn_graph_layer *layer) {
    const xn_layer *given = &layer->given;
    const int64_t channels = n->extent.channels;
    n->conv = layer->conv;
    xn_lower_take_attributes(n->op, &given->attributes, &n->attributes);
    if (n->op == XN_OP_PRELU && !given->slope && !set_number(l, given->attributes.slope, &n->slope))
        return false;
    return set_weight(l, n, given->weight) && set_values(l, given->scale, channels, &n->scale) &&
           set_values(l, given->bias, channels, &n->bias) &&
           (n->slope || set_values(l, given->slope, channels, &n->slope)) &&
           set_values(l, given->shift, channels, &n->shift);
}

/* The sum of more than two is a sum of sums of two, from left to right. */
static int add_sum(xn_lowering *l, const int *inputs, const xn_graph_layer *layer) {
    int sum = inputs[0];
    for (int i = 1; i < layer->input_count && sum != XN_NOWHERE; i++)
        sum = add_node(l, XN_OP_ADD, (const int[]){sum, inputs[i]}, 2, &layer->extent);
    return sum;
}

static bool is_whole(const xn_tensor *tensor) {
    return tensor && tensor->shape.rank == 3 &&
           (tensor->shape.dims[1] > 1 || tensor->shape.dims[2] > 1);
}

/* An affine layer with a value for each element has one for each channel of the flattened image. */
static int add_whole_affine(xn_lowering *l, int input, const xn_graph_layer *layer) {
    const xn_extent whole = layer->extent, flat = {(int32_t)xn_extent_elements(&whole), 1, 1};
    const int64_t pixels = (int64_t)whole.height * whole.width;
    int node = add_node(l, XN_OP_FLATTEN, &input, 1, &flat);
    if (node != XN_NOWHERE)
        node = add_node(l, XN_OP_AFFINE, &node, 1, &flat);
    if (node == XN_NOWHERE)
        return node;
    const xn_tensor *const given[2] = {layer->given.scale, layer->given.bias};
    for (int i = 0; i < 2; i++) {
        if (!given[i])
            continue;
        xn_values *values = values_of(l, given[i], flat.channels, is_whole(given[i]) ? 1 : pixels);
        if (!values)
            return XN_NOWHERE;
        *(i ? &l->nodes[node].bias : &l->nodes[node].scale) = values;
    }
    return add_node(l, XN_OP_FLATTEN, &node, 1, &whole);
}

/* What changes nothing is no node. */
static bool is_nothing(const xn_lowering *l, const xn_graph_layer *layer, int input) {
    const xn_extent *in = &l->nodes[input].extent;
    return (layer->given.op == XN_OP_FLATTEN && in->height == 1 && in->width == 1) ||
           (layer->given.op == XN_OP_CONCAT && layer->input_count == 1) ||
           (layer->given.op == XN_OP_SLICE && in->channels == layer->extent.channels);
}

static int add_layer(xn_lowering *l, const xn_graph_layer *layer, const int *node_of) {
    int inputs[XN_GRAPH_MAX_INPUTS] = {0};
    for (int i = 0; i < layer->input_count; i++)
        inputs[i] = layer->inputs[i] == XN_GRAPH_INPUT ? 0 : node_of[layer->inputs[i]];
    if (is_nothing(l, layer, inputs[0]))
        return inputs[0];
    if (layer->given.op == XN_OP_ADD)
        return add_sum(l, inputs, layer);
    if (layer->given.op == XN_OP_AFFINE &&
        (is_whole(layer->given.scale) || is_whole(layer->given.bias)))
        return add_whole_affine(l, inputs[0], layer);
    int node = add_node(l, (int)layer->given.op, inputs, layer->input_count, &layer->extent);
    if (node == XN_NOWHERE || !set_parts(l, &l->nodes[node], layer))
        return XN_NOWHERE;
    return node;
}

bool xn_lower_build(xn_lowering *l) {
    const xn_graph *g = l->graph;
    int outputs[XN_GRAPH_MAX_OUTPUTS];
    int *node_of = xn_lower_take(l, (size_t)g->layer_count, sizeof *node_of);
    int64_t elements = 0;
    if (!node_of || add_node(l, XN_NODE_INPUT, NULL, 0, &g->input) == XN_NOWHERE)
        return false;
    *(is_packed(l) ? &l->nodes[0].bits : &l->nodes[0].tensor) = 0;
    for (int i = 0; i < g->layer_count; i++) {
        node_of[i] = add_layer(l, &g->layers[i], node_of);
        if (node_of[i] == XN_NOWHERE)
            return false;
    }
    for (int i = 0; i < g->output_count; i++) {
        outputs[i] = node_of[g->outputs[i]];
        elements += xn_extent_elements(&l->nodes[outputs[i]].extent);
    }
    const xn_extent all = {(int32_t)elements, 1, 1};
    l->result = add_node(l, XN_NODE_RESULT, outputs, g->output_count, &all);
    return l->result != XN_NOWHERE;
}

/* ---- what is needed, in which order ---- */

/* Puts nodes that `first` needs into out, each behind what it reads, unless `seen` has it. */
typedef struct walk {
    xn_lowering *l;
    bool *seen;
    int *stack, *next_input; /* of the node at each depth */
    int *out, count;
} walk;

static void visit(walk *w, int first) {
    int depth = 0;
    if (w->seen[first])
        return;
    w->seen[first] = true;
    w->stack[0] = first;
    w->next_input[0] = 0;
    while (depth >= 0) {
        const xn_node *n = &w->l->nodes[w->stack[depth]];
        if (w->next_input[depth] == n->input_count) {
            w->out[w->count++] = w->stack[depth--];
            continue;
        }
        int input = n->inputs[w->next_input[depth]++];
        if (w->seen[input])
            continue;
        w->seen[input] = true;
        w->stack[++depth] = input;
        w->next_input[depth] = 0;
    }
}

static bool walk_create(xn_lowering *l, walk *w) {
    const size_t count = (size_t)l->count;
    *w = (walk){.l = l};
    w->seen = xn_lower_take(l, count, sizeof *w->seen);
    w->stack = xn_lower_take(l, count, sizeof *w->stack);
    w->next_input = xn_lower_take(l, count, sizeof *w->next_input);
    w->out = xn_lower_take(l, count, sizeof *w->out);
    return !l->no_memory;
}

bool xn_lower_sweep(xn_lowering *l) {
    walk w;
    if (!walk_create(l, &w))
        return false;
    visit(&w, l->result);
    for (int i = 1; i < l->count; i++) {
        xn_node *n = &l->nodes[i];
        for (int k = 0; !w.seen[i] && n->op != XN_NODE_DEAD && k < n->input_count; k++)
            unlink_use(l, n->inputs[k], &n->uses[k]);
        if (!w.seen[i])
            n->op = XN_NODE_DEAD;
    }
    return true;
}

/* The binary convolutions that read the same value as this node. */
static void visit_binary_beside(walk *w, int node) {
    const xn_node *nodes = w->l->nodes;
    for (const xn_use *sign = nodes[nodes[node].inputs[0]].readers; sign; sign = sign->next)
        for (const xn_use *use = nodes[sign->reader].readers; use; use = use->next)
            if (nodes[sign->reader].op == XN_OP_SIGN && nodes[use->reader].op == XN_OP_CONV &&
                nodes[use->reader].conv.mode == XN_MODE_XNOR)
                visit(w, use->reader);
}

/* The layers' own order, where there is a choice: nodes that rules added come right before what
 * reads them. Copies of the input come first: then they can be residuals, as the input itself. A
 * pooled shortcut comes behind the convolution that it is added to, and so adds both: kernels take
 * a stage, its pool and the strided convolution together. */
bool xn_lower_sort(xn_lowering *l) {
    walk w;
    if (!walk_create(l, &w))
        return false;
    for (int i = 0; i < l->count; i++)
        if (l->nodes[i].op == XN_NODE_COPY && l->nodes[i].inputs[0] == 0)
            visit(&w, i);
    for (int i = 0; i < l->count; i++)
        if (l->nodes[i].op != XN_NODE_DEAD && i != l->result) {
            if (l->nodes[i].op == XN_OP_AVG_POOL)
                visit_binary_beside(&w, i);
            visit(&w, i);
        }
    visit(&w, l->result);
    l->order = w.out;
    l->order_count = w.count;
    return true;
}
