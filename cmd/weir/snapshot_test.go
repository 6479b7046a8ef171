package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/snapshots"
	"github.com/weir-go/weir/snapshot"
)

// saved returns a directory that a node still uses, with the snapshots of saveThree.
func saved(t *testing.T) (dir, shared string) {
	dir = t.TempDir()
	d, err := snapshot.OpenDir(dir, snapshot.DirOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return dir, saveThree(t, d)
}

// saveThree saves two snapshots of a node and a snapshot of a second node. It returns the file
// with their secrets.
func saveThree(t *testing.T, to snapshot.Store) (shared string) {
	shared = write(t, "secret: 0123456789abcdef0123456789abcdef\n")
	secrets, _, err := weir.ReadSecrets(shared)
	require.NoError(t, err)
	for _, node := range []string{"a", "a", "b c\n"} {
		header := snapshots.Header{Cluster: [16]byte{0xab}, Node: node, Saved: time.Now().Add(-90 * time.Minute), Build: "v1.2.3"}
		require.NoError(t, saveTo(to, node, snapshots.NewKeys(secrets), header))
	}
	return shared
}

func saveTo(d snapshot.Store, node string, keys snapshots.Keys, header snapshots.Header) error {
	return d.Save(context.Background(), node, func(to io.Writer) error {
		w, err := snapshots.NewWriter(to, keys, header)
		if err != nil {
			return err
		}
		return errors.Join(w.Block(snapshots.Counts, make([]byte, 100)), w.Block(snapshots.Counts, make([]byte, 200)), w.Block(snapshots.Values, make([]byte, 7)), w.Close())
	})
}

// weirSnapshot runs weir snapshot, and returns its output with normalised times and
// spaces.
func weirSnapshot(args ...string) (code int, stdout, stderr string) {
	var out, errs strings.Builder
	code = run(append([]string{"snapshot"}, args...), &out, &errs)
	text := regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`).ReplaceAllString(out.String(), "TIME")
	text = regexp.MustCompile(`1h3\dm\d+s`).ReplaceAllString(text, "AGE")
	return code, regexp.MustCompile(` {2,}`).ReplaceAllString(text, " "), errs.String()
}

func TestSnapshotsAreListedWithoutASecret(t *testing.T) {
	dir, _ := saved(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "weir-a.2.snapshot"), []byte("no snapshot"), 0o600))
	code, out, errs := weirSnapshot("list", dir)
	require.Equal(t, ok, code, errs)
	require.Equal(t, `NODE SAVED AGE BYTES GENERATION FILE
a unknown - 11 2 weir-a.2.snapshot
a TIME AGE 426 1 weir-a.1.snapshot
"b c\n" TIME AGE 429 1 weir-b%20c%0a.1.snapshot
`, out)
	code, _, errs = weirSnapshot("list", filepath.Join(dir, "none"))
	require.Equal(t, bad, code)
	require.Contains(t, errs, "weir snapshot list: snapshot: open "+filepath.Join(dir, "none"))
}

func TestShowPrintsHeaderAndContent(t *testing.T) {
	dir, shared := saved(t)
	file := filepath.Join(dir, "weir-b%20c%0a.1.snapshot")
	header := `node: "b c\n"
saved: TIME, AGE ago
build: v1.2.3
format: 1
cluster: ab000000000000000000000000000000
sealed: yes
`
	code, out, errs := weirSnapshot("show", file, "-shared", shared)
	require.Equal(t, ok, code, errs)
	require.Equal(t, header+"\nKIND BLOCKS BYTES\ncounts 2 300\nvalues 1 7\n", out)

	code, out, errs = weirSnapshot("show", file)
	require.Equal(t, bad, code)
	require.Equal(t, header, out)
	require.Contains(t, errs, "weir snapshot show: "+file+": weir: the snapshot is sealed under a secret, and there are no Secrets")
	require.Contains(t, errs, "(-shared names the file of the secrets)")
}

func TestVerifyReportsFaultOfEachFile(t *testing.T) {
	dir, shared := saved(t)
	other := write(t, "secret: ffffffffffffffffffffffffffffffff\n")
	const good = "weir-a.2.snapshot: good, 3 blocks\nweir-a.1.snapshot: good, 3 blocks\nweir-b%20c%0a.1.snapshot: good, 3 blocks\n"
	code, out, errs := weirSnapshot("verify", dir, "-shared", shared)
	require.Equal(t, ok, code, errs)
	require.Equal(t, good, out)
	t.Setenv("WEIR_SHARED", shared)
	code, out, _ = weirSnapshot("verify", dir)
	require.Equal(t, ok, code)
	require.Equal(t, good, out)
	t.Setenv("WEIR_SHARED", "")

	newest := filepath.Join(dir, "weir-a.2.snapshot")
	text, err := os.ReadFile(newest)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		newest []byte
		shared string
		want   string
		errs   string
	}{
		"cut short":      {text[:len(text)-1], shared, "weir-a.2.snapshot: weir: the snapshot is damaged or cut short", "1 of 3 snapshots cannot be read"},
		"empty":          {nil, shared, "weir-a.2.snapshot: weir: the file is not a snapshot", "1 of 3 snapshots cannot be read"},
		"no secret":      {text, "", "there are no Secrets: set the Secrets with which it was written (-shared names the file of the secrets)", "3 of 3 snapshots cannot be read"},
		"another secret": {text, other, "under a secret that is not among Secrets", "3 of 3 snapshots cannot be read"},
		"no such file":   {text, "/none", "", "/none"},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(newest, c.newest, 0o600))
			code, out, errs := weirSnapshot("verify", dir, "-shared", c.shared)
			require.Equal(t, bad, code)
			require.Contains(t, out, c.want)
			require.Contains(t, errs, "weir snapshot verify: ")
			require.Contains(t, errs, c.errs)
			code, _, _ = weirSnapshot("verify", newest, "-shared", c.shared)
			require.Equal(t, bad, code, "the file alone")
		})
	}
	empty := t.TempDir()
	code, _, errs = weirSnapshot("verify", empty)
	require.Equal(t, bad, code)
	require.Contains(t, errs, empty+" has no snapshots")
}

func TestUnsealedSnapshotsNeedNoSecret(t *testing.T) {
	dir := t.TempDir()
	d, err := snapshot.OpenDir(dir, snapshot.DirOptions{})
	require.NoError(t, err)
	require.NoError(t, saveTo(d, "a", snapshots.NewKeys(nil), snapshots.Header{Node: "a", Saved: time.Now()}))
	require.NoError(t, d.Close())
	code, out, errs := weirSnapshot("show", filepath.Join(dir, "weir-a.1.snapshot"))
	require.Equal(t, ok, code, errs)
	require.Contains(t, out, "sealed: no: anybody who can read the file can read its counts\n")
	code, _, errs = weirSnapshot("verify", dir)
	require.Equal(t, ok, code, errs)
	code, out, _ = weirSnapshot("verify", dir, "-shared", write(t, "secret: 0123456789abcdef0123456789abcdef\n"))
	require.Equal(t, bad, code)
	require.Contains(t, out, "the snapshot is not sealed, and there are Secrets")
}
