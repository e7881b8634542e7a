package system

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
)

// rdmad: two daemons over its tcp fabric and a service in a process of its own, or in the second daemon, or one daemon
// with clients and service on the same node. Clients keep futures.

const (
	rdmadService = "bench"
	// rdmadFetch gives a page by writing it into a region of the caller.
	rdmadFetch = "fetch"
)

// pair is how two nodes differ from the default.
type pair struct {
	// groupMax is the most messages of a group, 0 for the default.
	groupMax int
	// regions makes pages travel into regions of the clients.
	regions bool
	// embedded: the service is in the core of its node, which is this program.
	embedded bool
}

func rdmadSystem(name string, p pair) *System {
	dial := func(ctx context.Context, address string, n Need) (Session, error) {
		return dialRdmad(ctx, address, n, p.regions)
	}
	return &System{
		Name: name,
		Dial: dial,
		Start: func(ctx context.Context, h Host) (*Cluster, error) {
			for try := 1; ; try++ {
				c, err := startPair(ctx, name, h, p)
				if !errors.Is(err, sandbox.ErrAddressInUse) || try == portTries {
					return c, err
				}
				// The one whose port was taken has ended, and says so again.
				_ = c.Stop()
			}
		},
		Serve: map[string]func(context.Context, string) error{"service": serveRdmad},
	}
}

func rdmadLocalSystem() *System {
	dial := func(ctx context.Context, address string, n Need) (Session, error) {
		return dialRdmad(ctx, address, n, false)
	}
	const name = "rdmad-local"
	return &System{
		Name: name,
		Dial: dial,
		Start: func(ctx context.Context, h Host) (*Cluster, error) {
			c := new(Cluster)
			n, err := sandbox.NewNode(h.Rdmad, h.Dir, "a", "", nil, sandbox.Settings{})
			if err != nil {
				return c, err
			}
			return c, c.startNodes(ctx, name, h, "", n)
		},
		Serve: map[string]func(context.Context, string) error{"service": serveRdmad},
	}
}

func startPair(ctx context.Context, name string, h Host, p pair) (*Cluster, error) {
	c := new(Cluster)
	ports, err := sandbox.FreePorts(2)
	if err != nil {
		return c, err
	}
	var nodes []*sandbox.Node
	for i, own := range []string{"a", "b"} {
		peer := sandbox.Peer{Name: []string{"b", "a"}[i], Address: ports[1-i]}
		program := h.Rdmad
		if p.embedded && own == "b" {
			program = h.Peers
		}
		n, err := sandbox.NewNode(program, h.Dir, own, ports[i], []sandbox.Peer{peer}, sandbox.Settings{GroupMax: p.groupMax})
		if err != nil {
			return c, err
		}
		nodes = append(nodes, n)
	}
	if p.embedded {
		return c, c.startNodes(ctx, "", h, "b/", nodes...)
	}
	return c, c.startNodes(ctx, name, h, "b/", nodes...)
}

// startNodes starts nodes, and the service of the system on the last, unless the node has it itself and the name
// is empty. Clients are on the first, and call node.
func (c *Cluster) startNodes(ctx context.Context, name string, h Host, node string, nodes ...*sandbox.Node) error {
	c.Address = nodes[0].Socket + addressSeparator + node
	for _, n := range nodes {
		c.nodes = append(c.nodes, n)
		if err := n.Start(); err != nil {
			return err
		}
	}
	limited, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not ready after %v", startLimit))
	defer cancel()
	for _, n := range nodes {
		if err := n.Ready(limited); err != nil {
			return err
		}
	}
	if name != "" {
		if err := c.serve(h, name, "service", nodes[len(nodes)-1].Socket); err != nil {
			return err
		}
	}
	return c.answers(ctx, func(ctx context.Context, address string, n Need) (Session, error) {
		return dialRdmad(ctx, address, n, false)
	})
}

// addressSeparator lies between the socket and the node in an address of rdmad.
const addressSeparator = " "

// Traffic is what the daemon of the clients has moved so far.
type Traffic struct {
	Requests      uint64 `json:"requests_sent"`
	RequestGroups uint64 `json:"request_groups"`
	Answers       uint64 `json:"answers_received"`
	AnswerGroups  uint64 `json:"answer_groups_received"`
	// Sizes counts the groups of requests by their size, rounded up to a power of two; those that
	// are larger than all bounds have 0.
	Sizes map[uint64]uint64 `json:"-"`
}

