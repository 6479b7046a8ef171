// Package service starts a node for a service, and stops it in the right order, so that a deploy
// loses no counts.
//
//	o, err := service.FromEnv()
//	s, err := service.Start(ctx, o)
//	limit, err := httplimit.New(s.Node, s.Book, httplimit.Options{})
//	err = s.Serve(ctx, service.HTTP(&http.Server{Addr: ":8080", Handler: limit.Handler(mux)}))
//
// The package has five calls. [FromEnv] reads [Options] from the environment, [Start] starts a
// node and opens its rules, and [HTTP] adapts a server of net/http. [Service.Serve] runs
// the servers until its context is done, and then stops all parts in order. [Service.Close]
// stops the node at once.
//
// A service can make the same exported calls of other packages instead. The only exception is a
// warning of Start if other users of the machine can read the file of secrets.
package service
