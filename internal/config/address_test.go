package config

import "testing"

func TestCollide(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"127.0.0.1:1", "127.0.0.1:1", true}, {"0.0.0.0:1", "127.0.0.1:1", true}, {":1", "[::1]:1", true}, {"[::]:1", "10.0.0.1:1", true}, {":1", ":1", true},
		{"[::ffff:10.0.0.1]:1", "10.0.0.1:1", true}, {"[0:0::1]:1", "[::1]:01", true}, {"Node:1", "node:1", true}, {"node:1", ":1", true},
		{"127.0.0.1:1", "127.0.0.1:2", false}, {"127.0.0.1:1", "127.0.0.2:1", false}, {":0", ":0", false}, {"127.0.0.1:0", ":0", false},
		{"a:1", "b:1", false}, {"node:1", "127.0.0.1:1", false}, {"", ":1", false}, {"", "", false},
	} {
		if collide(c.a, c.b) != c.want || collide(c.b, c.a) != c.want {
			t.Errorf("%q and %q: want %v", c.a, c.b, c.want)
		}
	}
}

// Where nothing listens, nothing collides.
func TestListenersThatAreNone(t *testing.T) {
	for _, doc := range []string{
		"[node]\nlisten = ':1'\n[fabric]\nlisten = ':1'\n",
		"[node]\nlisten = ':1'\n[fabric]\nlisten = ':1'\nprovider = 'verbs'\n[[peer]]\nname = 'b'\naddress = 'b:1'\n",
		"[node]\nlisten = ':0'\n[observe]\nlisten = ':0'\n[[peer]]\nname = 'b'\naddress = 'b:1'\n",
		"[node]\nlisten = '127.0.0.1:1'\n[observe]\nlisten = '127.0.0.2:1'\n",
	} {
		if _, errs := parse("f", []byte(doc), fakeSystem()); len(errs) > 0 {
			t.Errorf("%s\n%v", doc, errs)
		}
	}
}
