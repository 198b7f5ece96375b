/* bits_path.cu: the first kernels of the paths that multiply plain bits. */
#include "bits_path.h"

#include "layout.h"

static int64_t in_plane(const xn_conv *c) {
    return (int64_t)c->height * c->width;
}

xn_cuda_bits xn_cuda_bits_take(const xn_cuda_job *job, xn_cuda_scratch *scratch) {
    const xn_conv *c = &job->conv;
    const size_t pixel_bytes = (size_t)xn_packed_words(c->group_channels) * sizeof(uint32_t);
    xn_cuda_bits b = {};
    if (job->source == XN_CUDA_FROM_REALS)
        b.bits = (uint32_t *)xn_cuda_take(scratch, c->groups * in_plane(c), pixel_bytes);
    if (c->epilogue.k)
        b.mean = (float *)xn_cuda_take(scratch, c->groups * in_plane(c), sizeof(float));
    return b;
}

xn_cuda_bits xn_cuda_bits_take_sums(const xn_cuda_job *job, bool counts, xn_cuda_scratch *scratch) {
    const xn_conv *c = &job->conv;
    const int64_t windows = (int64_t)c->groups * c->out_height * c->out_width;
    xn_cuda_bits b = xn_cuda_bits_take(job, scratch);
    if (c->epilogue.k)
        b.box = (float *)xn_cuda_take(scratch, windows, sizeof(float));
    if (counts) {
        b.popc = (int32_t *)xn_cuda_take(scratch, c->groups * in_plane(c), sizeof(int32_t));
        b.pixel_part = (int32_t *)xn_cuda_take(scratch, windows, sizeof(int32_t));
    }
    return b;
}

cudaError_t xn_cuda_bits_make(const xn_cuda_run *run, xn_cuda_bits *b, bool overlapped) {
    const xn_conv *c = &run->job->conv;
    const int64_t images = run->job->images;
    cudaError_t e = cudaSuccess;
    if (run->job->source == XN_CUDA_FROM_REALS)
        e = xn_cuda_pack_launch(c, images, run->chip->multiprocessors, run->input,
                                const_cast<uint32_t *>(b->bits), b->popc, b->mean, XN_CUDA_PLAIN,
                                overlapped, run->stream);
    else
        b->bits = (const uint32_t *)run->input;
    if (e == cudaSuccess && run->job->source != XN_CUDA_FROM_REALS && b->popc)
        e = xn_cuda_count_launch(images * c->groups * in_plane(c),
                                 xn_packed_words(c->group_channels), b->bits, b->popc, run->stream);
    if (e == cudaSuccess && (b->pixel_part || b->box))
        e = xn_cuda_box_launch(c, images, b->popc, b->mean, b->pixel_part, b->box, run->stream);
    return e;
}
