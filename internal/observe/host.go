package observe

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// guarded refuses requests that a browser was led to by another site: one whose name
// suddenly has the address of this machine (DNS rebinding). Such a name has a dot, and the
// Host header has the name. allowed returns the names with a dot that are this machine's;
// nil: there are none. A body, which no request needs, is not waited for.
func guarded(h http.Handler, allowed func() []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isOwnName(r.Host, allowed) {
			http.Error(w, "ask by an address, by localhost, by a name without a dot, or by one that observe.hosts has, not as another site",
				http.StatusMisdirectedRequest)
			return
		}
		if r.ContentLength != 0 {
			w.Header().Set("Connection", "close")
			// The server looks for the rest of it after the answer. A connection that cannot be told so has a limit all the same.
			_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
		}
		h.ServeHTTP(w, r)
	})
}

// isOwnName reports whether no other site can have the host as its name.
func isOwnName(host string, allowed func() []string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	if !strings.Contains(host, ".") || strings.HasSuffix(host, ".localhost") {
		return true
	}
	if allowed == nil {
		return false
	}
	for _, name := range allowed() {
		if name == "*" || strings.EqualFold(strings.TrimSuffix(name, "."), strings.TrimSuffix(host, ".")) {
			return true
		}
	}
	return false
}
