package grpclimit

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/weir-go/weir/httplimit"
)

// fields contains the header metadata of a call from all Limits that the call passes.
// Header metadata can be added but not changed. So only the first of the Limits sets it, for
// all Limits: when the handler sends the header or its first message, or when the call ends.
type fields struct {
	mu     sync.Mutex
	header http.Header
	isSet  bool
	set    func(metadata.MD) error
}

type fieldsKey struct{}

// withFields returns the fields of a call, and a context that contains them. The fields
// are new if the call has no fields yet.
func withFields(ctx context.Context, set func(metadata.MD) error) (_ context.Context, f *fields, isNew bool) {
	if f, ok := ctx.Value(fieldsKey{}).(*fields); ok {
		return ctx, f, false
	}
	f = &fields{header: make(http.Header), set: set}
	return context.WithValue(ctx, fieldsKey{}, f), f, true
}

// add adds the header fields of an Outcome. f may be nil.
func (f *fields) add(o *httplimit.Outcome) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	httplimit.SetHeader(f.header, o)
}

// flush sets the header metadata, at most once.
func (f *fields) flush() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.isSet || len(f.header) == 0 {
		return
	}
	f.isSet = true
	md := make(metadata.MD, len(f.header))
	for name, values := range f.header {
		md[strings.ToLower(name)] = values
	}
	_ = f.set(md) // fails if the header has already been sent
}

// unaryFields is the stream of a unary call. It sets the fields before the handler sends the
// header.
type unaryFields struct {
	grpc.ServerTransportStream
	fields *fields
}

func (s *unaryFields) SendHeader(md metadata.MD) error {
	s.fields.flush()
	return s.ServerTransportStream.SendHeader(md)
}

// streamFields is a stream that sets the fields before the header or the first message is
// sent.
type streamFields struct {
	grpc.ServerStream
	ctx    context.Context
	fields *fields
}

func (s *streamFields) Context() context.Context { return s.ctx }

func (s *streamFields) SendHeader(md metadata.MD) error {
	s.fields.flush()
	return s.ServerStream.SendHeader(md)
}

func (s *streamFields) SendMsg(m any) error {
	s.fields.flush()
	return s.ServerStream.SendMsg(m)
}
