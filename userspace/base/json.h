/* SPDX-License-Identifier: BSD-2-Clause */
/* Strings of JSON (RFC 8259 7) for answers that people's scripts read. Any thread. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <stdio.h>

#include "base/str.h"

/* With its quotes; bytes above 0x7f stay as they are. */
void json_put_str(FILE *out, struct str s);

#endif
