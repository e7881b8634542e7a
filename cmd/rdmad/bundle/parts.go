package bundle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/cmd/rdmad/look"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/counters"
	"github.com/rdmad/rdmad/internal/doctor"
	"github.com/rdmad/rdmad/internal/version"
	"github.com/rdmad/rdmad/shm"
)

// Sources are where a bundle's parts are from.
type Sources struct {
	// Socket is the daemon's, Unit that of the service manager that it runs as.
	Socket, Unit string
	// Limit is how long each part may take.
	Limit time.Duration
	// Config is the configuration, and ConfigFrom where it is from; ConfigErr says why there is none. InForce: there is one all
	// the same, which the daemon has in force.
	Config     *config.Config
	ConfigFrom string
	ConfigErr  error
	InForce    bool
	// Doctor makes the checks of "rdmad doctor".
	Doctor func(context.Context) []doctor.Finding
	// Devices describes the RDMA devices as JSON.
	Devices func() ([]byte, error)
}

// Parts returns the parts of a bundle, in the order in which they are in it.
func (s *Sources) Parts() []Part {
	part := func(name, what string, collect func(context.Context) ([]byte, error)) Part {
		return Part{Name: name, What: what, Limit: s.Limit, Collect: collect}
	}
	return []Part{
		part("versions.txt", "of this program, the daemon and the kernel", s.versions),
		part("doctor.txt", "the findings of rdmad doctor", s.doctorText),
		part("config.toml", "the configuration: the keys that are not at their defaults, without comments", s.config),
		part("status.json", "the state of the daemon", s.status),
		part("counters.json", "the file of counters, which needs no daemon that answers", s.counters),
		part("errors.txt", "the distinct errors that the daemon has logged", s.errors),
		part("daemon.log", "the last that the daemon has logged", func(ctx context.Context) ([]byte, error) { return daemonLog(ctx, s.Socket, s.Unit) }),
		part("goroutines.txt", "what the goroutines of the core do", s.stacks),
		part("processes.txt", "limits, memory and threads of the supervisor and the core", func(ctx context.Context) ([]byte, error) { return describe(ctx, s.Socket) }),
		part("devices.json", "the RDMA devices", func(context.Context) ([]byte, error) { return s.Devices() }),
		part("rdma.txt", "what the kernel tells of RDMA, with the counters of the ports", rdma),
		part("system.txt", "the machine", system),
		part("dmesg.txt", "the last that the kernel has logged", kernelLog),
	}
}

// ask asks the daemon for something, by an attachment of its own: one answer that does not
// come is not to keep others from coming.
func (s *Sources) ask(ctx context.Context, question func(*look.Daemon) error) error {
	// A little less than the part has, so that the reason is that of the daemon.
	d, err := look.Attach(ctx, s.Socket, "rdmad-support-bundle", s.Limit*9/10)
	if err != nil {
		return err
	}
	return errors.Join(question(d), d.Close())
}

func (s *Sources) versions(ctx context.Context) ([]byte, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "this program: rdmad %s, shared memory ABI %d.%d, worker protocol %d\n", version.Version, shm.ABIMajor, shm.ABIMinor, attach.Protocol)
	err := s.ask(ctx, func(d *look.Daemon) error {
		st, err := d.Status(ctx)
		if err == nil {
			fmt.Fprintf(&b, "the daemon of node %s: rdmad %s\n", st.Node, st.Version)
		}
		return err
	})
	if err != nil {
		fmt.Fprintf(&b, "the daemon: %v\n", err)
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil, err
	}
	fmt.Fprintf(&b, "kernel: %s %s %s\n", unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Version[:]), unix.ByteSliceToString(u.Machine[:]))
	if info, ok := debug.ReadBuildInfo(); ok {
		fmt.Fprintf(&b, "\n%s", info)
	}
	return []byte(b.String()), nil
}

func (s *Sources) doctorText(ctx context.Context) ([]byte, error) {
	return []byte(doctor.Text(s.Doctor(ctx))), nil
}

// config writes the configuration anew: what is not known, or a comment, may be a secret.
func (s *Sources) config(context.Context) ([]byte, error) {
	var b strings.Builder
	if s.hasConfig() {
		fmt.Fprintf(&b, "# digest %s\n# from %s\n%s", s.Config.Digest(), s.ConfigFrom, s.Config.TOML())
	}
	var refused config.Errors
	switch {
	case s.ConfigErr == nil:
		return []byte(b.String()), nil
	case !errors.As(s.ConfigErr, &refused):
		return []byte(b.String()), s.ConfigErr
	}
	b.WriteString("# The file is refused; rdmad config check tells why:\n") // the reasons quote values
	for _, e := range refused {
		fmt.Fprintf(&b, "# line %d: %s\n", e.Line, e.Key)
	}
	return []byte(b.String()), nil
}

// Places is why a configuration is refused with only the places told: reasons quote values, which may be secrets.
func Places(err error) error {
	var refused config.Errors
	if !errors.As(err, &refused) {
		return err
	}
	places := slices.Clone(refused)
	for i := range places {
		places[i].Reason = "refused; rdmad config check tells why"
	}
	return places
}

// hasConfig reports whether Config is one that counts.
func (s *Sources) hasConfig() bool { return s.ConfigErr == nil || s.InForce }

func (s *Sources) status(ctx context.Context) (text []byte, err error) {
	err = s.ask(ctx, func(d *look.Daemon) error {
		raw, err := d.Raw(ctx)
		if err != nil {
			return err
		}
		var b bytes.Buffer
		if err := json.Indent(&b, raw, "", "  "); err != nil {
			return err
		}
		text = append(b.Bytes(), '\n')
		return nil
	})
	return text, err
}

// counters reads the file of counters, which is where the configuration says or, without
// that of the daemon on the socket, next to the socket.
func (s *Sources) counters(context.Context) (text []byte, err error) {
	path := look.CountersPath(s.Socket)
	if s.hasConfig() && s.Config.Node.Socket == s.Socket {
		path = s.Config.CountersPath()
	}
	if path == "" {
		return nil, errors.New("observe.counters is off")
	}
	r, err := counters.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	c, err := r.Snapshot()
	if err != nil {
		return nil, err
	}
	return json.MarshalIndent(struct {
		Process string
		State   string
		*counters.Snapshot
	}{c.Process().String(), c.State.String(), c}, "", "  ")
}

func (s *Sources) errors(ctx context.Context) (text []byte, err error) {
	err = s.ask(ctx, func(d *look.Daemon) error {
		st, err := d.Status(ctx)
		if err != nil {
			return err
		}
		var b strings.Builder
		for _, e := range st.Errors {
			fmt.Fprintf(&b, "%s %s, %d times, first %s, last %s, of the %s, about %q:\n  %s\n", e.Level, e.Code, e.Count,
				e.First.UTC().Format(time.RFC3339), e.Last.UTC().Format(time.RFC3339), e.Process, e.Subject, e.Text)
		}
		if b.Len() == 0 {
			b.WriteString("none\n")
		}
		text = []byte(b.String())
		return nil
	})
	return text, err
}

func (s *Sources) stacks(ctx context.Context) (text []byte, err error) {
	err = s.ask(ctx, func(d *look.Daemon) error {
		stacks, err := d.Stacks(ctx)
		if err == nil {
			text = []byte(stacks)
		}
		return err
	})
	return text, err
}
