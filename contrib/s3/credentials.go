package s3snapshot

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// standard finds credentials where the AWS tools find them. The chain of the library
// would drop the errors of its providers, and then send unsigned requests.
type standard struct {
	providers []credentials.Provider
	found     credentials.Provider // the provider that last returned credentials, or nil
}

func newStandard() *credentials.Credentials {
	return credentials.New(&standard{providers: []credentials.Provider{
		&credentials.EnvAWS{},
		&credentials.FileAWSCredentials{},
		&credentials.IAM{Client: &http.Client{Timeout: credentialsTimeout}},
	}})
}

// RetrieveWithCredContext implements [credentials.Provider].
func (s *standard) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	var errs []error
	for _, p := range s.providers {
		value, err := p.RetrieveWithCredContext(cc)
		if err == nil && value.AccessKeyID != "" && value.SecretAccessKey != "" {
			s.found = p
			return value, nil
		}
		errs = append(errs, err)
	}
	return credentials.Value{}, fmt.Errorf("there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine or the pod a role: %w", errors.Join(errs...))
}

// Retrieve implements [credentials.Provider].
func (s *standard) Retrieve() (credentials.Value, error) { return s.RetrieveWithCredContext(nil) }

// IsExpired implements [credentials.Provider].
func (s *standard) IsExpired() bool { return s.found == nil || s.found.IsExpired() }
