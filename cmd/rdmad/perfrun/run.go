package perfrun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/perf"
)

// Options say which side of a run a process is, and where the other one is.
type Options struct {
	Fabric Fabric
	// Version is rdmad's.
	Version string
	// Host is the server to connect to; empty: be one.
	Host string
	// Port is where a server listens, 0: the system chooses; Listen is its address, empty:
	// all of the machine's.
	Port   int
	Listen string
	// Self: measure with a server that is started for it, by Program and Arguments, to
	// which the flags of the fabric are added.
	Self      bool
	Program   string
	Arguments []string
	// Child: be that server.
	Child bool
	// Member: be one of the processes of a client that is several, on a machine that the server is
	// reached from by this address; empty: be none.
	Member string
	// JSON: write nothing but the result, as JSON.
	JSON bool
	// Out is where the result goes, Remarks for what people may want to know besides.
	Out, Remarks io.Writer
}

// Result is what a tool's side returns that has something to say.
type Result interface {
	WriteTable(io.Writer) error
	WriteJSON(io.Writer) error
}

// Run runs a tool as the side that o says, and writes its result. It returns the result, too,
// nil if there is none. Errors for which perf.IsInput is true have done nothing.
func Run(ctx context.Context, o Options, tool perf.Tool) (any, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	src, err := o.Fabric.source(o.Version)
	if err != nil {
		return nil, err
	}
	var result any
	switch {
	case o.Member != "":
		return nil, o.member(ctx, src, tool)
	case o.Child:
		result, err = o.child(ctx, src, tool)
	case o.Self:
		result, err = o.self(ctx, src, tool)
	case o.Host != "":
		result, err = o.client(ctx, src, net.JoinHostPort(o.Host, strconv.Itoa(o.Port)), tool)
	default:
		result, err = o.server(ctx, src, tool)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx) // whatever that has made of the two sides
	}
	if r, ok := result.(Result); ok && err == nil {
		if o.JSON {
			err = r.WriteJSON(o.Out)
		} else {
			err = r.WriteTable(o.Out)
		}
	}
	return result, err
}

// hostName is what can be the name of a host, or the start of an IP address.
var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?$`)

func (o *Options) check() error {
	if in, ok := strings.CutPrefix(o.Host, "["); ok && strings.HasSuffix(in, "]") {
		o.Host = strings.TrimSuffix(in, "]") // as in addresses with a port
	}
	switch {
	case o.Port < 0 || o.Port > 65535:
		return perf.Inputf("--port %d: want 1 to 65535, or 0 for a server to be given one", o.Port)
	case o.Self && (o.Host != "" || o.Listen != ""):
		return perf.Inputf("--self: there is no other side to be named")
	case o.Host != "" && o.Listen != "":
		return perf.Inputf("--listen %q: only a server listens, and with %q this is a client", o.Listen, o.Host)
	case o.Host != "" && o.Port == 0:
		return perf.Inputf("--port 0: want the port of the server on %s", o.Host)
	case o.Host != "" && !isHost(o.Host):
		return perf.Inputf("%q: want the name or the IP address of the server's host", o.Host)
	case o.Listen != "" && net.ParseIP(o.Listen) == nil:
		return perf.Inputf("--listen %q: want an IP address of this machine", o.Listen)
	}
	return nil
}

// isHost reports whether an address can be a host's. Digits and dots are an IPv4 address, or
// nothing.
func isHost(host string) bool {
	if net.ParseIP(host) != nil {
		return true
	}
	return len(host) <= 253 && hostName.MatchString(host) && strings.Trim(host, "0123456789.") != ""
}

// client measures against the server at address.
func (o *Options) client(ctx context.Context, src perf.Source, address string, tool perf.Tool) (result any, err error) {
	if crowd, ok := tool.(perf.Crowd); ok && crowd.Members() > 1 {
		return o.lead(ctx, src, address, crowd)
	}
	n, err := open(src, ownAddress(ctx, address))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	return perf.Client(ctx, n, address, tool, func(s *perf.Session) { o.connected(s.Used, s.Theirs) })
}

// ownAddress is the one of this machine that the route to address begins with.
func ownAddress(ctx context.Context, address string) string {
	// Connecting a UDP socket sends nothing; it asks for the route, and for the address of a name.
	c, err := new(net.Dialer).DialContext(ctx, "udp", address)
	if err != nil {
		return "127.0.0.1" // connecting will fail, and say why
	}
	defer func() { _ = c.Close() }()
	host, _, err := net.SplitHostPort(c.LocalAddr().String())
	if err != nil {
		return "127.0.0.1"
	}
	return host
}

// server waits for a client.
func (o *Options) server(ctx context.Context, src perf.Source, tool perf.Tool) (any, error) {
	if err := probe(src); err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", net.JoinHostPort(o.Listen, strconv.Itoa(o.Port)))
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return nil, fmt.Errorf("perf: %w: another server waits there; give this one and its client another --port", err)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return nil, perf.Inputf("--listen %q: want an IP address of this machine", o.Listen)
	case err != nil:
		return nil, fmt.Errorf("perf: %w", err)
	}
	defer func() { _ = ln.Close() }()
	fmt.Fprintf(o.Remarks, "rdmad: perf %s: waiting for a client on %s\n", tool.Name(), ln.Addr())
	return o.serve(ctx, src, ln, tool)
}

func (o *Options) serve(ctx context.Context, src perf.Source, ln net.Listener, tool perf.Tool) (any, error) {
	observe := func(s *perf.Session) { o.connected(s.Used, s.Theirs) }
	return perf.Serve(ctx, src, ln, tool, observe, func(err error) {
		fmt.Fprintf(o.Remarks, "rdmad: perf %s: %v\n", tool.Name(), err)
	})
}

// probe finds out early that a device cannot be opened.
func probe(src perf.Source) error {
	n, err := open(src, "127.0.0.1")
	if err != nil {
		return err
	}
	return n.Close()
}

// connected says what both sides really use, before anything is measured. In JSON it is part of
// the result.
func (o *Options) connected(own, theirs perf.Used) {
	if !o.JSON && !o.Child {
		fmt.Fprintf(o.Out, "this side:  %s\nother side: %s\n", own, theirs)
	}
}

// child is the server that was started by self: it listens on a socket that it has inherited,
// and ends with its parent, which holds the other end of its standard input.
func (o *Options) child(ctx context.Context, src perf.Source, tool perf.Tool) (any, error) {
	ln, err := net.FileListener(os.NewFile(inherited, "listener"))
	if err != nil {
		return nil, perf.Inputf("--child: it is for rdmad itself: %w", err)
	}
	defer func() { _ = ln.Close() }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return o.serve(ctx, src, ln, tool)
}
