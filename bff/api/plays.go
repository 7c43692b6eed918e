package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/history"
)

// Plays is the stream of plays of all users.
type Plays interface {
	// After returns up to limit messages after a cursor, oldest first, and the next cursor. The empty cursor is before
	// the oldest message. It fails with [history.ErrGone] if messages after the cursor are no longer kept.
	After(ctx context.Context, cursor string, limit int) (messages []history.PlayMessage, next string, err error)
}

var errNoPlays = errors.New("this server keeps no stream of plays; playhead serve does with --plays")

type playsInput struct {
	After string `query:"after" maxLength:"64" doc:"The next of the answer before. Without it the answer begins with the oldest message."`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

// plays is the answer to GET /v1/plays.
type plays struct {
	Plays []play `json:"plays" nullable:"false" doc:"Oldest first, by when the server learned of them; those of a user and object in the order in which they count."`
	Next  string `json:"next,omitempty" doc:"To be asked after, also where plays is empty. It is missing while nothing was played yet."`
}

type play struct {
	ID      string        `json:"id" doc:"Names the play: a retraction has the same id. It begins with the time in milliseconds, as nine base-36 digits."`
	Kind    string        `json:"kind" enum:"completed,retracted,deleted,cleared" doc:"A play that is complete, or one that counts no longer. With deleted all plays of the object up to the time are removed, with cleared all of the type, or of all types."`
	User    string        `json:"user"`
	Object  *codec.Object `json:"object,omitempty" doc:"Not where all is cleared."`
	Type    uint32        `json:"type,omitempty" doc:"The type that is cleared; without it all are."`
	Viewing string        `json:"viewing,omitempty" doc:"Names the session within the object."`
	Time    time.Time     `json:"time" doc:"When the end was reached first; or up to when is removed."`
}

func (a *api) plays(ctx context.Context, in *playsInput) (*plays, error) {
	if a.cfg.Plays == nil {
		return nil, errNoPlays
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ReadDeadline)
	defer cancel()
	messages, next, err := a.cfg.Plays.After(ctx, in.After, in.Limit)
	if err != nil {
		return nil, err
	}
	out := &plays{Plays: make([]play, len(messages)), Next: next}
	for i, m := range messages {
		out.Plays[i] = newPlay(m)
	}
	return out, nil
}

func newPlay(m history.PlayMessage) play {
	p := play{ID: m.ID(), Kind: string(m.Kind), User: m.Key.UID, Time: time.UnixMilli(m.At).UTC()}
	if m.Kind == history.PlaysCleared {
		p.Type = m.Key.Object.Type
	} else {
		p.Object = &codec.Object{ID: m.Key.Object.ID, Type: m.Key.Object.Type}
	}
	if m.Viewing != 0 {
		p.Viewing = fmt.Sprintf("%016x", m.Viewing)
	}
	return p
}

func playsOperation() huma.Operation {
	op := operation(http.MethodGet, "/v1/plays", "What all users have completed, as a stream", nil)
	op.Description = "For a token of the scope plays:read. Only playhead serve --plays keeps the stream; a deployment with Kafka has it in a topic. " +
		"The same message may come again, with the same id. 410 means that messages after the cursor are no longer kept: read what there is, and begin without a cursor."
	return op
}
