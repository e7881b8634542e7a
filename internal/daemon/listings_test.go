package daemon

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/peerproto"
)

// However many methods a domain has, peers hear of those of the others, which leave it what they do not need. What a node
// does not tell is always the same, and is said.
func TestDirectoryIsShared(t *testing.T) {
	var log bytes.Buffer
	c := &conductor{log: zerolog.New(&log)}
	serving := func(name string, methods, nameLen int) *domain {
		d := &domain{name: name, methods: map[methodKey]*method{}}
		for i := range methods {
			name := fmt.Sprintf("%0*d", nameLen, i)
			d.methods[methodKey{strings.Repeat("s", nameLen), name}] = &method{id: uint32(i), answer: 1 << 30, workers: map[*worker]bool{{}: true}}
		}
		return d
	}
	const long = 63
	for _, step := range []struct {
		name    string
		domains []*domain
		all     []string // those of which everything is told
		cut     []string // and those of which it is not
	}{
		{"one before another", []*domain{serving("greedy", 5000, long), serving("modest", 1, long)}, []string{"modest"}, []string{"greedy"}},
		{"one behind another", []*domain{serving("modest", 1000, long), serving("greedy", 5000, long)}, []string{"modest"}, []string{"greedy"}},
		{"two beside one", []*domain{serving("greedy", 5000, long), serving("modest", 1, 1), serving("greedy2", 5000, long)}, []string{"modest"}, []string{"greedy", "greedy2"}},
		{"what one leaves is enough", []*domain{serving("large", 4000, long), serving("small", 100, long)}, []string{"large", "small"}, nil},
	} {
		t.Run(step.name, func(t *testing.T) {
			log.Reset()
			c.domains.Store(&step.domains)
			ls := c.listings()
			told, room := map[string]int{}, maxDirectory
			for _, l := range ls {
				told[l.Domain]++
				room -= directoryBytes(&l)
			}
			if frame, err := json.Marshal(&peerproto.Message{Type: peerproto.TypeDirectory, Directory: ls}); err != nil || len(frame) > peerproto.MaxFrame {
				t.Errorf("a frame of %d bytes: %v", len(frame), err)
			}
			if len(step.cut) > 0 && (room < 0 || room >= 96+2*long+len("greedy2")) {
				t.Errorf("%d bytes are left while methods are not told", room)
			}
			left := 0
			for _, d := range step.domains {
				left += len(d.methods) - told[d.name]
				if slices.Contains(step.all, d.name) && told[d.name] != len(d.methods) {
					t.Errorf("%d of %d methods of %s are told", told[d.name], len(d.methods), d.name)
				}
				if share := maxDirectory / len(step.domains) / (96 + 2*long + len(d.name)); told[d.name] < min(share, len(d.methods)) {
					t.Errorf("%s has %d methods told, and a share for %d", d.name, told[d.name], share)
				}
			}
			if again := c.listings(); !slices.Equal(sorted(again), sorted(ls)) {
				t.Error("the next time others are told")
			}
			said := struct {
				Code    string
				Domains []string
				Methods int
			}{}
			if err := json.NewDecoder(&log).Decode(&said); len(step.cut) == 0 {
				if err == nil {
					t.Errorf("it is said that %v are left out", said)
				}
			} else if said.Code != string(event.DirectoryFull) || !slices.Equal(said.Domains, step.cut) || said.Methods != left {
				t.Errorf("said: %+v (%v), want %v and %d methods", said, err, step.cut, left)
			}
		})
	}
}

func sorted(ls []peerproto.Listing) (names []string) {
	for _, l := range ls {
		names = append(names, l.Domain+"/"+l.Service+"/"+l.Method)
	}
	slices.Sort(names)
	return names
}
