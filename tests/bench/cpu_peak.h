/* cpu_peak.h: what this machine's cores can count and multiply, from loops that touch no memory. */
#ifndef XN_CPU_PEAK_H
#define XN_CPU_PEAK_H

/* Binary operations (2 for each bit) a second in units of 10^12, on all threads of OpenMP together:
 * xor, popcount and addition of 512 bits, and popcount alone. 0 where there is no VPOPCNTDQ. Each
 * call takes about a millisecond. */
double xn_cpu_peak_xor_count_add(void);
double xn_cpu_peak_count(void);
/* Likewise fused multiplications and additions of fp32 (2 operations each), in units of 10^9. */
double xn_cpu_peak_multiply_add(void);

#endif
