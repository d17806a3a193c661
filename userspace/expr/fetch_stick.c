/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stick tables: src_*, sc_*, sc0_* … fetches and table_* converters. Each compiles to a `struct
 * table_op`; the tables themselves are behind subject_ops.table. Workers.
 */
#include "expr/expr_priv.h"

/* kw: counter, access, index and where the key comes from */
enum key_from {
	FROM_SRC,
	FROM_SC,
	FROM_SC0,
	FROM_SC1,
	FROM_SC2,
	FROM_INPUT,
	FROM_NOWHERE
};
#define KW(from, counter, access, index)                                           \
	((unsigned)(counter) | (unsigned)(access) << 8 | (unsigned)(index) << 10 | \
	 (unsigned)(from) << 12)
#define KW_BY_INDEX 0x10000 /* the first argument is the number of the counter */

static int check_table(struct fn_check *c, struct err *err)
{
	unsigned from = c->kw >> 12 & 15, i = 0;
	struct table_op *op = arena_zalloc(c->env->arena, sizeof(*op));

	if (!op)
		return -ENOMEM;
	op->counter = (uint8_t)(c->kw & 0xff);
	op->access = (uint8_t)(c->kw >> 8 & 3);
	op->index = c->kw >> 10 & 3;
	op->key = from == FROM_SRC || from == FROM_INPUT ? TABLE_KEY_SAMPLE
		  : from == FROM_NOWHERE		 ? TABLE_KEY_NONE
							 : TABLE_KEY_TRACKED;
	op->sc = from >= FROM_SC0 && from <= FROM_SC2 ? (uint8_t)(from - FROM_SC0) : 0;
	if (c->kw & KW_BY_INDEX) {
		if (c->args[i].num < 0 || c->args[i].num > 99)
			return err_set(err, -EINVAL, "counters are numbered from 0 to 99");
		op->index = (uint32_t)c->args[i++].num;
	}
	if (from == FROM_SC) {
		c->error_at = c->args[i].at;
		if (c->args[i].num < 0 || c->args[i].num > 255)
			return err_set(err, -EINVAL, "tracked counters are numbered from 0");
		op->sc = (uint8_t)c->args[i++].num;
	}
	if (c->args[i].type == ARG_STR)
		op->table = c->args[i].str;
	c->args[0].ptr = op;
	c->args[0].type = ARG_PTR;
	return c->env->use_table ? c->env->use_table(c->env, op, err) : 0;
}

static int run_table(struct eval *ev, const struct table_op *op, const struct sample *key,
		     struct sample *ret)
{
	const struct subject *s = ev->s;

	if (!s->ops || !s->ops->table)
		return -ENOENT;
	return s->ops->table(s, op, key, ret);
}

static int fetch_table(struct eval *ev, const struct expr_arg *args, unsigned kw,
		       struct sample *ret)
{
	const struct table_op *op = args[0].ptr;
	const struct addr *src = ev->s->src ? ev->s->src : ev->s->front.src;
	struct sample key;

	if (op->key != TABLE_KEY_SAMPLE)
		return run_table(ev, op, NULL, ret);
	if (!src || (src->sa.sa_family != AF_INET && src->sa.sa_family != AF_INET6))
		return -ENOENT;
	memset(&key, 0, sizeof(key));
	key.type = SAMPLE_ADDR;
	key.addr = *src;
	return run_table(ev, op, &key, ret);
}

static int conv_table(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *smp)
{
	struct sample key = *smp;
	int r = run_table(ev, args[0].ptr, &key, smp);

	/* A key without an entry counts 0, so that "lt 10" is true for somebody never seen. */
	if (r != -ENOENT)
		return r;
	if ((kw & 0xff) == TABLE_IS_TRACKED)
		sample_set_bool(smp, false);
	else
		sample_set_int(smp, 0);
	return 0;
}

