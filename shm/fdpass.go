package shm

import (
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// MaxFDs is how many descriptors one message may carry.
const MaxFDs = 16

// SendFDs writes one message and the given descriptors to a SOCK_SEQPACKET Unix
// socket. The descriptors stay owned by the caller. An empty message is an
// error: its reader could not tell it from the end of the connection.
func SendFDs(c *net.UnixConn, msg []byte, fds ...int) error {
	if len(msg) == 0 {
		return errors.New("shm: empty message")
	}
	if len(fds) > MaxFDs {
		return fmt.Errorf("shm: %d descriptors in one message, at most %d", len(fds), MaxFDs)
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	_, _, err := c.WriteMsgUnix(msg, oob, nil)
	return err
}

// soPassRights is SO_PASSRIGHTS of asm-generic/socket.h, since Linux 6.16.
const soPassRights = 83

// RefuseFDs has the kernel refuse messages with descriptors to a Unix socket, and to those that come
// out of it by accept from now on: their senders get EPERM, and nothing arrives. A kernel before Linux
// 6.16 cannot, which is no error: then the descriptors come, and RecvFDs returns them.
func RefuseFDs(fd int) error {
	err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, soPassRights, 0)
	if errors.Is(err, unix.ENOPROTOOPT) {
		return nil
	}
	return err
}

// ErrFDsLost says that descriptors have come with a message and could not be taken, such as
// for RLIMIT_NOFILE.
var ErrFDsLost = errors.New("shm: descriptors of a message are lost: too many came, or too many are open in this process (RLIMIT_NOFILE)")

// RecvFDs reads one message into buf and returns its length and the descriptors
// that came with it, which the caller must close. It fails, closing what came,
// when the message does not fit buf; with ErrFDsLost the message is in buf, and its length
// returned, all the same. The error wraps io.EOF when the peer has
// closed, or has sent an empty message. What a peer has sent comes before its end,
// also if it has closed without having read everything.
func RecvFDs(c *net.UnixConn, buf []byte) (n int, fds []int, err error) {
	oob := make([]byte, unix.CmsgSpace(4*MaxFDs))
	n, oobn, flags, _, err := c.ReadMsgUnix(buf, oob)
	if errors.Is(err, unix.ECONNRESET) {
		// The peer has closed with something unread. The kernel says that once, before
		// what the peer has sent.
		n, oobn, flags, _, err = c.ReadMsgUnix(buf, oob)
	}
	return received(buf, n, oob[:max(oobn, 0)], flags, err)
}

// PeekFDs is RecvFDs that leaves in the socket what is there: the descriptors are copies, and after an error, such as ErrFDsLost,
// they and the message can still be had.
func PeekFDs(c *net.UnixConn, buf []byte) (n int, fds []int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, nil, err
	}
	oob := make([]byte, unix.CmsgSpace(4*MaxFDs))
	oobn, flags := 0, 0
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		for {
			n, oobn, flags, _, failed = unix.Recvmsg(int(fd), buf, oob, unix.MSG_PEEK|unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
			if failed != unix.EINTR {
				return failed != unix.EAGAIN
			}
		}
	})
	if err = errors.Join(err, failed); err == nil && n == 0 {
		err = io.EOF
	}
	return received(buf, n, oob[:max(oobn, 0)], flags, err)
}

// received returns what a message of n bytes has brought.
func received(buf []byte, n int, oob []byte, flags int, err error) (_ int, fds []int, _ error) {
	if err != nil {
		// Descriptors can come with an empty message, which reads as EOF.
		fds, _ = parseRights(oob)
		CloseFDs(fds)
		return 0, nil, err
	}
	fds, err = parseRights(oob)
	if err == nil && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) == unix.MSG_CTRUNC {
		CloseFDs(fds)
		return n, nil, ErrFDsLost
	}
	if err == nil && flags&unix.MSG_TRUNC != 0 {
		err = fmt.Errorf("shm: message larger than %d bytes", len(buf))
	}
	if err != nil {
		CloseFDs(fds)
		return 0, nil, err
	}
	return n, fds, nil
}

// CloseFDs closes every descriptor: what a peer sent and nobody asked for. A socket whose sender has arranged
// for its last user to wait until all is delivered (SO_LINGER) does not make this one wait.
func CloseFDs(fds []int) {
	for _, fd := range fds {
		_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{}) // most are no sockets
		_ = unix.Close(fd)
	}
}

func parseRights(oob []byte) ([]int, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	cmsgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("shm: control message: %w", err)
	}
	var fds []int
	for i := range cmsgs {
		got, rerr := unix.ParseUnixRights(&cmsgs[i])
		if rerr != nil {
			err = errors.Join(err, rerr)
			continue
		}
		for _, fd := range got {
			unix.CloseOnExec(fd)
		}
		fds = append(fds, got...)
	}
	return fds, err
}
