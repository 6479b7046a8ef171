// Package ginlimit limits requests of gin by rules or by a Limiter.
//
//	limit, err := ginlimit.ByLimiter(perAddress, ginlimit.Options{})
//	...
//	router := gin.New()
//	router.Use(limit)
//
// New limits by the rules of a rules.Book. Package httplimit decides, and defines fields,
// bodies and queues. A denied request is aborted.
package ginlimit
