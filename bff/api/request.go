package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/bff/limit"
	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/audit"
)

const (
	ndjson = "application/x-ndjson"
	octets = "application/octet-stream" // the same, for clients without NDJSON
)

type uidKey struct{}

// authenticate takes the user from the token, or from the header [userHeader] if the token's scopes allow it.
func (a *api) authenticate(ctx huma.Context, next func(huma.Context)) {
	caller, err := a.caller(ctx.Header("Authorization"))
	uid := caller.UID
	if other := ctx.Header(userHeader); err == nil && other != "" && other != uid {
		uid, err = other, mayAct(caller, other, ctx.Operation())
	}
	if err == nil {
		err = mayRun(caller, ctx.Operation().OperationID)
	}
	if err != nil {
		_, w := humago.Unwrap(ctx)
		a.problem(ctx.Context(), err).serve(w)
		return
	}
	ctx = huma.WithValue(huma.WithValue(ctx, uidKey{}, uid), payerKey{}, payer(caller.UID, uid))
	if op := ctx.Operation().OperationID; uid != caller.UID || audited[op] {
		a.audit(ctx, caller, next)
		return
	}
	next(ctx)
}

// caller returns the content of the request's token.
func (a *api) caller(authorization string) (token.Token, error) {
	text, err := token.Bearer(authorization)
	if err != nil {
		return token.Token{}, err
	}
	return a.cfg.Tokens.Read(text)
}

func uidOf(ctx context.Context) string { return ctx.Value(uidKey{}).(string) }

type payerKey struct{}

// payerOf is the key of the request's rate limit.
func payerOf(ctx context.Context) string { return ctx.Value(payerKey{}).(string) }

// checkURL refuses an ambiguous query. An empty parameter would count as absent, and an absent bound of a
// delete means everything.
func (a *api) checkURL(ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)
	if err := checkQuery(r.URL.RawQuery); err != nil {
		a.problem(ctx.Context(), err).serve(w)
		return
	}
	r.URL.RawQuery = shortOffset.ReplaceAllString(r.URL.RawQuery, "$1:$2")
	next(ctx)
}

// shortOffset matches times from openapi-generator's Python clients, which lack the colon that RFC 3339 wants
// in the offset.
var shortOffset = regexp.MustCompile(`(\b(?:since|until)=\d[^&]*T[^&]*(?:%2B|-)\d\d)(\d\d)\b`)

func checkQuery(raw string) error {
	if raw == "" {
		return nil
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return history.Invalid("query", "malformed")
	}
	for name, v := range values {
		if len(v) != 1 || v[0] == "" || !utf8.ValidString(name+v[0]) {
			return history.Invalid(fmt.Sprintf("query.%.64s", name), "want one value")
		}
	}
	return nil
}

// charge consumes one request from the user's rate limit and sets the RateLimit headers.
func (a *api) charge(ctx huma.Context, next func(huma.Context)) {
	_, w := humago.Unwrap(ctx)
	budget, err := a.cfg.Limit.Take(payerOf(ctx.Context()), 1)
	setRateLimit(w.Header(), budget)
	if err != nil {
		a.problem(ctx.Context(), err).serve(w)
		return
	}
	next(huma.WithValue(ctx, headerKey{}, w.Header()))
}

type headerKey struct{}

// spend charges one more request per hundred entries beyond the first hundred.
func (a *api) spend(ctx context.Context, entries int) {
	if extra := float64(entries)/100 - 1; extra > 0 {
		a.pay(ctx, extra)
	}
}

// pay charges more for a request and updates the RateLimit headers, if not yet sent.
func (a *api) pay(ctx context.Context, more float64) {
	budget := a.cfg.Limit.Spend(payerOf(ctx), more)
	if h, ok := ctx.Value(headerKey{}).(http.Header); ok {
		setRateLimit(h, budget)
	}
}

func setRateLimit(h http.Header, b limit.Budget) {
	h.Set("RateLimit-Limit", strconv.Itoa(b.Limit))
	h.Set("RateLimit-Remaining", strconv.Itoa(b.Left))
	h.Set("RateLimit-Reset", wholeSeconds(b.Reset))
}

// upload is the input of an operation with a body. The operation reads it itself: huma would decode it twice,
// correct invalid input, and refuse a whole batch for one field.
type upload struct {
	r *http.Request
	w http.ResponseWriter
}

// Resolve is called by huma.
func (u *upload) Resolve(ctx huma.Context) []error {
	u.r, u.w = humago.Unwrap(ctx)
	return nil
}

// read passes the body to fn, which must not keep it.
func (a *api) read(u *upload, fn func(body []byte) error) error {
	if err := checkMedia(u.r, "application/json"); err != nil {
		return err
	}
	buf := a.bodies.Get().(*bytes.Buffer)
	defer a.bodies.Put(buf)
	buf.Reset()
	body := unpack(u.w, u.r, codec.MaxBody)
	defer body.close()
	held, _ := u.r.Context().Value(heldKey{}).(*limit.Held)
	if _, err := buf.ReadFrom(held.Reader(u.r.Context(), body)); err != nil {
		return broken(err, codec.MaxBody)
	}
	return fn(buf.Bytes())
}

