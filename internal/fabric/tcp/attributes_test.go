package tcp

import (
	"errors"
	"fmt"
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/shm"
)

// attributes returns what an endpoint tells, by stage and name.
func attributes(t *testing.T, e *Endpoint) map[string]string {
	t.Helper()
	list, err := e.Attributes()
	must(t, err)
	all := map[string]string{}
	for _, a := range list {
		all[a.Stage+" "+a.Name] = a.Value
	}
	return all
}

// The two ends agree on where they are, and the kernel says that it does what it was asked to.
func TestAttributes(t *testing.T) {
	p := newPair(t)
	a, b := attributes(t, p.ep[0]), attributes(t, p.ep[1])
	if a["socket local"] != b["socket peer"] || a["socket peer"] != b["socket local"] || a["socket local"] == "" {
		t.Errorf("the one is at %s and connected with %s, the other at %s and with %s",
			a["socket local"], a["socket peer"], b["socket local"], b["socket peer"])
	}
	for name, want := range map[string]string{
		"create send_depth": "256", "create recv_depth": "256", "create listen": p.ep[0].dev.Addr().String(),
		"socket TCP_NODELAY": "1", "socket SO_KEEPALIVE": "1", "socket TCP_KEEPIDLE": fmt.Sprint(keepaliveIdle),
		"socket TCP_USER_TIMEOUT": fmt.Sprint(UserTimeout.Milliseconds()),
	} {
		if a[name] != want {
			t.Errorf("%s is %q, want %q", name, a[name], want)
		}
	}
}

// Before it is connected an endpoint has no socket to tell of, and afterwards none any more.
func TestAttributesBeforeAndAfter(t *testing.T) {
	d, err := New(Config{}).Open(fabric.Options{})
	must(t, err)
	defer func() { must(t, d.Close()) }()
	q, err := d.CreateCQ(4, nil)
	must(t, err)
	defer func() { must(t, q.Close()) }()
	pd, err := d.AllocPD()
	must(t, err)
	defer func() { must(t, pd.Close()) }()
	mr, err := pd.Register(shm.AlignedBytes(64), 0)
	must(t, err)
	defer func() { must(t, mr.Close()) }()
	e, err := pd.CreateEndpoint(fabric.EndpointAttr{CQ: q, SendDepth: 3, RecvDepth: 5})
	must(t, err)
	all := attributes(t, e.(*Endpoint))
	if all["create send_depth"] != "3" || all["create recv_depth"] != "5" {
		t.Errorf("it tells %v", all)
	}
	if _, ok := all["socket local"]; ok {
		t.Error("it tells of a socket")
	}
	must(t, e.Close())
	if _, err := e.(*Endpoint).Attributes(); !errors.Is(err, fabric.ErrClosed) {
		t.Error(err)
	}
}
