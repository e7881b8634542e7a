package nodecert

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// The names of the authority's files.
const (
	CAFile    = "ca.pem"
	CAKeyFile = "ca-key.pem"
)

// Plan says which certificates to make.
type Plan struct {
	// Dir is where the files are, or go. It is made if it does not exist.
	Dir string
	// Cluster is the name of a new authority; empty: "rdmad". An authority that Dir
	// has already must have the same name, unless it is empty.
	Cluster string
	Nodes   []string
	// CAValid is how long a new authority is valid; 0: DefaultCAValid. An authority that Dir has already must have been
	// made for as long, unless it is 0.
	CAValid time.Duration
	// NodeValid is how long certificates of nodes are valid.
	NodeValid time.Duration
	// Force replaces certificates of nodes; never the authority.
	Force bool
}

// DefaultCAValid is how long an authority is valid if nobody says otherwise.
const DefaultCAValid = 3650 * 24 * time.Hour

// Made is what a Plan has come to.
type Made struct {
	// CA is the path of the authority's certificate, and NewCA says that it was made
	// just now.
	CA    string
	NewCA bool
	Nodes []MadeNode
}

// MadeNode is the certificate of a node.
type MadeNode struct {
	Node  string
	Files Files
	Until time.Time
}

// FilesOf returns the paths of a node's files in a directory.
func FilesOf(dir, node string) Files {
	return Files{Cert: filepath.Join(dir, node+".pem"), Key: filepath.Join(dir, node+"-key.pem"), CA: filepath.Join(dir, CAFile)}
}

