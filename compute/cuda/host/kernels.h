/* kernels.h: the launchers of all families. */
#ifndef XN_CUDA_KERNELS_H
#define XN_CUDA_KERNELS_H

#include "direct.h"
#include "implicit_gemm.h"
#include "packing.h"
#include "patch_gemm.h"
#include "real.h"
#include "real_mma.h"
#include "sliding_window.h"
#include "stem.h"
#include "top_k.h"
#include "warp_specialised.h"

#endif
