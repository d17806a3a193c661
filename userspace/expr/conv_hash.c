/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hash converters. The 32-bit ones have an optional avalanche (argument 1, full mixing for
 * consistent hashing); digests are libcrypto's block functions, which do not allocate. Workers.
 */
#define OPENSSL_SUPPRESS_DEPRECATED
#define XXH_INLINE_ALL
#include "expr/expr_priv.h"

#include <openssl/evp.h>
#include <openssl/md5.h>
#include <openssl/sha.h>
#include <xxhash.h>

uint32_t hash_sdbm(struct str s)
{
	uint32_t h = 0;

	for (size_t i = 0; i < s.len; i++)
		h = (uint8_t)s.p[i] + (h << 6) + (h << 16) - h;
	return h;
}

uint32_t hash_djb2(struct str s)
{
	uint32_t h = 5381;

	for (size_t i = 0; i < s.len; i++)
		h = (h << 5) + h + (uint8_t)s.p[i];
	return h;
}

static uint32_t rot32(uint32_t v, unsigned n)
{
	return n ? v << n | v >> (32 - n) : v;
}

uint32_t hash_wt6(struct str s)
{
	uint32_t h0 = 0xa53c965a, h1 = 0x5ca6953a, t;
	unsigned step0 = 6, step1 = 18;

	for (size_t i = 0; i < s.len; i++) {
		h0 = ~(h0 ^ (uint8_t)s.p[i]);
		h1 = ~(h1 + (uint8_t)s.p[i]);
		t = rot32(h1, step0);
		h1 = rot32(h0, step1);
		h0 = t;
		t = (h0 >> 16 ^ h1) & 0xffff;
		step0 = t & 31;
		step1 = t >> 11 & 31;
	}
	return h0 ^ h1;
}

/* Reflected CRC, four bits at a time: small tables stay in the cache. */
static uint32_t crc_reflected(struct str s, uint32_t poly)
{
	uint32_t table[16], h = UINT32_MAX;

	for (uint32_t i = 0; i < 16; i++) {
		table[i] = i;
		for (unsigned k = 0; k < 4; k++)
			table[i] = table[i] >> 1 ^ (table[i] & 1 ? poly : 0);
	}
	for (size_t i = 0; i < s.len; i++) {
		h ^= (uint8_t)s.p[i];
		h = h >> 4 ^ table[h & 15];
		h = h >> 4 ^ table[h & 15];
	}
	return ~h;
}

uint32_t hash_crc32(struct str s)
{
	return crc_reflected(s, 0xedb88320);
}

uint32_t hash_avalanche(uint32_t a)
{
	a = (a + 0x7ed55d16) + (a << 12);
	a = (a ^ 0xc761c23c) ^ (a >> 19);
	a = (a + 0x165667b1) + (a << 5);
	a = (a + 0xd3a2646c) ^ (a << 9);
	a = (a + 0xfd7046c5) + (a << 3);
	a = (a ^ 0xb55a4f09) ^ (a >> 16);
	return a * 3221225473u;
}

enum hash32 {
	HASH_SDBM,
	HASH_DJB2,
	HASH_WT6,
	HASH_CRC32,
	HASH_CRC32C
};

static int conv_hash32(struct eval *ev, const struct expr_arg *args, unsigned kw,
		       struct sample *smp)
{
	uint32_t h = 0;

	switch ((enum hash32)kw) {
	case HASH_SDBM:
		h = hash_sdbm(smp->str);
		break;
	case HASH_DJB2:
		h = hash_djb2(smp->str);
		break;
	case HASH_WT6:
		h = hash_wt6(smp->str);
		break;
	case HASH_CRC32:
		h = hash_crc32(smp->str);
		break;
	case HASH_CRC32C:
		h = crc_reflected(smp->str, 0x82f63b78);
		break;
	}
	if (args[0].type == ARG_INT && args[0].num)
		h = hash_avalanche(h);
	sample_set_int(smp, h);
	return 0;
}

/* --- xxHash: the header alone, nothing is linked --- */

enum xxhash {
	XXHASH_32,
	XXHASH_64,
	XXHASH_3
};

