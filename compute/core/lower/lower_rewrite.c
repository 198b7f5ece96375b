/* lower_rewrite.c: rules that make other nodes of the nodes, with the same results but for
 * rounding. Each says when it may. */
#include "lower.h"

#include "hash.h"
#include "pack.h"

#include <math.h>
#include <string.h>

/* ---- dense layers ---- */

/* Packed bits of filters [C*H*W] as those of [C, H, W]; NULL without memory. */
static const xn_tensor *split_taps(xn_lowering *l, const xn_tensor *dense, const xn_extent *image) {
    const int64_t filters = dense->shape.dims[0], taps = (int64_t)image->height * image->width;
    const xn_shape shape = {4, {filters, image->channels, image->height, image->width}};
    const size_t bytes = (size_t)(filters * taps * xn_bits_pixel_bytes(image->channels));
    xn_tensor *tensor = xn_lower_take(l, 1, sizeof *tensor);
    uint8_t *bits = xn_lower_take(l, bytes, 1);
    if (!tensor || !bits)
        return NULL;
    xn_pack_split_taps(dense->data, filters, image->channels, taps, bits);
    *tensor = (xn_tensor){XN_BITS, shape, dense->elements, bytes, bits};
    return tensor;
}

/* A dense layer behind flatten is a convolution of the image with a kernel of its size: the
 * weight's values lie in the same order, and K, a mean over the whole image, is the same. False
 * without memory. */
static bool fold_flatten(xn_lowering *l, int node) {
    xn_node *n = &l->nodes[node];
    xn_conv *v = &n->conv;
    const xn_node *flatten = &l->nodes[n->inputs[0]];
    if (n->op != XN_OP_CONV || flatten->op != XN_OP_FLATTEN || v->groups != 1 || v->kernel_h > 1 ||
        v->kernel_w > 1 || v->pad_top || v->pad_left || v->pad_bottom || v->pad_right ||
        v->height > 1 || v->width > 1)
        return true;
    const xn_extent *image = &l->nodes[flatten->inputs[0]].extent;
    v->channels = v->group_channels = image->channels;
    v->height = v->kernel_h = image->height;
    v->width = v->kernel_w = image->width;
    if (n->weight->datatype == XN_BITS)
        n->weight = split_taps(l, n->weight, image);
    xn_lower_set_input(l, node, 0, flatten->inputs[0]);
    return n->weight;
}

/* ---- signs ---- */

/* A convolution that takes signs by itself has a sign layer in front, one for all that read the
 * same. */
static bool add_signs(xn_lowering *l) {
    const int count = l->count;
    int *sign_of = xn_lower_take(l, (size_t)count, sizeof *sign_of); /* 0: none, as the input is */
    for (int i = 1; sign_of && i < count; i++) {
        const xn_node *n = &l->nodes[i];
        if (n->op == XN_OP_SIGN && !n->shift && !sign_of[n->inputs[0]])
            sign_of[n->inputs[0]] = i;
    }
    for (int i = 1; sign_of && i < count; i++) {
        const int input = l->nodes[i].inputs[0];
        if (!xn_lower_reads_signs(&l->nodes[i]) || xn_lower_is_binary(l, input))
            continue;
        if (!sign_of[input])
            sign_of[input] = xn_lower_insert(l, XN_OP_SIGN, input);
        if (sign_of[input] == XN_NOWHERE)
            return false;
        xn_lower_set_input(l, i, 0, sign_of[input]);
    }
    return sign_of;
}

static double shift_of(const xn_node *sign, int32_t channel) {
    return sign->shift ? xn_value(sign->shift, channel) : 0;
}

/* Passes the clips that keep signs: both their ends are on their sides of each threshold. */
static void pass_clips(xn_lowering *l, int node) {
    const xn_node *sign = &l->nodes[node];
    float least = INFINITY, most = -INFINITY;
    for (int32_t c = 0; c < (sign->shift ? sign->extent.channels : 1); c++) {
        const float shift = (float)shift_of(sign, c);
        least = shift < least ? shift : least;
        most = shift > most || isnan(shift) ? shift : most;
    }
    int input = sign->inputs[0];
    for (const xn_node *n; n = &l->nodes[input], n->op == XN_OP_CLIP &&
                                                     n->attributes.high + least >= 0 &&
                                                     n->attributes.low + most < 0;)
        input = n->inputs[0];
    xn_lower_set_input(l, node, 0, input);
}

