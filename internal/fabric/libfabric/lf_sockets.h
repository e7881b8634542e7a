// The sockets of an endpoint of libfabric's tcp provider, which the library shows to nobody: they are found among
// the descriptors of the process by where they are.
#ifndef RDMAD_LIBFABRIC_SOCKETS_H
#define RDMAD_LIBFABRIC_SOCKETS_H

#include "lf_shim.h"

#include <netinet/in.h>
#include <sys/socket.h>

// lf_place is where an endpoint, or a socket, is.
union lf_place {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	struct sockaddr_storage room;
	uint8_t bytes[LF_ADDR];
};

int lf_place_of(struct fid_ep *ep, union lf_place *out);
// lf_same reports whether a socket's place is the one wanted, which with any may be that of any interface.
int lf_same(const union lf_place *a, const union lf_place *want, int any);
// lf_each_fd calls see with the descriptors of the process until it returns something else than 0.
void lf_each_fd(int (*see)(int fd, void *with), void *with);
// lf_scans is how often it was called, for tests: that takes some microseconds for each descriptor that the process has.
extern uint64_t lf_scans;

#endif
