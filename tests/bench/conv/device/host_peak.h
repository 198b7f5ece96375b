/* host_peak.h: what this machine's cores can count and multiply, from loops that touch no memory.
 */
#ifndef XN_HOST_PEAK_H
#define XN_HOST_PEAK_H

/* 10^12 operations a second, on all threads of OpenMP together: 2 for each bit of xor, popcount and
 * addition of 512 bits; 2 for each fp32 of a fused multiplication and addition. 0 where there is no
 * VPOPCNTDQ. Each call takes some milliseconds. */
double xn_host_peak_xor_count_add(void);
double xn_host_peak_multiply_add(void);

#endif
