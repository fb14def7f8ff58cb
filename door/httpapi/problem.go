package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/apikey"
	"github.com/weir-log/weir/use/group"
	"github.com/weir-log/weir/use/publish"
	"github.com/weir-log/weir/use/queue"
	"github.com/weir-log/weir/use/quota"
	"github.com/weir-log/weir/use/stream"
	"github.com/weir-log/weir/use/user"
)

// problem is an error in an answer (RFC 9457). It says what was wrong and, if that is not obvious,
// what to do.
type problem struct {
	Type   string `json:"type"` // problemPrefix and the kind's name
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`

	Pointer string `json:"pointer,omitempty"` // into the JSON that was sent (RFC 6901)
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"` // in bytes, from 1

	Limit       int64            `json:"limit,omitempty"`
	Done        bool             `json:"done,omitempty"` // of a stale receipt: the message is done
	FirstOffset *eventlog.Offset `json:"first_offset,omitempty"`
	EndOffset   *eventlog.Offset `json:"end_offset,omitempty"`
	Category    string           `json:"category,omitempty"`
	Stream      string           `json:"stream,omitempty"`
	Version     *int64           `json:"version,omitempty"` // of the stream
	Exists      *bool            `json:"exists,omitempty"`

	RequestID string `json:"request_id,omitempty"`

	cause error // for our own log
}

const problemPrefix = "urn:weir:problem:"

// kind is a problem's type, by which clients distinguish problems.
type kind struct {
	name   string
	status int
	title  string
}

