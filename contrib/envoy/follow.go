package envoylimit

import (
	"context"
	"errors"
	"fmt"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weir-go/weir/internal/strictyaml"
)

// configType is the xDS resource type of rate limit configurations.
const configType = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

// followRetry is how long Follow waits after a stream has ended.
const followRetry = 3 * time.Second

// Follow receives configurations from a management server over xDS (aggregated, state of the
// world), such as Envoy Gateway. The argument node is the ID of the node in xDS. Follow returns
// the error of ctx when ctx is done. A valid configuration takes effect at once, and Follow
// acknowledges it. Follow logs an invalid configuration, and reports the error to the server.
// In this case, and while the server cannot be reached, the previous Config stays in force.
// For the time until the first configuration arrives, pass the zero Config to New.
func (s *Service) Follow(ctx context.Context, conn grpc.ClientConnInterface, node string) error {
	complaint := ""
	for {
		err := s.follow(ctx, conn, node, func() { complaint = "" })
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err.Error() != complaint {
			complaint = err.Error()
			s.o.Logger.Warn("cannot reach the Envoy management server; the previous configuration stays in force", "error", err, "retry", s.retry.String())
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(s.retry):
		}
	}
}

// follow receives configurations over one stream, until the stream ends. It calls the function
// received after each response. The error is never nil.
func (s *Service) follow(ctx context.Context, conn grpc.ClientConnInterface, node string, received func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		return err
	}
	req := &discovery.DiscoveryRequest{Node: &core.Node{Id: node}, TypeUrl: configType}
	for {
		if err := stream.Send(req); err != nil {
			_, err = stream.Recv() // Recv returns the reason
			return errors.Join(errors.New("the stream has ended"), err)
		}
		answer, err := stream.Recv()
		if err != nil {
			return err
		}
		received()
		req = &discovery.DiscoveryRequest{Node: req.Node, TypeUrl: configType, VersionInfo: req.VersionInfo, ResponseNonce: answer.GetNonce()}
		cfg, err := configOf(answer, s.o.MergeDomains)
		if err == nil {
			err = s.Use(cfg)
		}
		if err != nil {
			if unlogged, due := s.refused.Due(time.Now()); due { // a server may send a refused configuration again at once
				s.o.Logger.Error("the Envoy configuration was refused; the previous configuration stays in force", "version", answer.GetVersionInfo(), "error", err, "unlogged", unlogged)
			}
			req.ErrorDetail = &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: err.Error()}
			continue
		}
		if version := answer.GetVersionInfo(); version != req.VersionInfo || version == "" {
			s.o.Logger.Info("an Envoy configuration is in force", "version", version, "domains", len(cfg.domains), "limits", cfg.count())
		}
		req.VersionInfo = answer.GetVersionInfo()
	}
}

// configOf returns the Config of a response. Several resources may have the same domain
// only if the argument merges is set.
func configOf(answer *discovery.DiscoveryResponse, merges bool) (*Config, error) {
	if t := answer.GetTypeUrl(); t != configType {
		return nil, fmt.Errorf("the type of the resources is %q: only %s is accepted", t, configType)
	}
	var domains []*domain
	var errs []error
	seen := make(map[string]bool)
	for _, resource := range answer.GetResources() {
		d, err := domainOf(resource)
		switch {
		case err != nil:
			errs = append(errs, err)
		case seen[d.name] && !merges:
			errs = append(errs, fmt.Errorf("domain %q is sent twice: send it in one resource, or use Options.MergeDomains or -envoy_options=merge_domains", d.name))
		default:
			seen[d.name] = true
			domains = append(domains, d)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return mergeDomains(domains)
}

// domainOf reads a resource. A field without effect is not an error, because a program has
// written the resource. An unknown field is an error, because the field could mean that a limit
// must not be enforced.
func domainOf(resource *anypb.Any) (*domain, error) {
	var c rlsconf.RateLimitConfig
	if err := resource.UnmarshalTo(&c); err != nil {
		return nil, err
	}
	if c.GetDomain() == "" {
		return nil, fmt.Errorf("resource %q has no domain", c.GetName())
	}
	d := &domain{name: c.GetDomain(), top: newLevel(), file: fmt.Sprintf("resource %q", c.GetName())}
	parts, err := d.readDescriptors(d.top, d.name, c.GetDescriptors(), 1)
	d.parts = parts
	return d, errors.Join(checkFields(d.name, &c), err)
}

// maxLevels bounds the nesting of descriptors in a resource. In a file, strictyaml.MaxDepth
// allows fewer levels.
const maxLevels = 32

// readDescriptors reads descriptors into a level, and returns the added descriptors.
func (d *domain) readDescriptors(l *level, path string, descriptors []*rlsconf.RateLimitDescriptor, depth int) (added []part, err error) {
	if depth > maxLevels {
		return nil, fmt.Errorf("%s: descriptors are nested more than %d levels deep", path, maxLevels)
	}
	var errs []error
	seen := make(map[entry]bool)
	for _, from := range descriptors {
		to := &descriptor{key: from.GetKey()}
		to.setValue(from.GetValue())
		path := path + "." + to.label()
		errs = append(errs, checkFields(path, from))
		if err := keyError(to.key); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", path, err))
		}
		same := entry{from.GetKey(), from.GetValue()}
		if to.key == "" || seen[same] {
			errs = append(errs, fmt.Errorf("%s: a descriptor has no key, or repeats a key and value", path))
			continue
		}
		seen[same] = true
		if r := from.GetRateLimit(); r != nil {
			limit, err := limitOf(path, r)
			errs = append(errs, err)
			limit.shadow, limit.detailed = from.GetShadowMode(), from.GetDetailedMetric()
			limit.quota, limit.metadata = from.GetQuotaMode() && !limit.shadow, from.GetMetadata()
			to.limit = limit
			d.limits = append(d.limits, limit)
		}
		if len(from.GetDescriptors()) > 0 {
			to.below = newLevel()
			_, err := d.readDescriptors(to.below, path, from.GetDescriptors(), depth+1)
			errs = append(errs, err)
		}
		l.add(to)
		added = append(added, part{to, strictyaml.NewError(d.file, 0, 0, "")})
	}
	return added, errors.Join(errs...)
}

func limitOf(path string, from *rlsconf.RateLimitPolicy) (*limit, error) {
	l := &limit{path: path, name: from.GetName()}
	for _, r := range from.GetReplaces() {
		if name := r.GetName(); name != "" && name != l.name {
			l.replaces = append(l.replaces, name)
		}
	}
	if !from.GetUnlimited() {
		l.current = &rls.RateLimitResponse_RateLimit{
			Name: l.name, RequestsPerUnit: from.GetRequestsPerUnit(), Unit: rls.RateLimitResponse_RateLimit_Unit(from.GetUnit()),
		}
		if per, _ := period(l.current); per == 0 {
			return l, fmt.Errorf("%s: the unit is %v: use a known unit", path, from.GetUnit())
		}
	}
	return l, checkFields(path, from)
}

// checkFields returns an error if a message has a field that this version does not know.
func checkFields(path string, m proto.Message) error {
	unknown := m.ProtoReflect().GetUnknown()
	if len(unknown) == 0 {
		return nil
	}
	number, _, _ := protowire.ConsumeTag(unknown)
	return fmt.Errorf("%s: field %d of %s is not known to this version", path, number, m.ProtoReflect().Descriptor().FullName())
}
