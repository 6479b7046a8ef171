package envoylimit

import (
	"maps"
	"math"
	"net/netip"
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weir-go/weir/rules"
)

// respond returns the response with the status of each descriptor.
func (s *Service) respond(req *rls.RateLimitRequest, items []item, denied bool) *rls.RateLimitResponse {
	r := &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK, Statuses: make([]*rls.RateLimitResponse_DescriptorStatus, len(items))}
	if denied {
		r.OverallCode = rls.RateLimitResponse_OVER_LIMIT
	}
	all := make([]rls.RateLimitResponse_DescriptorStatus, len(items))
	for i := range items {
		items[i].status(&all[i])
		r.Statuses[i] = &all[i]
	}
	if s.o.Headers != (Headers{}) {
		r.ResponseHeadersToAdd = s.headers(items)
	}
	if s.o.Metadata {
		r.DynamicMetadata = metadata(req, items)
	}
	return r
}

// respondTooLarge returns the denial of a request that is too large to be decided, and logs err. In
// ShadowMode, the overall code is OK.
func (s *Service) respondTooLarge(req *rls.RateLimitRequest, err error) *rls.RateLimitResponse {
	if unlogged, due := s.large.Due(time.Now()); due {
		s.o.Logger.Warn("a request of Envoy was denied, because it is too large", "error", err, "unlogged", unlogged)
	}
	r := &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OVER_LIMIT}
	if s.o.ShadowMode {
		r.OverallCode = rls.RateLimitResponse_OK
	}
	for range req.GetDescriptors() {
		r.Statuses = append(r.Statuses, &rls.RateLimitResponse_DescriptorStatus{Code: rls.RateLimitResponse_OVER_LIMIT})
	}
	return r
}

// namedClient returns the client that a descriptor names.
func namedClient(d *ratelimit.RateLimitDescriptor) (r rules.Request) {
	for _, e := range d.GetEntries() {
		switch e.GetKey() {
		case "remote_address":
			r.Client, _ = netip.ParseAddr(e.GetValue()) // invalid for a text that is no address
		case "user":
			r.User = e.GetValue()
		case "api_key":
			r.APIKey = e.GetValue()
		}
	}
	return r
}

// respondBlocked returns the denial of a request for a client that is blocked, or nil. Only the
// descriptors that name the client are over the limit.
func (s *Service) respondBlocked(req *rls.RateLimitRequest, items []item) (denial *rls.RateLimitResponse) {
	if s.o.Book == nil {
		return nil
	}
	current := s.o.Book.Current()
	for i, d := range req.GetDescriptors() {
		r := namedClient(d)
		b := current.Block(&r)
		if b == nil {
			continue
		}
		if denial == nil {
			current.RecordRefusal(b)
			denial = s.respond(req, items, !s.o.ShadowMode)
		}
		denial.Statuses[i].Code = rls.RateLimitResponse_OVER_LIMIT
		if left := b.TimeLeft(time.Now()); left > 0 {
			denial.Statuses[i].DurationUntilReset = durationpb.New(left)
		}
	}
	return denial
}

// status sets the status of a descriptor.
func (it *item) status(to *rls.RateLimitResponse_DescriptorStatus) {
	to.Code = rls.RateLimitResponse_OK
	switch {
	case it.limit != nil && it.limit.current == nil && it.current == nil && !it.replaced:
		to.LimitRemaining = math.MaxUint32 // unlimited
		return
	case it.current == nil || it.replaced:
		return
	case it.over && (it.limit == nil || !it.limit.shadow):
		to.Code = rls.RateLimitResponse_OVER_LIMIT
	}
	if it.limiter != nil && it.decision.Source == 0 {
		return // the limit was not asked, because another limit is known to deny
	}
	to.CurrentLimit = it.current
	to.LimitRemaining = uint32(min(it.decision.Remaining, math.MaxUint32))
	to.DurationUntilReset = durationpb.New(it.decision.ResetAfter)
	if it.limiter == nil {
		per, _ := period(it.current)
		to.DurationUntilReset = durationpb.New(per)
	}
}

