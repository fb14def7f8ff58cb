package kafka

import (
	"slices"
	"testing"

	"github.com/weir-log/weir/eventlog"
)

func TestEveryTopicSettingHasItsBrokerDefault(t *testing.T) {
	for _, s := range eventlog.Settings {
		if brokerNames[s.Name] == "" && !slices.Contains(topicsAlone, s.Name) {
			t.Errorf("%s has no name among the broker's settings, which DescribeConfigs shows as its synonym", s.Name)
		}
		if _, known := configTypes[s.Kind]; !known {
			t.Errorf("%s has a kind that DescribeConfigs cannot name", s.Name)
		}
	}
}
