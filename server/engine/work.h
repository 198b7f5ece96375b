/* work.h: what an image costs, by estimate: the time of one CPU core. Rough, and of no device in
 * particular: it says how two problems compare. */
#ifndef XN_WORK_H
#define XN_WORK_H

#include "xn_problem.h"

double xn_work_image_ns(const xn_problem *problem); /* > 0. Pure; does not follow the steps. */

#endif