// Make makes what the plan says. Nothing is written unless all names are good and,
// without Force, none of the files exists. The paths are absolute. Several processes
// may do so in one directory: one waits for the other. What one that was killed has
// left is put right.
func Make(p Plan) (*Made, error) {
	dir, err := filepath.Abs(p.Dir)
	if err != nil {
		return nil, err
	}
	if err := p.checkNames(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	held, err := hold(dir)
	if err != nil {
		return nil, err
	}
	defer held.Close()
	if err := p.checkFiles(dir); err != nil {
		return nil, err
	}
	made, err := p.makeAll(dir)
	// As much as was made is to be there after a crash, too. Not every file system can say so.
	if serr := held.Sync(); err == nil && !errors.Is(serr, syscall.EINVAL) {
		err = serr
	}
	if err != nil {
		return nil, err
	}
	return made, nil
}

// makeAll is Make with everything checked.
func (p *Plan) makeAll(dir string) (*Made, error) {
	made := &Made{CA: filepath.Join(dir, CAFile)}
	a, err := openIn(dir, p.Cluster)
	if errors.Is(err, fs.ErrNotExist) {
		made.NewCA = true
		a, err = makeIn(dir, *p)
	}
	if err != nil {
		return nil, err
	}
	if p.CAValid != 0 && p.CAValid != a.valid() {
		return nil, fmt.Errorf("%s is an authority already, valid until %s, which --ca-days does not change: leave that out, or make a new authority in another directory",
			made.CA, a.Cert.NotAfter.UTC().Format(day))
	}
	if time.Now().After(a.Cert.NotAfter) {
		return nil, fmt.Errorf("the authority %s expired on %s: make a new one in another directory", made.CA, a.Cert.NotAfter.UTC().Format(day))
	}
	for _, node := range p.Nodes {
		cert, key, err := a.Issue(Request{Node: node, Until: time.Now().Add(p.NodeValid)})
		if err != nil {
			return nil, fmt.Errorf("node %s: %w", node, err)
		}
		f := FilesOf(dir, node)
		// The key first: a daemon that reads between the two keeps what it has.
		if err := write(f.Key, key, 0o600, p.Force); err != nil {
			return nil, err
		}
		if err := write(f.Cert, cert, 0o644, p.Force); err != nil {
			return nil, fmt.Errorf("%w; %s is new already, and of no use without it: make both again with --force", err, f.Key)
		}
		list, err := Parse(cert)
		if err != nil {
			return nil, err
		}
		made.Nodes = append(made.Nodes, MadeNode{Node: node, Files: f, Until: list[0].NotAfter})
	}
	return made, nil
}

// checkNames refuses a plan whose files are not told apart.
func (p *Plan) checkNames(dir string) error {
	seen := map[string]bool{}
	for _, node := range p.Nodes {
		f := FilesOf(dir, node)
		switch {
		case CheckName(node) != nil:
			return CheckName(node)
		case seen[f.Cert] || seen[f.Key]:
			return fmt.Errorf("node %s: its files would be those of another node, or it is named twice", node)
		case f.Cert == f.CA || f.Cert == filepath.Join(dir, CAKeyFile) || f.Key == filepath.Join(dir, CAKeyFile):
			return fmt.Errorf("node %s: its files would be those of the authority; make its certificate in another directory", node)
		}
		seen[f.Cert], seen[f.Key] = true, true
	}
	return nil
}

// checkFiles refuses a plan that would replace what it may not.
func (p *Plan) checkFiles(dir string) error {
	for _, node := range p.Nodes {
		f := FilesOf(dir, node)
		for _, path := range []string{f.Cert, f.Key} {
			if _, err := os.Lstat(path); err == nil && !p.Force {
				return fmt.Errorf("%s exists already; --force replaces it", path)
			}
		}
	}
	return nil
}

// openIn opens the authority of a directory. The error wraps fs.ErrNotExist only if
// it has neither of the files, or a key that nothing was made with yet.
func openIn(dir, cluster string) (*Authority, error) {
	certFile, keyFile := filepath.Join(dir, CAFile), filepath.Join(dir, CAKeyFile)
	cert, err := read(Open, certFile, 0o022)
	key, kerr := read(Open, keyFile, 0o077)
	gone, kgone := errors.Is(err, fs.ErrNotExist), errors.Is(kerr, fs.ErrNotExist)
	switch {
	case kgone && !gone:
		return nil, fmt.Errorf("%s has %s and no %s: an authority needs both; bring back the key, or make a new authority in another directory", dir, CAFile, CAKeyFile)
	case gone && kerr == nil && !unused(dir):
		return nil, fmt.Errorf("%s has %s and no %s: an authority needs both; bring back the certificate from any node, or make a new authority in another directory", dir, CAKeyFile, CAFile)
	}
	if err := errors.Join(err, kerr); err != nil {
		return nil, err
	}
	a, err := OpenAuthority(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", certFile, keyFile, err)
	}
	if cluster != "" && cluster != a.Cluster() {
		return nil, fmt.Errorf("%s is the authority of %q, not of %q", certFile, a.Cluster(), cluster)
	}
	return a, nil
}

// unused reports whether a directory has no PEM files but the authority's key: who made that was killed before there was
// anything else.
func unused(dir string) bool {
	files, err := filepath.Glob(filepath.Join(quoted(dir), "*.pem"))
	return err == nil && len(files) == 1
}

// makeIn makes the authority of a directory, with the key that is there already, if any.
func makeIn(dir string, p Plan) (*Authority, error) {
	keyFile := filepath.Join(dir, CAKeyFile)
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	left, err := read(Open, keyFile, 0o077)
	switch {
	case err == nil:
		if key, err = parseKey(left); err != nil {
			return nil, fmt.Errorf("%s: %w", keyFile, err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	a, err := authorityOf(key, cmp.Or(p.Cluster, "rdmad"), cmp.Or(p.CAValid, DefaultCAValid))
	if err != nil {
		return nil, err
	}
	cert, keyPEM, err := a.PEM()
	if err != nil {
		return nil, err
	}
	if left == nil {
		if err := write(keyFile, keyPEM, 0o600, false); err != nil {
			return nil, err
		}
	}
	if err := write(filepath.Join(dir, CAFile), cert, 0o644, false); err != nil {
		if left == nil {
			err = errors.Join(err, os.Remove(keyFile))
		}
		return nil, err
	}
	return a, nil
}

// write puts a file in place complete or not at all, and replaces one only if told
// to.
func write(path string, data []byte, mode fs.FileMode, replace bool) error {
	f, err := os.CreateTemp(filepath.Dir(path), halfMade)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails if it was renamed
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	if replace {
		return os.Rename(f.Name(), path)
	}
	return os.Link(f.Name(), path)
}
