package kafka

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/acl"
)

// alterConfigs replaces all settings of a topic: settings that the request does not name get their
// defaults.
func (s *Server) alterConfigs(ctx context.Context, request *request, in *kmsg.AlterConfigsRequest) *kmsg.AlterConfigsResponse {
	out := in.ResponseKind().(*kmsg.AlterConfigsResponse)
	again := repeated(in.Resources, func(r kmsg.AlterConfigsRequestResource) string { return resourceName(r.ResourceType, r.ResourceName) })
	for _, asked := range in.Resources {
		skip, err := again.refuse(resourceName(asked.ResourceType, asked.ResourceName))
		if skip {
			continue
		}
		r := kmsg.NewAlterConfigsResponseResource()
		r.ResourceType, r.ResourceName = asked.ResourceType, asked.ResourceName
		if err == nil {
			names := namesOf(asked.Configs, func(c kmsg.AlterConfigsRequestResourceConfig) string { return c.Name })
			err = s.alterResource(ctx, request, asked.ResourceType, asked.ResourceName, names, in.ValidateOnly, func(config map[string]string) error {
				clear(config)
				again := repeated(asked.Configs, func(c kmsg.AlterConfigsRequestResourceConfig) string { return c.Name })
				for _, c := range asked.Configs {
					if _, err := again.refuse(c.Name); err != nil {
						return err
					}
					if c.Value == nil {
						return deny(kerr.InvalidRequest, "%s is null; leave it out to use the default", c.Name)
					}
					config[c.Name] = *c.Value
				}
				return nil
			})
		}
		if err != nil {
			s.refused(request, err)
			r.ErrorCode, r.ErrorMessage = codeOf(err)
		}
		out.Resources = append(out.Resources, r)
	}
	return out
}

// namesOf returns the names of the settings that a request is to change, each once.
func namesOf[C any](configs []C, name func(C) string) []string {
	var names []string
	for _, c := range configs {
		names = append(names, name(c))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// alterResource changes a topic's settings, or only validates the request. Settings of other
// resources cannot be changed while weir runs: the error names settings, the ones that the request
// would change.
func (s *Server) alterResource(ctx context.Context, r *request, kind kmsg.ConfigResourceType, name string, settings []string, validateOnly bool, change func(config map[string]string) error) error {
	if err := r.permitConfigs(acl.AlterConfigs, kind, name); err != nil {
		return err
	}
	if kind != kmsg.ConfigResourceTypeTopic {
		if err := change(make(map[string]string)); err != nil {
			return err
		}
		return s.alterNothing(kind, name, settings)
	}
	if !validateOnly {
		_, err := s.log.AlterTopic(ctx, name, change)
		return err
	}
	topic, err := s.lookUp(ctx, name)
	if err != nil {
		return err
	}
	config := make(map[string]string)
	maps.Copy(config, topic.Config)
	if err := change(config); err != nil {
		return err
	}
	return eventlog.CheckConfig(config)
}

// alterNothing answers for resources whose settings cannot be changed, with Kafka's codes:
// INVALID_REQUEST for a broker's setting that is not dynamic (ConfigAdminManager), INVALID_CONFIG
// for a setting that groups do not have (GroupConfigManager). A request without changes succeeds,
// and so does one that deletes settings, whatever their names, as with Kafka 4.4:
// kafka-reassign-partitions --verify deletes throttles that nobody has set.
func (s *Server) alterNothing(kind kmsg.ConfigResourceType, name string, settings []string) error {
	var asked []string
	for _, setting := range settings[:min(len(settings), 5)] {
		asked = append(asked, shorten(setting))
	}
	named := strings.Join(asked, ", ")
	switch {
	case kind == kmsg.ConfigResourceTypeBroker && name != "" && name != strconv.Itoa(int(s.view().Self())):
		return deny(kerr.InvalidRequest, "the request is for broker %q; this is broker %d", shorten(name), s.view().Self())
	case kind != kmsg.ConfigResourceTypeBroker && kind != kmsg.ConfigResourceTypeGroupConfig:
		return lacking("settings of "+kind.String(), kerr.InvalidRequest, "weir has no settings for a resource of type %s, only for topics and brokers", kind)
	case len(settings) == 0:
		return nil
	case kind == kmsg.ConfigResourceTypeBroker:
		return lacking("settings of the broker", kerr.InvalidRequest, "cannot change %s: settings of the broker cannot be changed while it runs; set them when you start weir", named)
	default:
		return lacking("settings of groups", kerr.InvalidConfig, "cannot change %s of group %q: weir has no settings for groups", named, shorten(name))
	}
}

func resourceName(kind kmsg.ConfigResourceType, name string) string {
	return kind.String() + " " + name
}
