package link

import "fmt"

// Protocol is the version of the conversation. Sides with different ones do not talk.
const Protocol = 2

// What a MismatchError can be about.
const (
	whatProtocol = "protocol"
	whatProvider = "provider"
	whatTool     = "tool"
)

// maxName bounds each text of a greeting.
const maxName = 128

// Greeting is what a side says of itself before anything else.
type Greeting struct {
	// Version is rdmad's, for people.
	Version  string `json:"version"`
	Protocol int    `json:"protocol"`
	// Provider names what moves the data, such as "tcp" or "libfabric shm".
	Provider string `json:"provider"`
	// Tool is what measures, such as "pingpong".
	Tool string `json:"tool"`
}

// check refuses a greeting of the other side that is none.
func (g Greeting) check() error {
	for _, s := range []string{g.Version, g.Provider, g.Tool} {
		if s == "" || len(s) > maxName {
			return protocolError("a greeting with the text %.40q", s)
		}
	}
	return nil
}

// fits returns a *MismatchError if a side with the greeting g cannot measure with one that
// says peer.
func (g Greeting) fits(peer Greeting) error {
	differs := func(what, own, theirs string) error {
		return &MismatchError{What: what, Own: own, Peer: fmt.Sprintf("%.*q", maxName, theirs), PeerVersion: fmt.Sprintf("%.*q", maxName, peer.Version)}
	}
	switch {
	case g.Protocol != peer.Protocol:
		return &MismatchError{What: whatProtocol, Own: fmt.Sprint(g.Protocol), Peer: fmt.Sprint(peer.Protocol), PeerVersion: peer.Version}
	case g.Provider != peer.Provider:
		return differs(whatProvider, fmt.Sprintf("%q", g.Provider), peer.Provider)
	case g.Tool != peer.Tool:
		return differs(whatTool, fmt.Sprintf("%q", g.Tool), peer.Tool)
	}
	return nil
}