/* X(name, type, counter, access, index, help) */
#define COUNTERS(X)                                                                              \
	X("conn_cnt", SINT, TABLE_CONN_CNT, TABLE_GET, 0, "connections so far")                  \
	X("conn_cur", SINT, TABLE_CONN_CUR, TABLE_GET, 0, "connections now")                     \
	X("conn_rate", SINT, TABLE_CONN_RATE, TABLE_GET, 0, "connections per period")            \
	X("sess_cnt", SINT, TABLE_SESS_CNT, TABLE_GET, 0, "sessions so far")                     \
	X("sess_rate", SINT, TABLE_SESS_RATE, TABLE_GET, 0, "sessions per period")               \
	X("http_req_cnt", SINT, TABLE_HTTP_REQ_CNT, TABLE_GET, 0, "requests so far")             \
	X("http_req_rate", SINT, TABLE_HTTP_REQ_RATE, TABLE_GET, 0, "requests per period")       \
	X("http_err_cnt", SINT, TABLE_HTTP_ERR_CNT, TABLE_GET, 0, "4xx answers so far")          \
	X("http_err_rate", SINT, TABLE_HTTP_ERR_RATE, TABLE_GET, 0, "4xx answers per period")    \
	X("http_fail_cnt", SINT, TABLE_HTTP_FAIL_CNT, TABLE_GET, 0, "5xx answers so far")        \
	X("http_fail_rate", SINT, TABLE_HTTP_FAIL_RATE, TABLE_GET, 0, "5xx answers per period")  \
	X("kbytes_in", SINT, TABLE_KBYTES_IN, TABLE_GET, 0, "KiB from the client so far")        \
	X("kbytes_out", SINT, TABLE_KBYTES_OUT, TABLE_GET, 0, "KiB to the client so far")        \
	X("bytes_in_rate", SINT, TABLE_BYTES_IN_RATE, TABLE_GET, 0, "bytes per period")          \
	X("bytes_out_rate", SINT, TABLE_BYTES_OUT_RATE, TABLE_GET, 0, "bytes per period")        \
	X("get_gpc0", SINT, TABLE_GPC, TABLE_GET, 0, "general counter 0")                        \
	X("inc_gpc0", SINT, TABLE_GPC, TABLE_INC, 0, "increments counter 0; its new value")      \
	X("clr_gpc0", SINT, TABLE_GPC, TABLE_CLEAR, 0, "clears counter 0; its old value")        \
	X("gpc0_rate", SINT, TABLE_GPC_RATE, TABLE_GET, 0, "increments of counter 0 per period") \
	X("get_gpc1", SINT, TABLE_GPC, TABLE_GET, 1, "general counter 1")                        \
	X("inc_gpc1", SINT, TABLE_GPC, TABLE_INC, 1, "increments counter 1; its new value")      \
	X("clr_gpc1", SINT, TABLE_GPC, TABLE_CLEAR, 1, "clears counter 1; its old value")        \
	X("gpc1_rate", SINT, TABLE_GPC_RATE, TABLE_GET, 1, "increments of counter 1 per period") \
	X("get_gpt0", SINT, TABLE_GPT, TABLE_GET, 0, "general tag 0")

#define INDEXED(X)                                                                              \
	X("get_gpc", SINT, TABLE_GPC, TABLE_GET, 0, "general counter idx")                      \
	X("inc_gpc", SINT, TABLE_GPC, TABLE_INC, 0, "increments a counter; its new value")      \
	X("clr_gpc", SINT, TABLE_GPC, TABLE_CLEAR, 0, "clears a counter; its old value")        \
	X("gpc_rate", SINT, TABLE_GPC_RATE, TABLE_GET, 0, "increments of a counter per period") \
	X("get_gpt", SINT, TABLE_GPT, TABLE_GET, 0, "general tag idx")

#define TRACKED(X)                                                                     \
	X("tracked", BOOL, TABLE_IS_TRACKED, TABLE_GET, 0, "is there a tracked entry") \
	X("trackers", SINT, TABLE_TRACKERS, TABLE_GET, 0, "streams that track the same entry")

#define P PLACES_CONN
#define ROW_SRC(n, o, ctr, acc, i, h) \
	F("src_" n, "[table]", "[s", o, P, KW(FROM_SRC, ctr, acc, i), fetch_table, check_table, h),
#define ROW_SC(n, o, ctr, acc, i, h)                                                              \
	F("sc_" n, "sc,[table]", "i[s", o, P, KW(FROM_SC, ctr, acc, i), fetch_table, check_table, \
	  h),
#define ROW_SC0(n, o, ctr, acc, i, h) \
	F("sc0_" n, "[table]", "[s", o, P, KW(FROM_SC0, ctr, acc, i), fetch_table, check_table, h),
#define ROW_SC1(n, o, ctr, acc, i, h) \
	F("sc1_" n, "[table]", "[s", o, P, KW(FROM_SC1, ctr, acc, i), fetch_table, check_table, h),
#define ROW_SC2(n, o, ctr, acc, i, h) \
	F("sc2_" n, "[table]", "[s", o, P, KW(FROM_SC2, ctr, acc, i), fetch_table, check_table, h),
#define ROW_SC_I(n, o, ctr, acc, i, h)                                                     \
	F("sc_" n, "idx,sc,[table]", "ii[s", o, P, KW(FROM_SC, ctr, acc, i) | KW_BY_INDEX, \
	  fetch_table, check_table, h),
#define ROW_SRC_I(n, o, ctr, acc, i, h)                                                  \
	F("src_" n, "idx,[table]", "i[s", o, P, KW(FROM_SRC, ctr, acc, i) | KW_BY_INDEX, \
	  fetch_table, check_table, h),

static const struct fetch_def defs[] = {
	COUNTERS(ROW_SRC) COUNTERS(ROW_SC) COUNTERS(ROW_SC0) COUNTERS(ROW_SC1) COUNTERS(ROW_SC2)
		INDEXED(ROW_SC_I) INDEXED(ROW_SRC_I) TRACKED(ROW_SC) TRACKED(ROW_SC0)
			TRACKED(ROW_SC1) TRACKED(ROW_SC2)
				F("table_avl", "[table]", "[s", SINT, P,
				  KW(FROM_NOWHERE, TABLE_SIZE_AVL, TABLE_GET, 0), fetch_table,
				  check_table, "free entries of a table"),
	F("table_cnt", "[table]", "[s", SINT, P, KW(FROM_NOWHERE, TABLE_SIZE_USED, TABLE_GET, 0),
	  fetch_table, check_table, "used entries of a table"),
};

