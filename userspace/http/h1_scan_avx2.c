/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The HTTP/1 reader's scanning loops with AVX2: 32 bytes a step. Called through h1_scanners when the CPU has
 * it (h1_read.c). No state; any thread.
 */
#ifdef __x86_64__
#include <immintrin.h>

#include "http/h1_priv.h"

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,bmi"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,bmi")
#endif

static inline uint32_t to_mask(__m256i v)
{
	return (uint32_t)_mm256_movemask_epi8(v);
}

static inline __m256i ctl_of(__m256i v)
{
	__m256i low = _mm256_cmpeq_epi8(_mm256_min_epu8(v, _mm256_set1_epi8(0x1f)), v);
	__m256i tab = _mm256_cmpeq_epi8(v, _mm256_set1_epi8('\t'));
	__m256i del = _mm256_cmpeq_epi8(v, _mm256_set1_epi8(0x7f));

	return _mm256_or_si256(_mm256_andnot_si256(tab, low), del);
}

/*
 * Token characters by two table look-ups: the low four bits select a column of the ASCII table (one bit for
 * each row), the high four bits select the row. vpshufb gives 0 for bytes from 0x80.
 */
static inline __m256i not_token_of(__m256i v)
{
	const __m128i columns = _mm_setr_epi8((char)0xe8, (char)0xfc, (char)0xf8, (char)0xfc,
					      (char)0xfc, (char)0xfc, (char)0xfc, (char)0xfc,
					      (char)0xf8, (char)0xf8, (char)0xf4, 0x54, (char)0xd0,
					      0x54, (char)0xf4, 0x70);
	const __m128i rows = _mm_setr_epi8(1, 2, 4, 8, 16, 32, 64, (char)128, 0, 0, 0, 0, 0, 0, 0,
					   0);
	__m256i high = _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(0x0f));
	__m256i set = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(columns), v);
	__m256i row = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(rows), high);

	return _mm256_cmpeq_epi8(_mm256_and_si256(set, row), _mm256_setzero_si256());
}

static inline void classify(const char *p, uint64_t *ret_ctl, uint64_t *ret_not_token)
{
	__m256i a = _mm256_loadu_si256((const __m256i_u *)p);
	__m256i b = _mm256_loadu_si256((const __m256i_u *)(p + 32));

	*ret_ctl = to_mask(ctl_of(a)) | (uint64_t)to_mask(ctl_of(b)) << 32;
	*ret_not_token = to_mask(not_token_of(a)) | (uint64_t)to_mask(not_token_of(b)) << 32;
}

/* Signed comparison: bytes from 0x80 are negative and so not above ' '. */
static inline uint32_t target_mask(__m256i v)
{
	__m256i visible = _mm256_cmpgt_epi8(v, _mm256_set1_epi8(' '));
	__m256i del = _mm256_cmpeq_epi8(v, _mm256_set1_epi8(0x7f));
	__m256i hash = _mm256_cmpeq_epi8(v, _mm256_set1_epi8('#'));

	return ~to_mask(_mm256_andnot_si256(_mm256_or_si256(del, hash), visible));
}

static const char *scan_target(const char *p, const char *end)
{
	for (; likely(end - p >= 32); p += 32) {
		uint32_t m = target_mask(_mm256_loadu_si256((const __m256i_u *)p));

		if (m)
			return p + __builtin_ctz(m);
	}
	return h1_scan_target_bytes(p, end);
}

#include "http/h1_scan_blocks.h"
#include "http/h1_scan.h"

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

const struct h1_scanner h1_scanner_avx2 = { "avx2", scan_target, read_fields };
#endif
