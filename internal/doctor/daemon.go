package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/status"
)

// checkDaemon: a daemon runs, with a supervisor that does, and is of this version. None is fine before the first
// start, unless the user named its socket.
func checkDaemon(_ context.Context, e *Env) []Finding {
	const name = "daemon"
	s := e.Daemon
	if s == nil {
		why := strings.TrimPrefix(e.DaemonErr.Error(), "client: ")
		_, err := fs.Stat(e.Root, inRoot(e.Socket))
		switch {
		case e.Unanswered:
			return one(Fail, name, "see what it counts: rdmad counters; collect what there is: rdmad support-bundle; then restart it", "%s", why)
		case !errors.Is(e.DaemonErr, attach.ErrNotRunning):
			return one(Warn, name, "run this as a user that a [[domain]] of the daemon admits, with the rdmad of the daemon's release", "%s", why)
		case e.SocketNamed:
			return one(Fail, name, "start it: rdmad run -c FILE", "%s", why)
		case err == nil:
			return one(Warn, name, "start it: rdmad run -c FILE", "%s was left by a daemon that was killed: %s", e.Socket, why)
		}
		return good(name, "none runs at %s: its limits and peers are not checked", e.Socket)
	}
	text := fmt.Sprintf("node %s runs at %s, version %s", s.Node, e.Socket, s.Version)
	switch {
	case e.supervisorHalted():
		return one(Fail, name, fmt.Sprintf("let it go on: kill -CONT %d, or detach the debugger", s.PIDs.Supervisor),
			"%s, but its supervisor (pid %d) is halted (SIGSTOP, or a debugger): a core that dies is not replaced, and nothing is reloaded or stopped", text, s.PIDs.Supervisor)
	case s.Version != e.Version:
		return one(Warn, name, "restart the daemon after an update, or use its own rdmad", "%s, but this rdmad is %s", text, e.Version)
	case e.ConfigErr == nil && s.Node != e.Config.Node.Name:
		return one(Warn, name, "name the node's own file with --config, or its socket with --socket",
			"%s, but %s configures node %s: the checks mix the two", text, e.ConfigFile, e.Config.Node.Name)
	}
	return good(name, "%s", text)
}

// checkFabric: the daemon uses the provider that is configured.
func checkFabric(_ context.Context, e *Env) []Finding {
	const name = "fabric"
	s := e.Daemon
	switch {
	case s == nil:
		return nil
	case s.Fabric == "":
		return good(name, "the daemon has no peers and uses none")
	case s.FallbackReason != "":
		return one(Warn, name, `mend what keeps it from RDMA and restart the daemon, or set fabric.provider = "tcp"`,
			"fabric.provider = %q, but the daemon fell back to %s: %s", s.FabricWanted, s.Fabric, s.FallbackReason)
	case e.ConfigErr == nil && s.Node == e.Config.Node.Name && s.FabricWanted != e.Config.Fabric.Provider:
		return one(Warn, name, "restart the daemon", "the daemon was started with fabric.provider = %q, %s has %q",
			s.FabricWanted, e.ConfigFile, e.Config.Fabric.Provider)
	case e.NextConfig != nil && s.FabricWanted != e.NextConfig.Fabric.Provider:
		return one(Warn, name, "restart the daemon", "the daemon was started with fabric.provider = %q, its file has %q now",
			s.FabricWanted, e.NextConfig.Fabric.Provider)
	}
	detail := ""
	if s.FabricDetail != "" {
		detail = ": " + s.FabricDetail
	}
	return good(name, "the daemon uses %s, wanted is %s%s", s.Fabric, s.FabricWanted, detail)
}

// dialLimit is how long a peer's address may take to answer.
const dialLimit = 3 * time.Second

