package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const someEvents = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestA/x"}
{"Action":"output","Package":"p","Test":"TestA/x","Output":"    a_test.go:7: wrong\n"}
{"Action":"fail","Package":"p","Test":"TestA/x","Elapsed":2.5}
{"Action":"fail","Package":"p","Test":"TestA","Elapsed":2.5}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"skip","Package":"p","Test":"TestB","Elapsed":0}
{"Action":"run","Package":"p","Test":"TestC"}
{"Action":"output","Package":"p","Test":"TestC","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"p","Elapsed":3}
# q: does not build
{"Action":"run","Package":"r","Test":"TestD"}
{"Action":"pass","Package":"r","Test":"TestD","Elapsed":1}
{"Action":"pass","Package":"r","Elapsed":1}
`

func read(t *testing.T, events string) (all []result) {
	require.NoError(t, results(strings.NewReader(events), "go test", func(r result) { all = append(all, r) }))
	return all
}

func TestATestThatNeverEndsFailsWithItsPackage(t *testing.T) {
	all := read(t, someEvents)
	require.Equal(t, []result{
		{name{"p", "TestA/x"}, "fail", 2500 * time.Millisecond, "    a_test.go:7: wrong\n"},
		{name{"p", "TestA"}, "fail", 2500 * time.Millisecond, ""},
		{name{"p", "TestB"}, "skip", 0, ""},
		{name{"p", "TestC"}, "fail", 0, "panic: test timed out\n"},
		{name{"p", ""}, "fail", 3 * time.Second, ""},
		{name{"r", "TestD"}, "pass", time.Second, ""},
		{name{"r", ""}, "pass", time.Second, ""},
	}, all)
}

func TestOnlyTheEndOfLongOutputIsKept(t *testing.T) {
	line := `{"Action":"output","Package":"p","Test":"T","Output":"` + strings.Repeat("x", 1000) + `\n"}` + "\n"
	all := read(t, strings.Repeat(line, 1000)+`{"Action":"output","Package":"p","Test":"T","Output":"the end\n"}
{"Action":"fail","Package":"p","Test":"T"}
`)
	require.Len(t, all, 1)
	require.LessOrEqual(t, len(all[0].output), maxOutput+1001)
	require.True(t, strings.HasSuffix(all[0].output, "the end\n"))
}

func TestFindingsCountEachRunAndNameSubtests(t *testing.T) {
	f := newFindings()
	require.Equal(t, 2, f.add(read(t, someEvents)))
	require.Equal(t, 1, f.add(read(t, `{"Action":"fail","Package":"p","Test":"TestC"}
{"Action":"fail","Package":"p"}
`)))
	var out strings.Builder
	f.print(&out)
	require.Contains(t, out.String(), "p TestA/x failed in 1 of 1 runs; its last output:\n    a_test.go:7: wrong\n")
	require.Contains(t, out.String(), "p TestC failed in 2 of 2 runs")
	require.NotContains(t, out.String(), "p TestA failed")
	require.NotContains(t, out.String(), "p failed")
	require.Contains(t, out.String(), "\n5 tests ran, counting each run; 3 failed\n")
}

func TestSlowestNamesLeavesAndFailsWithATest(t *testing.T) {
	var out, complaints strings.Builder
	require.Equal(t, exitFailed, run(t.Context(), []string{"slowest", "-n", "2"}, strings.NewReader(someEvents), &out, &complaints))
	require.Contains(t, out.String(), "a_test.go:7: wrong")
	require.Contains(t, out.String(), "fail      3.0 s  p\n")
	require.Contains(t, out.String(), "4 tests ended, 1 were skipped. The slowest:\n     2.5 s  p TestA/x\n     1.0 s  r TestD\n")
	out.Reset()
	require.Equal(t, exitFine, run(t.Context(), []string{"slowest"}, strings.NewReader(`{"Action":"pass","Package":"p"}`), &out, &complaints))
}

func TestASlowMachineHasMoreTime(t *testing.T) {
	for _, c := range []struct {
		took          time.Duration
		before, after time.Duration
		within        bool
	}{
		{100 * time.Second, reference, reference, true},
		{101 * time.Second, reference, reference, false},
		{199 * time.Second, reference, 2 * reference, true},
		{201 * time.Second, 2 * reference, reference, false},
		{101 * time.Second, reference / 2, reference / 2, false}, // a fast machine has no less, but no more
		{99 * time.Second, reference / 2, reference / 2, true},
	} {
		said, within := verdict(c.took, 100*time.Second, c.before, c.after)
		require.Equal(t, c.within, within, said)
	}
}

func TestLimitFailsWithItsCommand(t *testing.T) {
	steady := func(context.Context) time.Duration { return reference }
	var out strings.Builder
	goes := []string{"go", "env", "GOOS"}
	require.NoError(t, limited(t.Context(), time.Minute, steady, goes, &out))
	require.Contains(t, out.String(), "go env GOOS: ")
	require.Error(t, limited(t.Context(), time.Minute, steady, []string{"go", "no-such-command"}, &out))
	require.ErrorIs(t, limited(t.Context(), time.Microsecond, steady, goes, &out), errFailed)
	require.Contains(t, out.String(), "too slow: ")
	require.Equal(t, work(1), work(1), "the same work each time")
}

func TestAWrongCommandLineSaysWhatToGive(t *testing.T) {
	for _, args := range []string{"", "flake", "flakes -n 0", "flakes -race -1", "flakes -what", "limit go", "limit -seconds 5", "slowest -n many", "flakes -h", "raced ./bucket"} {
		var out, complaints strings.Builder
		require.Equal(t, exitUsage, run(t.Context(), strings.Fields(args), nil, &out, &complaints), args)
		require.Contains(t, complaints.String(), usage, args)
	}
}

// A module of its own whose test fails with two processors alone.
func TestFlakesFindsATestThatFailsNowAndThen(t *testing.T) {
	dir := t.TempDir()
	for file, text := range map[string]string{
		"go.mod": "module example.com/flaky\n\ngo 1.26\n",
		"flaky_test.go": `package flaky

import (
	"runtime"
	"testing"
)

func TestFine(t *testing.T) {}

func TestFlaky(t *testing.T) {
	if runtime.GOMAXPROCS(0) == 2 {
		t.Fatal("two are too many")
	}
}
`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	t.Chdir(dir)
	t.Setenv("GOWORK", "off")
	var out, complaints strings.Builder
	require.Equal(t, exitFailed, run(t.Context(), []string{"flakes", "-n", "4", "-race", "0", "-busy", "0", "./..."}, nil, &out, &complaints), complaints.String())
	require.Empty(t, complaints.String())
	require.Contains(t, out.String(), "round 2 of 4, 2 processors: 1 failures")
	require.Contains(t, out.String(), "example.com/flaky TestFlaky failed in 1 of 4 runs; its last output:\n")
	require.Contains(t, out.String(), "two are too many")
	require.Contains(t, out.String(), "8 tests ran, counting each run; 1 failed")
	out.Reset()
	require.Equal(t, exitFine, run(t.Context(), []string{"flakes", "-n", "2", "-race", "0", "-busy", "0", "-run", "Fine"}, nil, &out, &complaints), complaints.String())
}

func TestPackagesAreListedByWhatTheirTestsNeed(t *testing.T) {
	var raced, full, complaints strings.Builder
	require.Equal(t, exitFine, run(t.Context(), []string{"raced"}, nil, &raced, &complaints), complaints.String())
	require.Contains(t, raced.String(), "github.com/weir-go/weir/cluster\n")
	for _, path := range unraced {
		require.NotContains(t, raced.String(), "github.com/weir-go/weir/"+path+"\n")
	}
	require.Equal(t, exitFine, run(t.Context(), []string{"full"}, nil, &full, &complaints), complaints.String())
	require.Contains(t, full.String(), "github.com/weir-go/weir/simulations\n")
	require.NotContains(t, full.String(), "github.com/weir-go/weir/internal/suite\n")
}
