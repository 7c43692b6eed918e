package kafka_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/kafka"
)

// memberOf names, for a process of its own, the brokers, topic, group and session
// timeout that it is to be a member with.
const memberOf = "PLAYHEAD_TEST_MEMBER_OF"

func TestMain(m *testing.M) {
	if args := strings.Fields(os.Getenv(memberOf)); len(args) == 4 {
		session, _ := time.ParseDuration(args[3]) // Open refuses zero
		hold(kafka.Config{Brokers: strings.Split(args[0], ","), Topic: args[1], Group: args[2], SessionTimeout: session})
	}
	os.Exit(m.Run())
}

// hold fetches ten keys, says so, and holds them until it is killed.
func hold(cfg kafka.Config) {
	ctx := context.Background()
	q, err := kafka.Open(ctx, cfg)
	if err != nil {
		panic(err)
	}
	err = q.Consume(ctx, func(ctx context.Context, claim history.Claim) error {
		if _, err := fetch(ctx, claim, 10); err != nil {
			return err
		}
		_, err := os.Stdout.WriteString("holding\n")
		<-ctx.Done()
		return err
	})
	panic(err)
}

func TestKilledMember(t *testing.T) {
	cfg := fresh(t, cluster(t).ListenAddrs())
	cfg.SessionTimeout = time.Second
	killMember(t, cfg)
}

// killMember has a process fetch keys and die without a word: another gets them once
// the session of the dead one is over.
func killMember(t *testing.T, cfg kafka.Config) {
	q := open(t, cfg)
	publish(t, q, announced(10))
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	args := []string{strings.Join(cfg.Brokers, ","), cfg.Topic, cfg.Group, cfg.SessionTimeout.String()}
	cmd.Env = append(os.Environ(), memberOf+"="+strings.Join(args, " "))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "holding\n" {
		t.Errorf("the member said %q, %v", line, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // it was killed
	start := time.Now()
	receive(t, q, 10)
	if took := time.Since(start); took > 5*cfg.SessionTimeout {
		t.Errorf("another member had the keys after %v, want about %v", took, cfg.SessionTimeout)
	}
}
