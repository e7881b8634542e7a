//go:build verbs && cgo && linux

package verbs

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/fabric"
)

// heardAtOnce is how many messages are taken before others are sent: peers that never stop keep
// nobody from hearing of an end.
const heardAtOnce = 256

// eventBacklog is how many events wait for a reader of Device.Events.
const eventBacklog = 64

// eventCounts counts events by kind, and those nobody had room for.
type eventCounts struct {
	kinds   [eventKinds]atomic.Uint64
	dropped atomic.Uint64
}

// Events returns the device's asynchronous events other than EventOther. The channel
// is closed by Close; events that find it full are only counted.
func (d *Device) Events() <-chan Event { return d.events }

// eventCount returns how many events of a kind there were.
func (d *Device) eventCount(k EventKind) uint64 { return d.counts.kinds[k].Load() }

// eventsDropped returns how many events found the channel of Events full.
func (d *Device) eventsDropped() uint64 { return d.counts.dropped.Load() }

// server is the device's goroutine.
type server struct {
	dev *Device
	fds []unix.PollFd
	// more: there may be messages that no event will tell of.
	more bool
}

// Places in server.fds.
const (
	fdBell = iota
	fdAsync
	fdMessages // of the datagrams or of the connection manager
)

func newServer(d *Device) (*server, error) {
	async, err := asyncFD(d.ctx)
	if err != nil {
		return nil, err
	}
	messages := 0
	if d.cm != nil {
		messages = d.cm.fd
	} else {
		messages = d.ctl.fd
	}
	s := &server{dev: d}
	for _, fd := range []int{fdBell: d.bell.FD(), fdAsync: async, fdMessages: messages} {
		s.fds = append(s.fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	return s, nil
}

// run serves until the device is closed.
func (s *server) run() {
	d := s.dev
	defer d.wg.Done()
	for {
		timeout, open := d.repeatFarewells(time.Now())
		if !open {
			return
		}
		if s.more {
			timeout = 0
		}
		// An interrupted wait is one without events.
		if n, err := unix.Poll(s.fds, timeout); n < 0 || err != nil || n == 0 && !s.more {
			continue
		}
		if s.fds[fdBell].Revents != 0 {
			d.bell.Silence()
		}
		if s.fds[fdAsync].Revents != 0 && !s.async() {
			s.fds[fdAsync].Fd = -1
		}
		if (s.fds[fdMessages].Revents != 0 || s.more) && !s.messages() {
			s.fds[fdMessages].Fd = -1
		}
	}
}

// messages handles what connections say. It returns false if there will be no more.
func (s *server) messages() bool {
	d := s.dev
	if d.cm != nil {
		working, more := d.cm.serve()
		s.more = more
		return working
	}
	more, err := d.takeDatagrams()
	s.more = more
	if err != nil {
		d.ctl.goDeaf(err)
	}
	return err == nil
}

// takeDatagrams handles messages that have come. more is true if there may be others that no event will tell of.
func (d *Device) takeDatagrams() (more bool, err error) {
	if err := d.ctl.rearm(); err != nil {
		return false, err
	}
	for range heardAtOnce {
		m, ok, err := d.ctl.receive()
		if err != nil || !ok {
			return false, err
		}
		d.heard(m)
	}
	return true, nil
}

// async handles asynchronous events. It returns false if there will be no more.
func (s *server) async() bool {
	d := s.dev
	for {
		raw, ok, err := nextAsync(d.ctx)
		if err != nil {
			// A device that is taken away cannot be read any more.
			d.broken(nil)
			return false
		}
		if !ok {
			return true
		}
		ev := Event{Kind: raw.kind, Device: d.name}
		switch raw.kind {
		case EventQPFatal:
			ev.QPN = uint32(raw.element)
			d.pairFailed(ev.QPN)
		case EventCQError:
			d.broken(func(q *cq) bool { return q.lib.id() == raw.element })
		case EventDeviceFatal:
			d.broken(nil)
		case EventPortError:
			ev.Port = int(raw.element)
			d.portDown(ev.Port)
		case EventPortActive, EventGIDChange, EventLIDChange, EventPKeyChange:
			ev.Port = int(raw.element)
		}
		d.publish(ev)
	}
}

func (d *Device) publish(ev Event) {
	d.counts.kinds[ev.Kind].Add(1)
	if ev.Kind == EventOther {
		return
	}
	select {
	case d.events <- ev:
	default:
		d.counts.dropped.Add(1)
	}
}

// pairFailed ends the connection of a queue pair that the device gave up.
func (d *Device) pairFailed(qpn uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.endpoints {
		if e.qpn == qpn {
			e.cq.notify(notice{e: e, why: fabric.StatusFatal, vendor: VendorQPFatal, end: endRefused})
		}
	}
}

// portDown ends the connections by a port. Adapters would do it themselves, once the
// retries of what is sent are used up; rdma_rxe may not: what it cannot send while the
// port is down it may never send again (Linux 6.1), and the connection would hang.
func (d *Device) portDown(port int) {
	if port != d.port.Number {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.endpoints {
		if p := e.phase(); p == phaseConnected || p == phaseActive {
			e.cq.notify(notice{e: e, why: fabric.StatusRetryExceeded, vendor: VendorPortDown, end: endPeer})
		}
	}
}

// broken ends the connections of the queues that which selects, nil: all, without
// the device's help.
func (d *Device) broken(which func(*cq) bool) {
	vendor := VendorCQError
	if which == nil {
		vendor = VendorDeviceFatal
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for q := range d.queues {
		if which != nil && !which(q) {
			continue
		}
		for _, e := range q.endpoints.All() {
			q.notify(notice{e: e, why: fabric.StatusFatal, vendor: vendor, end: endBroken})
		}
	}
}
