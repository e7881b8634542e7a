package config

import (
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// What TOML writes is the same configuration again, however it came about.
func TestTOML(t *testing.T) {
	var peers strings.Builder
	peers.WriteString("peer = [")
	for i := range 5000 {
		peers.WriteString(strings.Join([]string{`{name="n`, strconv.Itoa(i), `",address="h:`, strconv.Itoa(i + 1), `"},`}, ""))
	}
	peers.WriteString("]\n[node]\nlisten=\":1\"\n")
	for name, text := range map[string]string{
		"empty":   "",
		"example": Example(),
		"strings": "[node]\nsocket=\"/tmp/a \\u00e9\\t\\\"'#\"\n",
		"lists": "[node]\nname=\"a\"\nlisten=\":7471\"\n[[class]]\nname=\"x\"\nslot_size=128\nslots=64\nmax_run=1\n" +
			"[[domain]]\nname=\"d\"\nusers=[0,\"1\"]\ngroups=[\"5\"]\n[[peer]]\nname=\"b\"\naddress=\"b:1\"\n[tls]\nallow=[\"b\"]\n",
		"values": "[group_send]\nenabled=false\nmax_group_delay=\"50us\"\n[memory]\nhugepages=\"try\"\n[node]\nsocket_mode=\"0600\"\n[agent]\nspin=\"3us\"\n",
		"long":   peers.String(),
	} {
		c, err := Parse(name, []byte(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		own := c.TOML()
		again, err := ParseOwn(name, own)
		if err != nil {
			t.Fatalf("%s: %v in\n%.500s", name, err, own)
		}
		if !reflect.DeepEqual(c, again) || c.Digest() != again.Digest() {
			t.Errorf("%s: written as\n%.500s", name, own)
		}
	}
}

// The name of the node does not follow the machine's any more, and nothing else is said
// of a configuration that has only defaults.
func TestTOMLOfDefaults(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	want := "[node]\nname = \"" + defaultNodeName(host) + "\"\n"
	if got := string(Default().TOML()); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
