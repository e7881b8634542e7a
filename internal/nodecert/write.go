package nodecert

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
	// CAValid and NodeValid are how long certificates are valid.
	CAValid, NodeValid time.Duration
	// Force replaces certificates of nodes; never the authority.
	Force bool
}

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
// without Force, none of the files exists. The paths are absolute.
func Make(p Plan) (*Made, error) {
	dir, err := filepath.Abs(p.Dir)
	if err != nil {
		return nil, err
	}
	if err := p.check(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	made := &Made{CA: filepath.Join(dir, CAFile)}
	a, err := openIn(dir, p.Cluster)
	if errors.Is(err, fs.ErrNotExist) {
		made.NewCA = true
		a, err = makeIn(dir, p)
	}
	if err != nil {
		return nil, err
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

// check refuses a plan that cannot be carried out completely.
func (p *Plan) check(dir string) error {
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
		for _, path := range []string{f.Cert, f.Key} {
			if _, err := os.Lstat(path); err == nil && !p.Force {
				return fmt.Errorf("%s exists already; --force replaces it", path)
			}
		}
	}
	return nil
}

// openIn opens the authority of a directory. The error wraps fs.ErrNotExist only if
// it has neither of the files.
func openIn(dir, cluster string) (*Authority, error) {
	certFile, keyFile := filepath.Join(dir, CAFile), filepath.Join(dir, CAKeyFile)
	cert, err := read(Open, certFile, 0o022)
	key, kerr := read(Open, keyFile, 0o077)
	if gone, kgone := errors.Is(err, fs.ErrNotExist), errors.Is(kerr, fs.ErrNotExist); gone != kgone {
		return nil, fmt.Errorf("%s has only one of %s and %s: an authority needs both", dir, CAFile, CAKeyFile)
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

// makeIn makes the authority of a directory.
func makeIn(dir string, p Plan) (*Authority, error) {
	cluster := p.Cluster
	if cluster == "" {
		cluster = "rdmad"
	}
	a, err := NewAuthority(cluster, p.CAValid)
	if err != nil {
		return nil, err
	}
	cert, key, err := a.PEM()
	if err != nil {
		return nil, err
	}
	keyFile := filepath.Join(dir, CAKeyFile)
	if err := write(keyFile, key, 0o600, false); err != nil {
		return nil, err
	}
	if err := write(filepath.Join(dir, CAFile), cert, 0o644, false); err != nil {
		return nil, errors.Join(err, os.Remove(keyFile)) // half an authority would be in the way of the next
	}
	return a, nil
}

// write puts a file in place complete or not at all, and replaces one only if told
// to.
func write(path string, data []byte, mode fs.FileMode, replace bool) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".rdmad-certs-*")
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