static int conv_xxh(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *smp)
{
	uint64_t seed = args[0].type == ARG_INT ? (uint64_t)args[0].num : 0, h = 0;
	struct str s = smp->str.p ? smp->str : STR("");

	switch ((enum xxhash)kw) {
	case XXHASH_32:
		h = XXH32(s.p, s.len, (uint32_t)seed);
		break;
	case XXHASH_64:
		h = XXH64(s.p, s.len, seed);
		break;
	case XXHASH_3:
		h = XXH3_64bits_withSeed(s.p, s.len, seed);
		break;
	}
	sample_set_int(smp, (int64_t)h);
	return 0;
}

/* --- digests --- */

enum digest {
	DIGEST_MD5,
	DIGEST_SHA1,
	DIGEST_SHA224,
	DIGEST_SHA256,
	DIGEST_SHA384,
	DIGEST_SHA512
};

static const struct {
	const char *name;
	unsigned size, block;
} digests[] = {
	[DIGEST_MD5] = { "md5", 16, 64 },	 [DIGEST_SHA1] = { "sha1", 20, 64 },
	[DIGEST_SHA224] = { "sha224", 28, 64 },	 [DIGEST_SHA256] = { "sha256", 32, 64 },
	[DIGEST_SHA384] = { "sha384", 48, 128 }, [DIGEST_SHA512] = { "sha512", 64, 128 },
};

/* Hash of a and b, one behind the other. */
static void digest(enum digest d, struct str a, struct str b, uint8_t *out)
{
	union {
		MD5_CTX md5;
		SHA_CTX sha1;
		SHA256_CTX sha256;
		SHA512_CTX sha512;
	} c;

#define RUN(ctx, I, U, F)              \
	do {                           \
		I(&c.ctx);             \
		U(&c.ctx, a.p, a.len); \
		U(&c.ctx, b.p, b.len); \
		F(out, &c.ctx);        \
	} while (0)
	switch (d) {
	case DIGEST_MD5:
		RUN(md5, MD5_Init, MD5_Update, MD5_Final);
		break;
	case DIGEST_SHA1:
		RUN(sha1, SHA1_Init, SHA1_Update, SHA1_Final);
		break;
	case DIGEST_SHA224:
		RUN(sha256, SHA224_Init, SHA224_Update, SHA224_Final);
		break;
	case DIGEST_SHA256:
		RUN(sha256, SHA256_Init, SHA256_Update, SHA256_Final);
		break;
	case DIGEST_SHA384:
		RUN(sha512, SHA384_Init, SHA384_Update, SHA384_Final);
		break;
	case DIGEST_SHA512:
		RUN(sha512, SHA512_Init, SHA512_Update, SHA512_Final);
		break;
	}
#undef RUN
}

void expr_websocket_accept(struct str key, char out[EXPR_WEBSOCKET_ACCEPT])
{
	unsigned char hash[20], text[EXPR_WEBSOCKET_ACCEPT + 1];

	digest(DIGEST_SHA1, key, STR("258EAFA5-E914-47DA-95CA-C5AB0DC85B11"), hash);
	EVP_EncodeBlock(text, hash, sizeof(hash));
	memcpy(out, text, EXPR_WEBSOCKET_ACCEPT);
}

static int check_digest(struct fn_check *c, struct err *err)
{
	struct expr_arg *a = &c->args[0];

	for (unsigned i = 0; i < ARRAY_SIZE(digests); i++) {
		if (str_is_case_eq(a->str, str_from_cstr(digests[i].name))) {
			a->num = i;
			return 0;
		}
	}
	return err_set(err, -EINVAL,
		       "'" STR_FMT "' is not md5, sha1, sha224, sha256, sha384 or sha512",
		       STR_ARG(a->str));
}

static int check_sha2(struct fn_check *c, struct err *err)
{
	int64_t bits = c->args[0].type == ARG_INT ? c->args[0].num : 256;

	c->args[0].num = bits == 224   ? DIGEST_SHA224
			 : bits == 256 ? DIGEST_SHA256
			 : bits == 384 ? DIGEST_SHA384
				       : DIGEST_SHA512;
	if (bits != 224 && bits != 256 && bits != 384 && bits != 512)
		return err_set(err, -EINVAL, "SHA-2 has 224, 256, 384 or 512 bits");
	return 0;
}

