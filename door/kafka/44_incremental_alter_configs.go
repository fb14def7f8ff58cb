package kafka

import (
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
)

// incrementalAlterConfigs changes the named settings and keeps the other settings.
func (s *Server) incrementalAlterConfigs(ctx context.Context, request *request, in *kmsg.IncrementalAlterConfigsRequest) *kmsg.IncrementalAlterConfigsResponse {
	again := repeated(in.Resources, func(r kmsg.IncrementalAlterConfigsRequestResource) string {
		return resourceName(r.ResourceType, r.ResourceName)
	})
	var asked []*alteration
	for _, a := range in.Resources {
		skip, err := again.refuse(resourceName(a.ResourceType, a.ResourceName))
		if skip {
			continue
		}
		kept := slices.DeleteFunc(slices.Clone(a.Configs), func(c kmsg.IncrementalAlterConfigsRequestResourceConfig) bool {
			return c.Op == kmsg.IncrementalAlterConfigOpDelete // alterNothing refuses only settings that would be set: a broker's cannot be, so deleting one changes nothing
		})
		asked = append(asked, &alteration{
			kind: a.ResourceType, name: a.ResourceName, err: err,
			settings: namesOf(kept, func(c kmsg.IncrementalAlterConfigsRequestResourceConfig) string { return c.Name }),
			change:   func(config map[string]string) error { return alterEach(config, a.Configs) },
		})
	}
	s.alterResources(ctx, request, asked, in.ValidateOnly)
	out := in.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	for _, a := range asked {
		r := kmsg.NewIncrementalAlterConfigsResponseResource()
		r.ResourceType, r.ResourceName = a.kind, a.name
		r.ErrorCode, r.ErrorMessage = codeOf(a.err)
		out.Resources = append(out.Resources, r)
	}
	return out
}

func alterEach(config map[string]string, changes []kmsg.IncrementalAlterConfigsRequestResourceConfig) error {
	again := repeated(changes, func(c kmsg.IncrementalAlterConfigsRequestResourceConfig) string { return c.Name })
	for _, c := range changes {
		if _, err := again.refuse(c.Name); err != nil {
			return err
		}
		if err := alterOne(config, c); err != nil {
			return err
		}
	}
	return nil
}

func alterOne(config map[string]string, c kmsg.IncrementalAlterConfigsRequestResourceConfig) error {
	if c.Op == kmsg.IncrementalAlterConfigOpDelete {
		delete(config, c.Name)
		return nil
	}
	if c.Value == nil {
		return deny(kerr.InvalidRequest, "%s is null; to use the default, send the operation delete (1)", c.Name)
	}
	if err := eventlog.CheckSettingLength(c.Name, *c.Value); err != nil {
		return err
	}
	if c.Op == kmsg.IncrementalAlterConfigOpSet {
		config[c.Name] = *c.Value
		return nil
	}
	setting, known := eventlog.FindSetting(c.Name)
	if !known || setting.Kind != eventlog.SettingList {
		return deny(kerr.InvalidConfig, "%s is not a list: append and subtract are for lists only; send the operation set (0)", c.Name)
	}
	now, set := config[c.Name]
	if !set {
		now = setting.Default
	}
	items, change := itemsOf(now), itemsOf(*c.Value)
	mentioned := make(map[string]bool, len(items)+len(change)) // a set: a search per item would be quadratic
	switch c.Op {
	case kmsg.IncrementalAlterConfigOpAppend:
		for _, item := range items {
			mentioned[item] = true
		}
		for _, item := range change {
			if first(mentioned, item) {
				items = append(items, item)
			}
		}
	case kmsg.IncrementalAlterConfigOpSubtract:
		for _, item := range change {
			mentioned[item] = true
		}
		items = slices.DeleteFunc(items, func(item string) bool { return mentioned[item] })
	default:
		return deny(kerr.InvalidRequest, "operation %d on %s is not valid; use 0 (set), 1 (delete), 2 (append) or 3 (subtract)", c.Op, c.Name)
	}
	config[c.Name] = strings.Join(items, ",")
	return nil
}

// itemsOf splits a list, as settings hold it, into its items.
func itemsOf(value string) []string {
	return slices.DeleteFunc(strings.Split(value, ","), func(item string) bool { return item == "" })
}
