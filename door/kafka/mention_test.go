package kafka

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Mentions say what a request is filled with: names of topics, groups and brokers, and what else
// costs much.
type Mentions struct {
	Name   string // of all that has a name
	Names  int    // above 0: element n has Name and n%Names for its name
	ID     [16]byte
	Topics func(name string) [16]byte // where there are Names: their ids

	Partitions int // above 0: element n mentions partition n%Partitions; else all mention partition 0

	Changes bool   // what is asked for happens, and is not only checked
	Alone   bool   // no member of the group asks
	Text    string // metadata, reasons, values of settings; "": Name
	Bytes   []byte // of members and assignments
	Records []byte // a record batch
}

// Fill fills a request. The lists at the given depth have so many elements, all others one. It
// tells whether there are lists so deep.
func (m Mentions) Fill(req kmsg.Request, depth, times int) bool {
	return m.fill(reflect.ValueOf(req).Elem(), 0, depth, times)
}

func (m Mentions) fill(v reflect.Value, element, depth, times int) (deep bool) {
	name, id := m.Name, m.ID
	if m.Names > 0 {
		name = fmt.Sprint(m.Name, element%m.Names)
		if m.Topics != nil {
			id = m.Topics(name)
		}
	}
	switch v.Kind() {
	case reflect.Struct:
		setDefaults(v)
		for i := range v.NumField() {
			f := v.Field(i)
			switch field := v.Type().Field(i).Name; {
			case field == "Version" || field == "UnknownTags" || field == "TransactionID":
			case field == "ResourceType":
				f.SetInt(int64(kmsg.ConfigResourceTypeTopic))
			case field == "TopicID":
				f.Set(reflect.ValueOf(id))
			case m.Alone && field == "MemberID":
			case m.Alone && field == "Generation":
				f.SetInt(-1)
			case field == "Acks":
				f.SetInt(-1)
			case field == "Records":
				f.SetBytes(m.Records)
			case strings.HasPrefix(field, "Include"):
				f.SetBool(true)
			case field == "ValidateOnly":
				f.SetBool(!m.Changes)
			case m.Changes && field == "AllowAutoTopicCreation":
				f.SetBool(true)
			case m.Changes && (field == "ReplicaAssignment" || field == "Assignment"): // the broker assigns them
			case m.Changes && (field == "NumPartitions" || field == "ReplicationFactor"):
				f.SetInt(1)
			case m.Changes && field == "Count":
				f.SetInt(3)
			case m.Changes && field == "Configs":
				deep = m.fill(f, element, depth, times) || deep
				value := "60000"
				for n := range f.Len() {
					f.Index(n).FieldByName("Name").SetString("retention.ms")
					f.Index(n).FieldByName("Value").Set(reflect.ValueOf(&value))
				}
			case field == "Partition" && f.Kind() == reflect.Int32:
				f.SetInt(m.partition(element))
			case m.Text != "" && (field == "Metadata" || field == "Reason" || field == "Value") && f.Kind() == reflect.Pointer:
				f.Set(reflect.ValueOf(&m.Text))
			default:
				deep = m.fill(f, element, depth, times) || deep
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes(m.Bytes)
			return false
		}
		n := 1
		if depth == 0 {
			n, deep = times, true
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			at := element
			if depth == 0 {
				at = i
			}
			if v.Type().Elem().Kind() == reflect.Int32 {
				v.Index(i).SetInt(m.partition(at))
				continue
			}
			deep = m.fill(v.Index(i), at, depth-1, times) || deep
		}
	case reflect.Pointer:
		if v.Type().Elem().Kind() == reflect.String {
			v.Set(reflect.New(v.Type().Elem()))
			v.Elem().SetString(name)
		}
	case reflect.String:
		v.SetString(name)
	case reflect.Int64:
		v.SetInt(1)
	}
	return deep
}

func (m Mentions) partition(element int) int64 {
	if m.Partitions == 0 {
		return 0
	}
	return int64(element % m.Partitions)
}

const mentionDepth = 3 // of lists within lists, in all requests
