package kafka

import (
	"context"
	"maps"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
)

// AlterConfigs replaces all that was set for a topic: what it does not name goes back to its default.
func (s *Server) alterConfigs(ctx context.Context, _ *request, in *kmsg.AlterConfigsRequest) *kmsg.AlterConfigsResponse {
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
			err = s.alterResource(ctx, asked.ResourceType, asked.ResourceName, in.ValidateOnly, func(config map[string]string) error {
				clear(config)
				for _, c := range asked.Configs {
					if c.Value == nil {
						return deny(kerr.InvalidConfig, "%s is null; leave it out to have the default", c.Name)
					}
					config[c.Name] = *c.Value
				}
				return nil
			})
		}
		if err != nil {
			s.trouble("AlterConfigs", err)
			r.ErrorCode, r.ErrorMessage = codeOf(err)
		}
		out.Resources = append(out.Resources, r)
	}
	return out
}

// alterResource changes what was set for a topic, or only checks that it could. Nothing else can be changed while we run.
func (s *Server) alterResource(ctx context.Context, kind kmsg.ConfigResourceType, name string, validateOnly bool, change func(config map[string]string) error) error {
	if kind != kmsg.ConfigResourceTypeTopic {
		return deny(kerr.InvalidRequest, "settings of resources of type %d cannot be changed while the broker runs; those of topics (2) can", kind)
	}
	if !validateOnly {
		_, err := s.log.AlterTopic(ctx, name, change)
		return err
	}
	topic, err := s.log.Topic(ctx, name)
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

func resourceName(kind kmsg.ConfigResourceType, name string) string {
	return kind.String() + " " + name
}
