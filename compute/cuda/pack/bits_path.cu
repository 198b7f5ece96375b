/* bits_path.cu: bits_path.h: the first kernels of the paths that multiply plain bits. */
#include "bits_path.h"

#include "layout.h"
#include "packing.h"

/* Scratch; NULL where it is not wanted. */
struct bits_scratch {
    uint32_t *bits; /* the input has its own where it is bits */
    int32_t *popc, *pixel_part;
    float *mean, *box;
};

static int64_t in_plane(const xn_conv *c) {
    return (int64_t)c->height * c->width;
}

static bits_scratch take(const xn_cuda_job *job, bool counts, xn_cuda_scratch *scratch) {
    const xn_conv *c = &job->conv;
    const int64_t pixels = c->groups * in_plane(c);
    const int64_t windows = (int64_t)c->groups * c->out_height * c->out_width;
    const size_t pixel_bytes = (size_t)xn_packed_words(c->group_channels) * sizeof(uint32_t);
    bits_scratch s = {};
    const bool reals = job->source == XN_CUDA_FROM_REALS;
    if (reals)
        s.bits = (uint32_t *)xn_cuda_take(scratch, pixels, pixel_bytes);
    if (c->epilogue.k) {
        s.mean = (float *)xn_cuda_take(scratch, pixels, sizeof(float));
        s.box = (float *)xn_cuda_take(scratch, windows, sizeof(float));
    }
    if (counts && reals)
        s.popc = (int32_t *)xn_cuda_take(scratch, pixels, sizeof(int32_t));
    if (counts)
        s.pixel_part = (int32_t *)xn_cuda_take(scratch, windows, sizeof(int32_t));
    return s;
}

void xn_cuda_bits_lay_out(const xn_cuda_job *job, bool counts, xn_cuda_scratch *scratch) {
    (void)take(job, counts, scratch);
}

uint64_t xn_cuda_bits_wants(const xn_cuda_job *, const xn_prepared *) {
    return XN_CUDA_WANT(XN_CUDA_PART_ROWS) | XN_CUDA_WANT(XN_CUDA_PART_PREFIX);
}

cudaError_t xn_cuda_bits_make(xn_cuda_run *run, bool counts, xn_cuda_bit_args *out) {
    const xn_conv *c = &run->job->conv;
    const int64_t images = run->job->images;
    const bits_scratch s = take(run->job, counts, &run->scratch);
    const bool reals = run->job->source == XN_CUDA_FROM_REALS;
    *out = {reals ? s.bits : (const uint32_t *)run->input,
            (const uint32_t *)xn_cuda_part_of(run->weights, XN_CUDA_PART_ROWS),
            (const int32_t *)xn_cuda_part_of(run->weights, XN_CUDA_PART_PREFIX),
            s.pixel_part,
            s.box,
            s.mean};
    cudaError_t e = cudaSuccess;
    if (reals)
        e = xn_cuda_pack_launch(c, images, run->chip->multiprocessors, run->input, s.bits, s.popc,
                                s.mean, XN_CUDA_PLAIN, false, run->stream);
    if (e == cudaSuccess && (s.pixel_part || s.box))
        e = xn_cuda_box_launch(c, images, out->bits, s.popc, s.mean, s.pixel_part, s.box,
                               run->stream);
    return e;
}