var (
	kindSpansShards     = kind{"spans_shards", http.StatusConflict, "The change would be on several shards of the store"}
	kindInvalidRequest  = kind{"invalid_request", http.StatusBadRequest, "The request is not valid for this path"}
	kindInvalidJSON     = kind{"invalid_json", http.StatusBadRequest, "The JSON is not valid for this path"}
	kindForeignOrigin   = kind{"foreign_origin", http.StatusForbidden, "A web page of another site sent the request"}
	kindNotFound        = kind{"not_found", http.StatusNotFound, "This path does not exist"}
	kindUnknownTopic    = kind{"unknown_topic", http.StatusNotFound, "The topic does not exist"}
	kindNoPartition     = kind{"unknown_partition", http.StatusNotFound, "The topic has no such partition"}
	kindUnknownGroup    = kind{"unknown_group", http.StatusNotFound, "The group does not exist"}
	kindUnknownQueue    = kind{"unknown_queue", http.StatusNotFound, "The queue does not exist"}
	kindUnknownSchedule = kind{"unknown_schedule", http.StatusNotFound, "The schedule does not exist"}
	kindUnknownMessage  = kind{"unknown_message", http.StatusNotFound, "The queue has no such message"}
	kindUnknownCategory = kind{"unknown_category", http.StatusNotFound, "The category of streams does not exist"}
	kindUnknownStream   = kind{"unknown_stream", http.StatusNotFound, "The category has no such stream"}
	kindNoProjection    = kind{"unknown_projection", http.StatusNotFound, "There is no such projection"}
	kindUnknownKey      = kind{"unknown_key", http.StatusNotFound, "There is no such API key"}
	kindUnknownUser     = kind{"unknown_user", http.StatusNotFound, "There is no such user"}
	kindUnknownQuota    = kind{"unknown_quota", http.StatusNotFound, "There is no such quota"}
	kindUnknownSnapshot = kind{"unknown_snapshot", http.StatusNotFound, "The stream has no such snapshot"}
	kindCategoryExists  = kind{"category_exists", http.StatusConflict, "A category or a topic of this name already exists"}
	kindArchived        = kind{"stream_archived", http.StatusConflict, "The stream is archived"}
	kindChanged         = kind{"stream_changed", http.StatusConflict, "Events of the stream were deleted while it was read"}
	kindConflict        = kind{"version_conflict", http.StatusPreconditionFailed, "The stream is at another version"}
	kindBoundary        = kind{"boundary_conflict", http.StatusPreconditionFailed, "An event with one of the tags was appended since they were read"}
	kindIDReused        = kind{"event_id_reused", http.StatusUnprocessableEntity, "The ids were already used for other events"}
	kindBadReceipt      = kind{"bad_receipt", http.StatusBadRequest, "The receipt is not one of this queue"}
	kindStaleReceipt    = kind{"stale_receipt", http.StatusConflict, "The claim of this receipt has ended"}
	kindQueueExists     = kind{"queue_exists", http.StatusConflict, "A queue of this name already exists"}
	kindUserExists      = kind{"user_exists", http.StatusConflict, "A user of this name already exists"}
	kindKeyEnded        = kind{"key_ended", http.StatusConflict, "The API key is revoked, or cannot be read"}
	kindOvertaken       = kind{"overtaken", http.StatusConflict, "Another request made a change at the same time"}
	kindQuotaDamaged    = kind{"quota_damaged", http.StatusConflict, "The quota cannot be read"}
	kindTooManyKeys     = kind{"too_many_keys", http.StatusConflict, "The store has as many API keys as it may"}
	kindTooManyUsers    = kind{"too_many_users", http.StatusConflict, "The store has as many users as it may"}
	kindTooManyACLs     = kind{"too_many_acls", http.StatusConflict, "The store has as many ACLs as it may"}
	kindTooManyQuotas   = kind{"too_many_quotas", http.StatusConflict, "The store has as many quotas as it may"}
	kindTooManyClaims   = kind{"too_many_claims", http.StatusTooManyRequests, "The client has too many waiting claims"}
	kindRenamed         = kind{"renamed", http.StatusPermanentRedirect, "This path has another name"}
	kindMethod          = kind{"method_not_allowed", http.StatusMethodNotAllowed, "This path does not support the method"}
	kindUnknownMember   = kind{"unknown_member", http.StatusNotFound, "The group has no such member in this process"}
	kindFenced          = kind{"fenced", http.StatusConflict, "The partition is no longer assigned to the member, or begins again because the store lost the group's position"}
	kindOtherMembers    = kind{"other_members", http.StatusConflict, "The group has members of another protocol"}
	kindSlowBody        = kind{"slow_body", http.StatusRequestTimeout, "The body did not arrive in time"}
	kindTopicExists     = kind{"topic_exists", http.StatusConflict, "A topic of this name already exists"}
	kindNotEmpty        = kind{"group_not_empty", http.StatusConflict, "The group has members"}
	kindTooManyGroups   = kind{"too_many_groups", http.StatusConflict, "The store, or this client, has as many groups as it may"}
	kindInProgress      = kind{"in_progress", http.StatusConflict, "Another request with this Idempotency-Key is in progress"}
	kindRecreated       = kind{"topic_recreated", http.StatusGone, "The position belongs to a deleted topic"}
	kindTooLarge        = kind{"too_large", http.StatusRequestEntityTooLarge, "Something is larger than a limit allows"}
	kindMediaType       = kind{"unsupported_media_type", http.StatusUnsupportedMediaType, "This path does not support the format of the body"}
	kindOutOfRange      = kind{"offset_out_of_range", http.StatusRequestedRangeNotSatisfiable, "The offset is out of range"}
	kindMisdirected     = kind{"misdirected", http.StatusMisdirectedRequest, "This server does not answer for that host"}
	kindKeyReused       = kind{"key_reused", http.StatusUnprocessableEntity, "The Idempotency-Key was already used for other events"}
	kindTooManyMembers  = kind{"too_many_members", http.StatusTooManyRequests, "The client has too many members of groups"}
	kindTooManyPolls    = kind{"too_many_polls", http.StatusTooManyRequests, "The client has too many requests that wait for events"}
	kindTooManyCalls    = kind{"too_many_requests", http.StatusTooManyRequests, "The client has too many requests in progress"}
	kindTooManyStreams  = kind{"too_many_streams", http.StatusTooManyRequests, "The client has too many open streams"}
	kindTooManyLogins   = kind{"too_many_logins", http.StatusTooManyRequests, "Too many passwords from this network wait to be checked"}
	kindReadOnly        = kind{"read_only", http.StatusForbidden, "This process only reads the store"}
	kindUnknown         = kind{"outcome_unknown", http.StatusInternalServerError, "The outcome is unknown"}
	kindInternal        = kind{"internal", http.StatusInternalServerError, "Internal error"}
	kindUnavailable     = kind{"unavailable", http.StatusServiceUnavailable, "The store is not available"}
	kindUpgraded        = kind{"store_upgraded", http.StatusServiceUnavailable, "A newer weir has upgraded the store"}
	kindOverloaded      = kind{"overloaded", http.StatusServiceUnavailable, "The server is overloaded"}
)

// because returns a problem of this kind.
func (k kind) because(format string, args ...any) *problem {
	return &problem{Type: problemPrefix + k.name, Title: k.title, Status: k.status, Detail: fmt.Sprintf(format, args...)}
}

