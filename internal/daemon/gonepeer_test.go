package daemon_test

import (
	"encoding/binary"
	"errors"
	"os"
	"testing"

	"github.com/rdmad/rdmad/internal/daemontest"
)

// A peer may say of any caller that it is gone, over and over: it is told that this is
// noted, and nothing else happens where there is no such lane or caller.
func TestPeerTellsOfGoneCallers(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	if err := b.Halt(); err != nil {
		t.Fatal(err)
	}
	p := pose(t, a)
	open := frame{
		"domain": "default", "class": "small", "geometry": frame{"slot_size": 128, "slots": 8192, "max_run": 64}, "address": []byte("nowhere"), "key": frame{"Len": 8192 * 128},
	}
	p.send(frame{"type": "open", "seq": 1, "lane": open})
	mirror := p.receive("accept")["lane"].(map[string]any)["mirror"] // there is a lane now, without a connection
	sent := binary.LittleEndian.AppendUint64(nil, 5<<24|7)
	seq := 10
	for _, lane := range []frame{
		{"domain": "default", "class": "small", "mirror": mirror, "sent": sent},
		{"domain": "default", "class": "small", "mirror": mirror, "sent": sent},
		{"domain": "default", "class": "small", "mirror": mirror},
		{"domain": "default", "class": "small", "mirror": 1, "sent": sent},
		{"domain": "default", "class": "small", "number": 7, "sent": sent},
		{"domain": "default", "class": "none"},
		{"domain": "none", "class": "small", "sent": sent},
	} {
		seq++
		p.send(frame{"type": "gone", "seq": seq, "caller": 4095, "lane": lane})
		if m := p.receive("noted"); m["seq"] != float64(seq) {
			t.Errorf("%v is answered with %v", lane, m)
		}
	}
	p.send(frame{"type": "ping", "seq": 1})
	p.receive("pong")
}

// What is no message of that kind ends the connection.
func TestPeerTellsNonsenseOfGoneCallers(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	if err := b.Halt(); err != nil {
		t.Fatal(err)
	}
	lane := func(sent []byte) frame { return frame{"domain": "default", "class": "small", "sent": sent} }
	beyond := binary.LittleEndian.AppendUint64(nil, 1<<24|4096)
	for name, m := range map[string]frame{
		"no lane":            {"caller": 1},
		"no caller":          {"lane": lane(nil)},
		"too large a caller": {"caller": 4096, "lane": lane(nil)},
		"half a request":     {"caller": 1, "lane": lane(beyond[:4])},
		"beyond the ring":    {"caller": 1, "lane": lane(beyond)},
		"twice":              {"caller": 1, "lane": lane(make([]byte, 16))},
	} {
		p := pose(t, a)
		p.send(frame{"type": "open", "seq": 1, "lane": frame{
			"domain": "default", "class": "small", "geometry": frame{"slot_size": 128, "slots": 8192, "max_run": 64}, "address": []byte("nowhere"), "key": frame{"Len": 8192 * 128},
		}})
		p.receive("accept")
		m["type"], m["seq"] = "gone", 2
		p.send(m)
		if !p.ends() {
			t.Errorf("%s: the connection goes on", name)
		}
	}
}

// ends reports whether the node ends the connection, whatever it says before.
func (p *impostor) ends() bool {
	buf := make([]byte, 4096)
	for {
		if _, err := p.conn.Read(buf); err != nil {
			return !errors.Is(err, os.ErrDeadlineExceeded)
		}
	}
}
