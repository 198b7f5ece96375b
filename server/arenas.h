/* arenas.h: how the C library's allocator is set up. By default every thread gets an arena of its
 * own on first use, which reserves 64 MiB of address space, and blocks up to 32 MiB come from it
 * and stay in it. Where the address space is limited that eats it, and a thread that finds no room
 * for an arena takes a page for every few bytes. */
#ifndef XN_ARENAS_H
#define XN_ARENAS_H

/* So many arenas, made now, before there are other threads; and what is large is mapped on its own
 * and goes back to the system when freed. Nothing is said where it fails: it is as before then. */
void xn_arenas_set_up(int count);

#endif