// causedBy returns the problem, and has the error that caused it in weir's log.
func (p *problem) causedBy(err error) *problem {
	p.cause = err
	return p
}

// past returns a problem of this kind with the limit that was exceeded.
func (k kind) past(limit int64, format string, args ...any) *problem {
	p := k.because(format, args...)
	p.Limit = limit
	return p
}

func (p *problem) Error() string { return p.Title + ": " + p.Detail }
func (p *problem) Unwrap() error { return p.cause }

// HTTP returns what an answer would say, for the console.
func (p *problem) HTTP() (status int, title, detail string) { return p.Status, p.Title, p.Detail }

// problemOf maps our errors to problems. A handler that knows more about an outcome returns a
// problem itself, which problemOf leaves as it is. The store's errors are not shown to clients;
// only errors about the client's own input are quoted.
//
// The status tells a client what it may assume: after 4xx, and after 503 with Weir-Applied: no,
// certainly nothing happened. After any other 5xx something may have happened.
func problemOf(err error) *problem {
	var (
		p        *problem
		invalid  *eventlog.InvalidError
		outside  *eventlog.RangeError
		stale    *queue.StaleReceiptError
		damaged  *eventlog.DamagedError
		conflict *stream.ConflictError
	)
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, eventlog.ErrUnsure): // whatever else it is
	case errors.As(err, &stale):
		p := kindStaleReceipt.because("%s. Nothing changed", stale.Why)
		p.Done = stale.Done
		return p
	case errors.As(err, &conflict):
		return conflictProblem(conflict)
	case errors.As(err, &invalid) && invalid.What == "partition":
		return kindNoPartition.because("%v", invalid)
	case errors.As(err, &invalid):
		return kindInvalidRequest.because("%v", invalid)
	case errors.As(err, &damaged): // the next batch is unknown; otherwise this would be a gap
		p := kindInternal.because("offset %d cannot be read: its batch is damaged in the store. Read from a higher offset, or restore a backup; weir's log has more about this request_id", damaged.From)
		p.cause = err
		return p
	case errors.As(err, &outside):
		holds := "no events"
		if outside.First < outside.Next {
			holds = fmt.Sprintf("offsets %d to %d", outside.First, outside.Next-1)
		}
		p := kindOutOfRange.because("the request asks for offset %d; the partition holds %s, and the next event gets offset %d", outside.Asked, holds, outside.Next)
		p.FirstOffset, p.EndOffset = &outside.First, &outside.Next
		return p
	}
	for _, known := range knownErrors {
		if errors.Is(err, known.err) {
			p := known.kind.because("%s", known.detail)
			p.cause = err
			return p
		}
	}
	p = kindInternal.because("an unexpected error occurred, and the request may have been carried out or not; weir's log has more about this request_id")
	p.cause = err
	return p
}

const sendAgain = "Check whether it happened, or send the request again: this is safe for events of a topic with an Idempotency-Key, and for events of a stream with the same ids and the same expected version"

const sendElsewhere = "it follows what other processes write (weir serve --read-only). Nothing happened; send changes to a process that runs without --read-only"

