package kafka

import (
	"reflect"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Mention fills a request so that it mentions one thing again and again: the topic, group or broker of that name, and partition 0. The lists at
// the given depth have so many elements, all others one. It tells whether there are lists so deep.
func Mention(req kmsg.Request, name string, id [16]byte, depth, times int) bool {
	return mention(reflect.ValueOf(req).Elem(), name, id, depth, times)
}

func mention(v reflect.Value, name string, id [16]byte, depth, times int) (deep bool) {
	switch v.Kind() {
	case reflect.Struct:
		setDefaults(v)
		for i := range v.NumField() {
			f := v.Field(i)
			switch field := v.Type().Field(i).Name; {
			case field == "Version" || field == "UnknownTags":
			case field == "ResourceType":
				f.SetInt(int64(kmsg.ConfigResourceTypeTopic))
			case field == "TopicID":
				f.Set(reflect.ValueOf(id))
			case strings.HasPrefix(field, "Include"):
				f.SetBool(true)
			default:
				deep = mention(f, name, id, depth, times) || deep
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return false
		}
		n := 1
		if depth == 0 {
			n, deep = times, true
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			deep = mention(v.Index(i), name, id, depth-1, times) || deep
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

const mentionDepth = 3 // of lists within lists, in all requests