// Traffic asks the daemon of the clients. ok is false if the system has no two daemons.
func (c *Cluster) Traffic(ctx context.Context) (t Traffic, ok bool, err error) {
	if len(c.nodes) < 2 {
		return t, false, nil
	}
	conn, err := client.Attach(ctx, c.nodes[0].Socket, client.Name("peers-status"))
	if err != nil {
		return t, false, err
	}
	defer conn.Close()
	raw, err := conn.Status(ctx)
	if err != nil {
		return t, false, err
	}
	status := struct {
		Counters *Traffic `json:"counters"`
		Lanes    []struct {
			Direction  string `json:"direction"`
			GroupSizes struct {
				Buckets []struct {
					Most  uint64 `json:"most"`
					Count uint64 `json:"count"`
				} `json:"buckets"`
			} `json:"group_sizes"`
		} `json:"lanes"`
	}{Counters: &t}
	if err := json.Unmarshal(raw, &status); err != nil {
		return t, false, err
	}
	t.Sizes = map[uint64]uint64{}
	for _, l := range status.Lanes {
		if l.Direction != "out" {
			continue
		}
		for _, b := range l.GroupSizes.Buckets {
			t.Sizes[b.Most] += b.Count
		}
	}
	return t, true, nil
}

// rdmadPipe is a Pipe.
type rdmadPipe struct {
	conn   *client.Conn
	method *client.Method
	size   int
	// under has the requests that are outstanding: those from taken on, sent of them.
	under       []under
	taken, sent int
	// regions: answers come into regions. inPlace: they are read where they arrive.
	regions, inPlace bool
	// last is the answer that Receive has returned, if it was read in place.
	last client.Answer
}

// under is a request that is under way, and the memory for its answer.
type under struct {
	future  *client.Future
	pending client.Pending // inPlace
	room    []byte
	region  *client.Region
	ref     client.RegionRef
}

func dialRdmad(ctx context.Context, address string, n Need, regions bool) (_ Session, err error) {
	socket, node, _ := strings.Cut(address, addressSeparator)
	conn, err := client.Attach(ctx, socket, client.Name("peers"))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = conn.Close()
		}
	}()
	s := &rdmadPipe{conn: conn, size: n.Answer, under: make([]under, n.Depth), regions: regions && n.Op == Page}
	s.inPlace = !regions && n.Op == Page && n.Depth > 1
	name := n.Op.String()
	if s.regions {
		name = rdmadFetch
	}
	if s.method, err = conn.Method(ctx, node+rdmadService+"/"+name); err != nil {
		return nil, err
	}
	if n.Op == Page && !s.regions {
		s.method = s.method.With(client.AnswerSize(n.Answer))
	}
	for i := range s.under {
		u := &s.under[i]
		if !s.regions {
			if !s.inPlace {
				u.room = make([]byte, 0, n.Answer)
			}
			continue
		}
		if u.region, err = conn.AllocRegion(ctx, n.Answer); err != nil {
			return nil, err
		}
		if u.ref, err = u.region.Ref(0, n.Answer, client.MayWrite); err != nil {
			return nil, err
		}
	}
	if s.regions {
		return s, s.introduce(ctx)
	}
	return &rdmadSession{s}, nil
}

// introduce makes the regions known to the node: it takes a round trip for each.
func (s *rdmadPipe) introduce(ctx context.Context) error {
	req := PageRequest(s.size)
	for i := range s.under {
		if _, err := s.method.CallRegions(ctx, req, s.under[i].ref); err != nil {
			return err
		}
	}
	return nil
}

// next returns the place of the next request.
func (s *rdmadPipe) next() *under {
	u := &s.under[s.sent]
	if s.sent++; s.sent == len(s.under) {
		s.sent = 0
	}
	return u
}

// Send implements Pipe.
func (s *rdmadPipe) Send(req []byte) (err error) {
	u := s.next()
	switch {
	case s.regions:
		u.future, err = s.method.GoRegions(context.Background(), req, u.ref)
	case s.inPlace:
		s.last.Release()
		u.pending, err = s.method.GoInPlace(context.Background(), req)
	default:
		u.future, err = s.method.GoInto(context.Background(), req, u.room)
	}
	return err
}

// Receive implements Pipe.
func (s *rdmadPipe) Receive() (answer []byte, waited bool, err error) {
	u := &s.under[s.taken]
	if s.taken++; s.taken == len(s.under) {
		s.taken = 0
	}
	if s.inPlace {
		s.last.Release()
		ready := u.pending.Ready()
		s.last, err = u.pending.Wait(context.Background())
		return s.last.Bytes(), !ready, err
	}
	_, _, settled := u.future.Result()
	answer, err = u.future.Wait(context.Background())
	u.future.Release()
	if s.regions {
		answer = u.region.Bytes()
	}
	return answer, !settled, err
}

// Close implements Session.
func (s *rdmadPipe) Close() error {
	s.last.Release()
	return s.conn.Close()
}

// rdmadSession is a Caller and a Poster, too.
type rdmadSession struct{ *rdmadPipe }

// Call implements Caller.
func (s *rdmadSession) Call(req, room []byte) ([]byte, error) {
	return s.method.CallInto(context.Background(), req, room)
}

// Post implements Poster.
func (s *rdmadSession) Post(msg []byte) error { return s.method.Post(context.Background(), msg) }

// Flush implements Poster.
func (s *rdmadSession) Flush() error { return nil }
