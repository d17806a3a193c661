/* SPDX-License-Identifier: BSD-2-Clause */
/* OpenSSL's memory: what is freed serves the next of its size, nothing overlaps, and a thread that ends leaves nothing. */
/* links: net ev base */
#include <malloc.h>
#include <openssl/crypto.h>
#include <pthread.h>

#include "net/tls_priv.h"
#include "net_help.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED 1
#else
#define IS_SANITIZED 0
#endif

static void test_reuse(void **state)
{
	static const size_t sizes[] = { 1, 24, 25, 40, 41, 1032, 1033, 1544, 1545, 16704, 25000 };

	if (IS_SANITIZED)
		skip();
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		void *p = OPENSSL_malloc(sizes[i]), *q;

		assert_true(malloc_usable_size(p) >= sizes[i]);
		memset(p, 1, sizes[i]);
		OPENSSL_free(p);
		q = OPENSSL_malloc(sizes[i]);
		assert_ptr_equal(p, q);
		OPENSSL_free(q);
	}
}

static void test_trim(void **state)
{
	size_t before;
	void *p[50];

	if (IS_SANITIZED)
		skip();
	net_tls_memory_trim();
	before = mallinfo2().uordblks;
	for (size_t i = 0; i < 50; i++)
		p[i] = OPENSSL_malloc(1200);
	for (size_t i = 0; i < 50; i++)
		OPENSSL_free(p[i]);
	assert_true(mallinfo2().uordblks >= before + 30u * 1200);
	net_tls_memory_trim();
	assert_true(mallinfo2().uordblks < before + 10u * 1200);
	/* And goes on. */
	p[0] = OPENSSL_malloc(1200);
	OPENSSL_free(p[0]);
	p[1] = OPENSSL_malloc(1200);
	assert_ptr_equal(p[0], p[1]);
	OPENSSL_free(p[1]);
}

static void test_edges(void **state)
{
	char *p;

	assert_null(OPENSSL_malloc(0));
	OPENSSL_free(NULL);
	p = OPENSSL_realloc(NULL, 10);
	memcpy(p, "123456789", 10);
	p = OPENSSL_realloc(p, 5000);
	assert_string_equal(p, "123456789");
	p = OPENSSL_realloc(p, 100000); /* beyond what is kept */
	assert_string_equal(p, "123456789");
	p = OPENSSL_realloc(p, 10);
	assert_string_equal(p, "123456789");
	assert_null(OPENSSL_realloc(p, 0));
	p = OPENSSL_zalloc(64);
	for (int i = 0; i < 64; i++)
		assert_int_equal(p[i], 0);
	OPENSSL_free(p);
}

/* Every block is whole and its own, whatever came and went before. */
static void test_random(void **state)
{
	enum {
		N = 400
	};
	static struct {
		unsigned char *p;
		size_t size;
	} b[N];
	unsigned seed = 1;

	for (int round = 0; round < 40000; round++) {
		unsigned i, want;

		seed = seed * 1664525u + 1013904223u;
		i = (seed >> 8) % N;
		want = 1 + (seed >> 16) % (round % 5 ? 1200 : 60000);
		for (size_t k = 0; b[i].p && k < b[i].size; k += 97)
			assert_int_equal(b[i].p[k], (unsigned char)i);
		if (round % 3) {
			OPENSSL_free(b[i].p);
			b[i].p = OPENSSL_malloc(want);
		} else {
			b[i].p = OPENSSL_realloc(b[i].p, want);
		}
		assert_non_null(b[i].p);
		b[i].size = want;
		memset(b[i].p, (int)i, want);
	}
	for (int i = 0; i < N; i++)
		OPENSSL_free(b[i].p);
}

static void *churn(void *arg)
{
	void *p[64];

	for (int i = 0; i < 64; i++)
		p[i] = OPENSSL_malloc(16000);
	for (int i = 0; i < 64; i++)
		OPENSSL_free(p[i]);
	*(size_t *)arg = mallinfo2().uordblks;
	return NULL;
}

/* A thread keeps at most CLASS_BYTES of a size, and gives that back when it ends. */
static void test_thread_end(void **state)
{
	size_t before, inside, after;
	pthread_t t;

	if (IS_SANITIZED)
		skip();
	/* The first thread makes what every first thread makes. */
	assert_int_equal(pthread_create(&t, NULL, churn, &inside), 0);
	pthread_join(t, NULL);
	before = mallinfo2().uordblks;
	for (int i = 0; i < 20; i++) {
		assert_int_equal(pthread_create(&t, NULL, churn, &inside), 0);
		pthread_join(t, NULL);
		assert_true(inside < before + 200000); /* of the 1,024,000 that were in use */
	}
	after = mallinfo2().uordblks;
	assert_true(after < before + 50000);
}

static int set_up(void **state)
{
	net_tls_memory_init();
	net_tls_global_init();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reuse),	   cmocka_unit_test(test_trim),
		cmocka_unit_test(test_edges),	   cmocka_unit_test(test_random),
		cmocka_unit_test(test_thread_end),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