// knownErrors is searched from top to bottom: an error may match several. ErrUnsure takes
// precedence over all, and every other error over the end of a context.
var knownErrors = []struct {
	err    error
	kind   kind
	detail string
}{
	{eventlog.ErrUnsure, kindUnknown, "the change was sent to the store, but no answer came. " + sendAgain},
	{eventlog.ErrReadOnly, kindReadOnly, "the request needs a change. Nothing happened"},
	{eventlog.ErrCrowded, kindOverloaded, "there is no memory for the answer, because clients read their answers too slowly; try again"},
	{publish.ErrKeyReused, kindKeyReused, "use a new Idempotency-Key for other events"},
	{publish.ErrInProgress, kindInProgress, "Nothing was published; try again in a moment"},
	{eventlog.ErrUpgraded, kindUpgraded, "this process reads and writes nothing more, and must be restarted with the new version. Nothing happened; send the request to a process of that version"},
	{eventlog.ErrNoSpace, kindUnavailable, "the disk of the store is full. Nothing happened. Publishing works again as soon as there is space: free some, delete topics, or shorten their retention"},
	{eventlog.ErrNotWritable, kindUnavailable, "the store's database server is read-only (read_only = ON). Nothing happened. Changes work again when it is set to OFF, or the primary is in its place"},
	{eventlog.ErrHeld, kindUnavailable, "a transaction that appends with SQL holds the stream. Nothing happened; try again"},
	{eventlog.ErrBusy, kindOverloaded, "topics are changed faster than that is possible. Nothing happened; try again"},
	{eventlog.ErrOverloaded, kindOverloaded, "the time for the request was over before weir could carry it out, while the store answered other requests. Nothing happened; try again later, or ask for less in one request"},
	{queue.ErrLeaseEnded, kindUnavailable, "the store took longer than the lease, which has ended again. Extend it again: that works unless another worker got the message"},
	{eventlog.ErrUnavailable, kindUnavailable, "the store cannot be reached. Nothing happened; try again"},
	{eventlog.ErrSpansShards, kindSpansShards, "nothing happened; docs/shards.md says what is possible: for example, send the events of each partition by themselves"},
	{eventlog.ErrClosed, kindUnavailable, "this process is stopping. Nothing happened; try again at another process, or here in a moment"},
	{queue.ErrUnknownQueue, kindUnknownQueue, "create it first: POST /v1/queues with Content-Type: application/json and {\"name\": …}"},
	{queue.ErrQueueExists, kindQueueExists, "choose another name, or alter the queue: PATCH /v1/queues/{queue}"},
	{queue.ErrUnknownSchedule, kindUnknownSchedule, "GET /v1/queues/{queue}/schedules lists the schedules"},
	{queue.ErrBadReceipt, kindBadReceipt, "nothing changed"},
	{stream.ErrUnknownCategory, kindUnknownCategory, "create it first: POST /v1/categories with Content-Type: application/json and {\"name\": …}"},
	{stream.ErrUnknownProjection, kindNoProjection, "GET /v1/projections lists the projections; a program that calls Project creates one"},
	{stream.ErrCategoryExists, kindCategoryExists, "choose another name"},
	{stream.ErrArchived, kindArchived, "nothing was appended; POST …/unarchive opens the stream again"},
	{stream.ErrBoundary, kindBoundary, "Nothing was appended; read the tags again, and decide again what to do"},
	{stream.ErrChanged, kindChanged, "read the stream again"},
	{stream.ErrIDReused, kindIDReused, "nothing was appended; the stream has events with the same ids but other content: give other events other ids"},
	{eventlog.ErrUnknownTopic, kindUnknownTopic, "create it first: POST /v1/topics with Content-Type: application/json and {\"name\": …}"},
	{eventlog.ErrNoPartition, kindUnknownTopic, "the topic was deleted a moment ago"},
	{eventlog.ErrTopicExists, kindTopicExists, "choose another name, or alter the topic: PATCH /v1/topics/{topic}"},
	{eventlog.ErrTooLarge, kindTooLarge, "the events do not fit into one batch; max.message.bytes of the topic is the limit of a batch"},
	{batch.ErrTooLarge, kindTooLarge, "a batch decompresses to more bytes than weir allows"},
	{group.ErrNotFound, kindUnknownGroup, "GET /v1/groups lists the groups"},
	{group.ErrNotEmpty, kindNotEmpty, "stop the members of the group first"},
	{group.ErrUnknownMember, kindNotEmpty, "while a group has members, only they may commit; stop them first"},
	{group.ErrFenced, kindFenced, "nothing was committed; discard the events that you have, and ask for events; if the member is gone, join again"},
	{group.ErrInconsistentProtocol, kindOtherMembers, "choose another group, or stop the members of this one first"},
	{group.ErrFull, kindOverloaded, "the group has the largest allowed number of members"},
	{group.ErrTooLarge, kindTooLarge, "the group's data in the store would be larger than its limit"},
	{group.ErrInvalidGroup, kindInvalidRequest, "the name of a group must have 1 to 512 bytes"},
	{group.ErrLoading, kindUnavailable, "the group could not be read from the store. Nothing happened; try again"},
	{group.ErrUnavailable, kindUnavailable, "the store did not take the change. Nothing happened; try again"},
	{group.ErrMoved, kindUnavailable, "other requests changed the group at the same time, or this process is stopping. Nothing happened; try again"},
	{group.ErrTooMany, kindTooManyGroups, "nothing was changed; delete groups that nobody needs (DELETE /v1/groups/{group}), or use one of those that exist. A group without members whose offsets nobody committed for 7 days is deleted by itself"},

	{apikey.ErrUnknown, kindUnknownKey, "GET /v1/keys lists the keys"},
	{apikey.ErrRevoked, kindKeyEnded, "nothing was created; POST /v1/keys makes another key"},
	{apikey.ErrDamaged, kindKeyEnded, "nothing was created; POST /v1/keys makes another key"},
	{apikey.ErrTooMany, kindTooManyKeys, "nothing was created; revoke keys that nobody needs (DELETE /v1/keys/{key})"},
	{user.ErrUnknown, kindUnknownUser, "GET /v1/users lists the users"},
	{user.ErrExists, kindUserExists, "PUT /v1/users/{user}/password changes a password"},
	{user.ErrTooMany, kindTooManyUsers, "nothing was changed; delete users that nobody needs (DELETE /v1/users/{user})"},
	{acl.ErrTooMany, kindTooManyACLs, "nothing was changed; delete rules that nobody needs (DELETE /v1/acls)"},
	{acl.ErrTooWide, kindInvalidRequest, "nothing was deleted; GET /v1/acls lists the rules"},
	{quota.ErrUnknown, kindUnknownQuota, "GET /v1/quotas lists the quotas"},
	{quota.ErrDamaged, kindQuotaDamaged, "nothing was changed; DELETE /v1/quotas?damaged=true removes it"},
	{quota.ErrTooMany, kindTooManyQuotas, "nothing was changed; remove quotas that nobody needs (DELETE /v1/quotas), or use defaults"},
	{eventlog.ErrStale, kindOvertaken, "nothing was changed; look at what there is now, and try again"},

	// An error that says what happened comes first: it may have a context's error as its cause.
	{context.DeadlineExceeded, kindUnknown, "the store did not answer in time. " + sendAgain},
	{context.Canceled, kindUnknown, "the request ended before its answer came. Check whether it happened"},
}

