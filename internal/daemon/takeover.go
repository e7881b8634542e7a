package daemon

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/depot"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/internal/handoff"
	"github.com/rdmad/rdmad/internal/printable"
	"github.com/rdmad/rdmad/internal/version"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// incarnationBytes is how many bytes an incarnation is made of; it is written in hex.
const incarnationBytes = 8

// leftovers are what the core before this one has left in the depot, by domain.
type leftovers struct {
	items   []*depot.Item // to be closed: what is adopted takes their descriptors
	node    *handoff.Node
	domains map[string]*domainLeft
}

// domainLeft is what is left of a domain, checked as far as that goes without mapping
// it.
type domainLeft struct {
	domainMeta
	item    *depot.Item // of the segment and the bell; nil if it is missing
	methods map[int]methodMeta
	workers []leftover[workerMeta]
	regions []leftover[regionMeta]
	lanes   []leftover[laneMeta]
	// outcasts are processes that have nothing of it any more.
	outcasts []leftover[outcastMeta]
}

// leftover is an item with its number and its metadata.
type leftover[M any] struct {
	item *depot.Item
	n    int
	meta M
}

// take returns descriptor i of an item, which is the caller's from then on; -1 if there
// is none.
func take(item *depot.Item, i int) int {
	if i >= len(item.FDs) {
		return -1
	}
	fd := item.FDs[i]
	item.FDs[i] = -1
	return fd
}

// close closes what nobody has taken.
func (l *leftovers) close() {
	for _, i := range l.items {
		for k, fd := range i.FDs {
			if fd < 0 {
				continue
			}
			if f := os.NewFile(uintptr(take(i, k)), i.Key); f != nil {
				_ = f.Close()
			}
		}
	}
}

// takeOver sorts what the core before this one has left, and takes over its incarnation.
// If it cannot be used everything is dropped, and the node begins anew.
func (c *conductor) takeOver(items []depot.Item) (*leftovers, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, fmt.Errorf("boot id: %w", err)
	}
	node := &handoff.Node{Versions: version.Own(), Boot: strings.TrimSpace(string(boot))}
	left, err := sortOut(items)
	if err == nil && left.node != nil {
		err = left.usable(node, bits.Len(uint(c.cfg.Limits.Services)))
	}
	if err != nil {
		event.TakeoverFailed.On(&c.log).Err(err).Int("items", len(items)).Msg("cannot go on where the last core ended: all attachments end")
		c.discard(left)
		left = &leftovers{items: left.items}
	}
	if left.node != nil {
		// Until this core serves, or lets a process of a newer ABI go on or in, there is nothing that the program before it does
		// not know, and that is started again if this one does not get so far: see identify.
		node.Versions = left.node.Versions
		node.Incarnation, node.Errors, node.Out = left.node.Incarnation, left.node.Errors, left.node.Out
	} else {
		var id [incarnationBytes]byte
		if _, err := rand.Read(id[:]); err != nil {
			left.close()
			return nil, fmt.Errorf("incarnation: %w", err)
		}
		node.Incarnation = hex.EncodeToString(id[:])
	}
	id, err := hex.DecodeString(node.Incarnation)
	if err != nil || len(id) != incarnationBytes {
		left.close()
		return nil, fmt.Errorf("incarnation %q: %w", printable.Text(node.Incarnation), errKept)
	}
	c.incarnation, c.salt = node.Incarnation, binary.LittleEndian.Uint32(id)
	c.identity = node
	c.keep(handoff.NodeKey, node)
	faultpoint.Here("adopt.incarnation")
	c.dropUnknown(left)
	return left, nil
}

// identify makes what is kept that of the program that runs now, which is about to serve.
func (c *conductor) identify() {
	c.keepIdentity(func(n *handoff.Node) { n.Versions = version.Own() })
}

// identifyFor is called before a process is told of this core, and may use from then on what the program before does not know. That is
// not before it has to be, which is long before the core serves while tenants take their time: the program before can be started again
// until then. Tools and tenants leave nothing behind when the core ends.
func (c *conductor) identifyFor(w *worker) {
	if w.role == attach.RoleTool || w.own() {
		return
	}
	c.identifying.Lock()
	newer := min(w.abi, shm.ABIVersion) > c.identity.Versions.ABI
	c.identifying.Unlock()
	if newer {
		c.identify()
	}
}

// errKept is wrapped by the errors about what is in the depot.
var errKept = errors.New("not what a core keeps")

// sortOut parses all items. The leftovers have them also if there is an error.
func sortOut(items []depot.Item) (*leftovers, error) {
	l := &leftovers{domains: make(map[string]*domainLeft)}
	var problems error
	for k := range items {
		i := &items[k]
		l.items = append(l.items, i)
		if err := l.enter(i); err != nil {
			problems = errors.Join(problems, fmt.Errorf("%s: %w", i.Key, err))
		}
	}
	if l.node == nil && len(items) > 0 && problems == nil {
		problems = fmt.Errorf("%w: %d items, and none says of which core", errKept, len(items))
	}
	return l, problems
}

