package cli

import (
	"fmt"
	"time"

	"github.com/weir-log/weir/use/group"
)

// groupFlags are the settings of a broker of Kafka for consumer groups. Those with consumer in
// their name are for members of Kafka's consumer protocol (KIP-848).
type groupFlags struct {
	GroupInitialDelay      duration `help:"How long the first members of an empty group wait for more members (group.initial.rebalance.delay.ms). Default: ${default}." name:"group-initial-rebalance-delay" default:"500ms" placeholder:"TIME"`
	GroupMinSession        duration `help:"The shortest session timeout that a member may ask for (group.min.session.timeout.ms). Default: ${default}." name:"group-min-session-timeout" default:"6s" placeholder:"TIME"`
	GroupMaxSession        duration `help:"The longest one (group.max.session.timeout.ms). Default: ${default}." name:"group-max-session-timeout" default:"30m" placeholder:"TIME"`
	GroupMaxSize           int      `help:"Most members of a group (group.max.size, group.consumer.max.size). Default: ${default}." name:"group-max-size" default:"2000" placeholder:"N"`
	GroupConsumerSession   duration `help:"After so long without a heartbeat a member with group.protocol=consumer is evicted (group.consumer.session.timeout.ms). Default: ${default}." name:"group-consumer-session-timeout" default:"45s" placeholder:"TIME"`
	GroupConsumerHeartbeat duration `help:"How often such a member sends a heartbeat (group.consumer.heartbeat.interval.ms). Default: ${default}." name:"group-consumer-heartbeat-interval" default:"5s" placeholder:"TIME"`
}

// shortestTime bounds the times of groupFlags from below: Kafka counts them in milliseconds.
const shortestTime = time.Millisecond

// config returns the settings, or what contradicts what.
func (f groupFlags) config() (group.Config, error) {
	for name, value := range map[string]duration{
		"--group-min-session-timeout": f.GroupMinSession, "--group-max-session-timeout": f.GroupMaxSession,
		"--group-consumer-session-timeout": f.GroupConsumerSession, "--group-consumer-heartbeat-interval": f.GroupConsumerHeartbeat,
	} {
		if time.Duration(value) < shortestTime {
			return group.Config{}, fmt.Errorf("%s is %v; it must be at least %v", name, time.Duration(value), shortestTime)
		}
	}
	switch {
	case f.GroupInitialDelay < 0:
		return group.Config{}, fmt.Errorf("--group-initial-rebalance-delay is %v; it must not be negative", time.Duration(f.GroupInitialDelay))
	case f.GroupMinSession > f.GroupMaxSession:
		return group.Config{}, fmt.Errorf("--group-min-session-timeout is %v, and --group-max-session-timeout %v, which must not be shorter", time.Duration(f.GroupMinSession), time.Duration(f.GroupMaxSession))
	case f.GroupMaxSize < 1:
		return group.Config{}, fmt.Errorf("--group-max-size is %d; it must be at least 1", f.GroupMaxSize)
	case f.GroupConsumerHeartbeat >= f.GroupConsumerSession:
		return group.Config{}, fmt.Errorf("--group-consumer-heartbeat-interval is %v, and --group-consumer-session-timeout %v, which must be longer", time.Duration(f.GroupConsumerHeartbeat), time.Duration(f.GroupConsumerSession))
	}
	delay := time.Duration(f.GroupInitialDelay)
	if delay == 0 {
		delay = -1 // as group.Config says it
	}
	return group.Config{
		InitialDelay: delay, SessionMin: time.Duration(f.GroupMinSession), SessionMax: time.Duration(f.GroupMaxSession), MembersMax: f.GroupMaxSize,
		ConsumerSession: time.Duration(f.GroupConsumerSession), ConsumerHeartbeat: time.Duration(f.GroupConsumerHeartbeat),
	}, nil
}