static size_t shift_bytes(const xn_node *sign) {
    return sign->shift ? (size_t)sign->extent.channels * sizeof sign->shift->at[0] : 0;
}

static bool same_sign(const xn_node *a, const xn_node *b) {
    if (a->op != XN_OP_SIGN || b->op != XN_OP_SIGN || a->inputs[0] != b->inputs[0] ||
        !a->shift != !b->shift)
        return false;
    return !a->shift || !memcmp(a->shift->at, b->shift->at, shift_bytes(a));
}

/* Signs that were met, by a hash of what makes them equal: chains of numbers, 0 at their ends. */
typedef struct signs {
    int *first, *next;
    uint64_t mask;
} signs;

static bool signs_create(xn_lowering *l, signs *out) {
    size_t size = 1;
    while (size < (size_t)l->count)
        size *= 2;
    out->mask = size - 1;
    out->first = xn_lower_take(l, size, sizeof *out->first);
    out->next = xn_lower_take(l, (size_t)l->count, sizeof *out->next);
    return !l->no_memory;
}

/* An equal one that was met before; XN_NOWHERE: none, and it is met now. */
static int meet_sign(const xn_lowering *l, signs *met, int node) {
    const xn_node *sign = &l->nodes[node];
    const double *shift = sign->shift ? sign->shift->at : NULL;
    const uint64_t hash = xn_hash_bytes((uint64_t)sign->inputs[0], shift, shift_bytes(sign));
    int *first = &met->first[hash & met->mask];
    for (int i = *first; i; i = met->next[i])
        if (same_sign(&l->nodes[i], sign))
            return i;
    met->next[node] = *first;
    *first = node;
    return XN_NOWHERE;
}

static void simplify_sign(xn_lowering *l, signs *met, int node) {
    const xn_node *sign = &l->nodes[node];
    pass_clips(l, node);
    int same = XN_NOWHERE;
    if (!sign->shift && xn_lower_is_binary(l, sign->inputs[0]))
        same = sign->inputs[0];
    else
        same = meet_sign(l, met, node);
    if (same != XN_NOWHERE)
        xn_lower_redirect(l, node, same, node);
}

/* ---- a bias behind an activation ---- */

static bool counts_padding(const xn_node *pool) {
    const xn_conv *v = &pool->conv;
    return pool->attributes.count_padding &&
           (v->pad_top || v->pad_left || v->pad_bottom || v->pad_right);
}

/* Adding before it is adding behind it, or to its own bias or shift. */
static bool lets_bias_through(const xn_node *n) {
    return n->op == XN_OP_SIGN || n->op == XN_OP_AFFINE || n->op == XN_OP_MAX_POOL ||
           (n->op == XN_OP_ADD && n->inputs[0] != n->inputs[1]) ||
           (n->op == XN_OP_AVG_POOL && !counts_padding(n));
}

static bool may_move_bias(const xn_lowering *l, int node) {
    const xn_node *n = &l->nodes[node];
    if (n->op != XN_OP_AFFINE || n->scale || !n->bias)
        return false;
    const int from = l->nodes[n->inputs[0]].op;
    if (from != XN_OP_PRELU && from != XN_OP_CLIP)
        return false;
    for (const xn_use *use = n->readers; use; use = use->next)
        if (!lets_bias_through(&l->nodes[use->reader]))
            return false;
    return n->readers;
}

