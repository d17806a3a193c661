/* SPDX-License-Identifier: BSD-2-Clause */
/* links: conf expr http base */
/* Any bytes as a configuration: it loads or it does not; what loads can be printed. And as a condition. */
#include <grp.h>
#include <netdb.h>
#include <pwd.h>
#include <stdio.h>

#include "conf/conf.h"

/* Neither the users nor the name servers of this machine are part of the input. */
struct passwd *getpwnam(const char *name)
{
	return NULL;
}

struct group *getgrnam(const char *name)
{
	return NULL;
}

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
		struct addrinfo **res)
{
	return EAI_NONAME;
}

static void on_finding(void *ctx, enum conf_severity sev, const struct conf_pos *pos,
		       const char *text)
{
	BUG_ON(!text || !pos->file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct conf_source src = { .report = on_finding, .localpeer = "me" };
	static FILE *null;
	struct conf *c;
	struct err err;

	if (!null)
		null = fopen("/dev/null", "w");
	if (conf_load_text(str_make((const char *)data, size), "fuzz", &src, &c) == 0) {
		conf_dump(c, null);
		conf_free(c);
	}
	(void)!conf_eval_condition(str_make((const char *)data, size), &err);
	return 0;
}
