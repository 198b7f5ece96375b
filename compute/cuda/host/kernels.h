/* kernels.h: the launchers of all families. */
#ifndef XN_CUDA_KERNELS_H
#define XN_CUDA_KERNELS_H

#include "direct.h"
#include "dual_rail.h"
#include "few_choose.h"
#include "filter_stationary.h"
#include "fused_gemm.h"
#include "implicit_gemm.h"
#include "packing.h"
#include "real.h"
#include "real_mma.h"
#include "warp_specialised.h"

#endif
