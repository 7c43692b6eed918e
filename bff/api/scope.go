package api

import (
	"fmt"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/history"
)

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
