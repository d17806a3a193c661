/* SPDX-License-Identifier: BSD-2-Clause */
/* Primality of small numbers, by trial division. Any thread. */
#ifndef BASE_PRIME_H
#define BASE_PRIME_H

#include <stdbool.h>
#include <stdint.h>

static inline bool u32_is_prime(uint32_t n)
{
	if (n < 4)
		return n > 1;
	if (n % 2 == 0)
		return false;
	for (uint32_t d = 3; (uint64_t)d * d <= n; d += 2) {
		if (n % d == 0)
			return false;
	}
	return true;
}

#endif
