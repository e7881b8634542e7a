package system

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/rdmad/rdmad/internal/bench/content"
)

// NATS: nats-server in a process of its own, the service and each client process with one connection
// to it. Clients publish requests and get the answers of all in one subscription.
// That costs less than a call of Request for each, which nats.go offers as well.

const (
	// natsPending is what the server keeps for a client that does not read fast enough
	// before it gives it up.
	natsPending = 1 << 30
	// natsStart is how long the server may take to listen.
	natsStart = 10 * time.Second
)

func natsSystem() *System {
	return &System{
		Name: "nats",
		Dial: func(_ context.Context, address string, n Need) (Session, error) { return dialNATS(address, n) },
		Start: func(ctx context.Context, h Host) (*Cluster, error) {
			return onFreePort(ctx, func(ctx context.Context, address string) (*Cluster, error) { return startNATS(ctx, h, address) })
		},
		Serve: map[string]func(context.Context, string) error{"server": runNATS, "service": serveNATS},
	}
}

func startNATS(ctx context.Context, h Host, address string) (*Cluster, error) {
	c := &Cluster{Address: address}
	if err := c.serve(h, "nats", "server", address); err != nil {
		return c, err
	}
	if err := c.ready(ctx, func(context.Context) error {
		conn, err := connectNATS(address)
		if err == nil {
			conn.Close()
		}
		return err
	}); err != nil {
		return c, err
	}
	if err := c.serve(h, "nats", "service", address); err != nil {
		return c, err
	}
	return c, c.answers(ctx, func(_ context.Context, address string, n Need) (Session, error) { return dialNATS(address, n) })
}

// runNATS is the process of nats-server.
func runNATS(ctx context.Context, address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	s, err := server.NewServer(&server.Options{
		Host: host, Port: number, NoLog: true, NoSigs: true, MaxPending: natsPending,
		// On a busy machine a client can take longer to connect than the server waits before its first ping, and
		// refuses that ("expected 'PONG', got 'PING'").
		DisableShortFirstPing: true,
	})
	if err != nil {
		return err
	}
	go s.Start()
	defer s.WaitForShutdown()
	defer s.Shutdown()
	if !s.ReadyForConnections(natsStart) {
		return fmt.Errorf("nats-server does not listen on %s after %v", address, natsStart)
	}
	<-ctx.Done()
	return nil
}

// serveNATS is the service.
func serveNATS(ctx context.Context, address string) error {
	conn, err := connectNATS(address, nats.NoReconnect())
	if err != nil {
		return err
	}
	defer conn.Close()
	var posted atomic.Uint64
	var pages sheet
	for op, handle := range map[Op]func(m *nats.Msg){
		Echo: func(m *nats.Msg) { _ = conn.Publish(m.Reply, m.Data) },
		Page: func(m *nats.Msg) {
			if size, stamp, err := parsePage(m.Data); err == nil {
				_ = conn.Publish(m.Reply, pages.page(0, size, stamp))
			}
		},
		Post: func(m *nats.Msg) {
			if content.SameEnds(m.Data) {
				posted.Add(1)
			}
		},
		Count: func(m *nats.Msg) { _ = conn.Publish(m.Reply, binary.LittleEndian.AppendUint64(nil, posted.Load())) },
	} {
		sub, err := conn.Subscribe(natsSubject(op), handle)
		if err != nil {
			return err
		}
		if err := sub.SetPendingLimits(-1, -1); err != nil {
			return err
		}
	}
	if err := conn.Flush(); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// connectNATS allows for the many processes of a workload that connect at the same time: the 2 s that
// nats.go does are too few for 256 of them on a slow machine.
func connectNATS(address string, opts ...nats.Option) (*nats.Conn, error) {
	return nats.Connect("nats://"+address, append(opts, nats.Timeout(startLimit))...)
}

func natsSubject(o Op) string { return "bench." + o.String() }

// natsSession is a Pipe and a Poster. Answers come in the order of requests: one subscription
// of one process makes them.
type natsSession struct {
	conn    *nats.Conn
	subject string
	inbox   string
	answers chan *nats.Msg
	lost    chan struct{}
}

func dialNATS(address string, n Need) (*natsSession, error) {
	s := &natsSession{subject: natsSubject(n.Op), answers: make(chan *nats.Msg, n.Depth), lost: make(chan struct{})}
	var err error
	s.conn, err = connectNATS(address, nats.NoReconnect(), nats.ClosedHandler(func(*nats.Conn) { close(s.lost) }))
	if err != nil {
		return nil, err
	}
	if n.Op == Post {
		return s, nil
	}
	s.inbox = s.conn.NewInbox()
	if _, err := s.conn.ChanSubscribe(s.inbox, s.answers); err != nil {
		s.conn.Close()
		return nil, err
	}
	if err := s.conn.Flush(); err != nil {
		s.conn.Close()
		return nil, err
	}
	return s, nil
}

// Send implements Pipe.
func (s *natsSession) Send(req []byte) error { return s.conn.PublishRequest(s.subject, s.inbox, req) }

// Receive implements Pipe.
func (s *natsSession) Receive() (answer []byte, waited bool, err error) {
	select {
	case m := <-s.answers:
		return m.Data, false, natsFailed(m)
	default:
	}
	select {
	case m := <-s.answers:
		return m.Data, true, natsFailed(m)
	case <-s.lost:
		return nil, true, errors.New("the connection to nats-server was lost")
	}
}

// natsFailed returns the error that nats-server answers with when nobody serves the subject.
func natsFailed(m *nats.Msg) error {
	if len(m.Data) == 0 && m.Header.Get("Status") != "" {
		return fmt.Errorf("%w: status %s", nats.ErrNoResponders, m.Header.Get("Status"))
	}
	return nil
}

// Post implements Poster.
func (s *natsSession) Post(msg []byte) error { return s.conn.Publish(s.subject, msg) }

// Flush implements Poster.
func (s *natsSession) Flush() error { return s.conn.Flush() }

// Close implements Session.
func (s *natsSession) Close() error {
	s.conn.Close()
	return nil
}
