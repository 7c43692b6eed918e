package engine

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
)

func kafkaKind() kind {
	return kind{
		name:    "kafka",
		ports:   [][]int{{20, 21}}, // broker, controller
		limit:   2 * time.Minute,
		grace:   20 * time.Second,
		install: func(ctx context.Context, c Config) error { return installJars(ctx, c, "kafka") },
		prepare: kafkaPrepare,
		argv:    kafkaArgv,
		ready:   kafkaReady,
	}
}

// kafkaProperties configures one process as broker and controller. Every replication factor is one, and a new
// group does not wait for more members.
func kafkaProperties(n Node) string {
	return strings.NewReplacer(
		"$BROKER", n.Addr(),
		"$CONTROLLER", fmt.Sprintf("127.0.0.1:%d", n.Ports[1]),
		"$LOGS", filepath.Join(n.Dir, "logs"),
	).Replace(`process.roles=broker,controller
node.id=1
controller.quorum.voters=1@$CONTROLLER
listeners=PLAINTEXT://$BROKER,CONTROLLER://$CONTROLLER
advertised.listeners=PLAINTEXT://$BROKER
controller.listener.names=CONTROLLER
log.dirs=$LOGS
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
log.cleaner.dedupe.buffer.size=16777216
`)
}

func kafkaFile(n Node) string { return filepath.Join(n.Dir, "server.properties") }

func kafkaClasspath(c Config) string { return filepath.Join(c.Lib, "kafka", "*") }

// kafkaPrepare writes the configuration, and formats a new data folder.
func kafkaPrepare(ctx context.Context, c Config, n Node) error {
	if err := os.WriteFile(kafkaFile(n), []byte(kafkaProperties(n)), 0o644); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(n.Dir, "logs", "meta.properties")); err == nil {
		return nil
	}
	return tool(ctx, time.Minute, "java", "-cp", kafkaClasspath(c), "kafka.tools.StorageTool",
		"format", "--ignore-formatted", "-t", clusterID(), "-c", kafkaFile(n))
}

// clusterID returns 16 random bytes in Kafka's encoding. It never begins with a dash, which a command line would
// take for an option.
func clusterID() string {
	var b [16]byte
	rand.Read(b[:])
	b[0] &= 0x7f
	return base64.RawURLEncoding.EncodeToString(b[:])
}

func kafkaArgv(c Config, n Node) []string {
	return javaArgv(n, 256,
		"-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
		"-cp", kafkaClasspath(c), "kafka.Kafka", kafkaFile(n))
}

// kafkaReady requests the metadata. An open port proves nothing; the controller lists a broker once it serves.
func kafkaReady(ctx context.Context, n Node) error {
	conn, err := kafka.DialContext(ctx, "tcp", n.Addr())
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return err
	}
	brokers, err := conn.Brokers()
	if err == nil && len(brokers) == 0 {
		err = errors.New("kafka lists no broker yet")
	}
	return err
}
