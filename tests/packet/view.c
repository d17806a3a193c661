/* SPDX-License-Identifier: BSD-2-Clause */
#include "packet/judge.h"

#include <string.h>

#define MAX_EXT	      6
#define MAX_EXT_BYTES 1024

static void read_l4(struct view *v, const struct pktbuf *p)
{
	size_t need = v->proto == 6 ? 20 : 8;

	if (v->proto != 6 && v->proto != 17)
		return;
	if (v->l3_len < v->l4 - v->l3 + need)
		v->has_defect = true;
	if (v->l4 + 4 > p->len) {
		v->has_defect = true;
		return;
	}
	v->has_ports = true;
	v->sport = get16(p->data + v->l4);
	v->dport = get16(p->data + v->l4 + 2);
	if (v->proto == 6 && v->l4 + 20 <= p->len)
		v->is_syn = (p->data[v->l4 + 13] & 0x12) == 0x02;
}

static void read_ip4(struct view *v, const struct pktbuf *p)
{
	const uint8_t *ip = p->data + v->l3;
	size_t hlen = 4u * (ip[0] & 15), total = get16(ip + 2), have = p->len - v->l3;
	uint16_t frag = get16(ip + 6);

	v->tos = ip[1];
	v->ttl = ip[8];
	v->proto = ip[9];
	v->src[10] = v->src[11] = v->dst[10] = v->dst[11] = 0xff;
	memcpy(v->src + 12, ip + 12, 4);
	memcpy(v->dst + 12, ip + 16, 4);
	v->has_defect = total > have || total < hlen;
	v->l3_len = v->has_defect ? have : total;
	if (hlen < 20 || ip[0] >> 4 != 4) {
		v->has_defect = true;
		return;
	}
	v->l4 = v->l3 + hlen;
	v->is_fragment = frag & 0x3fff;
	v->is_later = frag & 0x1fff;
	if (!v->is_later)
		read_l4(v, p);
}

static bool is_ext(uint8_t proto)
{
	return proto == 0 || proto == 43 || proto == 44 || proto == 51 || proto == 60;
}

/* False: the chain does not end in the frame, or it is too long a one. */
static bool walk_ext(struct view *v, const struct pktbuf *p)
{
	size_t off = v->l3 + 40;

	for (unsigned i = 0; is_ext(v->proto); i++) {
		const uint8_t *h = p->data + off;
		uint8_t kind = v->proto;

		if (i == MAX_EXT || off - v->l3 > MAX_EXT_BYTES) {
			v->is_deep = true;
			return false;
		}
		if (off + 8 > p->len)
			return false;
		v->proto = h[0];
		if (kind == 44) {
			v->is_fragment |= (get16(h + 2) & 0xfff9) != 0;
			off += 8;
			if (get16(h + 2) & 0xfff8) {
				v->is_later = true;
				return true;
			}
		} else {
			off += kind == 51 ? (h[1] + 2u) * 4 : (h[1] + 1u) * 8;
		}
		v->is_deep = i + 1 == MAX_EXT || off - v->l3 > MAX_EXT_BYTES;
	}
	v->l4 = off;
	return true;
}

static void read_ip6(struct view *v, const struct pktbuf *p)
{
	const uint8_t *ip = p->data + v->l3;
	size_t total = get16(ip + 4) + 40u, have = p->len - v->l3;

	v->tos = (uint8_t)(get16(ip) >> 4);
	v->ttl = ip[7];
	v->proto = ip[6];
	memcpy(v->src, ip + 8, 16);
	memcpy(v->dst, ip + 24, 16);
	v->has_defect = total > have;
	v->l3_len = v->has_defect ? have : total;
	if (ip[0] >> 4 != 6) {
		v->has_defect = true;
		return;
	}
	if (!walk_ext(v, p))
		v->has_defect = true;
	else if (!v->is_later)
		read_l4(v, p);
}

void view_read_ip(struct view *v, const struct pktbuf *p, size_t l3, bool v6)
{
	v->l3 = l3;
	v->v6 = v6;
	v->is_ip = true;
	v->is_whole = l3 + (v6 ? 40 : 20) <= p->len;
	if (!v->is_whole)
		return;
	if (v6)
		read_ip6(v, p);
	else
		read_ip4(v, p);
}

void view_read(struct view *v, const struct pktbuf *p)
{
	size_t off = 12;
	uint16_t type = get16(p->data + off);

	memset(v, 0, sizeof(*v));
	for (unsigned i = 0; i < 2 && (type == 0x8100 || type == 0x88a8); i++) {
		off += 4;
		if (off + 2 > p->len)
			return;
		type = get16(p->data + off);
	}
	v->type_off = off;
	if (type == 0x0800 || type == 0x86dd)
		view_read_ip(v, p, off + 2, type == 0x86dd);
}

bool sums_agree(const uint8_t *a, const uint8_t *b, size_t len)
{
	uint32_t sa = (uint16_t)~pkt_checksum(a, len, 0), sb = (uint16_t)~pkt_checksum(b, len, 0);

	return sa % 0xffff == sb % 0xffff;
}
