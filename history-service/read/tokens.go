package read

import (
	"context"
	"slices"
	"strings"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Where there are classes, each section has a change log of its own. A token then says how far each log was read, and which section is
// read next: "c2", the class of the next section, the token of the section of no class, then the name and the token of each class,
// with ~ between them. If the classes have changed since, or a log has ended, the answer is resync: the app reads everything.

const (
	tokensForm = "c2"
	tokensMark = "~"
)

// tokens has a token for each section.
type tokens struct {
	sections []string
	next     int // the index of the section that is read next
	each     []token
	known    bool // the tokens are of just these sections
}

// decodeTokens fails with [history.ErrInvalid].
func (r *Reader) decodeTokens(uid, text string) (t tokens, err error) {
	t.sections = r.cfg.Rules.Sections(uid)
	t.each = make([]token, len(t.sections))
	rest, several := strings.CutPrefix(text, tokensForm+tokensMark)
	if !several {
		t.each[0], err = decodeToken(text)
		t.known = len(t.sections) == 1
		return t, err
	}
	parts := strings.Split(rest, tokensMark)
	if len(parts) < 4 || len(parts)%2 != 0 { // it is only made where there are classes
		return t, history.Invalid("since", "want the token that an answer came with")
	}
	parts = append(parts[:1:1], append([]string{""}, parts[1:]...)...) // the name of no class
	var sections []string
	for i := 1; i < len(parts); i += 2 {
		one, err := decodeToken(parts[i+1])
		if err != nil {
			return t, err
		}
		if sections = append(sections, history.SectionUID(uid, parts[i])); len(sections) <= len(t.each) {
			t.each[len(sections)-1] = one
		}
	}
	t.next = slices.Index(sections, history.SectionUID(uid, parts[0]))
	t.known = t.next >= 0 && len(sections) > 1 && slices.Equal(sections, t.sections)
	return t, nil
}

func (t *tokens) encode() string {
	if len(t.sections) == 1 {
		return t.each[0].encode()
	}
	_, next := history.UserOf(t.sections[t.next])
	parts := []string{tokensForm, next, t.each[0].encode()}
	for i, section := range t.sections[1:] {
		_, class := history.UserOf(section)
		parts = append(parts, class, t.each[i+1].encode())
	}
	return strings.Join(parts, tokensMark)
}

// allChanges reads what has changed in all sections, one after the other.
func (r *Reader) allChanges(ctx context.Context, uid string, since tokens, limit int) (*historyv1.ChangesResponse, error) {
	if len(since.sections) == 1 {
		if !since.known {
			since.each[0] = token{}
		}
		return r.changes(ctx, uid, since.each[0], limit)
	}
	owner, err := r.Section(ctx, uid)
	if err != nil {
		return nil, err
	}
	all := &historyv1.ChangesResponse{Settings: Settings(owner.Pause)}
	for n := since.next; n < len(since.sections) && since.known; n++ {
		if limit == 0 {
			since.next, all.HasMore = n, true
			break
		}
		one, err := r.changes(ctx, since.sections[n], since.each[n], limit)
		if err != nil {
			return nil, err
		}
		if one.GetResync() {
			since.known = false
			break
		}
		all.Items = append(all.Items, one.GetItems()...)
		all.Removed = append(slices.DeleteFunc(all.Removed, func(o *historyv1.Object) bool { return tells(one, o) }), one.GetRemoved()...)
		limit = max(limit-len(one.GetItems())-len(one.GetRemoved()), 0)
		if since.each[n], err = decodeToken(one.GetToken()); err != nil {
			return nil, err
		}
		if since.next = 0; one.GetHasMore() {
			since.next, all.HasMore = n, true
			break
		}
	}
	if !since.known {
		return r.resyncAll(ctx, since, all.GetSettings())
	}
	all.Token = since.encode()
	return all, nil
}

// tells reports whether an answer says anything of an object.
func tells(resp *historyv1.ChangesResponse, o *historyv1.Object) bool {
	is := func(p *historyv1.Object) bool { return p.GetId() == o.GetId() && p.GetType() == o.GetType() }
	return slices.ContainsFunc(resp.GetRemoved(), is) || slices.ContainsFunc(resp.GetItems(), func(it *historyv1.Item) bool { return is(it.GetObject()) })
}

// resyncAll answers resync, with a token from which on all changes of all sections are told.
func (r *Reader) resyncAll(ctx context.Context, t tokens, settings *historyv1.Settings) (*historyv1.ChangesResponse, error) {
	life, err := r.lifeOfCache(ctx)
	if err != nil {
		return nil, err
	}
	for i, section := range t.sections {
		one, err := r.resync(ctx, section, life)
		if err != nil {
			return nil, err
		}
		if t.each[i], err = decodeToken(one.GetToken()); err != nil {
			return nil, err
		}
	}
	t.next = 0
	return &historyv1.ChangesResponse{Resync: true, Settings: settings, Token: t.encode()}, nil
}
