package handoff

import (
	"bytes"
	"encoding/json"
	"testing"
)

func FuzzStart(f *testing.F) {
	good, err := json.Marshal(Start{Supervisor: 7, Source: "x.toml", Data: []byte("[node]\n"), Bootstrap: true})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)-4])
	f.Add([]byte("null"))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := decode(bytes.NewReader(data))
		if err != nil {
			return
		}
		told, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decode(bytes.NewReader(told))
		if err != nil {
			t.Fatal(err)
		}
		if repeated, err := json.Marshal(again); err != nil || !bytes.Equal(repeated, told) {
			t.Fatalf("%s has become %s, %v", told, repeated, err)
		}
	})
}
