package config

import (
	"errors"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
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
		for _, written := range [][]byte{c.TOML(), c.Own()} {
			again, err := ParseOwn(name, written)
			if err != nil {
				t.Fatalf("%s: %v in\n%.500s", name, err, written)
			}
			if !reflect.DeepEqual(c, again) || c.Digest() != again.Digest() {
				t.Errorf("%s: written as\n%.500s", name, written)
			}
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

// What is for another process says every key: the process may be of a release with other defaults.
func TestOwnHasAllKeys(t *testing.T) {
	var doc map[string]any
	c := mustParse(t, "[node]\nlisten = \":1\"\n[[peer]]\nname = \"b\"\naddress = \"b:1\"\n")
	if err := toml.Unmarshal(c.Own(), &doc); err != nil {
		t.Fatal(err)
	}
	for _, s := range sections {
		tables, _ := doc[s.name].([]map[string]any)
		if table, ok := doc[s.name].(map[string]any); ok {
			tables = append(tables, table)
		}
		if len(tables) == 0 {
			t.Errorf("no [%s]", s.name)
		}
		for _, table := range tables {
			for _, k := range s.keys {
				if _, ok := table[k.name]; !ok {
					t.Errorf("[%s] has no %s", s.name, k.name)
				}
			}
		}
	}
}

// Keys and sections of another release are ignored in what one of its processes has written, and in no file.
func TestOwnOfAnotherRelease(t *testing.T) {
	c := mustParse(t, "[log]\nlevel = \"warn\"\n")
	text := string(c.Own())
	for _, s := range []string{"[log]\n", "[[domain]]\n"} {
		if !strings.Contains(text, s) {
			t.Fatalf("no %s in %s", s, text)
		}
		text = strings.ReplaceAll(text, s, s+"tomorrow = 3\n")
	}
	text += "[tomorrow]\nkey = 1\n[[tomorrows]]\nkey = 2\n"
	own, err := ParseOwn("test.toml", []byte(text))
	if err != nil || own.Digest() != c.Digest() {
		t.Errorf("%v, %v", own, err)
	}
	var errs Errors
	if _, err := Parse("test.toml", []byte(text)); !errors.As(err, &errs) || len(errs) != 4 {
		t.Errorf("as a file: %v", err)
	}
	if own, err := ParseOwn("test.toml", []byte(strings.Replace(text, `"warn"`, `"tomorrow"`, 1))); err == nil {
		t.Errorf("a value that this release does not know: %v", own)
	}
}
