/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packet captures as files: pcapng (draft-ietf-opsawg-pcapng), in which a packet has a comment, a direction and
 * a number, and classic pcap, which has none of that but is read by everything.
 */
#include <errno.h>
#include <net/if.h>
#include <string.h>

#include "tool_pcap.h"

#define LINKTYPE_ETHERNET 1
#define PCAP_MAGIC_NS	  0xa1b23c4du
#define NG_SECTION	  0x0a0d0d0au
#define NG_BYTE_ORDER	  0x1a2b3c4du
#define NG_INTERFACE	  1
#define NG_PACKET	  6

#define OPT_END	       0
#define OPT_COMMENT    1
#define OPT_IF_NAME    2
#define OPT_IF_TSRESOL 9
#define OPT_SHB_APPL   4
#define OPT_PKT_FLAGS  2
#define OPT_PKT_ID     5

/* A block is built here first: its length stands in front. */
struct block {
	uint8_t bytes[65536];
	size_t len;
};

static void put(struct block *b, const void *p, size_t n)
{
	size_t padded = (n + 3) & ~(size_t)3;

	if (sizeof(b->bytes) - b->len < padded)
		return; /* never: frames and comments are bounded */
	memset(b->bytes + b->len, 0, padded);
	if (n)
		memcpy(b->bytes + b->len, p, n);
	b->len += padded;
}

static void put32(struct block *b, uint32_t v)
{
	put(b, &v, sizeof(v));
}

static void put_option(struct block *b, uint16_t code, const void *p, size_t n)
{
	uint16_t head[2] = { code, (uint16_t)n };

	put(b, head, sizeof(head));
	put(b, p, n);
}

static void block_begin(struct block *b, uint32_t type)
{
	b->len = 0;
	put32(b, type);
	put32(b, 0);
}

static int block_end(struct block *b, FILE *out)
{
	uint32_t len = (uint32_t)b->len + 4;

	put32(b, len);
	memcpy(b->bytes + 4, &len, sizeof(len));
	return fwrite(b->bytes, 1, b->len, out) == b->len ? 0 : -EIO;
}

static int ng_section(struct pcap_writer *w)
{
	const uint16_t version[2] = { 1, 0 };
	const int64_t unknown_length = -1;
	struct block b;

	block_begin(&b, NG_SECTION);
	put32(&b, NG_BYTE_ORDER);
	put(&b, version, sizeof(version));
	put(&b, &unknown_length, sizeof(unknown_length));
	put_option(&b, OPT_SHB_APPL, "headgate " HG_VERSION, strlen("headgate " HG_VERSION));
	put_option(&b, OPT_END, NULL, 0);
	return block_end(&b, w->out);
}

/* Number of the interface in the file; describes it at its first packet. */
static int ng_interface(struct pcap_writer *w, uint32_t ifindex)
{
	const uint16_t type[2] = { LINKTYPE_ETHERNET, 0 };
	const uint8_t nanoseconds = 9;
	char name[IF_NAMESIZE + 8];
	struct block b;
	unsigned i;

	for (i = 0; i < w->n_interfaces; i++)
		if (w->ifindex[i] == ifindex)
			return (int)i;
	if (i == PCAP_MAX_INTERFACES)
		return 0;
	if (!if_indextoname(ifindex, name))
		snprintf(name, sizeof(name), "if%u", ifindex);
	block_begin(&b, NG_INTERFACE);
	put(&b, type, sizeof(type));
	put32(&b, w->snaplen);
	put_option(&b, OPT_IF_NAME, name, strlen(name));
	put_option(&b, OPT_IF_TSRESOL, &nanoseconds, 1);
	put_option(&b, OPT_END, NULL, 0);
	if (block_end(&b, w->out) != 0)
		return -EIO;
	w->ifindex[w->n_interfaces++] = ifindex;
	return (int)i;
}

static int ng_packet(struct pcap_writer *w, const struct pcap_packet *p)
{
	const uint32_t direction = p->is_out ? 2 : 1;
	const uint64_t id = p->id;
	int interface = ng_interface(w, p->ifindex);
	struct block b;

	if (interface < 0)
		return interface;
	block_begin(&b, NG_PACKET);
	put32(&b, (uint32_t)interface);
	put32(&b, (uint32_t)(p->time_ns >> 32));
	put32(&b, (uint32_t)p->time_ns);
	put32(&b, p->cap_len);
	put32(&b, p->len);
	put(&b, p->bytes, p->cap_len);
	if (p->comment && *p->comment)
		put_option(&b, OPT_COMMENT, p->comment, strlen(p->comment));
	put_option(&b, OPT_PKT_FLAGS, &direction, sizeof(direction));
	put_option(&b, OPT_PKT_ID, &id, sizeof(id));
	put_option(&b, OPT_END, NULL, 0);
	return block_end(&b, w->out);
}

int pcap_begin(struct pcap_writer *w, FILE *out, bool is_ng, uint32_t snaplen)
{
	const struct {
		uint32_t magic;
		uint16_t major, minor;
		uint32_t zone, accuracy, snaplen, linktype;
	} head = { PCAP_MAGIC_NS, 2, 4, 0, 0, snaplen, LINKTYPE_ETHERNET };

	*w = (struct pcap_writer){ .out = out, .is_ng = is_ng, .snaplen = snaplen };
	if (is_ng)
		return ng_section(w);
	return fwrite(&head, sizeof(head), 1, out) == 1 ? 0 : -EIO;
}

int pcap_write(struct pcap_writer *w, const struct pcap_packet *p)
{
	const uint32_t head[4] = { (uint32_t)(p->time_ns / 1000000000u),
				   (uint32_t)(p->time_ns % 1000000000u), p->cap_len, p->len };

	if (w->is_ng)
		return ng_packet(w, p);
	if (fwrite(head, sizeof(head), 1, w->out) != 1)
		return -EIO;
	return fwrite(p->bytes, 1, p->cap_len, w->out) == p->cap_len ? 0 : -EIO;
}
