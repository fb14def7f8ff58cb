package weir

import (
	"reflect"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/projection"
	"github.com/weir-log/weir/use/queue"
	"github.com/weir-log/weir/use/stream"
)

// Types of this package that are copied from those below field by field lose none: each exported
// field of the one is filled, and so must be each of the other.
func TestTheLibrarysTypesHaveAllThatIsBelow(t *testing.T) {
	for _, c := range []struct{ below, here any }{
		{&queue.Condition{}, func(c queue.Condition) any { return conditionOf(c) }},
		{&queue.DeadLetter{}, func(d queue.DeadLetter) any { return deadOf(d) }},
		{&queue.Info{}, func(i queue.Info) any { return infoOf(i) }},
		{&queue.Schedule{}, func(s queue.Schedule) any { return scheduleOf(s) }},
		{&stream.Event{}, func(e stream.Event) any { return streamEventOf(&e) }},
		{&stream.State{}, func(s stream.State) any { return stateOf(s) }},
		{&projection.Run{}, func(r projection.Run) any { return ProjectionRun(r) }},
		{&NewMessage{}, func(m NewMessage) any { return m.below() }},
		{&CategorySpec{}, func(s CategorySpec) any { return s.below() }},
		{&StreamEvent{}, func(e StreamEvent) any { return e.below() }},
		{&NewStreamEvent{}, func(e NewStreamEvent) any { return newEvents([]NewStreamEvent{e})[0] }},
		{&StreamPart{}, func(p StreamPart) any { p.Category = &Category{&stream.Category{}}; return partsOf([]StreamPart{p})[0] }},
	} {
		from := reflect.ValueOf(c.below).Elem()
		fill(from)
		to := reflect.ValueOf(reflect.ValueOf(c.here).Call([]reflect.Value{from})[0].Interface())
		for i := range from.NumField() {
			field := from.Type().Field(i)
			if !field.IsExported() {
				continue
			}
			if got := to.FieldByName(field.Name); !got.IsValid() || got.IsZero() {
				t.Errorf("%s becomes %s: the field %s is lost", from.Type(), to.Type(), field.Name)
			}
		}
	}
}

// fill gives each exported field a value that is not zero.
func fill(v reflect.Value) {
	for i := range v.NumField() {
		if f := v.Field(i); f.CanSet() {
			fillOne(f)
		}
	}
}

func fillOne(f reflect.Value) {
	switch f.Interface().(type) {
	case time.Time:
		f.Set(reflect.ValueOf(time.UnixMilli(1)))
		return
	case error:
		f.Set(reflect.ValueOf(ErrClosed))
		return
	case []batch.RecordHeader:
		f.Set(reflect.ValueOf([]batch.RecordHeader{{Key: "k"}}))
		return
	}
	switch f.Kind() {
	case reflect.String:
		f.SetString("x")
	case reflect.Bool:
		f.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		f.SetInt(1)
	case reflect.Float64:
		f.SetFloat(1)
	case reflect.Slice:
		f.Set(reflect.MakeSlice(f.Type(), 1, 1))
	case reflect.Map:
		f.Set(reflect.MakeMap(f.Type()))
		f.SetMapIndex(reflect.ValueOf("k"), reflect.Zero(f.Type().Elem()))
	case reflect.Pointer:
		f.Set(reflect.New(f.Type().Elem()))
	case reflect.Struct:
		fill(f)
	case reflect.Interface:
		f.Set(reflect.ValueOf(ErrClosed))
	}
}
