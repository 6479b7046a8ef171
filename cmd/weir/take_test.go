package main

import (
	"testing"

	"google.golang.org/grpc/credentials/insecure"
)

func TestCheckAndPeekCountUnits(t *testing.T) {
	t.Parallel()
	p := begin(t, insecure.NewCredentials(), folder(t))
	p.expect(t, []call{
		{"would be allowed: 60 of 60 left", ok, []string{"peek", "api/hourly", "ada", "-units", "60"}},
		{"allowed 50 of 50 units: 10 of 60 left", ok, []string{"check", "api/hourly", "ada", "-units", "50", "-at_most"}},
		{"would be denied: 10 of 60 left, .*retry after", denied, []string{"peek", "api/hourly", "ada", "-units", "11"}},
		{"denied: 10 of 60 left", denied, []string{"check", "api/hourly", "ada", "-units", "11"}},
		{"allowed 10 of 11 units: 0 of 60 left", ok, []string{"check", "api/hourly", "ada", "-units", "11", "-at_most"}},
		{"denied: 0 of 60 left", denied, []string{"check", "api/hourly", "ada", "-at_most"}},
	})
}