// headers returns the header fields of one enforced limit: the denying limit with the longest
// wait. If no limit denies, it is the limit with the fewest units left, and among several of
// these the limit with the latest reset.
func (s *Service) headers(items []item) (fields []*core.HeaderValue) {
	var told *item
	for i := range items {
		it := &items[i]
		if it.current == nil || it.replaced || !it.enforced || it.limiter != nil && it.decision.Source == 0 {
			continue
		}
		if told == nil || it.isNearer(told) {
			told = it
		}
	}
	if told == nil {
		return nil
	}
	reset := told.decision.ResetAfter
	if told.limiter == nil {
		reset, _ = period(told.current)
	}
	for _, f := range []struct {
		name  string
		value int64
	}{
		{s.o.Headers.Limit, int64(told.current.GetRequestsPerUnit())},
		{s.o.Headers.Remaining, told.decision.Remaining},
		{s.o.Headers.Reset, int64((reset + time.Second - 1) / time.Second)},
	} {
		if f.name != "" {
			fields = append(fields, &core.HeaderValue{Key: f.name, Value: strconv.FormatInt(f.value, 10)})
		}
	}
	return fields
}

// isNearer reports whether the header fields must describe this item rather than the other item.
func (it *item) isNearer(other *item) bool {
	if it.over != other.over {
		return it.over
	}
	if it.over {
		return it.decision.RetryAfter > other.decision.RetryAfter
	}
	if it.decision.Remaining != other.decision.Remaining {
		return it.decision.Remaining < other.decision.Remaining
	}
	return it.decision.ResetAfter > other.decision.ResetAfter
}

// metadata returns the dynamic metadata. The names are those of envoyproxy/ratelimit, because
// filters read them. Only quotaModeEnabled and quotaModeViolations are specific to Weir.
func metadata(req *rls.RateLimitRequest, items []item) *structpb.Struct {
	quota := false
	var violations []*structpb.Value
	passed := make(map[string]*structpb.Value)
	descriptors := make([]*structpb.Value, len(items))
	for i := range items {
		it := &items[i]
		if it.limit != nil && !it.replaced {
			quota = quota || it.limit.quota
			switch over := it.over && !it.limit.shadow; {
			case !over:
				merge(passed, it.limit.metadata.GetFields())
			case it.limit.quota:
				violations = append(violations, structpb.NewNumberValue(float64(i)))
			}
		}
		var entries []*structpb.Value
		for _, e := range it.descriptor.GetEntries() {
			entries = append(entries, structpb.NewStringValue(e.GetKey()+"="+e.GetValue()))
		}
		fields := map[string]*structpb.Value{"entries": structpb.NewListValue(&structpb.ListValue{Values: entries})}
		if hits := it.descriptor.GetHitsAddend(); hits != nil {
			fields["hitsAddend"] = structpb.NewNumberValue(float64(hits.GetValue()))
		}
		descriptors[i] = structpb.NewStructValue(&structpb.Struct{Fields: fields})
	}
	fields := map[string]*structpb.Value{
		"domain":           structpb.NewStringValue(req.GetDomain()),
		"descriptors":      structpb.NewListValue(&structpb.ListValue{Values: descriptors}),
		"quotaModeEnabled": structpb.NewBoolValue(quota),
	}
	if req.GetHitsAddend() > 0 {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(req.GetHitsAddend()))
	}
	if len(violations) > 0 {
		fields["quotaModeViolations"] = structpb.NewListValue(&structpb.ListValue{Values: violations})
	}
	if len(passed) > 0 {
		fields["metadata"] = structpb.NewStructValue(&structpb.Struct{Fields: passed})
	}
	return &structpb.Struct{Fields: fields}
}

// merge adds those values of the second map to the first map whose names the first map lacks. It
// also merges nested maps that both maps have. The added values are shared with the
// configuration, so a nested map is copied before values are added to it.
func merge(to, from map[string]*structpb.Value) {
	for name, value := range from {
		held, twice := to[name]
		switch {
		case !twice:
			to[name] = value
		case held.GetStructValue() != nil && value.GetStructValue() != nil:
			grown := maps.Clone(held.GetStructValue().GetFields())
			if grown == nil {
				grown = make(map[string]*structpb.Value)
			}
			merge(grown, value.GetStructValue().GetFields())
			to[name] = structpb.NewStructValue(&structpb.Struct{Fields: grown})
		}
	}
}