static int check_sha1(struct fn_check *c, struct err *err)
{
	c->args[0].num = DIGEST_SHA1;
	return 0;
}

static int conv_digest(struct eval *ev, const struct expr_arg *args, unsigned kw,
		       struct sample *smp)
{
	enum digest d = (enum digest)args[0].num;
	char *p = eval_alloc(ev, digests[d].size);

	if (!p)
		return -ENOMEM;
	digest(d, smp->str, STR(""), (uint8_t *)p);
	sample_set_str(smp, SAMPLE_BIN, str_make(p, digests[d].size));
	return 0;
}

/* RFC 2104. The key is a base64 text or a variable that holds the raw key. */
static int check_hmac(struct fn_check *c, struct err *err)
{
	struct expr_arg *k = &c->args[1];
	int r = check_digest(c, err);
	char *p;
	ssize_t n;

	if (r)
		return r;
	c->error_at = k->at;
	if (str_find_char(k->str, '.') != SIZE_MAX)
		return arg_parse_var(k, err);
	p = arena_alloc(c->env->arena, k->str.len / 4 * 3 + 6);
	if (!p)
		return -ENOMEM;
	n = b64_decode(k->str, p, false);
	if (n < 0)
		return err_set(err, -EINVAL, "the key is neither base64 nor a variable");
	k->str = str_make(p, (size_t)n);
	return 0;
}

static int conv_hmac(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *smp)
{
	enum digest d = (enum digest)args[0].num;
	uint8_t pad[128] = { 0 }, inner[64];
	unsigned size = digests[d].size, block = digests[d].block;
	struct str key = args[1].str;
	char *p = eval_alloc(ev, size);

	if (!p)
		return -ENOMEM;
	if (args[1].type == ARG_VAR) {
		const struct sample *v = subject_var_get(ev->s, (enum var_scope)args[1].scope,
							 args[1].var);

		if (!v || v->type < SAMPLE_STR)
			return -ENOENT;
		key = v->str;
	}
	if (key.len > block)
		digest(d, key, STR(""), pad);
	else if (key.len)
		memcpy(pad, key.p, key.len);
	for (unsigned i = 0; i < block; i++)
		pad[i] ^= 0x36;
	digest(d, str_make((char *)pad, block), smp->str, inner);
	for (unsigned i = 0; i < block; i++)
		pad[i] ^= 0x36 ^ 0x5c;
	digest(d, str_make((char *)pad, block), str_make((char *)inner, size), (uint8_t *)p);
	sample_set_str(smp, SAMPLE_BIN, str_make(p, size));
	return 0;
}

#define H32(n, k, h) C(n, "[avalanche]", "[i", BIN, SINT, k, conv_hash32, NULL, h)
static const struct conv_def convs[] = {
	H32("sdbm", HASH_SDBM, "32-bit hash"),
	H32("djb2", HASH_DJB2, "32-bit hash"),
	H32("wt6", HASH_WT6, "32-bit hash"),
	H32("crc32", HASH_CRC32, "32-bit checksum of Ethernet"),
	H32("crc32c", HASH_CRC32C, "32-bit Castagnoli checksum"),
	C("xxh32", "[seed]", "[i", BIN, SINT, XXHASH_32, conv_xxh, NULL, "32-bit hash"),
	C("xxh64", "[seed]", "[i", BIN, SINT, XXHASH_64, conv_xxh, NULL, "64-bit hash"),
	C("xxh3", "[seed]", "[i", BIN, SINT, XXHASH_3, conv_xxh, NULL, "64-bit hash"),
	C("sha1", "", "", BIN, BIN, 0, conv_digest, check_sha1, "SHA-1"),
	C("sha2", "[bits]", "[i", BIN, BIN, 0, conv_digest, check_sha2,
	  "SHA-2 of 256 bits or others"),
	C("digest", "algorithm", "s", BIN, BIN, 0, conv_digest, check_digest,
	  "md5, sha1, sha256, …"),
	C("hmac", "algorithm,key", "ss", BIN, BIN, 0, conv_hmac, check_hmac,
	  "keyed digest; the key in base64 or a variable"),
};

const struct conv_table conv_hash_table = { convs, ARRAY_SIZE(convs) };
