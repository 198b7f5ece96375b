/* arenas.h: how the C library's allocator is set up. By default every thread gets an arena of its
 * own on first use, which reserves 64 MiB of address space, and blocks up to 32 MiB come from it
 * and stay in it. Where the address space is limited, that uses it up, and a thread that finds no
 * room for an arena takes a whole page for every small block. */
#ifndef XN_ARENAS_H
#define XN_ARENAS_H

/* Makes that many arenas now, and no more later; large blocks are mapped on their own and go back
 * to the system when freed. Before other threads start. Where it fails, the library's defaults
 * stay.
 */
void xn_arenas_set_up(int count);

#endif