const struct fetch_table fetch_stick_table = { defs, ARRAY_SIZE(defs) };

#define CT(n, o, ctr, i, h) \
	C(n, "table", "s", ANY, o, KW(FROM_INPUT, ctr, TABLE_GET, i), conv_table, check_table, h)
/* Without a table: that of the section. A change makes the entry when there is none. */
#define CT_SET(n, acc, i, h)                                                            \
	C(n, "[table]", "[s", ANY, SINT, KW(FROM_INPUT, TABLE_GPC, acc, i), conv_table, \
	  check_table, h)
#define CT_I(n, sg, a, ctr, acc, h)                                                                \
	C(n, a, sg, ANY, SINT, KW(FROM_INPUT, ctr, acc, 0) | KW_BY_INDEX, conv_table, check_table, \
	  h)
static const struct conv_def convs[] = {
	CT("in_table", BOOL, TABLE_IS_TRACKED, 0, "does the table have this key"),
	CT("table_conn_cnt", SINT, TABLE_CONN_CNT, 0, "connections so far"),
	CT("table_conn_cur", SINT, TABLE_CONN_CUR, 0, "connections now"),
	CT("table_conn_rate", SINT, TABLE_CONN_RATE, 0, "connections per period"),
	CT("table_sess_cnt", SINT, TABLE_SESS_CNT, 0, "sessions so far"),
	CT("table_sess_rate", SINT, TABLE_SESS_RATE, 0, "sessions per period"),
	CT("table_http_req_cnt", SINT, TABLE_HTTP_REQ_CNT, 0, "requests so far"),
	CT("table_http_req_rate", SINT, TABLE_HTTP_REQ_RATE, 0, "requests per period"),
	CT("table_http_err_cnt", SINT, TABLE_HTTP_ERR_CNT, 0, "4xx answers so far"),
	CT("table_http_err_rate", SINT, TABLE_HTTP_ERR_RATE, 0, "4xx answers per period"),
	CT("table_http_fail_cnt", SINT, TABLE_HTTP_FAIL_CNT, 0, "5xx answers so far"),
	CT("table_http_fail_rate", SINT, TABLE_HTTP_FAIL_RATE, 0, "5xx answers per period"),
	CT("table_kbytes_in", SINT, TABLE_KBYTES_IN, 0, "KiB from the client so far"),
	CT("table_kbytes_out", SINT, TABLE_KBYTES_OUT, 0, "KiB to the client so far"),
	CT("table_bytes_in_rate", SINT, TABLE_BYTES_IN_RATE, 0, "bytes per period"),
	CT("table_bytes_out_rate", SINT, TABLE_BYTES_OUT_RATE, 0, "bytes per period"),
	CT("table_gpc0", SINT, TABLE_GPC, 0, "general counter 0"),
	CT("table_gpc0_rate", SINT, TABLE_GPC_RATE, 0, "increments of counter 0 per period"),
	CT("table_gpc1", SINT, TABLE_GPC, 1, "general counter 1"),
	CT("table_gpc1_rate", SINT, TABLE_GPC_RATE, 1, "increments of counter 1 per period"),
	CT("table_gpt0", SINT, TABLE_GPT, 0, "general tag 0"),
	CT_I("table_gpc", "is", "idx,table", TABLE_GPC, TABLE_GET, "general counter idx"),
	CT_I("table_gpc_rate", "is", "idx,table", TABLE_GPC_RATE, TABLE_GET,
	     "increments of a counter per period"),
	CT_I("table_gpt", "is", "idx,table", TABLE_GPT, TABLE_GET, "general tag idx"),
	CT_I("table_inc_gpc", "i[s", "idx,[table]", TABLE_GPC, TABLE_INC,
	     "increments a counter; its new value"),
	CT_I("table_clr_gpc", "i[s", "idx,[table]", TABLE_GPC, TABLE_CLEAR,
	     "clears a counter; its old value"),
	CT_SET("table_inc_gpc0", TABLE_INC, 0, "increments counter 0; its new value"),
	CT_SET("table_inc_gpc1", TABLE_INC, 1, "increments counter 1; its new value"),
	CT_SET("table_clr_gpc0", TABLE_CLEAR, 0, "clears counter 0; its old value"),
	CT_SET("table_clr_gpc1", TABLE_CLEAR, 1, "clears counter 1; its old value"),
	CT("table_server_id", SINT, TABLE_SERVER_ID, 0, "server remembered for this key"),
	CT("table_trackers", SINT, TABLE_TRACKERS, 0, "streams that track this key"),
	CT("table_expire", SINT, TABLE_EXPIRE, 0, "ms until the entry expires"),
	CT("table_idle", SINT, TABLE_IDLE, 0, "ms since the entry was used"),
};

const struct conv_table conv_stick_table = { convs, ARRAY_SIZE(convs) };
