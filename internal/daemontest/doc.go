// Package daemontest starts real daemons for the tests of this module: each node
// is a supervisor in the test process with a core that is the test binary run
// again.
//
//	func TestMain(m *testing.M) { daemontest.Main(m) }
//
//	func TestX(t *testing.T) {
//		a, b := daemontest.Pair(t, "")
//		...
//	}
//
// Pair stops the nodes when the test ends and then checks that nothing is left:
// no descriptor, no child process, no file. Examples, which have no testing.TB,
// use Start.
package daemontest
