package main

import (
	"io"
	"net/http"
	"strings"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/rules"
)

const page = `<!doctype html>
<title>Login</title>
<form method="post" action="/login">
<label>Account <input name="account" autocomplete="username"></label>
<label>Password <input name="password" type="password" autocomplete="current-password"></label>
<button>Log in</button>
</form>
`

// login returns the login page. check reports whether the password of the account is
// correct.
func login(node *weir.Node, book *rules.Book, check func(account, password string) bool) (http.Handler, error) {
	limit, err := httplimit.New(node, book, httplimit.Options{User: account})
	if err != nil {
		return nil, err
	}
	try := limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !check(account(r), r.PostForm.Get("password")) {
			http.Error(w, "the account or the password is wrong", http.StatusUnauthorized) // the rules count this status
			return
		}
		io.WriteString(w, "welcome\n") // set the cookie of a session here
	}))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /login", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		io.WriteString(w, page)
	})
	mux.HandleFunc("POST /login", func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 4<<10)
		if r.ParseForm() != nil || account(r) == "" { // the limits need the account
			http.Error(w, "send a form with account and password", http.StatusBadRequest)
			return
		}
		try.ServeHTTP(w, r)
	})
	return mux, nil
}

// account returns the account of a parsed form. It returns the same text for all
// spellings of an account.
func account(r *http.Request) string {
	return strings.ToLower(strings.TrimSpace(r.PostForm.Get("account")))
}
