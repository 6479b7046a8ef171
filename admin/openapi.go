package admin

import (
	_ "embed"
	"net/http"
	"slices"
)

//go:embed openapi.json
var openAPI []byte

// OpenAPI returns the OpenAPI 3.1 document of the API, which the caller may change.
func OpenAPI() []byte { return slices.Clone(openAPI) }

// openAPI returns the document.
func (a *api) openAPI(*request) (int, any, error) {
	return http.StatusOK, openAPI, nil
}