/* *values = *values (or 0) + factor[c] (or 1) * bias[c], in memory of its own. */
static bool add_bias(xn_lowering *l, xn_values **values, const xn_values *factor,
                     const xn_values *bias, int32_t channels) {
    const bool vary = xn_values_vary(*values) || xn_values_vary(factor) || xn_values_vary(bias);
    xn_values *sum = xn_lower_values(l, channels, vary);
    for (int32_t c = 0; c < xn_values_count(sum, channels); c++)
        sum->at[c] = (*values ? xn_value(*values, c) : 0) +
                     (factor ? xn_value(factor, c) : 1) * xn_value(bias, c);
    if (sum)
        *values = sum;
    return sum != NULL;
}

/* Into the user's own parameters, or behind it. */
static bool move_into(xn_lowering *l, int user, const xn_values *bias) {
    xn_node *n = &l->nodes[user];
    const int32_t channels = n->extent.channels;
    if (n->op == XN_OP_SIGN)
        return add_bias(l, &n->shift, NULL, bias, channels);
    if (n->op == XN_OP_AFFINE)
        return add_bias(l, &n->bias, n->scale, bias, channels);
    int behind = xn_lower_insert(l, XN_OP_AFFINE, user);
    if (behind == XN_NOWHERE || !add_bias(l, &l->nodes[behind].bias, NULL, bias, channels))
        return false;
    xn_lower_redirect(l, user, behind, behind);
    return true;
}

/* y + b behind an activation fits no epilogue. What reads it can take b: then y is what is stored.
 */
static bool move_bias(xn_lowering *l, int node) {
    if (!may_move_bias(l, node))
        return true;
    const xn_values *bias = l->nodes[node].bias;
    const int from = l->nodes[node].inputs[0];
    for (const xn_use *use; (use = l->nodes[node].readers);) {
        xn_lower_set_input(l, use->reader, use->slot, from);
        if (!move_into(l, use->reader, bias))
            return false;
    }
    return true;
}

/* ---- a sign behind a max-pool ---- */

enum { MOST_BETWEEN = 8 };

/* pool, what is between, sign: each read by the next one alone. */
typedef struct pooled_sign {
    int pool, between[MOST_BETWEEN], count, sign;
} pooled_sign;

static bool find_pooled_sign(const xn_lowering *l, int pool, pooled_sign *out) {
    int next, at = pool;
    *out = (pooled_sign){.pool = pool};
    while ((next = xn_lower_only_reader(l, at)) != XN_NOWHERE) {
        const int op = l->nodes[next].op;
        if (op == XN_OP_SIGN) {
            out->sign = next;
            return true;
        }
        if ((op != XN_OP_AFFINE && op != XN_OP_PRELU && op != XN_OP_CLIP) ||
            out->count == MOST_BETWEEN)
            return false;
        out->between[out->count++] = at = next;
    }
    return false;
}

static bool all_finite(const xn_values *values, int32_t channels) {
    for (int32_t i = 0; i < xn_values_count(values, channels); i++)
        if (!isfinite((float)values->at[i]))
            return false;
    return true;
}

static bool all_above(const xn_values *values, int32_t channels, double least, bool itself) {
    for (int32_t i = 0; i < xn_values_count(values, channels); i++)
        if (!(values->at[i] > least || (itself && values->at[i] >= least)))
            return false;
    return true;
}

/* A dot with finite parameters: no NaN and no infinity, whatever the input. */
static bool is_finite_dot(const xn_node *n) {
    return xn_lower_reads_signs(n) && all_finite(n->scale, n->extent.channels) &&
           all_finite(n->bias, n->extent.channels);
}

/* Each node between pool and sign is monotone in each channel, also as fp32 computes it. One that
 * falls, or is constant, does so for dots only: NaN counts least in a pool and as -1 in a sign, and
 * a pool that took the least would have to know it. So does a clip (one that is here decides
 * signs): the -infinity that a pool makes of NaN alone may come out of it as +1. */
static bool is_monotone(const xn_lowering *l, const pooled_sign *p, bool dot) {
    for (int i = 0; i < p->count; i++) {
        const xn_node *n = &l->nodes[p->between[i]];
        const int32_t channels = n->extent.channels;
        if (!all_finite(n->scale, channels) || !all_finite(n->bias, channels) ||
            !all_finite(n->slope, channels) || !all_above(n->slope, channels, 0, true))
            return false;
        if (!dot && (n->op == XN_OP_CLIP || !all_above(n->scale, channels, 0, false)))
            return false;
    }
    return true;
}

