/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The cookie of an RDP connection request: what a client or a session directory puts into the first packet
 * ([MS-RDPBCGR] 2.2.1.1): TPKT header (RFC 1006), X.224 Connection Request (ITU-T X.224 13.3), then a line
 * "Cookie: name=value". Every byte is a stranger's; too few are -EAGAIN as long as more may come. Workers.
 */
#include "expr/expr_priv.h"

#define TPKT_VERSION 3
#define TPKT_SIZE    4
#define X224_SIZE    7 /* length, code, two references, class */
#define X224_CR	     0xe0

/* Does it agree with the first bytes of a connection request, as far as they are here? */
static bool is_request(struct str p)
{
	const uint8_t *b = (const uint8_t *)p.p;

	return (p.len < 1 || b[0] == TPKT_VERSION) &&
	       (p.len <= TPKT_SIZE + 1 || (b[TPKT_SIZE + 1] & 0xf0) == X224_CR);
}

static int rdp_cookie(const struct eval *ev, const struct expr_arg *args, struct str *ret)
{
	const struct str word = STR("Cookie:");
	struct str p = ev->s->payload, name;
	int more = ev->s->is_payload_final || ev->s->req ? -ENOENT : -EAGAIN;
	size_t end;

	if (!is_request(p))
		return -ENOENT;
	if (p.len <= TPKT_SIZE + X224_SIZE)
		return more;
	p = str_from(p, TPKT_SIZE + X224_SIZE);
	if (!str_is_case_eq(str_sub(p, 0, word.len), str_sub(word, 0, p.len)))
		return -ENOENT;
	end = str_find_char(p, '\r');
	if (end == SIZE_MAX || end + 1 >= p.len)
		return more;
	if (p.p[end + 1] != '\n')
		return -ENOENT;
	p = str_sub(p, word.len, end - word.len);
	while (p.len && p.p[0] == ' ')
		p = str_from(p, 1);
	*ret = p;
	name = str_cut(ret, '=');
	if (!ret->p || (args[0].type == ARG_STR && !str_is_case_eq(name, args[0].str)))
		return -ENOENT;
	return 0;
}

static int fetch_cookie(struct eval *ev, const struct expr_arg *args, unsigned kw,
			struct sample *ret)
{
	struct str v;
	int r = rdp_cookie(ev, args, &v);

	if (r == 0)
		sample_set_str(ret, SAMPLE_STR, v);
	return r;
}

static int fetch_count(struct eval *ev, const struct expr_arg *args, unsigned kw,
		       struct sample *ret)
{
	struct str v;
	int r = rdp_cookie(ev, args, &v);

	if (r == -EAGAIN)
		return r;
	sample_set_int(ret, r == 0);
	return 0;
}

#define P PLACE_CONTENT
static const struct fetch_def defs[] = {
	F("req.rdp_cookie", "[name]", "[s", STR, P, 0, fetch_cookie, NULL,
	  "the cookie of an RDP connection request"),
	F("rdp_cookie", "[name]", "[s", STR, P, 0, fetch_cookie, NULL, "the same"),
	F("req.rdp_cookie_cnt", "[name]", "[s", SINT, P, 0, fetch_count, NULL,
	  "1 if there is such a cookie"),
	F("rdp_cookie_cnt", "[name]", "[s", SINT, P, 0, fetch_count, NULL, "the same"),
};

const struct fetch_table fetch_rdp_table = { defs, ARRAY_SIZE(defs) };
