/* SPDX-License-Identifier: BSD-2-Clause */
/* Byte queue. links: base */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>

#include "base/buf.h"

static void put_and_consume(void **state)
{
	char mem[8];
	struct buf b;

	buf_init(&b, mem, sizeof(mem));
	assert_true(buf_put(&b, STR("abcdef")));
	assert_false(buf_put(&b, STR("xyz")));
	assert_true(str_is_eq(buf_str(&b), STR("abcdef")));
	buf_consume(&b, 4);
	/* Only fits after compaction. */
	assert_int_equal(buf_room(&b), 2);
	assert_true(buf_put(&b, STR("ghijkl")));
	assert_true(str_is_eq(buf_str(&b), STR("efghijkl")));
	assert_int_equal(buf_room(&b), 0);
	assert_true(buf_put(&b, STR_NULL));
	buf_consume(&b, 8);
	assert_int_equal(buf_room(&b), 8);
	buf_compact(&b);
	assert_int_equal(buf_len(&b), 0);
}

static void formatted(void **state)
{
	char mem[9];
	struct buf b;

	buf_init(&b, mem, sizeof(mem));
	assert_true(buf_printf(&b, "%d-%s", 12, "ab"));
	assert_true(str_is_eq(buf_str(&b), STR("12-ab")));
	assert_false(buf_printf(&b, "%s", "cdef"));
	assert_true(str_is_eq(buf_str(&b), STR("12-ab")));
	buf_consume(&b, 3);
	assert_true(buf_printf(&b, "%s", "cdefgh"));
	assert_true(str_is_eq(buf_str(&b), STR("abcdefgh")));
}

/* Random operations against a plain string. */
static void model(void **state)
{
	char mem[64], want[64];
	uint32_t n = 0;
	struct buf b;

	srand(7);
	buf_init(&b, mem, sizeof(mem));
	for (int i = 0; i < 100000; i++) {
		uint32_t k = (uint32_t)rand() % 24;
		char text[24];

		for (uint32_t j = 0; j < k; j++)
			text[j] = (char)rand();
		if (rand() % 2) {
			bool fits = n + k <= sizeof(mem);

			assert_int_equal(buf_put(&b, str_make(text, k)), fits);
			if (fits) {
				memcpy(want + n, text, k);
				n += k;
			}
		} else {
			k = k < n ? k : n;
			buf_consume(&b, k);
			memmove(want, want + k, n - k);
			n -= k;
		}
		assert_int_equal(buf_len(&b), n);
		assert_memory_equal(buf_data(&b), want, n);
	}
}

static void big_endian(void **state)
{
	uint8_t m[5] = { 0 };

	put_be32(m + 1, 0x81020304);
	assert_int_equal(m[1], 0x81);
	assert_int_equal(get_be32(m + 1), 0x81020304);
	put_be16(m + 1, 0xfffe);
	assert_int_equal(get_be16(m + 1), 0xfffe);
	assert_int_equal(m[3], 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(put_and_consume),
		cmocka_unit_test(formatted),
		cmocka_unit_test(model),
		cmocka_unit_test(big_endian),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