// broken maps an error while reading a body.
func broken(err error, limit int) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return fmt.Errorf("body: %w: want at most %d bytes, unpacked", codec.ErrTooLarge, limit)
	}
	if errors.Is(err, codec.ErrTooLarge) || errors.Is(err, history.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", errBody, err)
}

// acceptsOnly reports whether the client accepts media but not the usual type.
func acceptsOnly(r *http.Request, media, usual string) bool {
	accept := r.Header.Get("Accept")
	return strings.Contains(accept, media) && !strings.Contains(accept, usual)
}

func checkMedia(r *http.Request, want ...string) error {
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") && !packed(r) {
		return fmt.Errorf("content encoding %.64q: %w gzip, or none", coding, errMediaType)
	}
	contentType := r.Header.Get("Content-Type")
	if contentType == "" {
		return nil
	}
	if media, _, err := mime.ParseMediaType(contentType); err != nil || !slices.Contains(want, media) {
		return fmt.Errorf("content type %.64q: %w %s", contentType, errMediaType, strings.Join(want, " or "))
	}
	return nil
}

func unquote(s string) (text string, ok bool) {
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return "", false
	}
	return s[1 : len(s)-1], true
}

// userHeader names another user than the token's.
const userHeader = "Playhead-User"

// scopes maps a scope to the operations that it allows for any user. A user's own history needs no scope.
var scopes = map[string][]string{
	"history:read": {
		"exportHistory", "getResumePoint", "getResumePoints", "getSettings", "getStats", "listChanges", "listContinueWatching", "listHistory",
		"listViewings", "searchHistory",
	},
	"history:import": {"importHistory"},
	"plays:read":     {"listPlays"},
	"counts:read":    {"getCounts"},
	"admin":          nil, // all
}

// ofAllUsers are the operations about all users. Each needs one of its scopes.
var ofAllUsers = map[string]bool{"listPlays": true, "getCounts": true}

// mayRun refuses an operation about all users without a scope for it.
func mayRun(caller token.Token, operation string) error {
	if ofAllUsers[operation] && !allowed(caller.Scopes, operation) {
		return fmt.Errorf("%w: want the scope %s", errAllUsers, strings.Join(wanted(operation), " or "))
	}
	return nil
}

// mayAct reports whether the caller may run an operation for another user.
func mayAct(caller token.Token, uid string, op *huma.Operation) error {
	if !allowed(caller.Scopes, op.OperationID) {
		return fmt.Errorf("%w: want the scope %s", errScope, strings.Join(wanted(op.OperationID), " or "))
	}
	if err := history.ValidateUID(uid); err != nil {
		return history.Invalid("header."+userHeader, "want a user's name")
	}
	return nil
}

func allowed(granted []string, operation string) bool {
	return slices.ContainsFunc(wanted(operation), func(scope string) bool { return slices.Contains(granted, scope) })
}

// wanted returns the scopes that allow an operation for any user.
func wanted(operation string) (names []string) {
	for scope, operations := range scopes {
		if scope == "admin" || slices.Contains(operations, operation) {
			names = append(names, scope)
		}
	}
	slices.Sort(names)
	return names
}

// payer is the key of a rate limit. Requests for another user have one of their own, which spares that user's
// players. No uid contains NUL.
func payer(caller, uid string) string {
	if caller == uid {
		return uid
	}
	return caller + "\x00for\x00" + uid
}

// audited are the operations that are logged each time. Those for another user are, too.
var audited = map[string]bool{
	"deleteObject": true, "deleteObjects": true, "clearHistory": true, "exportHistory": true, "importHistory": true,
}

type auditKey struct{}

// audit runs an operation, which counts into its entry of the audit log.
func (a *api) audit(ctx huma.Context, caller token.Token, next func(huma.Context)) {
	uid := uidOf(ctx.Context())
	e := &audit.Entry{
		Action: ctx.Operation().OperationID, By: caller.UID, Scopes: strings.Join(caller.Scopes, " "), UID: uid,
		Request: requestID(ctx.Context()), Err: errors.New("cut off"), // stands if next panics
	}
	if caller.UID == uid {
		e.By, e.Scopes = history.Pseudonym(uid), ""
	}
	defer func() { audit.Log(ctx.Context(), a.cfg.Logger, *e) }()
	next(huma.WithValue(ctx, auditKey{}, e))
	e.Err = nil
	_, w := humago.Unwrap(ctx)
	if r, ok := w.(*recorder); ok && r.status >= http.StatusBadRequest {
		e.Err = errors.New(strings.ToLower(http.StatusText(r.status)))
	}
}

// counts adds objects to the request's entry of the audit log, if it has one.
func counts(ctx context.Context, n int) {
	if e, ok := ctx.Value(auditKey{}).(*audit.Entry); ok {
		e.Count += n
	}
}
