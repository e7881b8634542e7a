// pingpong measures what the device does by itself with rdmad's pattern: a client writes
// requests with an immediate into the memory of a server, in another process, which
// answers each the same way. There are no slots, no groups, no checks and no third
// process: it is the limit of a daemon that does all of that. It prints the round trips
// per second and the median round trip in microseconds.
//
//	pingpong DEVICE GID REQUEST ANSWER OUTSTANDING busy|event SECONDS

#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { MAX_OUTSTANDING = 256, STOP = MAX_OUTSTANDING, MAX_SAMPLES = 1 << 20, SIGNAL_EVERY = 32, SEND_DEPTH = 1024, SMALL = 64 };

struct peer {
	union ibv_gid gid;
	uint64_t addr;
	uint32_t qpn, rkey;
};

struct end {
	struct ibv_context *ctx;
	struct ibv_comp_channel *ch;
	struct ibv_cq *sent, *came;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct peer peer;
	uint8_t *mem;
	size_t stride;
	uint32_t inline_max, quiet;
	int event, armed;
};

static void die(const char *what)
{
	fprintf(stderr, "pingpong: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void check(int bad, const char *what)
{
	if (bad)
		die(what);
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void move_whole(int fd, void *p, size_t n, int out)
{
	for (uint8_t *b = p; n > 0;) {
		ssize_t k = out ? write(fd, b, n) : read(fd, b, n);
		check(k <= 0, "exchange");
		b += k;
		n -= (size_t)k;
	}
}

static void post_recv(struct end *e)
{
	struct ibv_recv_wr w = { .num_sge = 0 }, *bad;
	check(ibv_post_recv(e->qp, &w, &bad), "ibv_post_recv");
}

// post writes n bytes of slot i into the same slot of the peer.
static void post(struct end *e, uint32_t i, uint32_t n)
{
	struct ibv_sge g = { .addr = (uintptr_t)e->mem + i * e->stride, .length = n, .lkey = e->mr->lkey };
	struct ibv_send_wr w = { .sg_list = &g, .num_sge = n > 0, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM }, *bad;
	w.imm_data = htonl(i);
	w.wr.rdma.remote_addr = e->peer.addr + i * e->stride;
	w.wr.rdma.rkey = e->peer.rkey;
	if (n > 0 && n <= e->inline_max)
		w.send_flags |= IBV_SEND_INLINE;
	if (++e->quiet == SIGNAL_EVERY) {
		w.send_flags |= IBV_SEND_SIGNALED;
		e->quiet = 0;
		// The queue has room for many times as many.
		for (struct ibv_wc wc; ibv_poll_cq(e->sent, 1, &wc) > 0;)
			check(wc.status != IBV_WC_SUCCESS, "send");
	}
	check(ibv_post_send(e->qp, &w, &bad), "ibv_post_send");
}

// take waits for immediates and returns how many there are in out.
static int take(struct end *e, uint32_t *out, int max)
{
	struct ibv_wc wc[16];
	for (;;) {
		int n = ibv_poll_cq(e->came, max < 16 ? max : 16, wc);
		check(n < 0, "ibv_poll_cq");
		for (int i = 0; i < n; i++) {
			check(wc[i].status != IBV_WC_SUCCESS, "receive");
			out[i] = ntohl(wc[i].imm_data);
			post_recv(e);
		}
		if (n > 0)
			return n;
		if (!e->event)
			continue;
		// Asked for, looked again, and only then slept.
		if (!e->armed) {
			check(ibv_req_notify_cq(e->came, 0), "ibv_req_notify_cq");
			e->armed = 1;
			continue;
		}
		struct ibv_cq *cq;
		void *context;
		check(ibv_get_cq_event(e->ch, &cq, &context), "ibv_get_cq_event");
		ibv_ack_cq_events(cq, 1);
		e->armed = 0;
	}
}

static void open_end(struct end *e, const char *device, int gid, int fd)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	check(!list, "ibv_get_device_list");
	for (int i = 0; i < n; i++)
		if (!strcmp(ibv_get_device_name(list[i]), device))
			check(!(e->ctx = ibv_open_device(list[i])), "ibv_open_device");
	errno = ENODEV;
	check(!e->ctx, device);
	struct ibv_pd *pd = ibv_alloc_pd(e->ctx);
	check(!pd, "ibv_alloc_pd");
	size_t size = e->stride * (MAX_OUTSTANDING + 1);
	check(posix_memalign((void **)&e->mem, 4096, size), "memory");
	memset(e->mem, 0, size);
	check(!(e->mr = ibv_reg_mr(pd, e->mem, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)), "ibv_reg_mr");
	check(!(e->ch = ibv_create_comp_channel(e->ctx)), "ibv_create_comp_channel");
	check(!(e->sent = ibv_create_cq(e->ctx, SEND_DEPTH, NULL, NULL, 0)), "ibv_create_cq");
	check(!(e->came = ibv_create_cq(e->ctx, 2 * MAX_OUTSTANDING, NULL, e->ch, 0)), "ibv_create_cq");
	struct ibv_qp_init_attr a = { .send_cq = e->sent, .recv_cq = e->came, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = SEND_DEPTH, .max_recv_wr = 2 * MAX_OUTSTANDING, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = SMALL } };
	check(!(e->qp = ibv_create_qp(pd, &a)), "ibv_create_qp");
	e->inline_max = a.cap.max_inline_data < SMALL ? a.cap.max_inline_data : SMALL;

	struct peer me = { .addr = (uintptr_t)e->mem, .qpn = e->qp->qp_num, .rkey = e->mr->rkey };
	check(ibv_query_gid(e->ctx, 1, gid, &me.gid), "ibv_query_gid");
	move_whole(fd, &me, sizeof me, 1);
	move_whole(fd, &e->peer, sizeof e->peer, 0);

	struct ibv_port_attr port;
	check(ibv_query_port(e->ctx, 1, &port), "ibv_query_port");
	struct ibv_qp_attr q = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	check(ibv_modify_qp(e->qp, &q, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	for (int i = 0; i < 2 * MAX_OUTSTANDING; i++)
		post_recv(e);
	q = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = port.active_mtu, .dest_qp_num = e->peer.qpn, .max_dest_rd_atomic = 1,
		.min_rnr_timer = 12, .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = e->peer.gid, .sgid_index = (uint8_t)gid, .hop_limit = 64 } } };
	check(ibv_modify_qp(e->qp, &q, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
	q = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };
	check(ibv_modify_qp(e->qp, &q, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
	// Neither sends before both are ready.
	char ready = 1;
	move_whole(fd, &ready, 1, 1);
	move_whole(fd, &ready, 1, 0);
}

static void serve(struct end *e, uint32_t answer)
{
	uint32_t in[16];
	for (;;) {
		int n = take(e, in, 16);
		for (int i = 0; i < n; i++) {
			if (in[i] == STOP)
				return;
			post(e, in[i], answer);
		}
	}
}

static int by_size(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;
	return (x > y) - (x < y);
}

static void call(struct end *e, uint32_t request, int outstanding, double seconds)
{
	float *samples = calloc(MAX_SAMPLES, sizeof *samples);
	check(!samples, "memory");
	double begun[MAX_OUTSTANDING], t = now(), start = t + seconds / 10, end = start + seconds, first = 0;
	uint64_t count = 0, kept = 0;
	int open = outstanding;
	uint32_t in[16];
	for (int i = 0; i < outstanding; i++) {
		begun[i] = t;
		post(e, (uint32_t)i, request);
	}
	while (open > 0) {
		int n = take(e, in, 16);
		t = now();
		for (int i = 0; i < n; i++) {
			if (in[i] >= MAX_OUTSTANDING)
				die("an answer to nothing");
			if (t >= start && t < end) {
				if (first == 0)
					first = t;
				count++;
				if (kept < MAX_SAMPLES)
					samples[kept++] = (float)((t - begun[in[i]]) * 1e6);
			}
			if (t >= end) {
				open--;
				continue;
			}
			begun[in[i]] = t;
			post(e, in[i], request);
		}
	}
	post(e, STOP, 0);
	check(count < 2, "too few round trips");
	qsort(samples, kept, sizeof *samples, by_size);
	printf("%.1f %.2f\n", (double)count / (end - first), (double)samples[kept / 2]);
	free(samples);
}

static int number(const char *s, int low, int high)
{
	char *rest;
	long n = strtol(s, &rest, 10);
	if (*s == 0 || *rest != 0 || n < low || n > high) {
		fprintf(stderr, "pingpong: %s: want %d to %d\n", s, low, high);
		exit(2);
	}
	return (int)n;
}

int main(int argc, char **argv)
{
	if (argc != 8 || (strcmp(argv[6], "busy") && strcmp(argv[6], "event"))) {
		fprintf(stderr, "usage: pingpong DEVICE GID REQUEST ANSWER OUTSTANDING busy|event SECONDS\n");
		return 2;
	}
	int gid = number(argv[2], 0, 255), request = number(argv[3], 1, 1 << 20), answer = number(argv[4], 1, 1 << 20);
	int outstanding = number(argv[5], 1, MAX_OUTSTANDING), seconds = number(argv[7], 1, 600);
	int fds[2], status = 0;
	check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), "socketpair");
	// Neither process has the device open when they part.
	pid_t parent = getpid(), server = fork();
	check(server < 0, "fork");
	struct end e = { .stride = (size_t)(request > answer ? request : answer), .event = !strcmp(argv[6], "event") };
	if (server == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			return 1;
		open_end(&e, argv[1], gid, fds[1]);
		serve(&e, (uint32_t)answer);
		// The client's last write is answered by the device before it goes.
		char over;
		close(fds[0]);
		(void)!read(fds[1], &over, 1);
		return 0;
	}
	close(fds[1]);
	open_end(&e, argv[1], gid, fds[0]);
	call(&e, (uint32_t)request, outstanding, seconds);
	close(fds[0]);
	check(waitpid(server, &status, 0) < 0, "waitpid");
	return status != 0;
}
