package read

import (
	"slices"
	"strconv"
	"strings"

	"github.com/playhead/playhead/history"
)

// token says up to where a client knows a user's log, in one epoch of the cache. Everything up to the place was told. A content that
// begins at or before it and was not clean then changes on without an entry: so the client goes on from before the
// first such entry, once it has been told all there is. Without that it would be told the same again, page after page.
type token struct {
	epoch      string // hashed
	log        uint64
	place, low uint64
	changing   bool // low is the place before the first entry of a content that was not clean
}

// changesOn takes note of an entry of a content that is not clean.
func (t *token) changesOn(place uint64) {
	if !t.changing {
		t.changing, t.low = true, place-1
	}
}

// next moves the token behind what was told.
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

// within reports whether a log still tells everything from the token on.
func (t *token) within(log history.Changes) bool {
	from := t.place
	if t.changing {
		from = t.low
	}
	return t.log == log.Log && from >= log.Dropped && t.place <= log.Last
}

// tokenForm is the first part of a token.
const tokenForm = "c1"

func (t *token) encode() string {
	parts := []string{tokenForm, t.epoch, strconv.FormatUint(t.log, 36), strconv.FormatUint(t.place, 36)}
	if t.changing {
		parts = append(parts, strconv.FormatUint(t.low, 36))
	}
	return strings.Join(parts, ".")
}

// decodeToken is the inverse; no text is a token of no log. It fails with [history.ErrInvalid].
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

// Where there are classes, each namespace has a change log of its own. A token then says how far each log was read, and which namespace is
// read next: "c2", the class of the next namespace, the token of the namespace of no class, then the name and the token of each class,
// with ~ between them. If the classes have changed since, or a log has ended, the answer is resync: the app reads everything.

const (
	tokensForm = "c2"
	tokensMark = "~"
)

// tokens has a token for each namespace.
type tokens struct {
	namespaces []string
	next       int // the index of the namespace that is read next
	each       []token
	known      bool // the tokens are of just these namespaces
}

// decodeTokens fails with [history.ErrInvalid].
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
	if len(parts) < 4 || len(parts)%2 != 0 { // it is only made where there are classes
		return t, history.Invalid("since", "want the token that an answer came with")
	}
	parts = append(parts[:1:1], append([]string{""}, parts[1:]...)...) // the name of no class
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
