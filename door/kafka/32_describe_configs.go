package kafka

import (
	"context"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/use/acl"
)

// describeConfigs returns the settings of topics, groups and of this broker, with the source of
// each value.
func (s *Server) describeConfigs(ctx context.Context, request *request, in *kmsg.DescribeConfigsRequest) *kmsg.DescribeConfigsResponse {
	out := in.ResponseKind().(*kmsg.DescribeConfigsResponse)
	again := repeated(in.Resources, func(r kmsg.DescribeConfigsRequestResource) string {
		return resourceName(r.ResourceType, r.ResourceName)
	})
	for _, asked := range in.Resources {
		skip, err := again.refuse(resourceName(asked.ResourceType, asked.ResourceName))
		if skip {
			continue
		}
		r := kmsg.NewDescribeConfigsResponseResource()
		r.ResourceType, r.ResourceName = asked.ResourceType, asked.ResourceName
		var configs []config
		if err == nil {
			configs, err = s.configsOf(ctx, request, asked.ResourceType, asked.ResourceName)
		}
		if asked.ConfigNames != nil {
			configs = slices.DeleteFunc(configs, func(c config) bool { return !slices.Contains(asked.ConfigNames, c.name) })
		}
		cost := configsCost(configs, in.IncludeSynonyms, in.IncludeDocumentation)
		if err == nil {
			err = request.checkAnswer(cost, len(in.Resources))
		}
		if err != nil {
			configs, cost = nil, 0
		}
		if err := request.claimAnswer(ctx, cost); err != nil {
			return nil
		}
		if err != nil {
			s.refused(request, err)
			r.ErrorCode, r.ErrorMessage = codeOf(err)
		}
		for _, c := range configs {
			r.Configs = append(r.Configs, c.describe(in))
		}
		out.Resources = append(out.Resources, r)
	}
	return out
}

// configCost estimates the bytes of a setting and its synonyms in an answer, in memory and encoded,
// without their texts.
const configCost = 512

// configsCost estimates the bytes of settings in an answer. A text is in it twice: in memory and
// encoded.
func configsCost(configs []config, synonyms, docs bool) (n int) {
	for _, c := range configs {
		n += configCost + 2*(len(c.name)+len(c.value))
		if docs {
			n += 2 * len(c.doc)
		}
		for _, from := range c.synonyms {
			if synonyms {
				n += 2 * (len(from.name) + len(from.value))
			}
		}
	}
	return n
}

func (s *Server) configsOf(ctx context.Context, r *request, kind kmsg.ConfigResourceType, name string) ([]config, error) {
	if err := r.permitConfigs(acl.DescribeConfigs, kind, name); err != nil {
		return nil, err
	}
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
		topic, err := s.lookUp(ctx, name)
		if err != nil {
			return nil, err
		}
		return topicConfigs(topic), nil
	case kmsg.ConfigResourceTypeBroker:
		if name == "" {
			return nil, nil // dynamic settings of all brokers: weir has none
		}
		if self := s.view().Self(); name != strconv.Itoa(int(self)) {
			return nil, deny(kerr.InvalidRequest, "the request asks for broker %q; this is broker %d", name, self)
		}
		return s.brokerConfigs(), nil
	case kmsg.ConfigResourceTypeGroupConfig:
		if name == "" {
			return nil, deny(kerr.InvalidRequest, "the name of the group is empty")
		}
		own, err := s.groups.GroupConfig(ctx, name)
		if err != nil {
			return nil, err
		}
		return groupConfigs(s.groups.Settings(), own), nil
	default:
		return nil, lacking("settings of "+kind.String(), kerr.InvalidRequest, "weir has no settings for a resource of type %s, only for topics, groups and brokers", kind)
	}
}

func (c config) describe(in *kmsg.DescribeConfigsRequest) kmsg.DescribeConfigsResponseResourceConfig {
	r := kmsg.NewDescribeConfigsResponseResourceConfig()
	r.Name, r.Value, r.ReadOnly = c.name, &c.value, c.readOnly
	r.IsDefault, r.Source, r.ConfigType = c.source == kmsg.ConfigSourceDefaultConfig, c.source, c.kind
	if in.IncludeDocumentation {
		r.Documentation = &c.doc
	}
	if in.IncludeSynonyms {
		for _, from := range c.synonyms {
			s := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
			s.Name, s.Value, s.Source = from.name, &from.value, from.source
			r.ConfigSynonyms = append(r.ConfigSynonyms, s)
		}
	}
	return r
}
