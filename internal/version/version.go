// Package version says which program this is, and with what it can go on: the versions of
// the memory, the protocols and the kept state that it knows.
package version

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/depot"
	"github.com/rdmad/rdmad/internal/peerproto"
	"github.com/rdmad/rdmad/shm"
)

// Version is the program's version. Like vault it is a variable so that a build
// can set it with -ldflags -X.
var Version = "0.1.0"

// revision is set by builds that know it better than Go does, such as packages.
var revision = ""

// Revision returns the commit that the program was built from, with "+dirty" behind it
// if there were changes that no commit has, or "unknown".
func Revision() string {
	if revision != "" {
		return revision
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return revisionOf(info.Settings)
}

// revisionOf returns the revision that the Go command has noted.
func revisionOf(settings []debug.BuildSetting) string {
	commit, dirty := "unknown", ""
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	return commit + dirty
}

// vault is the layout of what a core keeps of its lanes for the next core. It
// changes with every change that a core of the other version would misread.
var vault = "1"

// A Set is what must fit for a core to go on where another has ended.
type Set struct {
	// Version is the program's.
	Version string `json:"version"`
	// ABI is the layout of memory shared with workers, major<<16 | minor.
	ABI uint32 `json:"abi"`
	// Vault is the layout of what a core keeps of its lanes, and Depot that of what it
	// keeps of everything else.
	Vault string `json:"vault"`
	Depot int    `json:"depot"`
	// Attach and Peer are the protocols of workers and of peers.
	Attach int `json:"attach"`
	Peer   int `json:"peer"`
}

// Own returns the versions of this program.
func Own() Set {
	return Set{Version: Version, ABI: shm.ABIVersion, Vault: vault, Depot: depot.Version, Attach: attach.Protocol, Peer: peerproto.Version}
}

// Adopts reports, as an error, why a core of versions v cannot go on where one of
// versions kept has ended. The peer protocol does not count: peers connect anew.
func (v Set) Adopts(kept Set) error {
	switch {
	case shm.MajorOf(v.ABI) != shm.MajorOf(kept.ABI):
		return fmt.Errorf("shared memory ABI %d.%d, attached workers have %d.%d",
			shm.MajorOf(v.ABI), shm.MinorOf(v.ABI), shm.MajorOf(kept.ABI), shm.MinorOf(kept.ABI))
	case v.ABI < kept.ABI:
		// They may use what it does not know.
		return fmt.Errorf("shared memory ABI %d.%d, older than the %d.%d of attached workers",
			shm.MajorOf(v.ABI), shm.MinorOf(v.ABI), shm.MajorOf(kept.ABI), shm.MinorOf(kept.ABI))
	case v.Attach != kept.Attach:
		return fmt.Errorf("worker protocol %d, attached workers speak %d", v.Attach, kept.Attach)
	case v.Depot != kept.Depot:
		return fmt.Errorf("depot version %d, what is kept has %d", v.Depot, kept.Depot)
	case v.Vault != kept.Vault:
		return fmt.Errorf("vault version %.20s, what is kept has %.20s", v.Vault, kept.Vault)
	}
	return nil
}

// maxText bounds the texts of a Set, in bytes: they are told on, with what has only so much room.
const maxText = 100

// Read reads the Set that a program has written, which may be any program.
func Read(data []byte) (Set, error) {
	var v Set
	if err := json.Unmarshal(data, &v); err != nil {
		return Set{}, err
	}
	for key, text := range map[string]string{"version": v.Version, "vault": v.Vault} {
		if len(text) > maxText {
			return Set{}, fmt.Errorf("its %s has %d bytes, at most %d", key, len(text), maxText)
		}
	}
	return v, nil
}

// Probe writes the program's Set as JSON: what a supervisor asks of a program
// before it lets it take over.
func Probe(out io.Writer) error { return json.NewEncoder(out).Encode(Own()) }