// toldUnknown reports whether the answer to an error says that something may have happened.
func toldUnknown(err error) bool {
	return err != nil && problemOf(err).Type == problemPrefix+kindUnknown.name
}

// in adds the partition to an error.
func in(topic string, partition int32, err error) error {
	p := *problemOf(err)
	p.Detail = fmt.Sprintf("topic %s, partition %d: %s", shorten(topic), partition, p.Detail)
	return &p
}

// withCause adds the text of the problem's cause to it, if the status says that the client's input
// is wrong. What is wrong with its credentials a client is not told.
func (p *problem) withCause() *problem {
	if p.cause != nil && p.Status < http.StatusInternalServerError && p.Status != http.StatusUnauthorized {
		p.Detail = p.cause.Error() + ": " + p.Detail
	}
	return p
}

// problem encodes an error that is a part of an answer.
func (c *call) problem(err error) []byte {
	p := *problemOf(err).withCause()
	p.RequestID = c.id
	return p.encoded()
}

func (p *problem) encoded() []byte {
	body, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("problem %+v: %v", p, err)) // its fields always encode
	}
	return body
}

// refuse answers with an error.
func (s *Server) refuse(c *call, err error) {
	p := *problemOf(err).withCause()
	if p.Type == problemPrefix+kindUnknown.name && (c.r.Method == http.MethodGet || c.r.Method == http.MethodHead) {
		p = *kindUnavailable.because("the store did not answer in time; try again") // a read has no unknown outcome
	}
	if p.Status == http.StatusUnauthorized { // they were valid when the request began
		s.tellRefused(c, &p)
	}
	if p.Type == problemPrefix+kindInternal.name {
		s.cfg.Logger.Error("http: request failed", "request", c.id, "route", c.route, "err", err)
	}
	s.answerProblem(c, &p)
}

// answerProblem answers with a problem. If an answer was already started, it closes the connection,
// so that the client does not mistake the part that was sent for the whole answer.
func (s *Server) answerProblem(c *call, p *problem) {
	if c.status != 0 {
		panic(http.ErrAbortHandler)
	}
	p.RequestID = c.id
	body := p.encoded()
	h := c.Header()
	h["Content-Type"] = problemType
	switch p.Status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="weir"`)
	case http.StatusPreconditionFailed:
		if p.Version != nil {
			h.Set("Etag", etag(*p.Version))
		}
	case http.StatusTooManyRequests: // something that the client has must end first, nobody knows when
		h.Set("Retry-After", "1")
	case http.StatusServiceUnavailable:
		h.Set("Weir-Applied", "no")
		h.Set("Retry-After", "1")
	case http.StatusConflict:
		if p.Type == problemPrefix+kindInProgress.name {
			h.Set("Retry-After", "1")
		}
	case http.StatusRequestTimeout, http.StatusRequestEntityTooLarge:
		h.Set("Connection", "close") // the rest of the body is not read
	}
	c.send(p.Status, append(body, '\n'))
}
