/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The contract between the kernel programs and userspace: this directory is compiled by gcc, clang
 * and clang -target bpf, and holds no code but inline hashes. Only kernel types; wire order is in
 * the type (__be16, __be32); padding is explicit.
 */
#ifndef HEADGATE_BASE_H
#define HEADGATE_BASE_H

#include <linux/types.h>

/*
 * Bumped with every change of a map's key, value or meaning. A daemon adopts pinned maps only when
 * their `meta` map holds the same number; otherwise it loads beside them and switches over.
 */
#define HG_ABI_VERSION 16

/* Where pins live, below a bpffs. */
#define HG_PIN_DIR "headgate"

#define HG_ASSERT_LAYOUT(type, size) \
	_Static_assert(sizeof(type) == (size), "layout of " #type " changed: bump HG_ABI_VERSION")

#define HG_CACHE_LINE 64

/* Host to network order without a libc header. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define hg_be16(x) ((__be16)__builtin_bswap16((__u16)(x)))
#define hg_be32(x) ((__be32)__builtin_bswap32((__u32)(x)))
#else
#define hg_be16(x) ((__be16)(x))
#define hg_be32(x) ((__be32)(x))
#endif

/* 64-bit mixer: two multiplications, no table; the same in kernel and userspace. */
static inline __attribute__((always_inline)) __u64 hg_mix64(__u64 a, __u64 b)
{
	__u64 h = (a ^ 0x9e3779b97f4a7c15ull) * 0xff51afd7ed558ccdull;

	h ^= (h >> 32) ^ b;
	h *= 0xc4ceb9fe1a85ec53ull;
	return h ^ (h >> 29);
}

#endif
