package rpc

import (
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/playhead/playhead/history"
)

// cursors are opaque to clients: version and object, in base64.
var cursors = base64.RawURLEncoding

func encodeCursor(c history.Cursor) string {
	return cursors.EncodeToString([]byte(strconv.FormatInt(int64(c.Version), 36) + "/" + c.Object.String()))
}

// decodeCursor is the inverse; no text is the place before the newest. It fails
// with [history.ErrInvalid].
func decodeCursor(s string) (history.Cursor, error) {
	if s == "" {
		return history.Cursor{}, nil
	}
	bad := history.Invalid("cursor", "want one that a page came with")
	raw, err := cursors.DecodeString(s)
	if err != nil {
		return history.Cursor{}, bad
	}
	version, object, _ := strings.Cut(string(raw), "/")
	v, err := strconv.ParseInt(version, 36, 64)
	if err != nil || v <= 0 {
		return history.Cursor{}, bad
	}
	o, err := history.ParseObject(object)
	if err != nil {
		return history.Cursor{}, bad
	}
	return history.Cursor{Version: history.Version(v), Object: o}, nil
}
