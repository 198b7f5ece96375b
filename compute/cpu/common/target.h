/* target.h: functions for an instruction set that the machine may lack. What stands between
 * XN_TARGET_BEGIN("avx2") and XN_TARGET_END is compiled for it; only run it where the machine has
 * it (sets.c). Headers go before: system headers know nothing of this.
 *
 * GCC and clang name this differently, and GCC alone has to be told that vectors of 64 bytes are
 * worth using: XN_TARGET_WIDE, at the end of a list. */
#ifndef XN_CPU_TARGET_H
#define XN_CPU_TARGET_H

#define XN_TARGET_PRAGMA(text) _Pragma(#text)

#if defined(__clang__)
#define XN_TARGET_WIDE
#define XN_TARGET_BEGIN(set)                                                                       \
    XN_TARGET_PRAGMA(clang attribute push(__attribute__((target(set))), apply_to = function))
#define XN_TARGET_END _Pragma("clang attribute pop")
#else
#define XN_TARGET_WIDE ",prefer-vector-width=512"
#define XN_TARGET_BEGIN(set) _Pragma("GCC push_options") XN_TARGET_PRAGMA(GCC target(set))
#define XN_TARGET_END _Pragma("GCC pop_options")
#endif

#endif
