/* work.h: what an image costs, by estimate: the time of one CPU core. Rough, and of no device in
 * particular: it says how two problems compare. */
#ifndef XN_WORK_H
#define XN_WORK_H

#include "xn_problem.h"

double xn_work_image_ns(const xn_problem *problem); /* > 0. Pure; does not follow the steps. */

/* How long a thread waits for a run of `images` images on a GPU, by estimate: the launch and its
 * end, the bytes to and from the device, the work. Of no GPU in particular, and on the safe side:
 * for whether a thread that has others to serve may wait for it. 12 us for 4 KiB, 17 for 64 KiB and
 * 87 for 1 MiB, of one channel, floats in and out. Pure; does not follow the steps. */
double xn_work_gpu_ns(const xn_problem *problem, int64_t images);

#endif
