package weir

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/race"
)

// fuzzed is which fuzz target holds each function that reads what came from outside of
// its process: "directory Function" or "directory Type.Function", and the target's
// directory and name. A target that is no more specific goes through the one that calls it.
var fuzzed = map[string]string{
	". Calendar.UnmarshalText":              "rules FuzzParse",
	". PartitionPolicy.UnmarshalText":       "rules FuzzParse",
	". Scope.UnmarshalText":                 "rules FuzzParse",
	"bucket Algorithm.UnmarshalText":        "rules FuzzParse",
	"internal/strictyaml Named":             "rules FuzzParse",
	"internal/spelling Table.UnmarshalText": "rules FuzzParse",

	"internal/wire ParseLease":      ". FuzzLease",
	"internal/wire ParseHeader":     ". FuzzServe",
	"internal/wire ParseAsk":        ". FuzzServe",
	"internal/wire ParseAnswer":     "internal/wire FuzzAnswer",
	"internal/wire ParseResult":     "internal/wire FuzzAnswer",
	"internal/handover ParseRanges": ". FuzzHashes",

	"internal/holds parseRenew":   "internal/holds FuzzMessages",
	"internal/holds parseHeld":    "internal/holds FuzzMessages",
	"internal/holds parsePage":    "internal/holds FuzzMessages",
	"internal/holds page.parseAt": "internal/holds FuzzMessages",

	"internal/publish parseEntries":        "internal/publish FuzzKVMessages",
	"internal/publish ParseQuestion":       "internal/publish FuzzKVMessages",
	"internal/publish parseDifference":     "internal/publish FuzzKVMessages",
	"internal/registry parseLimits":        "internal/registry FuzzLimits",
	"internal/sealed Box.Open":             "internal/reserve FuzzOpen",
	"internal/snapshots ReadHeader":        "internal/snapshots FuzzReader",
	"internal/snapshots readRaw":           "internal/snapshots FuzzReader",
	"internal/snapshots rawHeader.readRun": "internal/snapshots FuzzReader",
	"internal/stats ParseTop":              "internal/stats FuzzTop",
	"internal/stats ParseTotals":           "internal/stats FuzzTotals",

	"snapshot parseFileName":             "snapshot FuzzFileName",
	"internal/reserve Reservation.parse": "internal/reserve FuzzReservation",
	". ParseSecrets":                     ". FuzzParseSecrets",
	". ReadSecrets":                      ". FuzzParseSecrets",
	"internal/secrettext Parse":          ". FuzzParseSecrets",
	"internal/secrettext Read":           ". FuzzParseSecrets",
	"internal/secrettext parse":          ". FuzzParseSecrets",
	"audit ID.UnmarshalText":             "audit FuzzID",
	"bucket Count.Parse":                 "bucket FuzzParse",
	"bucket Count.parseLog":              "bucket FuzzParse",
	"sync ParseExchange":                 "sync FuzzExchange",
	"sync Stream.Load":                   "sync FuzzLoad",
	"sync origins.read":                  "sync FuzzServe",
	"sync limits.read":                   "sync FuzzServe",
	"cluster parseFrame":                 "cluster FuzzFrame",
	"cluster decode":                     "cluster FuzzTable",
	"cluster decodeTable":                "cluster FuzzTable",
	"cluster decodeHello":                "cluster FuzzHello",
	"cluster readHello":                  "cluster FuzzHandshake",
	"cluster hello.readProof":            "cluster FuzzHandshake",
	"cluster hello.readOffer":            "cluster FuzzHandshake",
	"cluster decodeMetadata":             "cluster FuzzRecordsFromTheNetwork",
	"cluster decodeRecords":              "cluster FuzzRecordsFromTheNetwork",
	"cluster session.read":               "cluster FuzzFramesToALiveNode",
	"cluster incoming.read":              "cluster FuzzFramesToALiveNode",
	"cluster sealed.Read":                "cluster FuzzFramesToALiveNode",
	"cluster arriving.ReadByte":          "cluster FuzzPacketsToALivePort",
	"cluster remaining.ReadByte":         "cluster FuzzPacketsToALivePort",

	"internal/jsonscan Scanner.name": "internal/jsonscan FuzzScanner",
	"internal/jsonscan ParsePath":    "internal/jsonscan FuzzParseTerm",
	"internal/jsonscan ParseTerm":    "internal/jsonscan FuzzParseTerm",
	"internal/strictyaml Parse":      "internal/strictyaml FuzzNoFilePanics",
	"rules Parse":                    "rules FuzzParse",
	"rules read":                     "rules FuzzParse",
	"rules parsePattern":             "rules FuzzMatch",
	"rules appendReading":            "rules FuzzMatch",
	"rules readOverride":             "rules FuzzOverride",
	"rules Book.read":                "rules FuzzOverride",

	"httplimit formFor":                   "httplimit FuzzAccept",
	"httplimit qualityOf":                 "httplimit FuzzAccept",
	"httplimit Middleware.read":           "httplimit FuzzRequests",
	"httplimit readAhead":                 "httplimit FuzzRequests",
	"httplimit ClientAddress.read":        "httplimit FuzzNoSpoofedFieldChangesWhoAsks",
	"httplimit adminField.read":           "httplimit FuzzAdminAnswersWhateverIsSent",
	"httplimit adminField.readJSON":       "httplimit FuzzAdminAnswersWhateverIsSent",
	"httplimit adminList.readJSON":        "httplimit FuzzAdminAnswersWhateverIsSent",
	"httplimit readHeader":                "httplimit FuzzAdminAnswersWhateverIsSent",
	"httplimit adminObject":               "httplimit FuzzAdminAnswersWhateverIsSent",
	"httplimit admin.readForwarded":       "httplimit FuzzForwarded",
	"httplimit adminRequest.parameters":   "httplimit FuzzAdminAnswersWhateverIsSent",
	"httplimit adminRequest.body":         "httplimit FuzzAdminAnswersWhateverIsSent",
	"httplimit admin.deleteCount":         "httplimit FuzzAdminAnswersWhateverIsSent",
	"httplimit admin.deleteOverride":      "httplimit FuzzAdminAnswersWhateverIsSent",
	"page Page.act":                       "page FuzzAct",
	"contrib/s3 ParseURL":                 "contrib/s3 FuzzParseURL",
	"contrib/s3 parseName":                "contrib/s3 FuzzParseName",
	"contrib/envoy Parse":                 "contrib/envoy FuzzParse",
	"contrib/envoy parse":                 "contrib/envoy FuzzParse",
	"contrib/envoy parseFile":             "contrib/envoy FuzzParse",
	"contrib/envoy Service.read":          "contrib/envoy FuzzRequests",
	"contrib/envoy Service.readOne":       "contrib/envoy FuzzRequests",
	"contrib/envoy Service.readAmount":    "contrib/envoy FuzzReservations",
	"contrib/envoy domainOf":              "contrib/envoy FuzzResources",
	"cmd/weir parse":                      "cmd/weir FuzzServeOptions",
	"cmd/weir fileList.UnmarshalText":     "cmd/weir FuzzServeOptions",
	"cmd/weir list.UnmarshalText":         "cmd/weir FuzzServeOptions",
	"cmd/weir perRegion.UnmarshalText":    "cmd/weir FuzzServeOptions",
	"cmd/weir readShared":                 "cmd/weir FuzzConfidentialFiles",
	"cmd/weir readTokens":                 "cmd/weir FuzzConfidentialFiles",
	"cmd/weir readPool":                   "cmd/weir FuzzConfidentialFiles",
	"cmd/weir client.call":                "cmd/weir FuzzAnswers",
	"cmd/weir peekCommand.run":            "cmd/weir FuzzAnswers",
	"cmd/weir request":                    "cmd/weir FuzzTriedRequest",
	"simulations parse":                   "simulations FuzzNoScenarioFilePanicsAndEachThatIsReadReadsBack",
	"simulations parseArgs":               "simulations FuzzOptions",
	"examples/gateway options.readShared": "examples/gateway FuzzConfidentialFiles",
	"examples/gateway readTokens":         "examples/gateway FuzzConfidentialFiles",
	"examples/gateway readCallers":        "examples/gateway FuzzConfidentialFiles",
}

