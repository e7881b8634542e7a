//go:build libfabric && cgo && linux

#define _GNU_SOURCE
#include "lf_sockets.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

int lf_place_of(struct fid_ep *ep, union lf_place *out)
{
	size_t len = sizeof out->room;
	memset(out, 0, sizeof *out);
	return fi_getname(&ep->fid, out->bytes, &len);
}

int lf_same(const union lf_place *a, const union lf_place *want, int any)
{
	if (a->sa.sa_family != want->sa.sa_family)
		return 0;
	if (a->sa.sa_family == AF_INET)
		return a->in.sin_port == want->in.sin_port &&
			((any && want->in.sin_addr.s_addr == htonl(INADDR_ANY)) || a->in.sin_addr.s_addr == want->in.sin_addr.s_addr);
	return a->sa.sa_family == AF_INET6 && a->in6.sin6_port == want->in6.sin6_port &&
		((any && IN6_IS_ADDR_UNSPECIFIED(&want->in6.sin6_addr)) || IN6_ARE_ADDR_EQUAL(&a->in6.sin6_addr, &want->in6.sin6_addr));
}

uint64_t lf_scans;

void lf_each_fd(int (*see)(int fd, void *with), void *with)
{
	__atomic_add_fetch(&lf_scans, 1, __ATOMIC_RELAXED);
	DIR *all = opendir("/proc/self/fd");
	if (!all) {
		// If there is no descriptor left nearly all numbers are in use.
		struct rlimit most;
		if (errno == EMFILE && !getrlimit(RLIMIT_NOFILE, &most))
			for (int fd = 0; fd < INT_MAX && (rlim_t)fd < most.rlim_cur && !see(fd, with); fd++)
				;
		return;
	}
	for (struct dirent *d; (d = readdir(all));) {
		int fd = d->d_name[0] == '.' ? -1 : atoi(d->d_name);
		if (fd >= 0 && fd != dirfd(all) && see(fd, with))
			break;
	}
	closedir(all);
}
