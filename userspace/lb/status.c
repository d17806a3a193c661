/* SPDX-License-Identifier: BSD-2-Clause */
/* Names and texts of states and check results, as people and tools know them. Control thread. */
#include "lb/lb.h"

#include <stdio.h>

const char *check_status_code(enum check_status s)
{
	switch (s) {
#define X(name, number, code, text) \
	case CHECK_STATUS_##name:   \
		return code;
		CHECK_STATUSES(X)
#undef X
	}
	return "UNK";
}

const char *check_status_text(enum check_status s)
{
	switch (s) {
#define X(name, number, code, text) \
	case CHECK_STATUS_##name:   \
		return text;
		CHECK_STATUSES(X)
#undef X
	}
	return "Unknown";
}

const char *lb_result_name(enum lb_result r)
{
	static const char *const names[] = {
		[LB_PICKED] = "picked",
		[LB_QUEUE_SERVER] = "queue of the server",
		[LB_QUEUE_BACKEND] = "queue of the backend",
		[LB_NONE] = "none",
	};

	return (unsigned)r < ARRAY_SIZE(names) ? names[r] : "?";
}

static size_t put(char *out, size_t size, const char *text)
{
	int n = snprintf(out, size, "%s", text);

	return n < 0 ? 0 : (size_t)n < size ? (size_t)n : size ? size - 1 : 0;
}

static size_t put_fraction(char *out, size_t size, const char *word, uint32_t num, uint32_t den)
{
	char text[48];

	snprintf(text, sizeof(text), "%s %u/%u", word, num, den);
	return put(out, size, text);
}

static size_t put_maint(const struct server *s, unsigned admin, char *out, size_t size)
{
	const char *via = s->conf ? s->conf->track : NULL;
	char text[256];

	if (admin & SERVER_INHERITED_MAINT && via) {
		/* `track` may leave its own backend out */
		if (strchr(via, '/'))
			snprintf(text, sizeof(text), "MAINT (via %s)", via);
		else
			snprintf(text, sizeof(text), "MAINT (via %s/%s)", s->backend_name, via);
		return put(out, size, text);
	}
	return put(out, size, admin & SERVER_RESOLUTION_MAINT ? "MAINT (resolution)" : "MAINT");
}

size_t server_status_text(const struct server *s, char *out, size_t size)
{
	unsigned admin = atomic_load(&s->admin), op = atomic_load(&s->op);
	uint32_t rise = s->conf && s->conf->rise ? s->conf->rise : 2;
	uint32_t fall = s->conf && s->conf->fall ? s->conf->fall : 3;
	uint32_t health = s->check.health;
	bool is_checked = s->check.is_enabled, has_agent = s->agent.is_enabled;
	/* Some checks failed, not yet `fall` of them. */
	bool is_failing = is_checked && health < rise + fall - 1;
	uint32_t left = health >= rise ? health - rise + 1 : 0;

	if (admin & SERVER_MAINT_MASK)
		return put_maint(s, admin, out, size);
	if (op == SERVER_STOPPED && has_agent && !s->agent.health)
		return put(out, size, "DOWN (agent)");
	if (op == SERVER_STOPPED) {
		if (is_checked && health)
			return put_fraction(out, size, "DOWN", health, rise);
		return put(out, size, "DOWN");
	}
	if (op == SERVER_STOPPING)
		return is_failing ? put_fraction(out, size, "NOLB", left, fall)
				  : put(out, size, "NOLB");
	if (admin & SERVER_DRAIN_MASK)
		return is_failing ? put_fraction(out, size, "DRAIN", left, fall)
				  : put(out, size, "DRAIN");
	if (!is_checked && !has_agent)
		return put(out, size, "no check");
	return is_failing ? put_fraction(out, size, "UP", left, fall) : put(out, size, "UP");
}
