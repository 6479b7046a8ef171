// Package ginlimit limits requests of gin by rules or by one limit.
//
//	limit, err := ginlimit.ByLimiter(perAddress, ginlimit.Options{})
//	...
//	router := gin.New()
//	router.Use(limit)
//
// New does so by the rules of a rules.Book. Fields, bodies and queues are those of package
// httplimit, which decides. A request that is denied is aborted.
package ginlimit
