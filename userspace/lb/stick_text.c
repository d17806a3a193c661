/* SPDX-License-Identifier: BSD-2-Clause */
/* Keys of stick tables as people type and read them. Control thread. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>

#include "base/addr.h"
#include "lb/stick_priv.h"

static int parse_addr(const struct stick_table *t, struct str text, char *out)
{
	struct addr a;

	if (addr_parse_ip(text, &a))
		return -EINVAL;
	if (t->type == STICK_IP) {
		if (a.sa.sa_family != AF_INET)
			return -EINVAL;
		memcpy(out, &a.in.sin_addr, 4);
		return 0;
	}
	addr_to_v6_mapped(&a, (uint8_t *)out);
	return 0;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = str_lower_char(c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int parse_binary(const struct stick_table *t, struct str text, char *out)
{
	if (text.len % 2 || text.len / 2 > t->key_len)
		return -EINVAL;
	memset(out, 0, t->key_len);
	for (size_t i = 0; i < text.len; i++) {
		int d = hex_digit(text.p[i]);

		if (d < 0)
			return -EINVAL;
		out[i / 2] = (char)((unsigned char)out[i / 2] << 4 | d);
	}
	return 0;
}

int stick_key_parse(const struct stick_table *t, struct str text, char *out, size_t *ret_len)
{
	uint64_t n;
	uint32_t n32;

	*ret_len = t->key_len;
	switch ((enum conf_stick_type)t->type) {
	case STICK_IP:
	case STICK_IPV6:
		return parse_addr(t, text, out);
	case STICK_INTEGER:
		if (str_to_u64(text, &n) || n > UINT32_MAX)
			return -EINVAL;
		n32 = (uint32_t)n;
		memcpy(out, &n32, sizeof(n32));
		return 0;
	case STICK_STRING:
		*ret_len = text.len < t->key_len ? text.len : t->key_len;
		memcpy(out, text.p, *ret_len);
		return 0;
	case STICK_BINARY:
		return parse_binary(t, text, out);
	}
	return -EINVAL;
}

static size_t put_hex(char *out, unsigned char c)
{
	static const char digits[] = "0123456789ABCDEF";

	out[0] = digits[c >> 4];
	out[1] = digits[c & 15];
	return 2;
}

static size_t format_text(struct str key, char *out)
{
	static const char shorts[] = "\t\n\r\033\\ =", names[] = "tnre\\ =";
	size_t n = 0;

	for (size_t i = 0; i < key.len; i++) {
		unsigned char c = (unsigned char)key.p[i];
		const char *s = c ? strchr(shorts, c) : NULL;

		if (s) {
			out[n++] = '\\';
			out[n++] = names[s - shorts];
		} else if (c > ' ' && c < 127) {
			out[n++] = (char)c;
		} else {
			out[n++] = '\\';
			out[n++] = 'x';
			n += put_hex(out + n, c);
		}
	}
	return n;
}

size_t stick_key_format(const struct stick_table *t, struct str key, char out[STICK_KEY_TEXT_MAX])
{
	uint32_t number;
	size_t n = 0;

	switch ((enum conf_stick_type)t->type) {
	case STICK_IP:
		n = inet_ntop(AF_INET, key.p, out, INET_ADDRSTRLEN) ? strlen(out) : 0;
		break;
	case STICK_IPV6:
		n = inet_ntop(AF_INET6, key.p, out, INET6_ADDRSTRLEN) ? strlen(out) : 0;
		break;
	case STICK_INTEGER:
		memcpy(&number, key.p, sizeof(number));
		n = (size_t)snprintf(out, STICK_KEY_TEXT_MAX, "%u", number);
		break;
	case STICK_STRING:
		n = format_text(key, out);
		break;
	case STICK_BINARY:
		for (size_t i = 0; i < key.len; i++)
			n += put_hex(out + n, (unsigned char)key.p[i]);
		break;
	}
	out[n] = '\0';
	return n;
}
