/* SPDX-License-Identifier: BSD-2-Clause */
/* Names of this program's functions, for displays. */
#ifndef BASE_SYMBOL_H
#define BASE_SYMBOL_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/*
 * The functions by address, read from the running executable (ELF64, System V gABI 4: sections of type SHT_SYMTAB).
 * One that was stripped has none. Not for request paths: it maps the file.
 */
struct symbols;
struct symbols *symbols_open(void); /* NULL: there are none, or no memory */
void symbols_close(struct symbols *s); /* NULL is ignored */

/* "conn_event", or "0x1234" from where the program was loaded. Any `s`, NULL too. */
void symbols_name(const struct symbols *s, uintptr_t fn, char *out, size_t size);

#endif
