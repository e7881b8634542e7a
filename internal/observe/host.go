package observe

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// guarded refuses requests that a browser was led to by another site: one whose name
// suddenly has the address of this machine (DNS rebinding). Such a name has a dot, and the
// Host header has the name. By the Unix socket, which ssh may have made a local port, and by
// the loopback interface nobody needs such a name; elsewhere the network decides who may ask.
func guarded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isLocal(r) && !isOwnName(r.Host) {
			http.Error(w, "ask by an address, by localhost or by a name without a dot, not as another site", http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func isLocal(r *http.Request) bool {
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return !ok || addr.IP.IsLoopback()
}

// isOwnName reports whether no other site can have the host as its name.
func isOwnName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	return !strings.Contains(host, ".") || strings.HasSuffix(host, ".localhost")
}