// checkPeers: peers are connected, or can be reached. Without a daemon only the
// peer that the user asks about is tried.
func checkPeers(ctx context.Context, e *Env) []Finding {
	const name = "peer"
	var names []string
	for _, p := range e.Config.Peers {
		names = append(names, p.Name)
	}
	if e.Daemon != nil {
		names = nil
		for _, p := range e.Daemon.Peers {
			names = append(names, p.Name)
		}
	}
	if e.Peer != "" && !slices.Contains(names, e.Peer) {
		known := "none"
		if len(names) > 0 {
			known = strings.Join(names, ", ")
		}
		return one(Fail, name, "add a [[peer]] with that name and run rdmad reload; the first peer of a node takes a restart", "node %q is not a [[peer]]; known: %s", e.Peer, known)
	}
	var found []Finding
	if e.Daemon == nil {
		for _, p := range e.Config.Peers {
			if p.Name == e.Peer {
				found = append(found, e.reach(ctx, p.Name, p.Address)...)
			}
		}
		return found
	}
	for _, p := range e.Daemon.Peers {
		if e.Peer == "" || e.Peer == p.Name {
			found = append(found, e.checkPeer(ctx, p)...)
		}
	}
	return found
}

// checkPeer judges the daemon's link to a peer.
func (e *Env) checkPeer(ctx context.Context, p status.Peer) []Finding {
	const name = "peer"
	since := time.Duration(p.SinceS * float64(time.Second)).Round(time.Second)
	switch p.State {
	case "connected":
		found := good(name, "%s has been connected for %v and serves %s", p.Name, since, plural(p.Services, "method"))
		if e.Peer != "" {
			found = append(found, e.paths(p.Name)...)
		}
		return found
	case "draining":
		return one(Warn, name, "wait for its restart", "%s is draining: it takes no new requests", p.Name)
	}
	level := Warn
	if e.Peer != "" {
		level = Fail
	}
	why := p.Error
	if why == "" {
		why = "it has not answered yet"
	}
	remedy := fmt.Sprintf("on %s: rdmad status", p.Name)
	if e.Peer == "" {
		remedy += "; from here: rdmad doctor --peer " + p.Name
	}
	found := one(level, name, remedy,
		"%s (%s) has not been connected for %v: %s", p.Name, p.Address, since, why)
	if e.Peer != "" {
		found = append(found, e.reach(ctx, p.Name, p.Address)...)
	}
	return found
}

// reach tries the address at which a peer takes bootstrap connections.
func (e *Env) reach(ctx context.Context, peer, address string) []Finding {
	const name = "peer address"
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	if err := e.Dial(ctx, address); err != nil {
		return one(Fail, name, fmt.Sprintf("start rdmad on %s, correct the address of [[peer]] %s or its node.listen, or open the port in the firewalls", peer, peer),
			"%s does not answer at %s within %v: %v", peer, address, dialLimit, err)
	}
	return good(name, "%s takes connections at %s", peer, address)
}

// paths lists what the fabric says of the lanes to and from a peer: each kind once.
func (e *Env) paths(peer string) []Finding {
	const name = "path"
	lanes := map[string]int{}
	var order []string
	up := 0
	for _, l := range e.Daemon.Lanes {
		if l.Peer != peer || l.State != "up" {
			continue
		}
		up++
		if l.Path == "" {
			continue
		}
		if lanes[l.Path] == 0 {
			order = append(order, l.Path)
		}
		lanes[l.Path]++
	}
	if up == 0 {
		for _, failed := range e.Daemon.Errors {
			if failed.Code == event.LaneNotOpened && failed.Subject == "peer "+peer {
				return one(Fail, name, "compare the [[class]] of both nodes (rdmad config show), and see the log of "+peer,
					"no lane to %s is open, and the last one could not be opened, at %s: %s", peer, failed.Last.Format(time.DateTime), failed.Text)
			}
		}
		return good(name, "no lane to %s is open yet; a call opens it", peer)
	}
	if len(order) == 0 {
		return good(name, "%s by %s to %s", plural(up, "lane"), e.Daemon.Fabric, peer)
	}
	var found []Finding
	for _, p := range order {
		found = append(found, good(name, "%s to %s: %s", plural(lanes[p], "lane"), peer, p)...)
	}
	return found
}