/* What is between would go into the epilogue of the pool's input, which so far has no more than
 * that. */
static bool fits_before(const xn_lowering *l, const pooled_sign *p, const xn_node *x) {
    if (p->count == 0)
        return true;
    if (x->op == XN_OP_PRELU || x->op == XN_OP_CLIP || x->op == XN_NODE_COPY)
        return false;
    bool activated = false;
    for (int i = 0; i < p->count; i++) {
        const xn_node *n = &l->nodes[p->between[i]];
        if (activated || (n->op == XN_OP_AFFINE && n->scale && x->op == XN_OP_ADD))
            return false;
        activated = n->op != XN_OP_AFFINE;
    }
    return true;
}

static bool turn(xn_lowering *l, const pooled_sign *p) {
    bool any = false;
    const int32_t channels = l->nodes[p->pool].extent.channels;
    xn_values *turned = xn_lower_values(l, channels, true);
    if (!turned)
        return false;
    for (int32_t c = 0; c < channels; c++) {
        turned->at[c] = 1;
        for (int i = 0; i < p->count; i++) {
            const xn_values *scale = l->nodes[p->between[i]].scale;
            turned->at[c] *= scale && xn_value(scale, c) < 0 ? -1 : 1;
        }
        any = any || turned->at[c] < 0;
    }
    if (any)
        l->nodes[p->pool].turned = turned;
    return true;
}

/* sign(f(max(x))) is the largest of sign(f(x)) for f that rises, the least where it falls. */
static bool move_sign(xn_lowering *l, int pool) {
    pooled_sign p;
    if (l->nodes[pool].op != XN_OP_MAX_POOL || !find_pooled_sign(l, pool, &p))
        return true;
    const int input = l->nodes[pool].inputs[0];
    const xn_node *x = &l->nodes[input];
    if (!xn_lower_is_step(x) || xn_lower_is_binary(l, input) ||
        (p.count > 0 && xn_lower_only_reader(l, input) == XN_NOWHERE) || !fits_before(l, &p, x) ||
        !is_monotone(l, &p, is_finite_dot(x)))
        return true;
    if (!turn(l, &p))
        return false;
    const xn_extent before = x->extent;
    xn_lower_redirect(l, p.sign, pool, XN_NOWHERE);
    xn_lower_set_input(l, p.count ? p.between[0] : p.sign, 0, input);
    xn_lower_set_input(l, pool, 0, p.sign);
    for (int i = 0; i < p.count; i++)
        l->nodes[p.between[i]].extent = before;
    l->nodes[p.sign].extent = before;
    return true;
}

/* ---- all ---- */

static bool simplify_signs(xn_lowering *l) {
    signs met;
    if (!signs_create(l, &met))
        return false;
    for (int i = 1; i < l->count; i++) {
        if (l->nodes[i].op != XN_OP_SIGN)
            continue;
        /* so that one for all channels is equal to as many that are the same */
        xn_node *sign = &l->nodes[i];
        sign->shift = xn_lower_spread(l, sign->shift, sign->extent.channels);
        if (l->no_memory)
            return false;
        simplify_sign(l, &met, i);
    }
    return xn_lower_sweep(l);
}

bool xn_lower_rewrite(xn_lowering *l) {
    for (int i = 1; i < l->count; i++)
        if (!fold_flatten(l, i))
            return false;
    if (!xn_lower_find_stems(l) || !xn_lower_sweep(l))
        return false;
    if (!add_signs(l))
        return false;
    for (int i = 1, count = l->count; i < count; i++)
        if (!move_bias(l, i))
            return false;
    if (!simplify_signs(l))
        return false;
    /* From the last pool on, so that a sign may pass several. */
    for (int i = l->count - 1; i > 0; i--)
        if (!move_sign(l, i))
            return false;
    return simplify_signs(l);
}
