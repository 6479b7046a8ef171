package admin_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/admin"
)

func ExampleHandler() {
	node, err := weir.Start(context.Background(), weir.Config{})
	if err != nil {
		panic(err)
	}
	defer node.Close()
	api, err := admin.Handler(node, nil, admin.Options{Tokens: [][]byte{[]byte("read me from a secret")}})
	if err != nil {
		panic(err)
	}

	// A service without a node of its own asks for a unit of 100 per minute.
	ask := httptest.NewRequest(http.MethodPost, "/v1/check", strings.NewReader(`{"key":"user 123","limit":100,"window_ms":60000}`))
	ask.Header.Set("Authorization", "Bearer read me from a secret")
	ask.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	api.ServeHTTP(answer, ask)
	before, _, _ := strings.Cut(answer.Body.String(), `,"reset_ms"`)
	fmt.Println(answer.Code, before)
	// Output: 200 {"allowed":true,"remaining":99
}
