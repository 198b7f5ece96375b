/* analysis.h: what clang-tidy is told beyond what a file includes. The analyser looks at one file
 * at a time and cannot know that xn_fail returns the status it is given, so without this it takes
 * every failure for a possible success. Included by `.ci/lint clang-tidy` before each file. */
#ifndef XN_ANALYSIS_H
#define XN_ANALYSIS_H

#include "xn_status.h"

#define xn_fail(error, status, ...) (xn_fail(error, status, __VA_ARGS__), (status))
#define xn_fail_limit(...) (xn_fail_limit(__VA_ARGS__), XN_ERR_LIMIT)

#endif
