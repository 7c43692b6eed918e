package read

import (
	"slices"
	"strconv"
	"strings"

	"github.com/playhead/playhead/history"
)

// token is a client's position in a user's log, in one epoch of the cache. Content that was not clean may change
// again without a new log entry. After the last page, the token therefore goes back to before the first such entry.
// Going back earlier would repeat the same entries on every page.
type token struct {
	epoch      string // hashed
	log        uint64
	place, low uint64
	changing   bool // low is the position before the first entry that was not clean
}

// changesOn records an entry whose content is not clean.
func (t *token) changesOn(place uint64) {
	if !t.changing {
		t.changing, t.low = true, place-1
	}
}

// next advances the token past the returned entries.
func (t *token) next(log history.Changes, more bool) {
	switch {
	case more:
		t.place = log.Entries[len(log.Entries)-1].Place
	case t.changing:
		t.place, t.changing = t.low, false
	default:
		t.place = log.Last
	}
}

// within reports whether a log still has all entries after the token.
func (t *token) within(log history.Changes) bool {
	from := t.place
	if t.changing {
		from = t.low
	}
	return t.log == log.Log && from >= log.Dropped && t.place <= log.Last
}

// tokenForm is the version prefix of a token.
const tokenForm = "c1"

func (t *token) encode() string {
	parts := []string{tokenForm, t.epoch, strconv.FormatUint(t.log, 36), strconv.FormatUint(t.place, 36)}
	if t.changing {
		parts = append(parts, strconv.FormatUint(t.low, 36))
	}
	return strings.Join(parts, ".")
}

// decodeToken decodes a token; the empty string gives the zero token. It fails with [history.ErrInvalid].
func decodeToken(text string) (t token, err error) {
	if text == "" {
		return t, nil
	}
	bad := history.Invalid("since", "want the token that an answer came with")
	parts := strings.Split(text, ".")
	if len(parts) < 4 || len(parts) > 5 || parts[0] != tokenForm {
		return t, bad
	}
	t.epoch = parts[1]
	numbers := []*uint64{&t.log, &t.place, &t.low}
	for i, part := range parts[2:] {
		if *numbers[i], err = strconv.ParseUint(part, 36, 63); err != nil {
			return t, bad
		}
	}
	if t.changing = len(parts) == 5; t.log == 0 || t.changing && t.low > t.place {
		return t, bad
	}
	return t, nil
}

// With classes, each namespace has its own log. Such a token has these fields, separated by ~: "c2", the class of
// the next namespace, the default namespace's token, then each class's name and token. If the classes have changed
// or a log has ended, the response is resync.

const (
	tokensForm = "c2"
	tokensMark = "~"
)

// tokens has one token per namespace.
type tokens struct {
	namespaces []string
	next       int // index of the next namespace
	each       []token
	known      bool // the tokens match the namespaces
}

// decodeTokens decodes the token of a request. It fails with [history.ErrInvalid].
func (r *Reader) decodeTokens(uid, text string) (t tokens, err error) {
	t.namespaces = r.cfg.Rules.Namespaces(uid)
	t.each = make([]token, len(t.namespaces))
	rest, several := strings.CutPrefix(text, tokensForm+tokensMark)
	if !several {
		t.each[0], err = decodeToken(text)
		t.known = len(t.namespaces) == 1
		return t, err
	}
	parts := strings.Split(rest, tokensMark)
	if len(parts) < 4 || len(parts)%2 != 0 { // encoded only with at least one class
		return t, history.Invalid("since", "want the token that an answer came with")
	}
	parts = append(parts[:1:1], append([]string{""}, parts[1:]...)...) // class name of the default namespace
	var namespaces []string
	for i := 1; i < len(parts); i += 2 {
		one, err := decodeToken(parts[i+1])
		if err != nil {
			return t, err
		}
		if namespaces = append(namespaces, history.NamespaceUID(uid, parts[i])); len(namespaces) <= len(t.each) {
			t.each[len(namespaces)-1] = one
		}
	}
	t.next = slices.Index(namespaces, history.NamespaceUID(uid, parts[0]))
	t.known = t.next >= 0 && len(namespaces) > 1 && slices.Equal(namespaces, t.namespaces)
	return t, nil
}

func (t *tokens) encode() string {
	if len(t.namespaces) == 1 {
		return t.each[0].encode()
	}
	_, next := history.UserOf(t.namespaces[t.next])
	parts := []string{tokensForm, next, t.each[0].encode()}
	for i, namespace := range t.namespaces[1:] {
		_, class := history.UserOf(namespace)
		parts = append(parts, class, t.each[i+1].encode())
	}
	return strings.Join(parts, tokensMark)
}