// enter parses one item.
func (l *leftovers) enter(i *depot.Item) error {
	if i.Key == handoff.NodeKey {
		l.node = new(handoff.Node)
		if err := json.Unmarshal(i.Meta, l.node); err != nil {
			return fmt.Errorf("%w: %w", errKept, err)
		}
		if id, err := hex.DecodeString(l.node.Incarnation); err != nil || len(id) != incarnationBytes {
			return fmt.Errorf("%w: incarnation %q", errKept, printable.Text(l.node.Incarnation))
		}
		return nil
	}
	kind, rest, _ := strings.Cut(i.Key, "/")
	name, number, numbered := strings.Cut(rest, "/")
	d := l.domains[name]
	if d == nil {
		d = &domainLeft{methods: make(map[int]methodMeta)}
		l.domains[name] = d
	}
	if kind == kindDomain && !numbered {
		if len(i.FDs) != 2 {
			return fmt.Errorf("%w: %d descriptors", errKept, len(i.FDs))
		}
		d.item = i
		if err := json.Unmarshal(i.Meta, &d.domainMeta); err != nil {
			return fmt.Errorf("%w: %w", errKept, err)
		}
		return nil
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 {
		return fmt.Errorf("%w: an unknown key", errKept)
	}
	switch kind {
	case kindMethod:
		m, err := parseLeft[methodMeta](i, n, 1<<16, 0, 0)
		d.methods[n] = m.meta
		return err
	case kindWorker:
		w, err := parseLeft[workerMeta](i, n, slots.MaxOwner+1, 2, 3)
		d.workers = append(d.workers, w)
		return err
	case kindRegion:
		// Any index of 32 bits is let through but the last one; adoptRegion judges it.
		r, err := parseLeft[regionMeta](i, n, 1<<32-1, 1, 1)
		d.regions = append(d.regions, r)
		return err
	case kindLane:
		n, err := parseLeft[laneMeta](i, n, slots.MaxLanes, 2, 2)
		d.lanes = append(d.lanes, n)
		return err
	case kindOutcast:
		o, err := parseLeft[outcastMeta](i, n, math.MaxInt32, 1, 1)
		d.outcasts = append(d.outcasts, o)
		return err
	}
	return fmt.Errorf("%w: an unknown key", errKept)
}

// parseLeft checks an item's number, which must be less than below, the number of its
// descriptors, and its metadata.
func parseLeft[M any](i *depot.Item, n, below, least, most int) (leftover[M], error) {
	l := leftover[M]{item: i, n: n}
	if n >= below {
		return l, fmt.Errorf("%w: number %d, all are less than %d", errKept, n, below)
	}
	if len(i.FDs) < least || len(i.FDs) > most {
		return l, fmt.Errorf("%w: %d descriptors", errKept, len(i.FDs))
	}
	if err := json.Unmarshal(i.Meta, &l.meta); err != nil {
		return l, fmt.Errorf("%w: %w", errKept, err)
	}
	return l, nil
}

// usable reports, as an error, why a core with the given identity cannot go on.
func (l *leftovers) usable(node *handoff.Node, methodBits int) error {
	if err := node.Versions.Adopts(l.node.Versions); err != nil {
		return err
	}
	if l.node.Boot != node.Boot {
		return fmt.Errorf("%w: the machine was started since", errKept)
	}
	for name, d := range l.domains {
		switch {
		case d.item == nil:
			return fmt.Errorf("%w: domain %s has lost its segment", errKept, printable.Text(name))
		case d.MethodBits != methodBits:
			return fmt.Errorf("%w: ids of methods of %d bits, now %d (limits.services)", errKept, d.MethodBits, methodBits)
		}
		for n, m := range d.methods {
			if int(m.ID&(1<<methodBits-1)) != n {
				return fmt.Errorf("%w: method %d has id %#x", errKept, n, m.ID)
			}
		}
	}
	return nil
}

// discard ends all attachments that are left, with a reason, and drops everything.
func (c *conductor) discard(l *leftovers) {
	for _, d := range l.domains {
		d.farewell("the daemon was replaced by one that cannot go on where the last one ended: attach again")
	}
	for _, i := range l.items {
		c.keepNoMore(i.Key)
	}
}

// dropUnknown ends the attachments to domains that this node does not have any more.
func (c *conductor) dropUnknown(l *leftovers) {
	known := make(map[string]bool)
	for _, p := range c.cfg.Domains {
		known[p.Name] = true
	}
	for name, d := range l.domains {
		if known[name] {
			continue
		}
		d.farewell("the node has no domain " + printable.Text(name) + " any more")
		for _, key := range l.keysOf(name) {
			c.keepNoMore(key)
		}
	}
}

// keysOf returns the keys of what is left of a domain, its own as the last: what has no domain would be a reason for the
// next core to begin anew, if this one dies between.
func (l *leftovers) keysOf(name string) (keys []string) {
	for _, i := range l.items {
		if _, rest, _ := strings.Cut(i.Key, "/"); strings.HasPrefix(rest, name+"/") {
			keys = append(keys, i.Key)
		}
	}
	return append(keys, domainKey(name))
}

// farewell tells the workers that are left of a domain why they are not.
func (d *domainLeft) farewell(reason string) {
	for _, w := range d.workers {
		conn, err := connOf(take(w.item, 1))
		if err != nil {
			continue // it sees the end all the same
		}
		_ = conn.Offer(&attach.Message{Type: attach.TypeGoodbye, Reason: reason}) // one that does not read is not waited for
		_ = conn.Close()
	}
}

// connOf makes a control connection of a descriptor, which it takes over.
func connOf(fd int) (*attach.Conn, error) {
	f := os.NewFile(uintptr(fd), "worker")
	if fd < 0 || f == nil {
		return nil, errKept
	}
	c, err := net.FileConn(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	sock, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(errKept, c.Close())
	}
	return attach.NewConn(sock), nil
}