// notFuzzed are the others, and why.
var notFuzzed = map[string]string{
	"cluster stream.Read":                      "hands on bytes that others read",
	"httplimit hijackedConn.ReadFrom":          "hands on bytes that others read",
	"httplimit response.ReadFrom":              "hands on bytes that others read, and internal/jsonscan has a target of its own",
	"contrib/s3 reader.Read":                   "hands on bytes that others read",
	"cluster unread.Read":                      "hands on bytes that others read",
	"snapshot boundedReader.Read":              "hands on bytes that others read",
	"cmd/weir/internal/ports requestBody.Read": "hands on bytes that others read",
	"rules readFile":                           "returns a file's bytes",
	"cmd/weir read":                            "returns a file's bytes",
	"cmd/weir files.certificate":               "crypto/tls reads them",
	"examples/gateway readFile":                "returns a file's bytes",
	"examples/modelgateway reportUsage":        "encoding/json reads it",
	"examples/websocket read":                  "returns a message's bytes",
	"simulations Scenario.clone":               "what it has just written itself",
	"simulations startWorker":                  "what the simulator itself has written",
	"simulations work":                         "what the simulator itself has written",
	"simulations worker.play":                  "what the simulator itself has written",
	"weirtest conn.Read":                       "hands on bytes that others read",
	"weirtest packetConn.ReadFrom":             "hands on bytes that others read",
	"weirtest words.Read":                      "makes bytes up",
}

