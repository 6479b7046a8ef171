package s3snapshot

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/weir-go/weir"
)

const (
	defaultEndpoint = "https://s3.amazonaws.com"
	defaultMaxBytes = 16 << 30
	defaultTimeout  = 30 * time.Second
	// defaultPartBytes is the amount of data that Save holds in memory and sends with a
	// request. Servers refuse parts below 5 MiB.
	defaultPartBytes = 8 << 20
	maxParts         = 10_000
	// maxPrefix leaves room for the name of a node within the 1,024 bytes of a key.
	maxPrefix = 512
	// attempts is the maximum number of times that the client sends a request, if the errors
	// may be transient.
	attempts = 3
	// pauseBetween is the pause after the first attempt at a part; the next pause is
	// twice as long.
	pauseBetween = 100 * time.Millisecond
	// credentialsTimeout bounds each request for the credentials of a role.
	credentialsTimeout = 5 * time.Second
)

// Options are the options of [New]. Bucket is required; all other fields may be zero.
type Options struct {
	Bucket string // the name of an existing bucket
	// Prefix begins the keys of all snapshots, as in "weir/production". Each cluster
	// needs its own prefix. At most 512 bytes; none by default.
	Prefix string

	// Endpoint is the URL of the server, such as "https://minio.internal:9000", without a
	// path. The default is the URL of AWS. With "http://" the data is not encrypted in
	// transit.
	Endpoint string
	// Region is the region of the bucket. The default is AWS_REGION or AWS_DEFAULT_REGION
	// of the environment. If both are empty, the client asks the server for the region, which
	// needs the permission s3:GetBucketLocation on AWS.
	Region string
	// VirtualHost sends requests to BUCKET.HOST in place of HOST/BUCKET, as some servers
	// require. Requests to AWS always use BUCKET.HOST.
	VirtualHost bool
	// TLS is for an Endpoint whose certificate is not signed by the system's roots, or
	// that requires a client certificate. The default is TLS 1.2 or later, with the system's
	// roots or, if the environment has SSL_CERT_FILE, with the roots in that file.
	TLS *tls.Config

	// Credentials sign requests; see credentials.NewStaticV4. If nil, the client uses the first
	// of these: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN of the
	// environment; the profile AWS_PROFILE in ~/.aws/credentials or AWS_SHARED_CREDENTIALS_FILE;
	// the role of the pod (AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN, or EKS Pod Identity),
	// of the ECS task, or of the EC2 machine. Credentials are renewed before they expire.
	Credentials *credentials.Credentials

	// MaxBytes bounds a snapshot: Save returns an error if the snapshot is larger, and
	// Load refuses a larger object. 0 means 16 GiB. The maximum is 78 GiB, the size of
	// 10,000 parts.
	MaxBytes int64
	// RequestTimeout bounds each attempt to upload a part of 8 MiB, and each other request
	// together with its retries. In a listing and in a download, it bounds only the time for
	// which the server sends nothing. 0 means 30 s.
	RequestTimeout time.Duration
}

// ParseURL returns the Options of a URL, for a flag of a command:
//
//	s3://BUCKET/PREFIX?endpoint=https://minio.internal:9000&region=eu-west-1&virtual_host=true
//
// All parts except the bucket are optional. The URL cannot contain credentials, because
// commands show their flags. The error is weir.ErrInvalid.
func ParseURL(text string) (Options, error) {
	u, err := url.Parse(text)
	if err != nil {
		err = errors.Unwrap(err) // without the text, which may contain a secret
		return Options{}, fmt.Errorf("%w URL of a bucket: %w: write s3://BUCKET/PREFIX", weir.ErrInvalid, err)
	}
	wrong := func(format string, args ...any) (Options, error) {
		return Options{}, fmt.Errorf("%w URL of a bucket: %s", weir.ErrInvalid, fmt.Sprintf(format, args...))
	}
	switch {
	case u.User != nil:
		return wrong("the URL has credentials: leave them out, and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	case u.Scheme != "s3" || u.Opaque != "" || u.Host == "" || u.Fragment != "":
		return wrong("the URL is %q: write s3://BUCKET/PREFIX", text)
	}
	parameters, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return wrong("the parameters cannot be parsed: %v", err)
	}
	o := Options{Bucket: u.Host, Prefix: u.Path}
	for name, values := range parameters {
		value := values[0]
		switch {
		case len(values) > 1:
			return wrong("the parameter %s is given %d times: give it once", name, len(values))
		case name == "endpoint":
			o.Endpoint = value
		case name == "region":
			o.Region = value
		case name == "virtual_host":
			if o.VirtualHost, err = strconv.ParseBool(value); err != nil {
				return wrong("virtual_host is %q: use true or false", value)
			}
		default:
			return wrong("unknown parameter %q: use endpoint, region or virtual_host", name)
		}
	}
	_, err = o.normalise()
	return o, err
}

