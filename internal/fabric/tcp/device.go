package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/turnstile"
)

const (
	// Name is the provider's name in the configuration.
	Name = "tcp"
	// DefaultReceiveBuffer is the receive buffer of an endpoint in bytes.
	DefaultReceiveBuffer = 64 << 10
	// minReceiveBuffer leaves room for a header and something to say.
	minReceiveBuffer = 4 << 10

	maxInline = 96
	maxDepth  = 16 << 10
	// maxReads is how many reads and atomics of one endpoint may wait for
	// their answer at a time, and so how many answers the peer has to queue.
	maxReads = 16
)

// Config tunes the provider. The zero value is ready to use.
type Config struct {
	// ReceiveBuffer is the receive buffer of each endpoint in bytes, at least
	// 4096. 0 means DefaultReceiveBuffer. One system call takes in up to this
	// much of small messages.
	ReceiveBuffer int
	// SocketBuffer sets the kernel's send and receive buffer of each
	// connection in bytes. 0 leaves them to the kernel, which grows them as
	// the connection needs, usually to several MiB.
	SocketBuffer int
	// Congestion is the kernel's name of a congestion control for data connections, such as
	// "cubic" or "dctcp", CongestionSystem, or CongestionAuto, which "" means.
	Congestion string
	// Security makes all connections of a device mutual TLS; nil: none has TLS. With
	// it each endpoint takes about 200 KiB more.
	Security Security
}

// Provider implements fabric.Provider.
type Provider struct{ cfg Config }

// New makes the provider.
func New(cfg Config) *Provider { return &Provider{cfg: cfg} }

// Name implements fabric.Provider.
func (p *Provider) Name() string { return Name }

// Open implements fabric.Provider: it starts to listen on o.Listen (empty:
// a free port of the loopback interface). A wildcard address to listen on needs
// o.Advertise. The caller must Close the device.
func (p *Provider) Open(o fabric.Options) (fabric.Device, error) {
	cfg := p.cfg
	if cfg.ReceiveBuffer == 0 {
		cfg.ReceiveBuffer = DefaultReceiveBuffer
	}
	if cfg.ReceiveBuffer < minReceiveBuffer || cfg.SocketBuffer < 0 {
		return nil, fmt.Errorf("tcp: receive buffer of %d bytes (at least %d), socket buffer of %d bytes",
			cfg.ReceiveBuffer, minReceiveBuffer, cfg.SocketBuffer)
	}
	if err := checkCongestion(cfg.Congestion); err != nil {
		return nil, err
	}
	listen := o.Listen
	if listen == "" {
		listen = "127.0.0.1:0"
	}
	ln, err := (&net.ListenConfig{Control: cfg.prepare}).Listen(context.Background(), "tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("tcp: listen on %q: %w", listen, err)
	}
	host, port, err := advertised(ln.Addr(), o.Advertise)
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	life, end := context.WithCancel(context.Background())
	d := &Device{
		cfg:       cfg,
		ln:        ln,
		host:      host,
		port:      port,
		life:      life,
		end:       end,
		endpoints: make(map[*Endpoint]struct{}),
	}
	d.wg.Add(1)
	go d.accept()
	return d, nil
}

// advertised returns where peers are told to connect.
func advertised(a net.Addr, advertise string) (string, uint16, error) {
	host, p, err := net.SplitHostPort(a.String())
	if err != nil {
		return "", 0, fmt.Errorf("tcp: listening address: %w", err)
	}
	port, err := strconv.ParseUint(p, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("tcp: listening port: %w", err)
	}
	if advertise != "" {
		host = advertise
	} else if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		return "", 0, fmt.Errorf("tcp: listening on every address (%s): say which one to advertise", a)
	}
	if len(host) > maxHost {
		return "", 0, fmt.Errorf("tcp: host to advertise is %d bytes long, at most %d", len(host), maxHost)
	}
	return host, uint16(port), nil
}

// Device implements fabric.Device: a listener and the endpoints that wait for
// their connection. Its methods may be called from any goroutine.
type Device struct {
	cfg  Config
	ln   net.Listener
	host string
	port uint16

	rejected atomic.Uint64       // incoming connections that did not say a good hello in time
	gate     turnstile.Turnstile // with Security
	// life ends with Close, and with it what each endpoint waits for in Connect.
	life context.Context
	end  context.CancelFunc
	once sync.Once
	wg   sync.WaitGroup // accept and its greeters

	mu sync.Mutex
	// endpoints wait for a connection that names their token.
	endpoints map[*Endpoint]struct{}
	// pending are accepted connections that have not said a good hello yet,
	// oldest first.
	pending []net.Conn
}

// Caps implements fabric.Device.
func (d *Device) Caps() fabric.Caps {
	return fabric.Caps{
		MaxInline:     maxInline,
		MaxSendDepth:  maxDepth,
		MaxRecvDepth:  maxDepth,
		Atomics:       true,
		OrderedWrites: true,
	}
}

// Addr returns the listening address.
func (d *Device) Addr() net.Addr { return d.ln.Addr() }

// Close implements fabric.Device. It ends every Connect of the device.
func (d *Device) Close() error {
	var err error
	d.once.Do(func() {
		d.end()
		err = d.ln.Close()
		d.mu.Lock()
		for _, c := range d.pending {
			_ = c.Close()
		}
		d.mu.Unlock()
		d.wg.Wait()
	})
	return err
}
