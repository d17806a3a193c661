/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A flood of SYNs or ACKs from forged addresses, bounded in rate and time, out of one interface.
 *
 *	synflood [-a] INTERFACE DST_MAC ADDRESS PORT PACKETS_PER_SECOND SECONDS
 *
 * Sources are 198.18.0.0/15 or 2001:2::/48 (RFC 2544, RFC 5180: for benchmarks). -a: ACKs with random
 * numbers. Prints how many were sent.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BATCH	64
#define OPTIONS 20 /* as Linux sends them: MSS, SACK, timestamps, window scale */

struct frame {
	uint8_t b[14 + 40 + 20 + OPTIONS];
	size_t len;
};

static void die(const char *what)
{
	fprintf(stderr, "synflood: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static uint32_t rnd(void)
{
	static uint64_t s = 0x9e3779b97f4a7c15ull;

	s ^= s << 13;
	s ^= s >> 7;
	s ^= s << 17;
	return (uint32_t)(s >> 16);
}

static uint32_t sum_of(const void *p, size_t len, uint32_t sum)
{
	const uint8_t *b = p;

	for (size_t i = 0; i + 1 < len; i += 2)
		sum += (uint32_t)(b[i] << 8 | b[i + 1]);
	return sum;
}

static uint16_t fold(uint32_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return htons((uint16_t)~sum);
}

/* What is the same in every frame. */
static struct frame frame_base(const uint8_t src[6], const uint8_t dst[6], const char *addr,
			       uint16_t port, bool is_ack)
{
	static const uint8_t options[OPTIONS] = { 2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 1,
						  0, 0, 0, 0,	 0, 0, 1, 3,  3, 7 };
	bool v6 = strchr(addr, ':');
	struct frame f = { .len = 14 };
	struct tcphdr *th;

	memcpy(f.b, dst, 6);
	memcpy(f.b + 6, src, 6);
	*(uint16_t *)(f.b + 12) = htons(v6 ? ETH_P_IPV6 : ETH_P_IP);
	if (v6) {
		struct ip6_hdr *ip = (void *)(f.b + 14);

		ip->ip6_flow = htonl(6u << 28);
		ip->ip6_plen = htons(20 + OPTIONS);
		ip->ip6_nxt = IPPROTO_TCP;
		ip->ip6_hlim = 64;
		if (inet_pton(AF_INET6, addr, &ip->ip6_dst) != 1 ||
		    inet_pton(AF_INET6, "2001:2::", &ip->ip6_src) != 1)
			die("address");
		f.len += 40;
	} else {
		struct iphdr *ip = (void *)(f.b + 14);

		ip->version = 4;
		ip->ihl = 5;
		ip->tot_len = htons(40 + OPTIONS);
		ip->ttl = 64;
		ip->protocol = IPPROTO_TCP;
		if (inet_pton(AF_INET, addr, &ip->daddr) != 1)
			die("address");
		f.len += 20;
	}
	th = (void *)(f.b + f.len);
	th->dest = htons(port);
	th->doff = 5 + OPTIONS / 4;
	th->syn = !is_ack;
	th->ack = is_ack;
	th->window = htons(64240);
	memcpy(th + 1, options, OPTIONS);
	f.len += 20 + OPTIONS;
	return f;
}

/* Another source, other numbers, and the sums that follow from them. */
static void frame_vary(struct frame *f)
{
	bool v6 = f->b[12] == 0x86;
	uint8_t *l3 = f->b + 14;
	struct tcphdr *th = (void *)(l3 + (v6 ? 40 : 20));
	struct iphdr *ip = (void *)l3;
	size_t addrs = v6 ? 32 : 8;

	if (v6)
		*(uint32_t *)(l3 + 20) = rnd();
	else
		ip->saddr = htonl(0xc6120000 | (rnd() & 0x1ffff));
	th->source = htons((uint16_t)(1024 + rnd() % 60000));
	th->seq = rnd();
	th->ack_seq = th->ack ? rnd() : 0;
	th->check = 0;
	th->check = fold(sum_of(l3 + (v6 ? 8 : 12), addrs,
				sum_of(th, 20 + OPTIONS, IPPROTO_TCP + 20 + OPTIONS)));
	if (!v6) {
		ip->check = 0;
		ip->check = fold(sum_of(ip, 20, 0));
	}
}

int main(int argc, char **argv)
{
	bool is_ack = argc > 1 && strcmp(argv[1], "-a") == 0;
	struct frame frames[BATCH];
	struct mmsghdr msgs[BATCH];
	struct iovec iov[BATCH];
	struct ifreq ifr = { 0 };
	struct sockaddr_ll to = { .sll_family = AF_PACKET };
	uint8_t dst[6];
	uint64_t began, until, sent = 0, failed = 0;
	double rate;
	int fd;

	argv += is_ack;
	if (argc - is_ack != 7)
		return fprintf(stderr, "usage: synflood [-a] IF MAC ADDRESS PORT RATE SECONDS\n"),
		       1;
	fd = socket(AF_PACKET, SOCK_RAW, 0);
	snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", argv[1]);
	if (fd < 0 || ioctl(fd, SIOCGIFHWADDR, &ifr) != 0)
		die(argv[1]);
	if (sscanf(argv[2], "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", &dst[0], &dst[1], &dst[2], &dst[3],
		   &dst[4], &dst[5]) != 6)
		die(argv[2]);
	to.sll_ifindex = (int)if_nametoindex(argv[1]);
	if (bind(fd, (struct sockaddr *)&to, sizeof(to)) != 0)
		die("bind");
	for (unsigned i = 0; i < BATCH; i++) {
		frames[i] = frame_base((uint8_t *)ifr.ifr_hwaddr.sa_data, dst, argv[3],
				       (uint16_t)atoi(argv[4]), is_ack);
		iov[i] = (struct iovec){ frames[i].b, frames[i].len };
		msgs[i] = (struct mmsghdr){ .msg_hdr = { .msg_iov = &iov[i], .msg_iovlen = 1 } };
	}
	rate = atof(argv[5]);
	began = now_ns();
	until = began + (uint64_t)(atof(argv[6]) * 1e9);
	for (uint64_t now = began; now < until; now = now_ns()) {
		int n;

		if ((double)(sent + failed) > (double)(now - began) / 1e9 * rate) {
			usleep(500);
			continue;
		}
		for (unsigned i = 0; i < BATCH; i++)
			frame_vary(&frames[i]);
		n = sendmmsg(fd, msgs, BATCH, 0);
		if (n > 0)
			sent += (uint64_t)n;
		else
			failed += BATCH; /* the queue is full: not made up for */
	}
	printf("%llu\n", (unsigned long long)sent);
	return 0;
}