// New returns a Bucket. It sends no request, so an unreachable server is not an error
// here. The error is weir.ErrInvalid, and names the invalid fields.
func New(opts Options) (*Bucket, error) {
	o, err := opts.normalise()
	if err != nil {
		return nil, err
	}
	endpoint, _ := url.Parse(o.Endpoint)
	secure := endpoint.Scheme == "https"
	transport, err := minio.DefaultTransport(secure)
	if err != nil {
		return nil, err
	}
	transport.ResponseHeaderTimeout = o.RequestTimeout
	if o.TLS != nil {
		transport.TLSClientConfig = o.TLS.Clone()
	}
	lookup := minio.BucketLookupAuto
	if o.VirtualHost {
		lookup = minio.BucketLookupDNS
	}
	client, err := minio.NewCore(endpoint.Host, &minio.Options{
		Creds: o.Credentials, Secure: secure, Transport: transport, Region: o.Region, BucketLookup: lookup, MaxRetries: attempts,
	})
	if err != nil {
		return nil, fmt.Errorf("%w s3snapshot.Options: Endpoint is %q: %w", weir.ErrInvalid, o.Endpoint, err)
	}
	return &Bucket{client: client, transport: transport, bucket: o.Bucket, prefix: o.Prefix, maxBytes: o.MaxBytes, partBytes: defaultPartBytes, timeout: o.RequestTimeout}, nil
}

// normalise returns the Options with defaults, and an error that names each invalid
// field.
func (o Options) normalise() (Options, error) {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w s3snapshot.Options: %s", weir.ErrInvalid, fmt.Sprintf(format, args...)))
	}
	if err := s3utils.CheckValidBucketName(o.Bucket); err != nil {
		wrong("Bucket is %q: %v", o.Bucket, err)
	}
	if o.Prefix = strings.Trim(o.Prefix, "/"); o.Prefix != "" {
		odd := slices.ContainsFunc(strings.Split(o.Prefix, "/"), func(part string) bool { return part == "" || part == "." || part == ".." })
		if odd || !utf8.ValidString(o.Prefix) || len(o.Prefix) > maxPrefix {
			wrong("Prefix is %q: use at most %d bytes of UTF-8, without empty parts, \".\" and \"..\"", o.Prefix, maxPrefix)
		}
		o.Prefix += "/"
	}
	o.Endpoint = cmp.Or(o.Endpoint, defaultEndpoint)
	endpoint, err := url.Parse(o.Endpoint)
	switch {
	case err != nil || endpoint.Host == "" || endpoint.Scheme != "http" && endpoint.Scheme != "https":
		wrong("Endpoint is not a URL: use https://HOST:PORT")
	case strings.Trim(endpoint.Path, "/") != "" || endpoint.User != nil || endpoint.RawQuery != "" || endpoint.Fragment != "":
		wrong("Endpoint has more than a scheme, a host and a port: use https://HOST:PORT")
	case endpoint.Scheme == "http" && o.TLS != nil:
		wrong("TLS is set, and Endpoint is %q: use https, or leave TLS out", o.Endpoint)
	}
	o.Region = cmp.Or(o.Region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"))
	if o.Credentials == nil {
		o.Credentials = newStandard()
	}
	if most := int64(defaultPartBytes) * maxParts; o.MaxBytes < 0 || o.MaxBytes > most {
		wrong("MaxBytes is %d: use 0 for 16 GiB, or at most %d", o.MaxBytes, most)
	}
	o.MaxBytes = cmp.Or(o.MaxBytes, defaultMaxBytes)
	if o.RequestTimeout < 0 {
		wrong("RequestTimeout is %v: use 0 for 30 s, or a positive time", o.RequestTimeout)
	}
	o.RequestTimeout = cmp.Or(o.RequestTimeout, defaultTimeout)
	return o, errors.Join(errs...)
}
