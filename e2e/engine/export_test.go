package engine

import (
	"context"
	"slices"
)

// Exports for the tests.
var (
	Complete        = Config.complete
	Belongs         = belongs
	Place           = place
	WantPorts       = wantPorts
	Lock            = lock
	Until           = until
	KafkaProperties = kafkaProperties
	KafkaArgv       = kafkaArgv
	KafkaReady      = kafkaReady
	ClusterID       = clusterID
	HBaseArgv       = hbaseArgv
	HBaseSite       = hbaseSite
	HBaseReady      = hbaseReady
	PostgresArgv    = postgresArgv
	RedisArgv       = redisClusterArgv
	RedisDo         = redisDo
	UpdateState     = updateState
	Poms            = poms
)

// Spawn runs argv as the process of a node.
func (n *Node) Spawn(argv []string, detach bool) error {
	return n.spawn(context.Background(), argv, procAttr(detach))
}

// LogTail returns the log excerpt of errors.
func (n Node) LogTail() string { return n.logTail() }

// PortOffsets returns all engines' offsets from the port base.
func PortOffsets() []int {
	var all []int
	for _, name := range slices.Concat(Names(), Compatible(), []string{Postgres}) {
		k, _ := kindOf(name)
		for _, ports := range k.ports {
			all = append(all, ports...)
		}
	}
	return all
}
