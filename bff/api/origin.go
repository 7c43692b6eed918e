package api

import (
	"net/http"
	"slices"
	"strings"
)

// What pages of other sites may send, and what of an answer they may read.
const (
	allowMethods  = "GET, POST, PUT, DELETE"
	allowHeaders  = "Authorization, Content-Type, If-Match, If-None-Match, X-Request-Id"
	exposeHeaders = "ETag, Retry-After, X-Request-Id, RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset"
)

// share lets pages of the listed sites use the edge. It reports whether that was all
// that they asked. Others get the same answers, but their browsers keep them back; and
// without the token, which no browser adds by itself, there is nothing to get.
func (a *api) share(w http.ResponseWriter, r *http.Request) (answered bool) {
	if len(a.cfg.Origins) == 0 {
		return false
	}
	h, origin := w.Header(), r.Header.Get("Origin")
	h.Add("Vary", "Origin")
	if origin == "" || !slices.ContainsFunc(a.cfg.Origins, func(o string) bool { return strings.EqualFold(o, origin) }) {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", exposeHeaders)
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", allowMethods)
	h.Set("Access-Control-Allow-Headers", allowHeaders)
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}
