package httpapi

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/weir-log/weir/use/apikey"
)

// keyView is an API key in an answer.
type keyView struct {
	ID         string          `json:"id"`
	Name       string          `json:"name"`
	State      string          `json:"state"` // good, or why it is not valid now
	Access     []apikey.Access `json:"access"`
	Topics     []string        `json:"topics,omitempty"`
	TopicNames []string        `json:"topic_names,omitempty"`
	AllTopics  bool            `json:"all_topics,omitempty"`
	Groups     []string        `json:"groups,omitempty"`
	GroupNames []string        `json:"group_names,omitempty"`
	AllGroups  bool            `json:"all_groups,omitempty"`
	Queues     []string        `json:"queues,omitempty"`
	QueueNames []string        `json:"queue_names,omitempty"`
	AllQueues  bool            `json:"all_queues,omitempty"`
	Created    int64           `json:"created,omitempty"`
	From       int64           `json:"from,omitempty"`
	Expires    int64           `json:"expires,omitempty"`
	Revoked    int64           `json:"revoked,omitempty"`
	Secret     string          `json:"secret,omitempty"` // only in the answer to the request that made the key
}

func viewOfKey(l apikey.Listed) keyView {
	access := l.Access
	if access == nil { // the stored key is damaged
		access = []apikey.Access{}
	}
	return keyView{
		ID: l.ID, Name: l.Name, State: l.State(), Access: access,
		Topics: l.Topics, AllTopics: l.AllTopics, Groups: l.Groups, AllGroups: l.AllGroups, Queues: l.Queues, AllQueues: l.AllQueues,
		TopicNames: l.TopicNames, GroupNames: l.GroupNames, QueueNames: l.QueueNames,
		Created: sinceEpoch(l.Created), From: sinceEpoch(l.From), Expires: sinceEpoch(l.Expires), Revoked: sinceEpoch(l.Revoked),
	}
}

// sinceEpoch is a time in an answer; 0: none.
func sinceEpoch(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return at.UnixMilli()
}

// storedKeys returns the API keys in the store, or an error if this server does not use API keys.
func (s *Server) storedKeys() (*apikey.Keys, error) {
	if s.cfg.Keys == nil {
		return nil, kindNotFound.because("this process asks nobody for an API key, and has none")
	}
	return s.cfg.Keys, nil
}

// listKeys lists all keys, the oldest first, without their secrets, which the store does not have.
func (s *Server) listKeys(c *call) error {
	keys, err := s.storedKeys()
	if err != nil {
		return err
	}
	return answerList(c, "keys", keys.List, func(apikey.Listed) bool { return true }, viewOfKey)
}

func (s *Server) describeKey(c *call) error {
	keys, err := s.storedKeys()
	if err != nil {
		return err
	}
	ctx, cancel := c.withTimeout()
	defer cancel()
	key, err := keys.Find(ctx, c.r.PathValue("key"))
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, viewOfKey(key))
}

// createKey makes a key. Its secret is in the answer, and nowhere else.
func (s *Server) createKey(c *call) error {
	keys, err := s.storedKeys()
	if err != nil {
		return err
	}
	body, err := s.jsonBody(c)
	if err != nil {
		return err
	}
	spec, err := parseKey(body)
	if err != nil {
		return err
	}
	ctx, cancel := c.withTimeout()
	defer cancel()
	key, secret, err := keys.Create(ctx, spec)
	return c.answerNewKey(key, secret, err)
}

// rotateKey makes a key with the rights of another one, which stays valid.
func (s *Server) rotateKey(c *call) error {
	keys, err := s.storedKeys()
	if err != nil {
		return err
	}
	if err := s.noBody(c); err != nil {
		return err
	}
	ctx, cancel := c.withTimeout()
	defer cancel()
	key, secret, err := keys.Rotate(ctx, c.r.PathValue("key"))
	return c.answerNewKey(key, secret, err)
}

