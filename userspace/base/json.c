/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/json.h"

void json_put_str(FILE *out, struct str s)
{
	putc('"', out);
	for (size_t i = 0; i < s.len; i++) {
		unsigned char c = (unsigned char)s.p[i];

		if (c == '"' || c == '\\')
			fprintf(out, "\\%c", c);
		else if (c < 0x20 || c == 0x7f)
			fprintf(out, "\\u%04x", c);
		else
			putc(c, out);
	}
	putc('"', out);
}
