/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/symbol.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

struct symbols {
	const uint8_t *map;
	size_t size;
	const Elf64_Sym *syms;
	size_t n_syms;
	const char *names;
	size_t names_size; /* the last byte is 0 */
};

/* The first object is the program itself (dl_iterate_phdr(3)). */
static int first_object(struct dl_phdr_info *info, size_t size, void *ret)
{
	*(uintptr_t *)ret = info->dlpi_addr;
	return 1;
}

static uintptr_t load_address(void)
{
	uintptr_t ret = 0;

	dl_iterate_phdr(first_object, &ret);
	return ret;
}

/* NULL: it does not lie in the file, whole. */
static const void *section_bytes(const struct symbols *s, const Elf64_Shdr *sh)
{
	if (sh->sh_offset > s->size || sh->sh_size > s->size - sh->sh_offset ||
	    sh->sh_offset % _Alignof(Elf64_Sym))
		return NULL;
	return s->map + sh->sh_offset;
}

static bool find_sections(struct symbols *s)
{
	const Elf64_Ehdr *eh = (const void *)s->map;
	const Elf64_Shdr *sh;

	if (s->size < sizeof(*eh) || memcmp(eh->e_ident, ELFMAG, SELFMAG) != 0 ||
	    eh->e_ident[EI_CLASS] != ELFCLASS64 || eh->e_shentsize != sizeof(*sh) ||
	    eh->e_shoff % _Alignof(Elf64_Shdr) || eh->e_shoff > s->size ||
	    eh->e_shnum > (s->size - eh->e_shoff) / sizeof(*sh))
		return false;
	sh = (const void *)(s->map + eh->e_shoff);
	for (unsigned i = 0; i < eh->e_shnum; i++) {
		const Elf64_Shdr *str;

		if (sh[i].sh_type != SHT_SYMTAB || sh[i].sh_link >= eh->e_shnum)
			continue;
		str = &sh[sh[i].sh_link];
		s->syms = section_bytes(s, &sh[i]);
		s->n_syms = sh[i].sh_size / sizeof(*s->syms);
		if (!s->syms || str->sh_offset > s->size || str->sh_size == 0 ||
		    str->sh_size > s->size - str->sh_offset)
			return false;
		s->names = (const char *)s->map + str->sh_offset;
		s->names_size = str->sh_size;
		return s->names[s->names_size - 1] == 0;
	}
	return false;
}

struct symbols *symbols_open(void)
{
	struct symbols *s = mem_zalloc(sizeof(*s));
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct stat st;
	void *map = MAP_FAILED;

	if (s && fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0)
		map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (fd >= 0)
		close(fd);
	if (map == MAP_FAILED) {
		mem_free(s);
		return NULL;
	}
	s->map = map;
	s->size = (size_t)st.st_size;
	if (find_sections(s))
		return s;
	symbols_close(s);
	return NULL;
}

void symbols_close(struct symbols *s)
{
	if (!s)
		return;
	munmap((void *)(uintptr_t)s->map, s->size);
	mem_free(s);
}

void symbols_name(const struct symbols *s, uintptr_t fn, char *out, size_t size)
{
	uintptr_t at = fn - load_address();

	for (size_t i = 0; s && i < s->n_syms; i++) {
		const Elf64_Sym *sym = &s->syms[i];

		if (ELF64_ST_TYPE(sym->st_info) != STT_FUNC || sym->st_value != at ||
		    sym->st_name >= s->names_size)
			continue;
		snprintf(out, size, "%s", s->names + sym->st_name);
		return;
	}
	snprintf(out, size, "0x%zx", (size_t)at);
}
