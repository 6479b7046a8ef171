package envoylimit

import (
	"context"
	"errors"
	"fmt"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The bounds of a request. The number of descriptors and entries depends on the
// configuration of Envoy, so too many are an error. The length of values depends on
// clients: a request that is too long is denied, because by default Envoy lets a request
// pass if the response is an error. Envoy's default bound for all headers of a request is
// 60 KiB.
const (
	maxDescriptors = 255               // the maximum of Node.AllowAll
	maxEntries     = 64                // entries of a descriptor; a configuration has at most 32 levels
	maxBytes       = 4 << 20           // sum of all keys and values; equals gRPC's default for a message
	maxHits        = 1_000_000_000_000 // the largest limit of a node
	maxWork        = 1 << 24           // about 50 ms
	workUnseen     = 1 << 16           // work between two checks of the deadline; about 0.2 ms
)

// errTooLarge is the error of a request that is denied because its size or work exceeds a
// bound.
var errTooLarge = errors.New("the request is too large to be decided")

// work bounds the work of finding the limits of a request. One unit is about the work for one
// byte of a key or value.
type work struct {
	ctx  context.Context
	done int
	next int // the value of done at the next check of the deadline
}

// add returns an error if the request needs too much work, or if ctx is done.
func (w *work) add(units int) error {
	if w.done += units; w.done < w.next {
		return nil
	}
	if w.done > maxWork {
		return fmt.Errorf("%w: the values are too long for so many descriptors and patterns: use fewer of them, or bound the headers in Envoy", errTooLarge)
	}
	w.next = w.done + workUnseen
	if err := w.ctx.Err(); err != nil {
		return refusal(err)
	}
	return nil
}

// checkBounds returns an error if a request has no domain or no descriptors, or too many
// descriptors or entries.
func checkBounds(req *rls.RateLimitRequest) error {
	switch n := len(req.GetDescriptors()); {
	case req.GetDomain() == "":
		return status.Error(codes.InvalidArgument, "the request has no domain")
	case n == 0:
		return status.Error(codes.InvalidArgument, "the request has no descriptors")
	case n > maxDescriptors:
		return status.Errorf(codes.InvalidArgument, "the request has %d descriptors: at most %d are decided together", n, maxDescriptors)
	}
	for _, d := range req.GetDescriptors() {
		if n := len(d.GetEntries()); n > maxEntries {
			return status.Errorf(codes.InvalidArgument, "a descriptor has %d entries: use at most %d", n, maxEntries)
		}
	}
	return nil
}

// checkLength returns an error if all keys and values of a request together have more than maxBytes.
func checkLength(req *rls.RateLimitRequest) error {
	bytes := 0
	for _, d := range req.GetDescriptors() {
		bytes += bytesOf(d.GetEntries())
	}
	if bytes > maxBytes {
		return fmt.Errorf("%w: the keys and values have %d bytes: use at most %d, or bound the headers in Envoy", errTooLarge, bytes, maxBytes)
	}
	return nil
}

// bytesOf returns the total length of the keys and values.
func bytesOf(entries []*ratelimit.RateLimitDescriptor_Entry) (n int) {
	for _, e := range entries {
		n += len(e.GetKey()) + len(e.GetValue())
	}
	return n
}
