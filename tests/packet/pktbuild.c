/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two passes: write every layer with its length field zero, then from the innermost outwards fill in
 * lengths and checksums.
 */
#include "packet/pktbuild.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LAYERS 16

static void die(const char *what)
{
	fprintf(stderr, "pkt_build: %s\n", what);
	abort();
}

static void put16(uint8_t *p, unsigned v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static uint32_t sum_bytes(const uint8_t *data, size_t len, uint32_t sum)
{
	for (size_t i = 0; i < len; i++)
		sum += i & 1 ? data[i] : (uint32_t)data[i] << 8;
	return sum;
}

uint16_t pkt_checksum(const uint8_t *data, size_t len, uint32_t seed)
{
	uint32_t sum = sum_bytes(data, len, seed);

	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

static void put_mac(uint8_t *p, const char *text)
{
	unsigned m[6];

	if (!text)
		text = "02:00:00:00:00:00";
	if (sscanf(text, "%x:%x:%x:%x:%x:%x", &m[0], &m[1], &m[2], &m[3], &m[4], &m[5]) != 6)
		die("bad MAC");
	for (int i = 0; i < 6; i++)
		p[i] = (uint8_t)m[i];
}

static void put_addr(int family, uint8_t *p, const char *text)
{
	if (!text || inet_pton(family, text, p) != 1)
		die("bad address");
}

static unsigned ethertype_of(const struct layer *next)
{
	switch (next->type) {
	case L_VLAN:
		return 0x8100;
	case L_IP4:
		return 0x0800;
	case L_IP6:
		return 0x86dd;
	default:
		return 0x88b5; /* local experimental */
	}
}

static uint8_t proto_of(const struct layer *l, const struct layer *next)
{
	if (l->proto)
		return l->proto < 0 ? 0 : (uint8_t)l->proto;
	switch (next->type) {
	case L_IP4:
		return 4;
	case L_IP6:
		return 41;
	case L_EXT:
		return next->ext;
	case L_TCP:
		return 6;
	case L_UDP:
		return 17;
	case L_ICMP:
		return 1;
	case L_ICMP6:
		return 58;
	default:
		return 253; /* experiments, RFC 3692 */
	}
}

static unsigned gue_words(const struct layer *l)
{
	return !l->gue_alt ? l->opt_words : strchr(l->gue_alt, ':') ? 5 : 2;
}

static size_t layer_size(const struct layer *l)
{
	switch (l->type) {
	case L_ETH:
		return 14;
	case L_VLAN:
		return 4;
	case L_IP4:
	case L_TCP:
		return 20 + 4u * l->opt_words;
	case L_IP6:
		return 40;
	case L_EXT:
		return 8u + (l->ext == 44 ? 0 : l->ext == 51 ? 16 : 8u * l->opt_words);
	case L_UDP:
	case L_ICMP:
	case L_ICMP6:
		return 8;
	case L_GUE:
		return l->gue_variant ? 0 : 4 + 4u * gue_words(l);
	case L_RAW:
	case L_DATA:
		return l->size;
	case L_END:
		break;
	}
	return 0;
}

static void write_ip4(uint8_t *p, const struct layer *l, const struct layer *next)
{
	p[0] = (uint8_t)((l->version ? l->version : 4) << 4 | (l->ihl ? l->ihl : 5 + l->opt_words));
	p[1] = l->tos;
	put16(p + 4, l->id);
	put16(p + 6, l->frag);
	p[8] = l->ttl ? l->ttl : 64;
	p[9] = proto_of(l, next);
	put_addr(AF_INET, p + 12, l->src);
	put_addr(AF_INET, p + 16, l->dst);
	memset(p + 20, 1, 4u * l->opt_words);
}

static void write_ip6(uint8_t *p, const struct layer *l, const struct layer *next)
{
	p[0] = (uint8_t)((l->version ? l->version : 6) << 4 | l->tos >> 4);
	p[1] = (uint8_t)((l->tos & 15) << 4 | (l->id >> 16 & 15));
	put16(p + 2, l->id & 0xffff);
	p[6] = proto_of(l, next);
	p[7] = l->ttl ? l->ttl : 64;
	put_addr(AF_INET6, p + 8, l->src);
	put_addr(AF_INET6, p + 24, l->dst);
}

static void write_ext(uint8_t *p, const struct layer *l, const struct layer *next)
{
	p[0] = proto_of(l, next);
	if (l->ext == 44) {
		put16(p + 2, l->frag);
		put16(p + 6, l->id);
	} else if (l->ext == 51) {
		p[1] = 4; /* 24 bytes in words, minus 2 */
	} else {
		p[1] = l->opt_words;
		p[2] = 1; /* PadN over the rest */
		p[3] = (uint8_t)(layer_size(l) - 4);
	}
}

static void write_gue(uint8_t *p, const struct layer *l, const struct layer *next)
{
	if (l->gue_variant)
		return;
	p[0] = (uint8_t)gue_words(l);
	p[1] = proto_of(l, next);
	if (!l->gue_alt)
		return;
	p[4] = 'H';
	p[5] = 1;
	p[6] = l->gue_hops;
	p[7] = strchr(l->gue_alt, ':') ? 6 : 4;
	put_addr(p[7] == 6 ? AF_INET6 : AF_INET, p + 8, l->gue_alt);
}

static void write_l4(uint8_t *p, const struct layer *l, const struct layer *next)
{
	if (l->type == L_ICMP || l->type == L_ICMP6) {
		p[0] = l->icmp_type;
		p[1] = l->icmp_code;
		put16(p + 4, l->icmp_rest >> 16 | l->id);
		put16(p + 6, l->icmp_rest & 0xffff);
		return;
	}
	if (l->type == L_GUE) {
		write_gue(p, l, next);
		return;
	}
	put16(p, l->sport);
	put16(p + 2, l->dport);
	if (l->type == L_UDP)
		return;
	put16(p + 4, l->seq ? l->seq >> 16 : 0x1111);
	put16(p + 6, l->seq ? l->seq & 0xffff : 0x2222);
	put16(p + 8, l->ack >> 16);
	put16(p + 10, l->ack & 0xffff);
	p[12] = (uint8_t)((5 + l->opt_words) << 4);
	p[13] = l->flags ? l->flags : TCP_ACK;
	put16(p + 14, l->window ? l->window : 0x4000);
	if (l->options)
		memcpy(p + 20, l->options, 4u * l->opt_words);
	else
		memset(p + 20, 1, 4u * l->opt_words);
}

static void write_layer(uint8_t *p, const struct layer *l)
{
	const struct layer *next = l + 1;

	switch (l->type) {
	case L_ETH:
		put_mac(p, l->dst);
		put_mac(p + 6, l->src);
		put16(p + 12, l->ethertype ? l->ethertype : ethertype_of(next));
		break;
	case L_VLAN:
		put16(p, l->tci);
		put16(p + 2, l->ethertype ? l->ethertype : ethertype_of(next));
		break;
	case L_IP4:
		write_ip4(p, l, next);
		break;
	case L_IP6:
		write_ip6(p, l, next);
		break;
	case L_EXT:
		write_ext(p, l, next);
		break;
	case L_RAW:
		memcpy(p, l->raw, l->size);
		break;
	case L_DATA:
		for (size_t i = 0; i < l->size; i++)
			p[i] = (uint8_t)(i * 7 + 3);
		break;
	default:
		write_l4(p, l, next);
	}
}

/* Sum of the pseudo header of the closest IP header before layer `i`. */
static uint32_t pseudo(const struct layer *layers, uint8_t *const *at, int i, size_t len, int proto)
{
	for (; i >= 0; i--) {
		if (layers[i].type == L_IP4)
			return sum_bytes(at[i] + 12, 8, (uint32_t)len + (uint32_t)proto);
		if (layers[i].type == L_IP6)
			return sum_bytes(at[i] + 8, 32, (uint32_t)len + (uint32_t)proto);
	}
	return 0;
}

static void finish_layer(const struct layer *layers, uint8_t *const *at, int i, size_t rest)
{
	const struct layer *l = &layers[i];
	uint8_t *p = at[i];
	size_t len = l->length ? (size_t)l->length : rest;

	switch (l->type) {
	case L_IP4:
		put16(p + 2, (unsigned)len);
		put16(p + 10, pkt_checksum(p, 20 + 4u * l->opt_words, 0) + l->bad_csum);
		break;
	case L_IP6:
		put16(p + 4, (unsigned)(l->length ? len : len - 40));
		break;
	case L_TCP:
		put16(p + 16, pkt_checksum(p, rest, pseudo(layers, at, i, rest, 6)) + l->bad_csum);
		break;
	case L_UDP:
		put16(p + 4, (unsigned)len);
		if (!l->no_csum) {
			uint16_t sum = pkt_checksum(p, rest, pseudo(layers, at, i, rest, 17));

			put16(p + 6, sum ? sum : 0xffff); /* zero would mean: none */
		}
		break;
	case L_ICMP:
		put16(p + 2, pkt_checksum(p, rest, 0) + l->bad_csum);
		break;
	case L_ICMP6:
		put16(p + 2, pkt_checksum(p, rest, pseudo(layers, at, i, rest, 58)) + l->bad_csum);
		break;
	default:
		break;
	}
}

void pkt_build(struct pktbuf *p, const struct layer *layers)
{
	uint8_t *at[MAX_LAYERS];
	int n = 0;

	memset(p, 0, sizeof(*p));
	for (; layers[n].type != L_END; n++) {
		if (n == MAX_LAYERS || p->len + layer_size(&layers[n]) > PKT_MAX)
			die("packet too big");
		at[n] = p->data + p->len;
		write_layer(at[n], &layers[n]);
		p->len += layer_size(&layers[n]);
	}
	for (int i = n - 1; i >= 0; i--)
		finish_layer(layers, at, i, (size_t)(p->data + p->len - at[i]));
}

static void diff_line(const char *name, const uint8_t *a, size_t a_len, const uint8_t *b,
		      size_t b_len, size_t off)
{
	fprintf(stderr, "  %s %04zx ", name, off);
	for (size_t i = off; i < off + 16 && i < a_len; i++)
		fprintf(stderr, "%c%02x", i >= b_len || a[i] != b[i] ? '*' : ' ', a[i]);
	fputc('\n', stderr);
}

void pkt_diff(const uint8_t *want, size_t want_len, const uint8_t *got, size_t got_len)
{
	size_t len = want_len > got_len ? want_len : got_len;

	fprintf(stderr, "packets differ: %zu bytes wanted, %zu got\n", want_len, got_len);
	for (size_t off = 0; off < len; off += 16) {
		size_t w = want_len > off ? want_len - off : 0,
		       g = got_len > off ? got_len - off : 0;

		if (w > 16)
			w = 16;
		if (g > 16)
			g = 16;
		if (w == g && !memcmp(want + off, got + off, w)) {
			diff_line("    ", want, want_len, got, got_len, off);
			continue;
		}
		diff_line("want", want, want_len, got, got_len, off);
		diff_line("got ", got, got_len, want, want_len, off);
	}
}
