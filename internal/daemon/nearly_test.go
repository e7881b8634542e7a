package daemon

import (
	"testing"

	"github.com/rdmad/rdmad/internal/peerproto"
)

// Who asks for a service that is there, but takes nothing, hears so, and where it may be if it is nowhere.
func TestNearlyServed(t *testing.T) {
	key := methodKey{"s", "m"}
	serves := map[string]map[methodKey]peerproto.Listing{"d": {key: {}}}
	d := &domain{name: "d", methods: map[methodKey]*method{}}
	c := &conductor{node: "a", links: map[string]*link{}}
	check := func(want string) {
		t.Helper()
		if got := c.nearly(d, key); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	check("")
	c.links["b"], c.links["c"] = &link{name: "b"}, &link{name: "c", session: &session{}, directory: serves}
	check("; 1 of 2 peers are not connected")
	c.links["c"].draining = true
	check("; node c does, and is draining")
	c.links["b"] = &link{name: "b", session: &session{}, directory: serves, draining: true}
	check("; node b does, and is draining") // always the same of two
	d.methods[key], c.outage = &method{workers: map[*worker]bool{{}: true}}, &outage{}
	check("; node a does, and is out of service (rdmad drain)")
}
