package engine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// redisDo sends one command whose arguments hold no spaces and returns a
// status, an integer or a bulk reply as text.
func redisDo(ctx context.Context, addr, command string) (string, error) {
	conn, err := dial(ctx, addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, command+"\r\n"); err != nil {
		return "", err
	}
	return redisReply(bufio.NewReader(conn))
}

func redisReply(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return "", errors.New("empty redis reply")
	}
	switch line[0] {
	case '+', ':':
		return line[1:], nil
	case '-':
		return "", fmt.Errorf("redis: %s", line[1:])
	case '$':
		return redisBulk(r, line[1:])
	}
	return "", fmt.Errorf("unexpected redis reply %q", line)
}

func redisBulk(r io.Reader, size string) (string, error) {
	n, err := strconv.Atoi(size)
	if err != nil || n < 0 || n > 1<<20 {
		return "", fmt.Errorf("redis reply of %q bytes", size)
	}
	b := make([]byte, n)
	_, err = io.ReadFull(r, b)
	return string(b), err
}

// dial connects with a deadline on everything that follows.
func dial(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp4", addr)
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(2 * time.Second)
	if t, ok := ctx.Deadline(); ok && t.Before(deadline) {
		deadline = t
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}
