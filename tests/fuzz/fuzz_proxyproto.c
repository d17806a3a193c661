/* SPDX-License-Identifier: BSD-2-Clause */
/* PROXY protocol reader: lengths stay within the input, a prefix never says something else than the whole. */
/* links: net ev base */
#include <errno.h>

#include "net/net.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct str in = str_make((const char *)data, size);
	struct addr src, dst, s2, d2;
	char out[128];
	int n = proxy_header_read(in, &src, &dst);

	BUG_ON(n > 0 && (size_t)n > size);
	BUG_ON(n < 0 && n != -EBADMSG);
	if (n <= 0)
		return 0;
	BUG_ON(proxy_header_read(str_sub(in, 0, (size_t)n), &s2, &d2) != n);
	BUG_ON(!addr_is_eq(&src, &s2) || !addr_is_eq(&dst, &d2));
	for (int i = 0; i < n; i += 1 + n / 16)
		BUG_ON(proxy_header_read(str_sub(in, 0, (size_t)i), &s2, &d2) != 0);
	if (src.sa.sa_family == AF_UNSPEC)
		return 0;
	for (unsigned v = 1; v <= 2; v++) {
		size_t len = proxy_header_write(v, &src, &dst, out);

		BUG_ON(len > 108);
		BUG_ON(proxy_header_read(str_make(out, len), &s2, &d2) != (int)len);
		BUG_ON(!addr_is_eq(&src, &s2) || !addr_is_eq(&dst, &d2));
	}
	return 0;
}
