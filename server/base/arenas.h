/* arenas.h: how the C library's allocator is set up. By default every thread gets an arena of its
 * own on first use, which reserves 64 MiB of address space. Blocks up to 32 MiB come from the arena
 * and stay in it. A limited address space is used up by that; then a thread without an arena takes
 * a whole page for every small block. */
#ifndef XN_ARENAS_H
#define XN_ARENAS_H

/* Makes `count` arenas now, and allows no more. Large blocks are mapped one by one and unmapped
 * when freed. Call it before other threads start. If it fails, the library's defaults stay. */
void xn_arenas_set_up(int count);

#endif
