package main

import (
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/weir-go/weir"
	ginlimit "github.com/weir-go/weir/contrib/gin"
	"github.com/weir-go/weir/service"
)

func serveGin(perKey *weir.Limiter, l net.Listener) (service.Server, error) {
	limit, err := ginlimit.ByLimiter(perKey, ginlimit.Options{Key: func(c *gin.Context) string { return c.GetHeader("X-Api-Key") }})
	if err != nil {
		return service.Server{}, err
	}
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.Use(gin.Recovery(), limit)
	router.GET("/", func(c *gin.Context) { c.String(http.StatusOK, "hello\n") })
	return serverOf(router, l), nil
}
