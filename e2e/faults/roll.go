package faults

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Rolls of jobs that move nearly all of everybody into parts, soon.
const (
	rollAbove  = 3
	rollAfter  = 5 * time.Second
	rollMargin = 15 * time.Second // longer than a put may take
)

func rollFlags() []string {
	return []string{"--roll-above", fmt.Sprint(rollAbove), "--roll-after", rollAfter.String(), "--roll-margin", rollMargin.String()}
}

// killedRolls kills everything at random while what is old is moved into parts, and then the jobs
// alone while they roll everybody. The cache keeps few of each user, so that pages are read from the
// archive.
func killedRolls(rounds int) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		if err := t.start(ctx, spec{keep: perUser / 2, jobFlags: rollFlags()}); err != nil {
			return err
		}
		for _, u := range t.stack.services { // they have started before the first job, and know of no rolling yet
			if err := u.restart(ctx, t.stack.drain); err != nil {
				return err
			}
		}
		t.load.pages = true
		k := newKiller(t)
		err := t.underLoad(ctx, func(ctx context.Context) error {
			return errors.Join(pause(ctx, 3*rollMargin), k.rounds(ctx, rounds))
		})
		k.wg.Wait()
		if err := errors.Join(err, k.err, t.settle(ctx)); err != nil {
			return err
		}
		if err := t.rollEverybody(ctx); err != nil {
			return err
		}
		return errors.Join(t.stack.compact(ctx), t.settle(ctx))
	}
}

// rollEverybody leaves notes of all users again and again for a while, and kills jobs meanwhile.
func (t *trial) rollEverybody(ctx context.Context) error {
	users := make(map[string]bool)
	for k := range t.book.stories {
		users[k.UID] = true
	}
	records, kills := 0, 0
	for began := time.Now(); time.Since(began) < 5*rollMargin; kills++ {
		var err error
		if records, err = t.rolled(ctx, users); err != nil {
			return err
		}
		t.stack.jobs[t.rand.IntN(len(t.stack.jobs))].kill()
		if err := pause(ctx, 5*time.Second); err != nil {
			return err
		}
	}
	t.res.note("%d records of %d users in parts, jobs killed %d times meanwhile", records, len(users), kills)
	if records == 0 {
		return errors.New("nothing was rolled")
	}
	return nil
}

// rolled returns how many records are in parts, and leaves a note of who has a long live part. What is wrong
// with parts is an error.
func (t *trial) rolled(ctx context.Context, users map[string]bool) (records int, err error) {
	for uid := range users {
		i, err := t.stack.archive.Inspect(ctx, uid, true)
		if err := errors.Join(append(i.Wrong, err)...); err != nil {
			return 0, fmt.Errorf("parts of %s: %w", uid, err)
		}
		for _, c := range i.Parts.Chunks {
			records += c.Count - len(c.Superseded)
		}
		if i.Live > rollAbove {
			err = t.stack.cache.Note(ctx, uid)
		}
		if err != nil {
			return 0, err
		}
	}
	return records, nil
}
