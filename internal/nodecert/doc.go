// Package nodecert has the certificates by which daemons know each other: what is in
// them, how they are read, checked, read again and made.
//
// A node's certificate has exactly one name that counts, the URI
// rdmad://node/NAME with NAME the node.name of its configuration. Addresses and host
// names in certificates mean nothing here. It must be good for servers and for
// clients, because a node is both, and lead to an authority of the node's own ca
// file; the authorities of the system are never asked.
//
// name.go has the name, files.go the files, keeper.go the reading of files that
// change, verify.go the judgement of a peer's certificate, authority.go and write.go
// the making of certificates, and info.go their description for people.
package nodecert
