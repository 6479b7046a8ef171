package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/snapshots"
	"github.com/weir-go/weir/snapshot"
)

// snapshotListCommand lists the snapshots of a directory or a bucket. Only headers
// are read, so no secret is needed.
type snapshotListCommand struct {
	Where string `arg:"" name:"dir" help:"a directory or a bucket, like -snapshots of weir serve; a node may be using it"`
}

func (c *snapshotListCommand) run(stdout, _ io.Writer) (int, error) {
	return inPlace("list", c.Where, func(at *place) error {
		entries, err := at.list()
		if err != nil {
			return err
		}
		return printTable(stdout, "NODE\tSAVED\tAGE\tBYTES\tGENERATION\tFILE", entries, func(e snapshot.Entry) string {
			saved, age := "unknown", "-"
			if header, err := at.header(e.Path); err == nil {
				saved, age = header.Saved.Format(time.RFC3339), ageOf(header)
			}
			return fmt.Sprintf("%s\t%s\t%s\t%d\t%d\t%s", shown(e.Node), saved, age, e.Bytes, e.Generation, at.name(e.Path))
		})
	})
}

// inPlace calls do with a place. The error contains the name of the command.
func inPlace(command, where string, do func(at *place) error) (int, error) {
	at, err := openPlace(where)
	if err == nil {
		defer at.end()
		err = do(at)
	}
	if err != nil {
		return bad, fmt.Errorf("weir snapshot %s: %w", command, explainedSnapshot(err))
	}
	return ok, nil
}

// opening contains the flags of commands that read sealed snapshots.
type opening struct {
	Shared string `placeholder:"FILE" env:"WEIR_SHARED" help:"file with the secrets of the nodes, like -shared of weir serve; none if the snapshots are not sealed"`
}

// clientSecrets returns the file of secrets that the flags name. The name may be empty.
func (o *opening) clientSecrets() []string { return []string{o.Shared} }

func (o *opening) keys() (snapshots.Keys, error) {
	if o.Shared == "" {
		return snapshots.Keys{}, nil
	}
	secrets, _, err := readShared(o.Shared)
	return snapshots.NewKeys(secrets), err
}

// snapshotShowCommand prints the header of a snapshot, and its number of blocks of each
// kind.
type snapshotShowCommand struct {
	opening
	File string `arg:"" help:"a snapshot: a file of the directory, or URL/FILE of a bucket"`
}

func (c *snapshotShowCommand) run(stdout, _ io.Writer) (int, error) {
	return inPlace("show: "+c.File, c.File, func(at *place) error { return c.show(at, stdout) })
}

func (c *snapshotShowCommand) show(at *place, stdout io.Writer) error {
	keys, err := c.keys()
	if err != nil {
		return err
	}
	path, err := at.singlePath(c.File)
	if err != nil {
		return err
	}
	header, err := at.header(path)
	if err != nil {
		return err
	}
	sealed := "no: anybody who can read the file can read its counts"
	if header.Sealed {
		sealed = "yes"
	}
	fmt.Fprintf(stdout, "node:    %s\nsaved:   %s, %s ago\nbuild:   %s\nformat:  %d\ncluster: %x\nsealed:  %s\n",
		shown(header.Node), header.Saved.Format(time.RFC3339), ageOf(header), shown(header.Build), header.Version, header.Cluster, sealed)
	content, err := at.content(path, keys)
	if err != nil {
		return err // the header is printed before the error, because it may explain the error
	}
	return printTable(stdout, "\nKIND\tBLOCKS\tBYTES", slices.Sorted(maps.Keys(content)), func(kind snapshots.Kind) string {
		return fmt.Sprintf("%s\t%d\t%d", kind, content[kind].blocks, content[kind].bytes)
	})
}

// snapshotVerifyCommand reads snapshots like a node that starts.
type snapshotVerifyCommand struct {
	opening
	Where string `arg:"" name:"path" help:"a directory or a bucket, like -snapshots of weir serve, or one file; a node may be using it"`
}

// Help describes the exit code.
func (*snapshotVerifyCommand) Help() string {
	return "The exit code is 1 if a snapshot cannot be read, or there is no snapshot.\n\n  weir snapshot verify /var/lib/weir -shared weir.secret"
}

func (c *snapshotVerifyCommand) run(stdout, _ io.Writer) (int, error) {
	return inPlace("verify", c.Where, func(at *place) error { return c.verify(at, stdout) })
}

func (c *snapshotVerifyCommand) verify(at *place, stdout io.Writer) error {
	keys, err := c.keys()
	if err != nil {
		return err
	}
	entries, err := at.list()
	if err != nil {
		return err
	}
	good, damaged := 0, 0
	for _, e := range entries {
		switch content, err := at.content(e.Path, keys); {
		case errors.Is(err, fs.ErrNotExist) && e.Node != "": // a node has replaced it meanwhile
		case err != nil:
			damaged++
			fmt.Fprintf(stdout, "%s: %v\n", at.name(e.Path), explainedSnapshot(err))
		default:
			good++
			blocks := 0
			for _, of := range content {
				blocks += of.blocks
			}
			fmt.Fprintf(stdout, "%s: good, %s\n", at.name(e.Path), counted(blocks, "block"))
		}
	}
	switch {
	case damaged > 0:
		return fmt.Errorf("%d of %s cannot be read", damaged, counted(good+damaged, "snapshot"))
	case good == 0:
		return fmt.Errorf("%s has no snapshots: name the -snapshots of a node that has written snapshots", c.Where)
	}
	return nil
}

// explainedSnapshot adds the flag to an error about secrets.
func explainedSnapshot(err error) error {
	if errors.Is(err, snapshots.ErrNoSecret) || errors.Is(err, snapshots.ErrOtherSecret) {
		return fmt.Errorf("%w (-shared names the file of the secrets)", err)
	}
	return err
}

// header reads the header of a snapshot without verification.
func (p *place) header(path string) (header snapshots.Header, err error) {
	err = p.read(path, func(r io.Reader) (err error) {
		header, err = snapshots.ReadHeader(r)
		return err
	})
	return header, err
}

func ageOf(h snapshots.Header) string { return time.Since(h.Saved).Round(time.Second).String() }

// amount is the number of blocks and bytes of a kind.
type amount struct {
	blocks int
	bytes  int64
}

// content reads a snapshot to its end, and returns the amount of each kind.
func (p *place) content(path string, keys snapshots.Keys) (content map[snapshots.Kind]amount, err error) {
	content = make(map[snapshots.Kind]amount)
	err = p.read(path, func(from io.Reader) error {
		r, err := snapshots.NewReader(from, keys)
		for err == nil {
			var kind snapshots.Kind
			var block []byte
			if kind, block, err = r.Next(); err == nil {
				of := content[kind]
				content[kind] = amount{of.blocks + 1, of.bytes + int64(len(block))}
			}
		}
		if err == io.EOF {
			return nil
		}
		return err
	})
	return content, err
}