func (c *call) answerNewKey(key apikey.Key, secret string, err error) error {
	if uncertain(err) {
		return kindUnknown.because("the key was sent to the store, but no answer came. " +
			"If GET /v1/keys lists a new one, revoke it, because nobody has its secret, and try again")
	}
	if err != nil {
		return err
	}
	v := viewOfKey(apikey.Listed{Key: key})
	if key.From.After(key.Created) {
		v = viewOfKey(apikey.Listed{Key: key, Err: apikey.ErrNotYet})
	}
	v.Secret, c.changed = secret, key.ID
	c.Header().Set("Location", "/v1/keys/"+url.PathEscape(key.ID))
	return c.json(http.StatusCreated, v)
}

// revokeKey ends a key. It is listed for at least another month.
func (s *Server) revokeKey(c *call) error {
	keys, err := s.storedKeys()
	if err != nil {
		return err
	}
	ctx, cancel := c.withTimeout()
	defer cancel()
	if _, err := keys.Revoke(ctx, c.r.PathValue("key")); err != nil {
		return sentAgain(err)
	}
	c.WriteHeader(http.StatusNoContent)
	return nil
}

// sentAgain is for the error of a change that does no harm if it is made twice. If the outcome is
// unknown, sentAgain returns a problem that says to send the request again. Other errors it returns
// as they are.
func sentAgain(err error) error {
	if uncertain(err) {
		return kindUnknown.because("the change was sent to the store, but no answer came. %s", safeAgain)
	}
	return err
}

const safeAgain = "Send the request again: this is safe"

func parseKey(body []byte) (spec apikey.Spec, err error) {
	err = readJSON(body, 0, func(r *jsonReader) error {
		return r.object(func(member string) (err error) {
			switch member {
			case "name":
				spec.Name, err = r.string()
			case "access":
				err = r.strings(accessesMax, func(text string) { spec.Access = append(spec.Access, apikey.Access(text)) })
			case "topics":
				err = r.strings(apikey.PrefixesMax, func(text string) { spec.Topics = append(spec.Topics, text) })
			case "topic_names":
				err = r.strings(apikey.PrefixesMax, func(text string) { spec.TopicNames = append(spec.TopicNames, text) })
			case "all_topics":
				spec.AllTopics, err = r.boolean()
			case "groups":
				err = r.strings(apikey.PrefixesMax, func(text string) { spec.Groups = append(spec.Groups, text) })
			case "group_names":
				err = r.strings(apikey.PrefixesMax, func(text string) { spec.GroupNames = append(spec.GroupNames, text) })
			case "all_groups":
				spec.AllGroups, err = r.boolean()
			case "queues":
				err = r.strings(apikey.PrefixesMax, func(text string) { spec.Queues = append(spec.Queues, text) })
			case "queue_names":
				err = r.strings(apikey.PrefixesMax, func(text string) { spec.QueueNames = append(spec.QueueNames, text) })
			case "all_queues":
				spec.AllQueues, err = r.boolean()
			case "from":
				spec.From, err = r.timestamp()
			case "expires":
				spec.Expires, err = r.timestamp()
			default:
				err = r.unknown(member, keyMembers...)
			}
			return err
		})
	})
	return spec, err
}

var keyMembers = strings.Fields("name access topics topic_names all_topics groups group_names all_groups queues queue_names all_queues from expires")

// accessesMax bounds the list of a key's accesses. There are four; a list may name one twice.
const accessesMax = 8

// strings reads an array of strings; most bounds their number.
func (r *jsonReader) strings(most int, add func(string)) error {
	return r.array(func(i int) error {
		if i >= most {
			return r.fail("there are more than %d elements, the limit", most)
		}
		text, err := r.string()
		add(text)
		return err
	})
}

// timestamp reads a point in time, in milliseconds since 1970.
func (r *jsonReader) timestamp() (time.Time, error) {
	ms, err := r.integer(0, timestampMax)
	return time.UnixMilli(ms).UTC(), err
}
