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

// alterConfigs replaces all settings of topics and groups: settings that the request does not name
// get their defaults.
func (s *Server) alterConfigs(ctx context.Context, request *request, in *kmsg.AlterConfigsRequest) *kmsg.AlterConfigsResponse {
	again := repeated(in.Resources, func(r kmsg.AlterConfigsRequestResource) string { return resourceName(r.ResourceType, r.ResourceName) })
	var asked []*alteration
	for _, a := range in.Resources {
		skip, err := again.refuse(resourceName(a.ResourceType, a.ResourceName))
		if skip {
			continue
		}
		asked = append(asked, &alteration{
			kind: a.ResourceType, name: a.ResourceName, err: err,
			settings: namesOf(a.Configs, func(c kmsg.AlterConfigsRequestResourceConfig) string { return c.Name }),
			change:   func(config map[string]string) error { return replaceAll(config, a.Configs) },
		})
	}
	s.alterResources(ctx, request, asked, in.ValidateOnly)
	out := in.ResponseKind().(*kmsg.AlterConfigsResponse)
	for _, a := range asked {
		r := kmsg.NewAlterConfigsResponseResource()
		r.ResourceType, r.ResourceName = a.kind, a.name
		r.ErrorCode, r.ErrorMessage = codeOf(a.err)
		out.Resources = append(out.Resources, r)
	}
	return out
}

// replaceAll replaces all settings.
func replaceAll(config map[string]string, configs []kmsg.AlterConfigsRequestResourceConfig) error {
	clear(config)
	again := repeated(configs, func(c kmsg.AlterConfigsRequestResourceConfig) string { return c.Name })
	for _, c := range configs {
		if _, err := again.refuse(c.Name); err != nil {
			return err
		}
		if c.Value == nil {
			return deny(kerr.InvalidRequest, "%s is null; leave it out to use the default", c.Name)
		}
		config[c.Name] = *c.Value
	}
	return nil
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

// alteration is what a request is to change of one resource.
type alteration struct {
	kind     kmsg.ConfigResourceType
	name     string
	settings []string // the names of the settings that the request would set
	change   func(config map[string]string) error
	err      error // why it is not changed
}

// alterResources changes settings of topics and groups that were not refused yet, or only validates
// the request: a few store calls for hundreds of topics, and a few for each group. Other resources
// have no settings, or, if they are brokers, settings that cannot be changed while weir runs:
// alterNothing answers for them.
func (s *Server) alterResources(ctx context.Context, r *request, all []*alteration, validateOnly bool) {
	var changes []eventlog.TopicChange
	var of []*alteration
	for _, a := range all {
		if a.err == nil {
			a.err = r.permitConfigs(acl.AlterConfigs, a.kind, a.name)
		}
		switch {
		case a.err != nil:
		case a.kind == kmsg.ConfigResourceTypeGroupConfig && a.name == "":
			a.err = deny(kerr.InvalidRequest, "the name of the group is empty: there are no default settings for groups")
		case a.kind == kmsg.ConfigResourceTypeGroupConfig:
			a.err = s.groups.ChangeGroupConfig(ctx, a.name, a.change, validateOnly)
		case a.kind != kmsg.ConfigResourceTypeTopic:
			if a.err = a.change(make(map[string]string)); a.err == nil {
				a.err = s.alterNothing(a.kind, a.name, a.settings)
			}
		case validateOnly:
			a.err = s.validate(ctx, a)
		default:
			changes, of = append(changes, eventlog.TopicChange{Name: a.name, Config: a.change}), append(of, a)
		}
	}
	_, errs := s.log.ChangeTopics(ctx, changes...)
	for i, a := range of {
		a.err = errs[i]
	}
	for _, a := range all {
		if a.err != nil {
			s.refused(r, a.err)
		}
	}
}

// validate returns why a topic's settings cannot be changed like this.
func (s *Server) validate(ctx context.Context, a *alteration) error {
	topic, err := s.lookUp(ctx, a.name)
	if err != nil {
		return err
	}
	config := make(map[string]string)
	maps.Copy(config, topic.Config)
	if err := a.change(config); err != nil {
		return err
	}
	return eventlog.CheckConfig(config)
}

// alterNothing answers for resources whose settings cannot be changed, with Kafka's code:
// INVALID_REQUEST for a broker's setting that is not dynamic (ConfigAdminManager). For this broker,
// a request that sets nothing succeeds, also one that deletes settings, whatever their names, as
// with Kafka 4.4: kafka-reassign-partitions --verify deletes throttles that nobody has set.
func (s *Server) alterNothing(kind kmsg.ConfigResourceType, name string, settings []string) error {
	var asked []string
	for _, setting := range settings[:min(len(settings), 5)] {
		asked = append(asked, shorten(setting))
	}
	named := strings.Join(asked, ", ")
	switch {
	case kind == kmsg.ConfigResourceTypeBroker && name != "" && name != strconv.Itoa(int(s.view().Self())):
		return deny(kerr.InvalidRequest, "the request is for broker %q; this is broker %d", shorten(name), s.view().Self())
	case kind != kmsg.ConfigResourceTypeBroker:
		return lacking("settings of "+kind.String(), kerr.InvalidRequest, "weir has no settings for a resource of type %s, only for topics, groups and brokers", kind)
	case len(settings) == 0:
		return nil
	default:
		return lacking("settings of the broker", kerr.InvalidRequest, "cannot change %s: settings of the broker cannot be changed while it runs; set them when you start weir", named)
	}
}

func resourceName(kind kmsg.ConfigResourceType, name string) string {
	return kind.String() + " " + name
}
