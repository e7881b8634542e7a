package observe

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// Names that another site can have are refused where a browser of this machine asks.
func TestGuarded(t *testing.T) {
	h := guarded(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	unix, local, far := &net.UnixAddr{Name: "/x", Net: "unix"}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}
	for _, test := range []struct {
		host string
		by   net.Addr
		want int
	}{
		{"localhost", unix, 200}, {"localhost:7474", local, 200}, {"127.0.0.1:7474", local, 200}, {"[::1]:7474", local, 200}, {"[::1]", unix, 200},
		{"node", unix, 200}, {"a.localhost:1", local, 200}, {"", unix, 200},
		{"evil.example", unix, 421}, {"evil.example:7474", local, 421}, {"127.0.0.1.evil.example", local, 421}, {"evil.example.", local, 421},
		{"evil.example", far, 200}, {"node.cluster.example:7474", far, 200},
	} {
		r := httptest.NewRequest("GET", "/metrics", nil)
		r.Host = test.host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, test.by)))
		if w.Code != test.want {
			t.Errorf("%q by %v: %d, want %d", test.host, test.by, w.Code, test.want)
		}
	}
}
