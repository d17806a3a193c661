/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rings whose bytes lie in a mapped file (`backing-file`): what was put there is in the page cache and outlives the
 * process, however it ends. A page with where the oldest line begins and the newest ends, then the ring. Making:
 * control thread. Reading: anybody, also while it is written; a line that is being overwritten ends the list.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log_priv.h"
#include "base/log_store.h"

#define RING_MAGIC "HGRING1"

static bool is_ring(const struct log_store_file *f, size_t file_len)
{
	return file_len > LOG_STORE_FILE_HEAD &&
	       memcmp(f->magic, RING_MAGIC, sizeof(f->magic)) == 0 && f->size &&
	       f->size <= file_len - LOG_STORE_FILE_HEAD;
}

/* What an earlier process left becomes "<path>.bak"; a file that is no ring is nobody's to move. */
static int keep_old(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), rc = 0;
	struct log_store_file f;
	struct stat st;
	char bak[4096];

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	if (fstat(fd, &st) < 0 || pread(fd, &f, sizeof(f), 0) != (ssize_t)sizeof(f) ||
	    !is_ring(&f, (size_t)st.st_size))
		rc = -EEXIST;
	close(fd);
	if (rc == 0 && (size_t)snprintf(bak, sizeof(bak), "%s.bak", path) >= sizeof(bak))
		rc = -ENAMETOOLONG;
	return rc == 0 && rename(path, bak) < 0 ? -errno : rc;
}

int log_store_file_create(const char *path, uint32_t size, struct log_store_file **ret)
{
	const size_t len = LOG_STORE_FILE_HEAD + (size_t)size;
	int rc = keep_old(path), fd;
	void *map;

	if (rc)
		return rc;
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	/* All of it now: a write to a page that the disk has no room for would be the end of the process. */
	rc = -posix_fallocate(fd, 0, (off_t)len);
	map = rc ? MAP_FAILED : mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (!rc && map == MAP_FAILED)
		rc = -errno;
	close(fd);
	if (rc) {
		unlink(path);
		return rc;
	}
	*ret = map;
	(*ret)->size = size;
	memcpy((*ret)->magic, RING_MAGIC, sizeof((*ret)->magic));
	return 0;
}

void log_store_file_close(struct log_store_file *f)
{
	if (f)
		munmap(f, LOG_STORE_FILE_HEAD + (size_t)f->size);
}

static void copy_from(const struct log_store_file *f, uint64_t pos, void *to, size_t n)
{
	const uint8_t *bytes = (const uint8_t *)f + LOG_STORE_FILE_HEAD;
	size_t at = pos % f->size, first = f->size - at;

	if (first > n)
		first = n;
	memcpy(to, bytes + at, first);
	memcpy((uint8_t *)to + first, bytes, n - first);
}

static int read_lines(const struct log_store_file *f, FILE *out)
{
	uint64_t pos = __atomic_load_n(&f->head, __ATOMIC_ACQUIRE);
	uint64_t tail = __atomic_load_n(&f->tail, __ATOMIC_ACQUIRE);
	char line[UINT16_MAX];
	uint16_t len;

	if (tail < pos || tail - pos > f->size)
		return -EBADMSG;
	while (tail - pos > sizeof(len)) {
		copy_from(f, pos, &len, sizeof(len));
		if (len > tail - pos - sizeof(len))
			break;
		copy_from(f, pos + sizeof(len), line, len);
		/* Its writer has come round meanwhile. */
		if (__atomic_load_n(&f->head, __ATOMIC_ACQUIRE) > pos)
			break;
		pos += sizeof(len) + len;
		if (fwrite(line, 1, len, out) != len || putc('\n', out) == EOF)
			return -EIO;
	}
	return 0;
}

int log_store_file_print(const char *path, FILE *out)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), rc;
	struct log_store_file *f;
	struct stat st;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0 || st.st_size <= LOG_STORE_FILE_HEAD) {
		close(fd);
		return -EBADMSG;
	}
	f = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	rc = f == MAP_FAILED ? -errno : 0;
	close(fd);
	if (rc)
		return rc;
	rc = is_ring(f, (size_t)st.st_size) ? read_lines(f, out) : -EBADMSG;
	munmap(f, (size_t)st.st_size);
	return rc;
}
