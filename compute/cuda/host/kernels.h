/* kernels.h: the launchers of all families. */
#ifndef XN_CUDA_KERNELS_H
#define XN_CUDA_KERNELS_H

#include "depthwise.h"
#include "direct.h"
#include "dual_rail.h"
#include "filter_stationary.h"
#include "fused_gemm.h"
#include "implicit_gemm.h"
#include "packing.h"
#include "patch_gemm.h"
#include "real.h"
#include "real_mma.h"
#include "sliding_window.h"
#include "warp_specialised.h"

#endif
