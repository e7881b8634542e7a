// Package node runs a node of rdmad with services in the node's core: a program that imports it is
// the daemon of its node, like "rdmad run", and answers requests itself.
//
//	func main() {
//		err := node.Run(context.Background(), node.Config{File: "config.toml"}, func(ctx context.Context, s *server.Server) error {
//			return s.Handle("cache", "get", get, server.Inline())
//		})
//		...
//	}
//
// It is for a process that is the only one to serve on its node and whose handlers are quick: a cache, a
// lock table, a page server. A request then wakes one process at this node and not two, and with
// server.Inline no other thread either: the agent that has received it calls the handler and sends the
// answer. Whoever calls notices no difference; other processes of the node attach to it as to any
// rdmad, to call and to serve.
//
// # Processes
//
// Run starts the program a second time, as the core, with arguments of its own before those of the program; the first process
// stays as its supervisor, keeps what the core shares with workers, and starts it again when it dies. Package
// node takes them away from os.Args before main begins, so main sees the same arguments in both, and may
// parse flags before it calls Run. (For an upgrade it is started once more, to say its versions, and ends before main
// begins.) What main does before Run is done in both processes; what only
// the service needs belongs into the function that Run is given, which only the core calls.
//
// A program with the fabric verbs or libfabric is built with that tag, like rdmad.
package node
