package observe

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// Names that another site can have are refused, but for those that are said to be this
// machine's.
func TestGuarded(t *testing.T) {
	none := func() []string { return nil }
	own := func() []string { return []string{"node.cluster.example", "other.example."} }
	for _, test := range []struct {
		host    string
		allowed func() []string
		want    int
	}{
		{"localhost", none, 200}, {"localhost:7474", nil, 200}, {"127.0.0.1:7474", none, 200}, {"[::1]:7474", none, 200}, {"[::1]", none, 200},
		{"node", none, 200}, {"a.localhost:1", none, 200}, {"", nil, 200}, {"192.0.2.1:7474", none, 200},
		{"evil.example", nil, 421}, {"evil.example:7474", none, 421}, {"127.0.0.1.evil.example", none, 421}, {"evil.example.", none, 421},
		{"node.cluster.example:7474", none, 421}, {"node.cluster.example:7474", own, 200}, {"Node.Cluster.Example.", own, 200},
		{"other.example", own, 200}, {"evil.example", own, 421}, {"x.node.cluster.example", own, 421}, {"node.cluster.example.evil.example", own, 421},
		{"anything.example", func() []string { return []string{"*"} }, 200},
	} {
		h := guarded(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }), test.allowed)
		r := httptest.NewRequest("GET", "/metrics", nil)
		r.Host = test.host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != test.want {
			t.Errorf("%q: %d, want %d", test.host, w.Code, test.want)
		}
	}
}
