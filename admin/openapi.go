package admin

import (
	_ "embed"
	"net/http"
	"slices"
)

//go:embed openapi.json
var openAPI []byte

// OpenAPI is the OpenAPI 3.1 document of the admin API.
func OpenAPI() []byte { return slices.Clone(openAPI) }

func (a *api) openAPI(*request) (int, any, error) {
	return http.StatusOK, openAPI, nil
}
