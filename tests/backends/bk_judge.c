/* bk_judge.c: is an output what it must be? Integers bit by bit; floats within 1e-5 of the sum of
 * the magnitudes of their terms; NaN where the reference has NaN, infinities likewise; FP16 as any
 * value within that tolerance rounds. */
#include "bk_run.h"

#include <float.h>
#include <math.h>
#include <string.h>

double bk_value(xn_datatype datatype, const void *output, int64_t i) {
    switch (datatype) {
    case XN_INT32:
        return ((const int32_t *)output)[i];
    case XN_FP16:
        return (double)xn_fp16_to_fp32(((const uint16_t *)output)[i]);
    default:
        return (double)((const float *)output)[i];
    }
}

/* Rounding is monotonic, so what lies between two reals rounds to between their roundings. */
static double rounded(xn_datatype datatype, double value, double toward) {
    float single = (float)value;
    if (datatype == XN_FP16)
        return (double)xn_fp16_to_fp32(xn_fp32_to_fp16(nextafterf(single, (float)toward)));
    return (double)single;
}

bool bk_is_right(xn_datatype datatype, double got, double reference, double tolerance, bool loose) {
    if (datatype == XN_INT32)
        return got == reference;
    if (isnan(reference))
        return isnan(got) || (loose && !isfinite(got));
    if (isnan(got))
        return loose;
    if (isinf(got) && loose)
        return true;
    if (isinf(reference) && !loose)
        return got == reference;
    double low = rounded(datatype, reference - tolerance, -INFINITY);
    double high = rounded(datatype, reference + tolerance, INFINITY);
    return got >= low && got <= high;
}

/* Backend ref computes in double and rounds once. */
static double tolerance_of(const bk_expected *e, bool exact) {
    if (exact)
        return 0x1p-24 * fabs(e->value) + 1e-12 * e->magnitude + 0x1p-149;
    return 1e-5 * e->magnitude + e->slack;
}

/* The CPU's paths take what overflows in fp32 again in double; a mean of FLT_MAX that CUDA rounds
 * up is infinite there. */
static bool loose_of(const bk_target *target, const bk_expected *e) {
    if (!strcmp(target->backend->name, "ref"))
        return false;
    return e->loose || (e->overflows && strcmp(target->backend->name, "cpu") != 0);
}

void bk_judge(const bk_target *target, const bk_problem *problem, const void *got, int64_t images,
              const void *reference, const bk_expected *expected) {
    const xn_conv *v = &problem->conv;
    xn_datatype datatype = (xn_datatype)v->epilogue.datatype;
    xn_datatype reference_datatype = datatype == XN_INT32 ? XN_INT32 : XN_FP32;
    int64_t count = images * xn_conv_output_elements(v),
            area = v->out_height * (int64_t)v->out_width;
    bool exact = !strcmp(target->backend->name, "ref");
    char text[BK_TEXT];
    for (int64_t i = 0; i < count; i++) {
        const bk_expected *e = &expected[i];
        double value = bk_value(datatype, got, i);
        double right = reference ? bk_value(reference_datatype, reference, i) : e->value;
        /* A reference that overflowed when it was rounded says less than the model: terms that
         * nearly cancel may leave anything within the tolerance, which is not infinite then. */
        if (isinf(right) && isfinite(e->value))
            right = e->value;
        double tolerance = tolerance_of(e, exact);
        if (bk_is_right(datatype, value, right, tolerance, loose_of(target, e)))
            continue;
        bk_case_describe(problem->c, text);
        ck_abort_msg(
            "%s: [%lld, %lld, %lld, %lld] is %.9g, expected %.9g within %.3g (model %.17g) "
            "of %s; run seed %llu",
            target->name, (long long)(i / (area * v->out_channels)),
            (long long)(i / area % v->out_channels), (long long)(i % area / v->out_width),
            (long long)(i % v->out_width), value, right, tolerance, e->value, text,
            (unsigned long long)xn_test_seed());
    }
}