// ours are directories of programs that are no part of the product: what they read they
// have written themselves, or whoever runs them has.
var ours = []string{"bench", "cmd/demo", "conformance", "deploy", "soak", "internal/figures", "internal/lab", "internal/snippets", "internal/suite"}

// readers are the functions of others that make something of bytes or text from outside.
var readers = regexp.MustCompile(`^(Unmarshal\w*|NewDecoder\w*|DecodeString|ParseQuery|AppendCertsFromPEM)$`)

// inputs are the types of what such a function takes.
var inputs = map[string]bool{
	"[]byte": true, "[]string": true, "string": true, "io.Reader": true, "net.Conn": true, "*reader": true,
	"http.Header": true, "*http.Request": true, "*http.Response": true, "*rls.RateLimitRequest": true, "weir.Published": true,
}

// readsByName is what functions that read are called here.
var readsByName = regexp.MustCompile(`^([pP]arse|[dD]ecode|[uU]nmarshal|[rR]ead)([A-Z]|$)`)

func TestEveryParserHasAFuzzTarget(t *testing.T) {
	race.SkipOneGoroutine(t)
	t.Parallel()
	functions, targets := functionsAndTargets(t)
	var parsers int
	for _, name := range slices.Sorted(maps.Keys(functions)) {
		if !reads(functions[name]) {
			continue
		}
		parsers++
		if _, has := fuzzed[name]; !has && notFuzzed[name] == "" {
			t.Errorf("%q reads what comes from outside: name its fuzz target in fuzzed, or in notFuzzed why it needs none", name)
		}
	}
	require.Greater(t, parsers, 60)
	for name, target := range fuzzed {
		if functions[name] == nil {
			t.Errorf("%q is in fuzzed and not there: take it off", name)
		}
		if !targets[target] {
			t.Errorf("%q is to be fuzzed by %q, which is not there", name, target)
		}
		if notFuzzed[name] != "" {
			t.Errorf("%q is both in fuzzed and in notFuzzed", name)
		}
	}
	for name := range notFuzzed {
		if functions[name] == nil {
			t.Errorf("%q is in notFuzzed and not there: take it off", name)
		}
	}
}

// reads reports whether a function makes something of bytes or text: by its name and
// what it takes, or by what it calls.
func reads(f *ast.FuncDecl) (found bool) {
	if readsByName.MatchString(f.Name.Name) {
		for _, p := range f.Type.Params.List {
			found = found || inputs[types.ExprString(p.Type)]
		}
	}
	if f.Body == nil {
		return found
	}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if s, ok := call.Fun.(*ast.SelectorExpr); ok && readers.MatchString(s.Sel.Name) {
				found = true
			}
		}
		return !found
	})
	return found
}

// functionsAndTargets are all functions of the product, and all fuzz targets, by their
// directory and name.
func functionsAndTargets(t *testing.T) (functions map[string]*ast.FuncDecl, targets map[string]bool) {
	functions, targets = make(map[string]*ast.FuncDecl), make(map[string]bool)
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		dir := filepath.ToSlash(path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || slices.Contains(ours, dir)):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		test := strings.HasSuffix(path, "_test.go")
		text, err := os.ReadFile(path)
		if err != nil || test && !bytes.Contains(text, []byte("func Fuzz")) {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir = filepath.ToSlash(filepath.Dir(path))
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			name := f.Name.Name
			if f.Recv != nil {
				of := strings.TrimPrefix(types.ExprString(f.Recv.List[0].Type), "*")
				of, _, _ = strings.Cut(of, "[")
				name = of + "." + name
			}
			switch {
			case !test:
				functions[dir+" "+name] = f
			case strings.HasPrefix(name, "Fuzz"):
				targets[dir+" "+name] = true
			}
		}
		return nil
	}))
	return functions, targets
}
