package snippets

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"time"
)

// Schema is a schema, or a part of a schema. Check uses Format only for date-time, and ignores Schema,
// ID, Defs, Title, Description and Default. ReadSchema returns an error for an unknown keyword.
type Schema struct {
	Schema               string             `json:"$schema"`
	ID                   string             `json:"$id"`
	Ref                  string             `json:"$ref"`
	Defs                 map[string]*Schema `json:"$defs"`
	Title                string             `json:"title"`
	Description          string             `json:"description"`
	Type                 string             `json:"type"`
	Format               string             `json:"format"`
	Default              any                `json:"default"`
	Const                *string            `json:"const"`
	Enum                 []string           `json:"enum"`
	Properties           map[string]*Schema `json:"properties"`
	AdditionalProperties json.RawMessage    `json:"additionalProperties"`
	PropertyNames        *Schema            `json:"propertyNames"`
	MaxProperties        int                `json:"maxProperties"`
	Required             []string           `json:"required"`
	Items                *Schema            `json:"items"`
	MinItems             int                `json:"minItems"`
	MaxItems             int                `json:"maxItems"`
	UniqueItems          bool               `json:"uniqueItems"`
	OneOf                []*Schema          `json:"oneOf"`
	AnyOf                []*Schema          `json:"anyOf"`
	Minimum              *float64           `json:"minimum"`
	Maximum              *float64           `json:"maximum"`
	MinLength            int                `json:"minLength"`
	MaxLength            int                `json:"maxLength"`
	Pattern              string             `json:"pattern"`
}

// ReadSchema decodes a schema, or a document that has schemas, into a value. An unknown field is an
// error.
func ReadSchema(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// Check returns an error with the first place where v, a document that json.Unmarshal decoded into
// an any, does not conform to s. defs has the schemas that a $ref names, by the end of its path.
func (s *Schema) Check(v any, defs map[string]*Schema) error { return s.check(v, defs, "$") }

func (s *Schema) check(v any, defs map[string]*Schema, at string) error {
	if s.Ref != "" {
		named, ok := defs[path.Base(s.Ref)]
		if !ok {
			return fmt.Errorf("%s: no schema %s", at, s.Ref)
		}
		if err := named.check(v, defs, at); err != nil {
			return err
		}
	}
	conforming := func(of []*Schema) (n int) {
		for _, one := range of {
			if one.check(v, defs, at) == nil {
				n++
			}
		}
		return n
	}
	good := (s.AnyOf == nil || conforming(s.AnyOf) > 0) && (s.OneOf == nil || conforming(s.OneOf) == 1)
	text, isText := v.(string)
	good = good && (s.Const == nil || v == *s.Const) && (s.Enum == nil || isText && slices.Contains(s.Enum, text))
	switch v := v.(type) {
	case map[string]any:
		if good = good && s.hasType("object"); good {
			return s.checkObject(v, defs, at)
		}
	case []any:
		if good = good && s.hasType("array"); good {
			return s.checkList(v, defs, at)
		}
	case string:
		good = good && s.hasType("string") && s.hasText(v)
	case float64:
		good = good && (s.hasType("number") || s.Type == "integer" && v == float64(int64(v))) &&
			(s.Minimum == nil || v >= *s.Minimum) && (s.Maximum == nil || v <= *s.Maximum)
	case bool:
		good = good && s.hasType("boolean")
	default:
		good = false
	}
	if !good {
		return fmt.Errorf("%s: the schema does not allow %v", at, v)
	}
	return nil
}

func (s *Schema) hasType(name string) bool { return s.Type == "" || s.Type == name }

func (s *Schema) hasText(v string) bool {
	if s.Format == "date-time" {
		if _, err := time.Parse(time.RFC3339, v); err != nil {
			return false
		}
	}
	return len(v) >= s.MinLength && (s.MaxLength == 0 || len(v) <= s.MaxLength) &&
		(s.Pattern == "" || regexp.MustCompile(s.Pattern).MatchString(v))
}

func (s *Schema) checkList(v []any, defs map[string]*Schema, at string) error {
	if len(v) < s.MinItems || s.MaxItems > 0 && len(v) > s.MaxItems {
		return fmt.Errorf("%s has %d items: minItems is %d, and maxItems is %d (0 for no maximum)", at, len(v), s.MinItems, s.MaxItems)
	}
	seen := make(map[string]bool)
	for i, item := range v {
		text := fmt.Sprint(item)
		if s.UniqueItems && seen[text] {
			return fmt.Errorf("%s[%d]: %v is in the list twice", at, i, item)
		}
		seen[text] = true
		if s.Items != nil {
			if err := s.Items.check(item, defs, fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Schema) checkObject(v map[string]any, defs map[string]*Schema, at string) error {
	if s.MaxProperties > 0 && len(v) > s.MaxProperties {
		return fmt.Errorf("%s has %d properties: maxProperties is %d", at, len(v), s.MaxProperties)
	}
	for _, name := range s.Required {
		if _, ok := v[name]; !ok {
			return fmt.Errorf("%s.%s is missing", at, name)
		}
	}
	for name, value := range v {
		p, known := s.Properties[name]
		if s.PropertyNames != nil {
			if err := s.PropertyNames.check(name, defs, at); err != nil {
				return err
			}
		}
		if !known && len(s.AdditionalProperties) > 0 {
			if string(s.AdditionalProperties) == "false" {
				return fmt.Errorf("%s.%s is not in the schema", at, name)
			}
			if err := ReadSchema(s.AdditionalProperties, &p); err != nil {
				return fmt.Errorf("%s: additionalProperties: %w", at, err)
			}
		}
		if p != nil {
			if err := p.check(value, defs, at+"."+name); err != nil {
				return err
			}
		}
	}
	return nil
}
