package event

import "github.com/rs/zerolog"

// What other nodes can bring about.
const (
	PeerUnreachable   Code = "peer-unreachable"
	PeerDisconnected  Code = "peer-disconnected"
	PeerTwice         Code = "peer-twice"
	PeerRefused       Code = "peer-refused"
	LinkGivenUp       Code = "link-given-up"
	DirectoryFull     Code = "directory-full"
	DrainPeers        Code = "drain-peers"
	TLSFiles          Code = "tls-files"
	TLSOwnCertificate Code = "tls-own-certificate"
	TLSExpires        Code = "tls-expires"
	TLSDataPlain      Code = "tls-data-plain"
)

var peerEvents = []Info{
	{
		Code: PeerUnreachable, Level: zerolog.WarnLevel,
		Meaning: "A configured peer cannot be connected to. The daemon goes on trying; calls to it wait for limits.connect_wait and fail.",
		Cause:   "The peer is down, its address is wrong, a firewall is between, or TLS does not agree. The line comes again only when the reason changes.",
		Action:  "On this node `rdmad doctor --peer NAME`, on the other `rdmad status`.",
		Shown:   "TestEventsOfPeers",
	},
	{
		Code: PeerDisconnected, Level: zerolog.WarnLevel,
		Meaning: "The connection to a peer has ended. What is under way waits for node.link_hold.",
		Cause:   "The peer stopped or restarted, or the network between lost packets.",
		Action:  "`rdmad status` shows whether it is back. If it is not: as for peer-unreachable.",
		Shown:   "TestEventsOfPeers",
	},
	{
		Code: PeerTwice, Level: zerolog.ErrorLevel,
		Meaning: "A peer that another one of the same name had taken the place of is back: two daemons say that they are that node, and each ends the connection of the other. Calls to it fail, or reach either. Said once a minute.",
		Cause:   "Two daemons with one node.name: a copied configuration, or an old machine that was thought to be switched off.",
		Action:  "`address` and `other` are where they come from. Stop the one that is not at the address in this node's [[peer]], or give it another node.name.",
		Shown:   "TestTwoDaemonsOfOneName",
	},
	{
		Code: PeerRefused, Level: zerolog.WarnLevel,
		Meaning: "A connection to this node's bootstrap or data listener was refused. Further ones for the same reason are only counted.",
		Cause:   "A node that is no [[peer]] here, a certificate that does not fit, another release, or something that is no rdmad.",
		Action:  "`rdmad status` lists refusals with their reasons and what to do about each; docs/security.md explains them.",
		Shown:   "TestEventsOfPeers",
	},
	{
		Code: LinkGivenUp, Level: zerolog.WarnLevel,
		Meaning: "A lost link did not come back within node.link_hold. Requests that were on the wire end as \"may have been executed\", the others as \"not executed\".",
		Cause:   "As for peer-disconnected, for longer.",
		Action:  "See the peer. A longer node.link_hold, which can be reloaded, waits longer.",
		Shown:   "TestEventsOfPeers",
	},
	{
		Code: DirectoryFull, Level: zerolog.ErrorLevel,
		Meaning: "This node serves more methods than it can tell its peers; they do not hear of some, the latest of the domains that are named. Every domain is told as far as its equal share goes.",
		Cause:   "Thousands of methods, mostly registered by mistake.",
		Action:  "`rdmad services` lists them. Lower limits.services.",
		Shown:   "not: needs thousands of registrations",
	},
	{
		Code: DrainPeers, Level: zerolog.WarnLevel,
		Meaning: "The daemon has drained, and the named peers have not said that they are done with this node.",
		Cause:   "The peers hang or are overloaded, or their links were lost while the node drained.",
		Action:  "Look at them with `rdmad status`. Nothing is lost here; what a peer waited for whose link did not come back may end there as may-have-been-executed.",
		Shown:   "TestEventsOfPeers",
	},
	{
		Code: TLSFiles, Level: zerolog.ErrorLevel,
		Meaning: "The files of [tls] cannot be used. What the core has read before stays in use. A core that was started again meanwhile has read nothing: attached processes go on within the node, and peers connect when the files can be used.",
		Cause:   "A half-written or wrong file, or permissions: the key must be its owner's alone.",
		Action:  "`rdmad doctor` says what is wrong. Correct the file; it is read again by itself.",
		Shown:   "TestEventsOfTLS",
	},
	{
		Code: TLSOwnCertificate, Level: zerolog.ErrorLevel,
		Meaning: "Peers will refuse this node's certificate.",
		Cause:   "It has expired, is not valid yet, or is for another name than node.name.",
		Action:  "Where the authority's `ca-key.pem` is: `rdmad certs init --dir DIR --force NODE`, then copy the node's two files there. They are used without a restart.",
		Shown:   "TestEventsOfTLS",
	},
	{
		Code: TLSExpires, Level: zerolog.WarnLevel,
		Meaning: "This node's certificate expires within 30 days.",
		Cause:   "Time.",
		Action:  "Where the authority's `ca-key.pem` is: `rdmad certs init --dir DIR --force NODE`, then copy the node's two files there. They are used without a restart.",
		Shown:   "TestEventsOfTLS",
	},
	{
		Code: TLSDataPlain, Level: zerolog.WarnLevel,
		Meaning: "tls.mode protects the bootstrap connections, and data goes over TCP unencrypted.",
		Cause:   "tls.data is not set.",
		Action:  "Set tls.data = \"tls\", or \"plain\" to say that it is known.",
		Shown:   "TestEventsOfTLS",
	},
}
