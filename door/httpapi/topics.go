package httpapi

import (
	"cmp"
	"context"
	"net/http"

	"github.com/weir-log/weir/eventlog"
)

// topicView is a topic in an answer. In lists the partitions' bounds are left out: they cost store
// calls.
type topicView struct {
	Name       string            `json:"name"`
	ID         string            `json:"id"`
	Partitions int               `json:"partitions"`
	Config     map[string]string `json:"config,omitzero"` // set explicitly; nil: the client may not see settings
	Holds      []partitionView   `json:"holds,omitempty"`
	Settings   map[string]string `json:"settings,omitempty"` // effective, defaults included
}

type partitionView struct {
	Partition   int             `json:"partition"`
	FirstOffset eventlog.Offset `json:"first_offset"`
	EndOffset   eventlog.Offset `json:"end_offset"`
	Bytes       int64           `json:"bytes"`
}

// viewOf describes a topic to a client, with its settings if the client may see them.
func (c *call) viewOf(t eventlog.Topic) topicView {
	v := topicView{Name: t.Name, ID: t.ID.String(), Partitions: len(t.Partitions)}
	if !c.who.mayConfigs(t.Name) {
		return v
	}
	if v.Config = t.Config; v.Config == nil {
		v.Config = map[string]string{}
	}
	return v
}

// listTopics lists the topics that the caller may describe.
func (s *Server) listTopics(c *call) error {
	read := func(context.Context) ([]eventlog.Topic, error) { return s.cfg.Log.Topics(), nil }
	return answerList(c, "topics", read, func(t eventlog.Topic) bool { return c.who.mayTopic(toDescribe, t.Name) }, c.viewOf)
}

// describeTopic returns one topic and the bounds of its partitions, with one store call.
func (s *Server) describeTopic(c *call) error {
	t, err := s.topic(c)
	if err != nil {
		return err
	}
	ctx, cancel := c.withTimeout()
	defer cancel()
	if err := c.build(ctx); err != nil {
		return err
	}
	bounds, err := s.cfg.Log.Bounds(ctx, t.Partitions...)
	if err != nil {
		return err
	}
	v := c.viewOf(t)
	for n, b := range bounds {
		if b.Err != nil {
			return b.Err
		}
		v.Holds = append(v.Holds, partitionView{n, b.Bounds.First, b.Bounds.Next, b.Bounds.Bytes})
	}
	if v.Config != nil {
		v.Settings = make(map[string]string)
		for _, setting := range eventlog.Settings {
			v.Settings[setting.Name] = t.Setting(setting.Name)
		}
	}
	return c.json(http.StatusOK, v)
}

// topicChange is the body of a request that creates or alters a topic.
type topicChange struct {
	name       string
	partitions int
	config     map[string]*string // null resets a setting to its default
}

// createTopic creates a topic.
func (s *Server) createTopic(c *call) error {
	change, err := s.readTopicChange(c, true)
	if err != nil {
		return err
	}
	if err := c.may(toCreate, change.name); err != nil {
		return err
	}
	spec := eventlog.TopicSpec{Name: change.name, Partitions: cmp.Or(change.partitions, s.cfg.Partitions), Config: map[string]string{}}
	_ = change.edit(spec.Config) // it never fails
	ctx, cancel := c.withTimeout()
	defer cancel()
	t, err := s.cfg.Log.CreateTopic(ctx, spec)
	if err != nil {
		return err
	}
	c.Header().Set("Location", "/v1/topics/"+t.Name)
	return c.json(http.StatusCreated, c.viewOf(t))
}

// alterTopic changes settings and adds partitions, all or nothing.
func (s *Server) alterTopic(c *call) error {
	change, err := s.readTopicChange(c, false)
	if err != nil {
		return err
	}
	if err := change.allowed(c); err != nil {
		return err
	}
	t, err := s.topic(c)
	if err != nil {
		return err
	}
	if change.partitions == 0 && len(change.config) == 0 {
		return c.json(http.StatusOK, c.viewOf(t))
	}
	ctx, cancel := c.withTimeout()
	defer cancel()
	t, err = s.cfg.Log.ChangeTopic(ctx, t.Name, eventlog.TopicChange{Partitions: change.partitions, Config: change.edit})
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, c.viewOf(t))
}

// allowed returns nil if the client may make the change to the topic in the path. As in Kafka, more
// partitions need another operation than settings.
func (change topicChange) allowed(c *call) error {
	topic := c.r.PathValue("topic")
	if change.partitions > 0 {
		if err := c.may(toAlter, topic); err != nil {
			return err
		}
	}
	if len(change.config) > 0 {
		return c.may(toAlterConfigs, topic)
	}
	return nil
}

// edit applies the change to a topic's settings.
func (change topicChange) edit(config map[string]string) error {
	for name, value := range change.config {
		if value == nil {
			delete(config, name)
		} else {
			config[name] = *value
		}
	}
	return nil
}

// deleteTopic deletes a topic and its events.
func (s *Server) deleteTopic(c *call) error {
	ctx, cancel := c.withTimeout()
	defer cancel()
	name := c.r.PathValue("topic")
	if err := eventlog.CheckTopicName(name); err != nil {
		return err
	}
	if err := s.cfg.Log.DeleteTopic(ctx, name); err != nil {
		return err
	}
	c.WriteHeader(http.StatusNoContent)
	return nil
}

// readTopicChange reads the body of a request that creates or alters a topic.
func (s *Server) readTopicChange(c *call, named bool) (change topicChange, err error) {
	body, err := s.jsonBody(c)
	if err != nil {
		return change, err
	}
	known := []string{"name", "partitions", "config"}
	if !named {
		known = known[1:]
	}
	err = readJSON(body, 0, func(r *jsonReader) error {
		return r.object(func(member string) (err error) {
			switch {
			case member == "name" && named:
				change.name, err = r.string()
			case member == "partitions":
				var n int64
				n, err = r.integer(1, eventlog.PartitionsMax)
				change.partitions = int(n)
			case member == "config":
				change.config, err = readConfig(r)
			default:
				err = r.unknown(member, known...)
			}
			return err
		})
	})
	if err == nil && named && change.name == "" {
		err = kindInvalidJSON.because(`"name" is missing`)
	}
	return change, err
}

// readConfig reads settings. Their values may be numbers and booleans, too; null is nil.
func readConfig(r *jsonReader) (map[string]*string, error) {
	config := make(map[string]*string)
	err := r.object(func(name string) error {
		setting, ok := eventlog.FindSetting(name)
		if !ok {
			return r.unknown(name, settingNames()...)
		}
		if r.null() {
			config[setting.Name] = nil
			return nil
		}
		start := *r
		var value []byte
		var err error
		switch r.peek() {
		case '{', '[':
			return r.fail("the value of a setting must be a string, a number, true, false, or null for the default")
		case '"':
			value, err = r.text()
		default:
			value, err = r.raw()
		}
		if err != nil {
			return err
		}
		text := string(value)
		if err := eventlog.CheckConfig(map[string]string{name: text}); err != nil {
			*r = start
			return r.fail("%v", err)
		}
		config[name] = &text
		return nil
	})
	return config, err
}

func settingNames() (names []string) {
	for _, setting := range eventlog.Settings {
		names = append(names, setting.Name)
	}
	return names
}
