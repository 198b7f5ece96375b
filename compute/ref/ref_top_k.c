/* ref_top_k.c: the k best of an image's values, in FP32, and their channels. */
#include "ref.h"

#include <math.h>

/* The best so far, best first. */
typedef struct selection {
    const xn_attributes *wanted;
    float *values;
    int32_t *channels;
    int64_t count;
} selection;

/* Whether a value comes before another one of a lower channel. */
static bool is_before(const selection *s, float value, float other) {
    if (isnan(value) || isnan(other))
        return isnan(other) && !isnan(value);
    return s->wanted->largest ? value > other : value < other;
}

static void insert(selection *s, float value, int32_t channel) {
    const int64_t k = s->wanted->k;
    int64_t at = s->count;
    while (at > 0 && is_before(s, value, s->values[at - 1]))
        at--;
    if (at == k)
        return;
    s->count += s->count < k;
    for (int64_t i = s->count - 1; i > at; i--) {
        s->values[i] = s->values[i - 1];
        s->channels[i] = s->channels[i - 1];
    }
    s->values[at] = value;
    s->channels[at] = channel;
}

void xn_ref_top_k(const xn_ref_image *image) {
    const xn_step *step = image->step;
    float *output = (float *)image->output + step->output_view.offset;
    selection s = {&step->attributes, output, (int32_t *)(void *)(output + step->attributes.k), 0};
    for (int32_t o = 0; o < step->conv.out_channels; o++) {
        const double acc = step->conv.mode == XN_MODE_XNOR ? (double)xn_ref_dot(image, o)
                                                           : (double)image->input[o];
        insert(&s, (float)xn_ref_value(image, o, o, acc, 1) + 0.0f, o); /* -0 becomes 0 */
    }
}
